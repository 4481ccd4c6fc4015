//! Gradients of attention by tensor cores: shares are computed again, in tiles, from the logarithms that the way there kept (Dao 2023,
//! "FlashAttention-2"). Each gradient has a kernel of its own whose warps own its rows, so that none is added to by two.

use super::call::{Call, Operands, Scoring};
use super::flash;
use crate::kernels::tiles::{self, Form, Lane, Lefts, ROWS, Rows, Source, Tile, WARP, tile_rows, warps_for};
use crate::kernels::{block, elementwise, launch_blocks, reduce};
use crate::language::{Buffer, Builder, Kernel, Storage, Value, Variable};
use crate::runtime::Runtime;
use crate::tensor::GpuTensor;
use kiln_tensor::compose::{AttentionGradients, AttentionTrained};
use kiln_tensor::{AttentionOptions, BinaryOp, DType, Expression, ReduceOp, Shape, Step};

/// Registers for sums and for what is read once, beside two tiles of scores.
const KEPT: u32 = 144;

/// Of what a gradient is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The queries.
    Queries,
    /// The keys.
    Keys,
    /// The values.
    Values,
}

/// A gradient of attention in tiles.
///
/// The rows that a warp owns are queries, or keys; over the others it goes in tiles. `scores = rows · columnsᵀ` of queries and keys yield
/// the shares; with the gradient of the result and the values in their places, the same product is the shares' gradient.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlashGradient {
    /// Of what.
    pub part: Part,
    /// Queries, keys, values and the gradient of the result.
    pub sides: [Form; 4],
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

impl Part {
    /// What the rows are of both products, and what goes by in tiles.
    fn sides(self) -> [[usize; 2]; 2] {
        match self {
            Part::Queries => [[QUERIES, GRADIENT], [KEYS, VALUES]],
            Part::Keys | Part::Values => [[KEYS, VALUES], [QUERIES, GRADIENT]],
        }
    }

    /// Products that it needs.
    fn products(self) -> usize {
        match self {
            Part::Queries | Part::Keys => 2,
            Part::Values => 1,
        }
    }

    /// What it is of.
    fn side(self) -> usize {
        match self {
            Part::Queries => QUERIES,
            Part::Keys => KEYS,
            Part::Values => VALUES,
        }
    }
}

impl FlashGradient {
    /// The kernel. Buffers: what its rows are of, what goes by, the mask, the logarithms, the sums of the result by its gradient for each
    /// query, the gradient. Parameters: its `block`; those of a `Call`, whose fourth operand is the gradient of the result.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("flash_attention_gradient", [WARP * self.warps, 1], |k| self.write(k))
    }

    fn write<'k>(&self, k: &'k Builder) {
        let threads = WARP * self.warps;
        let [rows_of, columns_of] = self.part.sides();
        let rows_of = &rows_of[..self.part.products()];
        let lefts: Vec<_> = rows_of.iter().map(|&side| Lefts::declare(k, self.sides[side])).collect();
        let sources = columns_of.map(|side| Source::declare(k, self.sides[side]));
        let mask = self.scoring.mask_buffer(k);
        let (log_sums, flows) = (k.input(Storage::F32), k.input(Storage::F32));
        let own_form = self.sides[self.part.side()];
        let output = Rows::declare(k, own_form);
        let [block_row, block_head, _] = block(k);
        let call = Call::declare(k, mask);
        let lefts: Vec<_> =
            lefts.into_iter().zip(rows_of).map(|(left, &side)| left(call.places[side].along)).collect();

        let of_queries = self.part == Part::Queries;
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
        let sums = tiles::sums(k, &own_form);
        let mut registers = 4 * sums.len() as u32;
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

        let tile_forms = columns_of.map(|side| self.sides[side]);
        let rows = tile_rows([&tile_forms[0], &tile_forms[1]], 32, 1);
        let tiles = tile_forms.map(|form| Tile::new(k, form, rows));
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
        let shared_heads = if of_queries { k.value(1_u32) } else { call.sharing };
        k.range(0_u32, shared_heads, 1_u32, |shared| {
            let head = if of_queries { row_head } else { row_head * call.sharing + shared };
            let column_head = if of_queries { head / call.sharing } else { head };
            let query_head = batch * call.heads + head;
            let query_start = query_head * call.queries;
            let own_numbers = |of: Buffer<'k>| numbers.map(|row| of.at(query_start + row));
            let of_rows = of_queries.then(|| [own_numbers(log_sums), own_numbers(flows)]);
            k.range(start, end, rows, |tile| {
                let all = if of_queries { call.keys } else { call.queries };
                for ((tile_of, source), side) in tiles.iter().zip(&sources).zip(columns_of) {
                    let place = &call.places[side];
                    tile_of.bring(&lane, threads, source, place.along, all - tile, |row| {
                        place.row([batch, column_head], tile + row)
                    });
                }
                k.barrier();
                let mut scores = tiles[0].scores(&lane, |step| left(0, step));
                let of_shares = (lefts.len() > 1).then(|| tiles[1].scores(&lane, |step| left(1, step)));
                for (n, scores) in scores.iter_mut().enumerate() {
                    for (at, score) in scores.iter_mut().enumerate() {
                        let column = tile + lane.place * 2_u32 + (8 * n + at % 2) as u32;
                        let row = numbers[at / 2];
                        let [query, key] = if of_queries { [row, column] } else { [column, row] };
                        let told = |which: usize, of: Buffer<'k>| match of_rows {
                            Some(of_rows) => of_rows[which][at / 2],
                            None => of.at(query_start + query),
                        };
                        let mut y = self.weight(
                            &call,
                            *score,
                            [batch, head, query, key],
                            told(0, log_sums),
                            of_shares.as_ref().map(|of_shares| (of_shares[n][at], told(1, flows))),
                        );
                        if !of_queries {
                            y = query.below(call.queries).select(y, 0.0);
                        }
                        *score = y;
                    }
                }
                // Of values, the gradient of the result by the shares; else, of what the scores are products of, by theirs.
                let weighted = if self.part == Part::Values { &tiles[1] } else { &tiles[0] };
                weighted.add_weighted(&lane, &scores, &sums);
                k.barrier();
            });
        });

        let factor = if self.part == Part::Values { k.value(1.0) } else { call.scale };
        for n in 0..2 {
            let start = ((batch * count + numbers[n]) * heads + row_head) * own_form.size;
            let scaled =
                |sums: &[Variable<'k>; 4]| [sums[2 * n], sums[2 * n + 1]].map(|sum| sum.get() * factor);
            let elements: Vec<[Value<'k>; 2]> = sums.iter().map(scaled).collect();
            k.when(own[n].below(count), || output.set(&lane, start, &elements));
        }
    }
}

impl FlashGradient {
    /// A share, of the product that its score is of; or with the share's gradient and the query's flow the gradient of that product, but for
    /// the scale.
    fn weight<'k>(
        &self,
        call: &Call<'k>,
        product: Value<'k>,
        of: [Value<'k>; 4],
        log_sum: Value<'k>,
        back: Option<(Value<'k>, Value<'k>)>,
    ) -> Value<'k> {
        let capped = self.scoring.score(call, product);
        let share = (self.scoring.shown(call, capped, of) - log_sum).rough_exp();
        let Some((of_share, flow)) = back else { return share };
        let of_score = share * (of_share - flow);
        if !self.scoring.softcap {
            return of_score;
        }
        let tanh = capped / call.cap;
        of_score * (-tanh).fma(tanh, 1.0)
    }
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
    let sides = flash::forms(&operands, [q, k, v, gradient]).filter(|_| gradient.is_visible())?;
    let steps = [Step::Input(0), Step::Cast(DType::F32, 0), Step::Input(1), Step::Cast(DType::F32, 2)];
    let product = Expression::new([&steps[..], &[Step::Binary(BinaryOp::Mul, 1, 3)]].concat());
    let products = elementwise::single(&product, &[gradient.clone(), output.clone()], &[]);
    let flows = reduce::reduce(ReduceOp::Sum, products, &[3]).into_contiguous();
    let log_sums = log_sum.clone().into_contiguous();
    let words = operands.words(gradient);
    let device = &q.device;
    let all = [q, k, v, gradient];
    let gradient_of = |part: Part| {
        let [rows_of, columns_of] = part.sides();
        let (row_heads, rows) = if part == Part::Queries { (heads, queries) } else { (k.dims()[1], keys) };
        let size = sides[part.side()].size as usize;
        // The heads of a row lie together, as they did before they were parted.
        let out = GpuTensor::empty(Shape::from([batch, rows, row_heads, size]), q.dtype, device);
        let warps = warps_for(rows);
        let template = FlashGradient { part, sides, scoring, warps };
        let read = rows_of[..part.products()].iter().chain(&columns_of).map(|&side| all[side]);
        let tensors: Vec<_> = read.chain(mask.as_ref()).chain([&log_sums, &flows, &out]).collect();
        let blocks = [rows.div_ceil((warps * ROWS) as usize), batch * row_heads, 1];
        launch_blocks::<R>(device, template, &tensors, &words, blocks, false);
        let layout = out.layout.permute(&[0, 2, 1, 3]);
        out.with_layout(layout)
    };
    let [q, k, v] = [Part::Queries, Part::Keys, Part::Values].map(gradient_of);
    Some(AttentionGradients { q, k, v, mask: None })
}
