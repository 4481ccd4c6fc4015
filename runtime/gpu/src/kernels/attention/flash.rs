//! Attention by tensor cores: a warp has 16 queries, and goes over the keys in tiles that its workgroup shares (Dao et al. 2022,
//! "FlashAttention"). Products are of the operands' dtype, sums and the softmax of 32-bit floats.

use super::LOWEST;
use super::call::{Call, Operands, Scoring};
use crate::kernels::tiles::{
    self, Form, Lane, Lefts, Passage, Passing, ROWS, Rows, Source, Tile, WARP, among_row, warps_for,
};
use crate::kernels::{block, launch_blocks};
use crate::language::{Builder, Kernel, Storage, Value, Variable};
use crate::runtime::Runtime;
use crate::tensor::GpuTensor;
use core::f32::consts::LN_2;
use kiln_tensor::{DType, Shape};

/// The longest head.
pub(super) const LONGEST: usize = 256;
/// Registers for sums and for what is read once: what more there is, is read again from tile to tile.
const KEPT: u32 = 192;
/// Attention in tiles.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flash {
    /// Queries, keys and values.
    pub sides: [Form; 3],
    /// Their scores.
    pub scoring: Scoring,
    /// Warps of a workgroup.
    pub warps: u32,
    /// Whether the logarithm of the sum of the exponentials of each query's scores is kept, for the gradient.
    pub log_sum: bool,
}

/// What a lane keeps of one of its two queries.
struct Softmax<'k> {
    /// Whether scores are in units of the logarithm of 2, so that weights are powers of that without more ado.
    is_binary: bool,
    /// The highest score.
    best: Variable<'k>,
    /// The sum of the weights of the keys that the lane sees.
    sum: Variable<'k>,
}

impl<'k> Softmax<'k> {
    /// The weight of a score, by how far it is from the highest.
    fn weight(&self, apart: Value<'k>) -> Value<'k> {
        if self.is_binary { apart.rough_power_of_two() } else { apart.rough_exp() }
    }

    /// The logarithm of a sum of weights, and of the highest score's.
    fn log_sum(&self, total: Value<'k>) -> Value<'k> {
        let best = self.best.get();
        let best = if self.is_binary { best * LN_2 } else { best };
        best + total.log()
    }

    /// Turns the scores of the first or the second query into weights, and brings what was summed so far to their measure.
    fn weigh(&self, n: usize, scores: &mut [[Value<'k>; 4]], sums: &[[Variable<'k>; 4]]) {
        let own = |scores: &[Value<'k>; 4]| [scores[2 * n], scores[2 * n + 1]];
        let highest = scores.iter().flat_map(own).reduce(|a, b| a.max(b));
        let best = self.best.get();
        let highest = highest.map_or(best, |highest| among_row(highest, |a, b| a.max(b)));
        let new_best = best.max(highest);
        let shrinks = self.weight(best - new_best);
        let mut sum = self.sum.get() * shrinks;
        for scores in scores {
            for score in &mut scores[2 * n..2 * n + 2] {
                *score = self.weight(*score - new_best);
                sum = sum + *score;
            }
        }
        self.best.set(new_best);
        self.sum.set(sum);
        for sums in sums {
            for sum in &sums[2 * n..2 * n + 2] {
                sum.set(sum.get() * shrinks);
            }
        }
    }
}

impl Flash {
    /// The kernel. Buffers: queries, keys, values, the mask, the result, the logarithms. Parameters: those of
    /// [`Attention`](super::Attention).
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("flash_attention", [WARP * self.warps, 1], |k| self.write(k))
    }

    fn write<'k>(&self, k: &'k Builder) {
        let threads = WARP * self.warps;
        let [queries, keys, values] = self.sides;
        let queries = Lefts::declare(k, queries);
        let [keys, values] = [keys, values].map(|form| Source::declare(k, form));
        let mask = self.scoring.mask_buffer(k);
        let output = Rows::declare(k, self.sides[2]);
        let log_sums = self.log_sum.then(|| k.output(Storage::F32));
        let [block_query, block_head, _] = block(k);
        let call = Call::declare(k, mask);
        let [q, key, value, out] = &call.places;
        let queries = queries(q.along);

        let lane = Lane::new(k);
        let [batch, head] = [block_head / call.heads, block_head % call.heads];
        let of_keys = [batch, head / call.sharing];
        let first = (block_query * self.warps + lane.warp) * ROWS + lane.row;
        let own = [first, first + 8_u32];
        let numbers = own.map(|own| own.min(call.queries - 1_u32));
        let starts = numbers.map(|number| q.row([batch, head], number));
        let sums = tiles::sums(k, &self.sides[2]);
        let steps = self.sides[0].steps();
        let kept = 4 * (steps + sums.len() as u32) <= KEPT;
        let read: Vec<_> = (0..steps).filter(|_| kept).map(|step| queries.at(&lane, starts, step)).collect();
        let left = |step: u32| match read.get(step as usize) {
            Some(&words) => words,
            None => queries.at(&lane, starts.map(Value::anew), step),
        };

        // Scores are registers, too.
        let most = if sums.len() <= 16 { 64 } else { 32 };
        let is_binary = self.scoring.has_any_unit();
        let softmax = [(); 2].map(|()| Softmax { is_binary, best: k.variable(LOWEST), sum: k.variable(0.0) });
        // The last of the workgroup's queries sees most.
        let last = ((block_query + 1_u32) * (ROWS * self.warps) - 1_u32).min(call.queries - 1_u32);
        let end = self.scoring.end(&call, last);

        let passing = Passing::new(k, [keys, values], most);
        let attend = |tile: Value<'k>, tiles: [Tile<'k>; 2]| {
            let products = tiles[0].scores(&lane, left);
            let score = |x| match is_binary {
                true => self.scoring.binary_score(&call, x),
                false => self.scoring.score(&call, x),
            };
            let mut scores: Vec<_> = products.iter().map(|products| products.map(score)).collect();
            let show = |scores: &mut [[Value<'k>; 4]], tile: Value<'k>| {
                for (n, scores) in scores.iter_mut().enumerate() {
                    for (at, score) in scores.iter_mut().enumerate() {
                        let key = tile + lane.place * 2_u32 + (8 * n + at % 2) as u32;
                        *score = self.scoring.shown(&call, *score, [batch, head, numbers[at / 2], key]);
                    }
                }
            };
            if self.scoring.hides_within() {
                show(&mut scores, tile);
            } else {
                // Only the last tile has keys that are not there.
                let variables: Vec<_> = scores.iter().map(|scores| scores.map(|x| k.variable(x))).collect();
                k.when((call.keys - tile).below(passing.rows), || {
                    // Of a tile that the compiler knows nothing of: it would look at the keys of all tiles, rather than go another way for the last.
                    show(&mut scores, tile.anew());
                    for (variables, scores) in variables.iter().zip(&scores) {
                        variables.iter().zip(scores).for_each(|(variable, &score)| variable.set(score));
                    }
                });
                scores = variables.iter().map(|variables| variables.map(Variable::get)).collect();
            }
            for (n, softmax) in softmax.iter().enumerate() {
                softmax.weigh(n, &mut scores, &sums);
            }
            tiles[1].add_weighted(&lane, &scores, &sums);
        };
        let passage =
            Passage { range: [k.value(0_u32), end], count: call.keys, along: [key.along, value.along] };
        let start = |n: usize, row| [key, value][n].row(of_keys, row);
        passing.each((&lane, threads), &passage, start, attend);

        let zeros = self.scoring.leaves_zeros();
        for (n, softmax) in softmax.iter().enumerate() {
            let total = among_row(softmax.sum.get(), |a, b| a + b);
            let is_empty = total.equals(0.0);
            let is_written = own[n].below(call.queries);
            let start = out.row([batch, head], numbers[n]);
            k.when(is_written, || {
                let share = |sum: Variable<'k>| {
                    let share = sum.get() / total;
                    if zeros { is_empty.select(0.0, share) } else { share }
                };
                let shares: Vec<_> =
                    sums.iter().map(|sums| [sums[2 * n], sums[2 * n + 1]].map(share)).collect();
                output.set(&lane, start, &shares);
                if let Some(log_sums) = log_sums {
                    let log_sum = is_empty.select(f32::INFINITY, softmax.log_sum(total));
                    let row = (batch * call.heads + head) * call.queries + numbers[n];
                    k.when(lane.place.equals(0_u32), || log_sums.set(row, log_sum));
                }
            });
        }
    }
}

/// How tensors of an attention are multiplied: nothing where the device has no tensor cores for them, or their heads are too long.
pub(super) fn forms<R: Runtime, const N: usize>(
    operands: &Operands<'_, R>,
    tensors: [&GpuTensor<R>; N],
) -> Option<[Form; N]> {
    let dtype = operands.q.dtype;
    let factors = R::factors(&operands.q.device, dtype).filter(|_| operands.fit(LONGEST))?;
    Some(tensors.map(|tensor| {
        let size = tensor.dims()[3] as u32;
        Form { dtype, factors, size, in_words: Form::in_words(factors, &tensor.layout) }
    }))
}

/// Attention by tensor cores, with the logarithms of its sums, `[batch, heads, queries, 1]` as 32-bit floats, where these are asked for.
pub(super) fn attention<R: Runtime>(
    operands: &Operands<'_, R>,
    log_sum: bool,
) -> Option<(GpuTensor<R>, Option<GpuTensor<R>>)> {
    let &Operands { q, k, v, mask, .. } = operands;
    let [batch, heads, queries, _] = operands.sizes();
    let sides = forms(operands, [q, k, v])?;
    if operands.is_refused() {
        return None;
    }
    let out = operands.result();
    let words = operands.words(&out);
    let warps = warps_for(queries);
    let template = Flash { sides, scoring: operands.scoring(), warps, log_sum };
    let device = &q.device;
    let log_sums =
        log_sum.then(|| GpuTensor::empty(Shape::from([batch, heads, queries, 1]), DType::F32, device));
    let blocks = [queries.div_ceil((warps * ROWS) as usize), batch * heads, 1];
    let tensors: Vec<_> = [q, k, v].into_iter().chain(mask).chain([&out]).chain(&log_sums).collect();
    launch_blocks::<R>(device, template, &tensors, &words, blocks, false);
    Some((out, log_sums))
}
