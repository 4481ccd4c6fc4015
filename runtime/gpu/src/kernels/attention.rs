//! Attention without scores in memory: an invocation goes over the keys of one query, or of a few, and keeps the sum of the values weighted
//! so far and their weights' ("online softmax", Milakov & Gimelshein 2018).

use super::access::{self, Access, Operand, Walk};
use super::direct::{LANES, Side, fours_along};
use super::{block, launch_blocks};
use crate::language::{Builder, Builtin, Kernel, Type, Value, Variable};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::backend::Layout;
use kiln_tensor::{AttentionOptions, DType, FullyMasked, Shape};

/// The longest head that an invocation keeps in variables.
const LONGEST: usize = 128;
/// Queries of a workgroup where workgroups are more than the lanes of a vector.
const WIDE: u32 = 64;
/// Below it there is no score, and above all other masked ones.
const LOWEST: f32 = f32::MIN;

/// Attention of many queries to many keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// The elements' dtype.
    pub dtype: DType,
    /// Size of a query and a key.
    pub size: u32,
    /// Size of a value.
    pub value_size: u32,
    /// Whether queries, keys, values are read four elements at a time.
    pub fours: [bool; 3],
    /// The mask's dtype, how it is read and over how many dims strides are told.
    pub mask: Option<(DType, Access, usize)>,
    /// Whether keys after the query's position have no part.
    pub is_causal: bool,
    /// Whether scores are capped.
    pub softcap: bool,
    /// What a query without any key yields.
    pub fully_masked: Option<FullyMasked>,
    /// Invocations of a workgroup.
    pub lanes: u32,
    /// Queries of an invocation: what it reads of a key serves all of them.
    pub queries: u32,
}

/// A query of an invocation, with what it keeps of the keys so far.
struct Query<'k> {
    /// Its number; beyond the last it repeats that, and is not written.
    number: Value<'k>,
    is_written: Value<'k>,
    elements: Vec<Value<'k>>,
    /// How many keys it sees if it sees none after its own position.
    seen: Value<'k>,
    /// The highest score.
    best: Variable<'k>,
    /// The sum of the weights.
    sum: Variable<'k>,
    /// The sum of the values by their weights.
    weighted: Vec<Variable<'k>>,
}

impl Attention {
    /// The kernel. Buffers: queries, keys, values, the mask, the result. Parameters: its `block`; heads, queries, keys, how many heads share those of
    /// a key; the scale, the cap; where queries, keys, values start, each with its strides along batch, heads and rows; along the
    /// elements; those of the result; the mask's dims and operand.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("attention", [self.lanes, 1], |k| {
            let sides = self.fours.map(|fours| Side::declare(k, self.dtype, fours));
            let mask = self.mask.map(|(dtype, access, rank)| (k.input(held_as(dtype)), access, rank));
            let output = k.output(held_as(self.dtype));
            // Queries, heads of all batches.
            let [block_query, block_head, _] = block(k);
            let [heads, queries, keys, sharing] =
                [k.parameter(), k.parameter(), k.parameter(), k.parameter()];
            let (scale, cap) = (k.parameter().bits(Type::F32), k.parameter().bits(Type::F32));
            let places = [0, 1, 2, 3].map(|_| Place::declare(k));
            let mask = mask.map(|(buffer, access, rank)| {
                let dims = k.parameters(rank);
                (buffer, dims, Operand::declare(k, access, rank))
            });

            let (batch, head) = (block_head / heads, block_head % heads);
            let of_keys = [batch, head / sharing];
            let elements = |n: usize, start, size: u32| sides[n].run(start, places[n].along, size);
            let first = (block_query * self.queries) * self.lanes + k.builtin(Builtin::LocalX);
            let query = |n: u32| {
                let own = first + n * self.lanes;
                let number = own.min(queries - 1_u32);
                let start = places[0].row([batch, head], number);
                // The last query sees the last key.
                let seen = number + 1_u32 + keys;
                Query {
                    number,
                    is_written: own.below(queries),
                    elements: elements(0, start, self.size).into_iter().map(|x| x * scale).collect(),
                    seen: seen.at_least(queries).select(seen - queries, 0_u32).min(keys),
                    best: k.variable(LOWEST),
                    sum: k.variable(0.0),
                    weighted: (0..self.value_size).map(|_| k.variable(0.0)).collect(),
                }
            };
            let own: Vec<Query<'_>> = (0..self.queries).map(query).collect();

            let keeps_hidden = self.fully_masked == Some(FullyMasked::Mean);
            // The last of the queries sees most.
            let seen = own.last().filter(|_| self.is_causal && !keeps_hidden).map(|query| query.seen);
            k.range(0_u32, seen.unwrap_or(keys), 1_u32, |key| {
                let of_key = elements(1, places[1].row(of_keys, key), self.size);
                let weights: Vec<_> = own
                    .iter()
                    .map(|query| {
                        let mut score = k.value(0.0);
                        for (&a, &b) in query.elements.iter().zip(&of_key) {
                            score = a.fma(b, score);
                        }
                        if self.softcap {
                            score = (score / cap).tanh() * cap;
                        }
                        let hides = self.is_causal && (keeps_hidden || self.queries > 1);
                        let mut visible = hides.then(|| key.below(query.seen));
                        if let Some((buffer, dims, operand)) = &mask {
                            let row = (batch * heads + head) * queries + query.number;
                            let position = row * keys + key;
                            let at = operand.at(position, &access::coordinates(position, dims));
                            match buffer.at(at) {
                                kept if kept.ty() == Type::Bool => {
                                    visible = Some(visible.map_or(kept, |visible| visible & kept));
                                }
                                added => score = score + added,
                            }
                        }
                        if keeps_hidden {
                            // What is hidden counts where there is nothing else.
                            score = visible.map_or(score, |visible| visible.select(score, LOWEST));
                            score = score.below(LOWEST).select(LOWEST, score);
                            visible = None;
                        }
                        let best = query.best.get();
                        let larger = score.above(best);
                        let larger = visible.map_or(larger, |visible| visible & larger);
                        let new_best = larger.select(score, best);
                        let shrinks = (best - new_best).exp();
                        let weight = (score - new_best).exp();
                        let weight = visible.map_or(weight, |visible| visible.select(weight, 0.0));
                        query.best.set(new_best);
                        query.sum.set(query.sum.get().fma(shrinks, weight));
                        (shrinks, weight)
                    })
                    .collect();
                let of_key = elements(2, places[2].row(of_keys, key), self.value_size);
                for (query, (shrinks, weight)) in own.iter().zip(weights) {
                    for (weighted, &x) in query.weighted.iter().zip(&of_key) {
                        weighted.set(weight.fma(x, weighted.get() * shrinks));
                    }
                }
            });

            // A bool mask leaves zeros where it leaves nothing, an added one what softmax makes of it.
            let is_added = self.mask.is_some_and(|(dtype, ..)| !dtype.is_bool());
            let zeros = !is_added || self.fully_masked.is_some();
            for query in &own {
                let start = places[3].row([batch, head], query.number);
                k.when(query.is_written, || {
                    let total = query.sum.get();
                    for (n, weighted) in query.weighted.iter().enumerate() {
                        let share = weighted.get() / total;
                        let y = if zeros { total.equals(0.0).select(0.0, share) } else { share };
                        output.set(start + places[3].along * n as u32, y);
                    }
                });
            }
        })
    }
}

/// Where the rows of an operand are.
struct Place<'k> {
    start: Value<'k>,
    batch: Value<'k>,
    head: Value<'k>,
    row: Value<'k>,
    along: Value<'k>,
}

impl<'k> Place<'k> {
    fn declare(k: &'k Builder) -> Self {
        let next = || k.parameter();
        Self { start: next(), batch: next(), head: next(), row: next(), along: next() }
    }

    fn row(&self, [batch, head]: [Value<'k>; 2], row: Value<'k>) -> Value<'k> {
        self.start + batch * self.batch + head * self.head + row * self.row
    }

    fn words(layout: &Layout) -> impl Iterator<Item = u32> + '_ {
        let strides = layout.strides.iter().map(|&stride| access::word(stride));
        core::iter::once(layout.offset as u32).chain(strides)
    }
}

/// How many queries an invocation has on devices whose kernels run on a CPU: reading costs more there than what is computed of it.
fn together(queries: usize, size: usize) -> u32 {
    let fits = |&n: &usize| n * size <= 2 * LONGEST && queries >= n * LANES as usize;
    [4, 2].into_iter().find(fits).unwrap_or(1) as u32
}

/// Attention in one kernel, or nothing where its heads are too long for that, or its floats, or the mask hides in both ways.
pub(crate) fn attention<R: Runtime>(
    q: &GpuTensor<R>,
    k: &GpuTensor<R>,
    v: &GpuTensor<R>,
    mask: Option<&GpuTensor<R>>,
    options: &AttentionOptions,
) -> Option<GpuTensor<R>> {
    let AttentionOptions { scale, is_causal, softcap, fully_masked } = *options;
    let &[batch, heads, queries, size] = q.dims() else { return None };
    let (&[_, key_heads, keys, _], value_size) = (k.dims(), *v.dims().last()?) else { return None };
    let device = &q.device;
    let limits = R::limits(device);
    let is_added = mask.is_some_and(|mask| !mask.dtype.is_bool());
    let fits = [q, k, v].into_iter().chain(mask).all(GpuTensor::is_visible)
        && size.max(value_size) <= LONGEST
        && ((batch * heads * queries) as u64 * keys as u64) < 1 << 31;
    // Of 64-bit floats there are too many bits for the variables of an invocation.
    let fits = fits && q.dtype != DType::F64;
    if !fits || is_added && is_causal || keys == 0 || batch * heads * queries * value_size == 0 {
        return None;
    }
    // The heads of a query lie together, as what comes next wants them.
    let shape = Shape::from([batch, queries, heads, value_size]);
    let out = GpuTensor::empty(shape, q.dtype, device);
    let layout = out.layout.permute(&[0, 2, 1, 3]);
    let out = out.with_layout(layout);

    let mut words = [heads, queries, keys, heads / key_heads.max(1)].map(|n| n as u32).to_vec();
    let scale = scale.unwrap_or_else(|| 1.0 / (size as f64).sqrt());
    words.extend([scale, softcap.unwrap_or(1.0)].map(|x| (x as f32).to_bits()));
    for tensor in [q, k, v, &out] {
        words.extend(Place::words(&tensor.layout));
    }
    let scores = Shape::from([batch, heads, queries, keys]);
    let view = mask.map(|mask| {
        let layout = mask.layout.expand(&scores);
        let walk = Walk::new(&scores.dims, &[&layout.strides]);
        let access = walk.access(0);
        let rank = if access == Access::Strided { walk.dims.len() } else { 0 };
        words.extend(walk.dim_words().filter(|_| rank > 0));
        words.push(layout.offset as u32);
        words.extend(walk.stride_words(0));
        (mask.dtype, access, rank)
    });
    let template = Attention {
        dtype: q.dtype,
        size: size as u32,
        value_size: value_size as u32,
        fours: [q, k, v].map(|tensor| fours_along(&tensor.layout)),
        mask: view,
        is_causal,
        softcap: softcap.is_some(),
        fully_masked,
        lanes: if limits.shared_memory { WIDE } else { LANES },
        queries: if limits.shared_memory { 1 } else { together(queries, size.max(value_size)) },
    };
    let block = (template.lanes * template.queries) as usize;
    let blocks = [queries.div_ceil(block), batch * heads, 1];
    let mut tensors = vec![q, k, v];
    tensors.extend(mask);
    tensors.push(&out);
    launch_blocks::<R>(device, template, &tensors, &words, blocks, false);
    Some(out)
}
