//! Gradients of attention by tensor cores: shares are computed again, in tiles, from the logarithms that the way there kept (Dao 2023,
//! "FlashAttention-2"). The warps of a kernel own the rows of what it finds the gradient of, so that none is added to by two: queries have one, keys and values
//! another, or one each where the sums of both find no registers.

use super::call::{Call, Operands, Place, Scoring};
use super::flash;
use crate::kernels::tiles::{
    self, Form, Lane, Lefts, Passage, Passing, ROWS, Rows, Source, Tile, WARP, among_row, warps_for,
};
use crate::kernels::{block, launch_blocks};
use crate::language::{Buffer, Builder, Kernel, Storage, Value, Variable};
use crate::runtime::Runtime;
use crate::tensor::GpuTensor;
use core::f32::consts::LOG2_E;
use kiln_tensor::backend::Primitive;
use kiln_tensor::compose::{AttentionGradients, AttentionTrained};
use kiln_tensor::{AttentionOptions, DType, Shape};

/// Registers for sums and for what is read once, beside two tiles of scores.
const KEPT: u32 = 144;
/// Workgroups of four warps that a multiprocessor runs, by the registers of that: 128 and 168 of each invocation hold so many and all else.
const RESIDENT: [(u32, u32); 2] = [(64, 4), (96, 3)];
/// Elements of a key and a value whose gradients are found together: sums of more do not find registers.
const MOST_TOGETHER: u32 = 256;

/// Of what a kernel finds the gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The queries. It finds the sums of the result by its gradient, too, which the others need.
    Queries,
    /// The keys.
    Keys,
    /// The values.
    Values,
    /// Both of these.
    KeysAndValues,
}

/// Gradients of attention in tiles.
///
/// The rows that a warp owns are queries, or keys; over the others it goes in tiles. `scores = rows · columnsᵀ` of queries and keys yield
/// the shares; with the gradient of the result and the values in their places, the same product is the shares' gradient.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlashGradient {
    /// Of what.
    pub part: Part,
    /// Queries, keys, values, the gradient of the result, and the result.
    pub sides: [Form; 5],
    /// The scores of queries and keys.
    pub scoring: Scoring,
    /// Warps of a workgroup.
    pub warps: u32,
}

/// The places of the operands in [`FlashGradient::sides`].
const QUERIES: usize = 0;
const KEYS: usize = 1;
const VALUES: usize = 2;
const GRADIENT: usize = 3;
const RESULT: usize = 4;

impl Part {
    /// What the rows are of both products, and what goes by in tiles.
    fn sides(self) -> [[usize; 2]; 2] {
        match self {
            Part::Queries => [[QUERIES, GRADIENT], [KEYS, VALUES]],
            Part::Keys | Part::Values | Part::KeysAndValues => [[KEYS, VALUES], [QUERIES, GRADIENT]],
        }
    }

    /// Products that it needs.
    fn products(self) -> usize {
        match self {
            Part::Queries | Part::Keys | Part::KeysAndValues => 2,
            Part::Values => 1,
        }
    }

    /// What the gradients are of.
    fn found(self) -> &'static [usize] {
        match self {
            Part::Queries => &[QUERIES],
            Part::Keys => &[KEYS],
            Part::Values => &[VALUES],
            Part::KeysAndValues => &[KEYS, VALUES],
        }
    }

    /// Those of keys and values, of heads of such sizes: one if both sums find registers.
    fn of_keys_and_values(sizes: [u32; 2]) -> &'static [Part] {
        if sizes.iter().sum::<u32>() <= MOST_TOGETHER {
            &[Part::KeysAndValues]
        } else {
            &[Part::Keys, Part::Values]
        }
    }
}

/// A gradient that a warp adds up.
struct Found<'k> {
    /// What it is of.
    side: usize,
    sums: Vec<[Variable<'k>; 4]>,
    output: Rows<'k>,
}

impl FlashGradient {
    /// The kernel. Buffers: what its rows are of, of queries the result, what goes by, the mask, the logarithms, the sums of the result by its gradient
    /// for each query, the gradients. Parameters: its `block`; those of a `Call`, whose fourth operand is the gradient of the result; of queries,
    /// where the result is.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("flash_attention_gradient", [WARP * self.warps, 1], |k| self.write(k))
    }

    fn write<'k>(&self, k: &'k Builder) {
        let threads = WARP * self.warps;
        let of_queries = self.part == Part::Queries;
        let [rows_of, columns_of] = self.part.sides();
        let rows_of = &rows_of[..self.part.products()];
        let lefts: Vec<_> = rows_of.iter().map(|&side| Lefts::declare(k, self.sides[side])).collect();
        let result = of_queries.then(|| Lefts::declare(k, self.sides[RESULT]));
        let sources = columns_of.map(|side| Source::declare(k, self.sides[side]));
        let mask = self.scoring.mask_buffer(k);
        let log_sums = k.input(Storage::F32);
        let flows = if of_queries { k.output(Storage::F32) } else { k.input(Storage::F32) };
        let found = self.part.found().iter().map(|&side| {
            let form = self.sides[side];
            Found { side, sums: tiles::sums(k, &form), output: Rows::declare(k, form) }
        });
        let found: Vec<Found<'_>> = found.collect();
        let [block_row, block_head, _] = block(k);
        let call = Call::declare(k, mask);
        let lefts: Vec<_> =
            lefts.into_iter().zip(rows_of).map(|(left, &side)| left(call.places[side].along)).collect();
        let result = result.map(|result| {
            let place = Place::declare(k);
            (result(place.along), place)
        });

        // The heads of the rows; each head of keys has some of queries.
        let (heads, count) = match of_queries {
            true => (call.heads, call.queries),
            false => (call.heads / call.sharing, call.keys),
        };
        let [batch, row_head] = [block_head / heads, block_head % heads];
        let lane = Lane::new(k);
        let block_start = block_row * (ROWS * self.warps);
        let first = block_start + lane.warp * ROWS + lane.row;
        let own = [first, first + 8_u32];
        let numbers = own.map(|own| own.min(count - 1_u32));
        let mut registers = 4 * found.iter().map(|found| found.sums.len() as u32).sum::<u32>();
        let starts = |n: usize| numbers.map(|row| call.places[rows_of[n]].row([batch, row_head], row));
        let kept: Vec<Vec<_>> = (0..lefts.len())
            .map(|n| {
                let steps = lefts[n].form().steps();
                let fits = registers + 4 * steps <= KEPT;
                registers += if fits { 4 * steps } else { 0 };
                (0..steps).filter(|_| fits).map(|step| lefts[n].at(&lane, starts(n), step)).collect()
            })
            .collect();
        let left = |n: usize, step: u32| match kept[n].get(step as usize) {
            Some(&words) => words,
            None => lefts[n].at(&lane, starts(n).map(Value::anew), step),
        };
        // A compiler that is free to takes a few registers more, and then a multiprocessor runs a workgroup less.
        if let Some(&(_, workgroups)) = RESIDENT.iter().find(|&&(most, _)| registers <= most) {
            k.resident(workgroups);
        }
        let own_flows = result.map(|(result, place)| {
            let ends = numbers.map(|row| place.row([batch, row_head], row));
            let own_flows = sums_of_products(k, &lane, [(&lefts[1], starts(1)), (&result, ends)]);
            for n in 0..2 {
                let row = (batch * call.heads + row_head) * call.queries + numbers[n];
                let is_written = own[n].below(count) & lane.place.equals(0_u32);
                k.when(is_written, || flows.set(row, own_flows[n]));
            }
            own_flows
        });

        // What the tiles go over: the keys that the last query sees, or the queries from the first that sees a key.
        let [start, end] = match of_queries {
            true => {
                let last = (block_start + (ROWS * self.warps - 1)).min(call.queries - 1_u32);
                [k.value(0_u32), self.scoring.end(&call, last)]
            }
            false if self.scoring.is_causal => {
                let sees = block_start + call.queries;
                let start = sees.above(call.keys).select(sees - call.keys, 0_u32);
                [start, call.queries]
            }
            false => [k.value(0_u32), call.queries],
        };
        let all = if of_queries { call.keys } else { call.queries };
        let is_binary = self.scoring.has_any_unit() && !self.scoring.softcap;
        let in_units = |log_sum: Value<'k>| if is_binary { log_sum * LOG2_E } else { log_sum };
        let own_log_sums = of_queries.then(|| {
            let row = (batch * call.heads + row_head) * call.queries;
            numbers.map(|number| in_units(log_sums.at(row + number)))
        });
        let add = |head: Value<'k>, tile: Value<'k>, tiles: [Tile<'k>; 2]| {
            let query_start = (batch * call.heads + head) * call.queries;
            let mut scores = tiles[0].scores(&lane, |step| left(0, step));
            let mut of_shares = match lefts.len() {
                1 => Vec::new(),
                _ => tiles[1].scores(&lane, |step| left(1, step)),
            };
            for (n, scores) in scores.iter_mut().enumerate() {
                for (at, score) in scores.iter_mut().enumerate() {
                    let column = tile + lane.place * 2_u32 + (8 * n + at % 2) as u32;
                    let row = numbers[at / 2];
                    let [query, key] = if of_queries { [row, column] } else { [column, row] };
                    let of_query = |of: Buffer<'k>| of.at(query_start + query);
                    let log_sum = own_log_sums
                        .map_or_else(|| in_units(of_query(log_sums)), |own_log_sums| own_log_sums[at / 2]);
                    // Queries that are not there have no share.
                    let is_there = |x| if of_queries { x } else { query.below(call.queries).select(x, 0.0) };
                    let (of, capped) = ([batch, head, query, key], self.scoring.score(&call, *score));
                    let of_scale = if is_binary { score.fma(call.scale * LOG2_E, -log_sum) } else { capped };
                    let shown = self.scoring.shown(&call, of_scale, of);
                    let share =
                        if is_binary { shown.rough_power_of_two() } else { (shown - log_sum).rough_exp() };
                    *score = is_there(share);
                    if let Some(of_share) = of_shares.get_mut(n) {
                        let flow = own_flows.map_or_else(|| of_query(flows), |own_flows| own_flows[at / 2]);
                        let of_product = self.of_product(&call, share * (of_share[at] - flow), capped);
                        // Nothing flows to what is hidden, whose key and value may be whatever they are: not 0 times that.
                        let of_product = match self.scoring.hides_within() {
                            true => shown.equals(f32::NEG_INFINITY).select(0.0, of_product),
                            false => of_product,
                        };
                        of_share[at] = is_there(of_product);
                    }
                }
            }
            for Found { side, sums, .. } in &found {
                // Of values, the gradient of the result by the shares; else, of what the scores are products of, by theirs.
                let (tile, weights) =
                    if *side == VALUES { (&tiles[1], &scores) } else { (&tiles[0], &of_shares) };
                tile.add_weighted(&lane, weights, sums);
            }
        };
        let passing = Passing::new(k, sources, 32);
        let places = columns_of.map(|side| &call.places[side]);
        let passage = Passage { range: [start, end], count: all, along: places.map(|place| place.along) };
        let shared_heads = if of_queries { k.value(1_u32) } else { call.sharing };
        k.range(0_u32, shared_heads, 1_u32, |shared| {
            let head = if of_queries { row_head } else { row_head * call.sharing + shared };
            let column_head = if of_queries { head / call.sharing } else { head };
            let start = |n: usize, row| places[n].row([batch, column_head], row);
            passing.each((&lane, threads), &passage, start, |tile, tiles| add(head, tile, tiles));
        });

        for Found { side, sums, output } in &found {
            let factor = if *side == VALUES { k.value(1.0) } else { call.scale };
            for n in 0..2 {
                let start = ((batch * count + numbers[n]) * heads + row_head) * self.sides[*side].size;
                let scaled =
                    |sums: &[Variable<'k>; 4]| [sums[2 * n], sums[2 * n + 1]].map(|sum| sum.get() * factor);
                let elements: Vec<[Value<'k>; 2]> = sums.iter().map(scaled).collect();
                k.when(own[n].below(count), || output.set(&lane, start, &elements));
            }
        }
    }
}

impl FlashGradient {
    /// The gradient of a product, but for the scale, by that of the score that it became.
    fn of_product<'k>(&self, call: &Call<'k>, of_score: Value<'k>, capped: Value<'k>) -> Value<'k> {
        if !self.scoring.softcap {
            return of_score;
        }
        let tanh = capped / call.cap;
        of_score * (-tanh).fma(tanh, 1.0)
    }
}

/// The sums of the products of two vectors of each of the lane's two rows, which start there.
fn sums_of_products<'k>(
    k: &'k Builder,
    lane: &Lane<'k>,
    [(a, of_a), (b, of_b)]: [(&Lefts<'k>, [Value<'k>; 2]); 2],
) -> [Value<'k>; 2] {
    let mut sums = [k.value(0.0); 2];
    for step in 0..a.form().steps() {
        let (a, b) = (a.floats(lane, of_a, step), b.floats(lane, of_b, step));
        for (n, (a, b)) in a.iter().zip(&b).enumerate() {
            let sum = &mut sums[n % 2];
            *sum = a.iter().zip(b).fold(*sum, |sum, (&a, &b)| a.fma(b, sum));
        }
    }
    sums.map(|sum| among_row(sum, |a, b| a + b))
}

/// [`attention`](super::attention) that keeps what its gradient needs, or nothing where tensor cores do not serve it.
pub(crate) fn attention_train<R: Runtime>(
    q: &GpuTensor<R>,
    k: &GpuTensor<R>,
    v: &GpuTensor<R>,
    mask: Option<&GpuTensor<R>>,
    options: &AttentionOptions,
) -> Option<[GpuTensor<R>; 2]> {
    let operands = Operands { q, k, v, mask, options: *options };
    if operands.scoring().keeps_hidden() {
        return None;
    }
    let (out, log_sum) = flash::attention(&operands, true)?;
    Some([out, log_sum?])
}

/// The gradients of queries, keys and values, or nothing where tensor cores do not serve them.
pub(crate) fn attention_gradient<R: Runtime>(
    gradient: &GpuTensor<R>,
    trained: &AttentionTrained<GpuTensor<R>>,
    options: &AttentionOptions,
) -> Option<AttentionGradients<GpuTensor<R>>> {
    let AttentionTrained { q, k, v, mask, output, log_sum } = trained;
    let operands = Operands { q, k, v, mask: mask.as_ref(), options: *options };
    let [batch, heads, queries, keys] = operands.sizes();
    // As on the way there.
    let scoring = operands.scoring();
    let refused = scoring.is_added() && scoring.is_causal && queries > keys;
    if refused || scoring.keeps_hidden() || log_sum.dtype != DType::F32 {
        return None;
    }
    let gradient = &gradient.narrowed();
    let output = &output.narrowed();
    let are_visible = gradient.is_visible() && output.is_visible();
    let sides = flash::forms(&operands, [q, k, v, gradient, output]).filter(|_| are_visible)?;
    let log_sums = log_sum.clone().into_contiguous();
    let device = &q.device;
    let flows = GpuTensor::empty(log_sums.shape(), DType::F32, device);
    let all = [q, k, v, gradient, output];
    let gradients_of = |part: Part| {
        let [rows_of, columns_of] = part.sides();
        let of_queries = part == Part::Queries;
        let (row_heads, rows) = if of_queries { (heads, queries) } else { (k.dims()[1], keys) };
        // The heads of a row lie together, as they did before they were parted.
        let empty = |&side: &usize| {
            let shape = Shape::from([batch, rows, row_heads, sides[side].size as usize]);
            GpuTensor::empty(shape, q.dtype, device)
        };
        let found: Vec<GpuTensor<R>> = part.found().iter().map(empty).collect();
        let warps = warps_for(rows);
        let template = FlashGradient { part, sides, scoring, warps };
        let result = of_queries.then_some(RESULT);
        let read = rows_of[..part.products()].iter().chain(&result).chain(&columns_of);
        let tensors: Vec<_> = read
            .map(|&side| all[side])
            .chain(mask.as_ref())
            .chain([&log_sums, &flows])
            .chain(&found)
            .collect();
        let mut words = operands.words(gradient);
        words.extend(result.iter().flat_map(|&side| Place::words(&all[side].layout)));
        let blocks = [rows.div_ceil((warps * ROWS) as usize), batch * row_heads, 1];
        launch_blocks::<R>(device, template, &tensors, &words, blocks, false);
        found.into_iter().map(|found| {
            let layout = found.layout.permute(&[0, 2, 1, 3]);
            found.with_layout(layout)
        })
    };
    let parts = Part::of_keys_and_values([sides[KEYS].size, sides[VALUES].size]);
    // The sums that the others need come with those of queries.
    let mut found = [Part::Queries].iter().chain(parts).flat_map(|&part| gradients_of(part));
    Some(AttentionGradients { q: found.next()?, k: found.next()?, v: found.next()?, mask: None })
}
