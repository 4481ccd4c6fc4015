//! Attention without scores in memory: an invocation goes over the keys of one query, or of a few, and keeps the sum of the values weighted
//! so far and their weights' ("online softmax", Milakov & Gimelshein 2018).

mod call;
mod decode;
mod flash;
mod gradient;
mod tiled;

pub use call::{Heads, Scoring};
pub use decode::{Decode, DecodeJoin};
pub use flash::Flash;
pub use gradient::{FlashGradient, Part};
pub(crate) use gradient::{attention_gradient, attention_train};
pub use tiled::TiledAttention;

use super::direct::LANES;
use super::{block, launch_blocks};
use crate::language::{Builder, Builtin, Kernel, Type, Value, Variable};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as};
use call::{Call, Operands};
use kiln_tensor::{AttentionOptions, DType};

/// The longest head that an invocation keeps in variables.
const LONGEST: usize = 128;
/// Queries of a workgroup where workgroups are more than the lanes of a vector.
const WIDE: u32 = 64;
/// Scores of all heads from which on tensor cores are faster than plain arithmetic, which puts fewer queries into a workgroup. Measured on an H200 (`BENCHMARKS.md`).
const LEAST_OF_WARPS: usize = 1 << 21;
/// Below it there is no score, and above all other masked ones.
const LOWEST: f32 = f32::MIN;

/// Attention of many queries to many keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// Queries, keys and values.
    pub heads: Heads,
    /// Their scores.
    pub scoring: Scoring,
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
    /// The kernel. Buffers: queries, keys, values, the mask, the result. Parameters: its `block`; those of a `Call`, whose fourth operand is
    /// the result.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("attention", [self.lanes, 1], |k| {
            let Self { heads: Heads { dtype, size, value_size, .. }, scoring, .. } = *self;
            let sides = self.heads.declare(k);
            let mask = scoring.mask_buffer(k);
            let output = k.output(held_as(dtype));
            // Queries, heads of all batches.
            let [block_query, block_head, _] = block(k);
            let call = Call::declare(k, mask);
            let Call { heads, queries, keys, sharing, scale, ref places, .. } = call;

            let (batch, head) = (block_head / heads, block_head % heads);
            let of_keys = [batch, head / sharing];
            let elements = |n: usize, start, size: u32| sides[n].run(start, places[n].along, size);
            let first = (block_query * self.queries) * self.lanes + k.builtin(Builtin::LocalX);
            let query = |n: u32| {
                let own = first + n * self.lanes;
                let number = own.min(queries - 1_u32);
                let start = places[0].row([batch, head], number);
                Query {
                    number,
                    is_written: own.below(queries),
                    elements: elements(0, start, size).into_iter().map(|x| x * scale).collect(),
                    seen: scoring.before(&call, number),
                    best: k.variable(LOWEST),
                    sum: k.variable(0.0),
                    weighted: (0..value_size).map(|_| k.variable(0.0)).collect(),
                }
            };
            let own: Vec<Query<'_>> = (0..self.queries).map(query).collect();

            let keeps_hidden = scoring.keeps_hidden();
            // The last of the queries sees most.
            let seen = own.last().filter(|_| scoring.is_causal && !keeps_hidden).map(|query| query.seen);
            k.range(0_u32, seen.unwrap_or(keys), 1_u32, |key| {
                let of_key = elements(1, places[1].row(of_keys, key), size);
                let weights: Vec<_> = own
                    .iter()
                    .map(|query| {
                        let mut score = k.value(0.0);
                        for (&a, &b) in query.elements.iter().zip(&of_key) {
                            score = a.fma(b, score);
                        }
                        score = scoring.capped(&call, score);
                        let hides = scoring.is_causal && (keeps_hidden || self.queries > 1);
                        let mut visible = hides.then(|| key.below(query.seen));
                        match call.masked([batch, head, query.number, key]) {
                            Some(kept) if kept.ty() == Type::Bool => {
                                visible = Some(visible.map_or(kept, |visible| visible & kept));
                            }
                            Some(added) => score = score + added,
                            None => {}
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
                let of_key = elements(2, places[2].row(of_keys, key), value_size);
                for (query, (shrinks, weight)) in own.iter().zip(weights) {
                    for (weighted, &x) in query.weighted.iter().zip(&of_key) {
                        weighted.set(weight.fma(x, weighted.get() * shrinks));
                    }
                }
            });

            let zeros = scoring.leaves_zeros();
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
    let operands = Operands { q, k, v, mask, options: *options };
    // Tensor cores need many queries to have something to do.
    let by_warps = || flash::attention(&operands, false).map(|(out, _)| out);
    let by_decode = || decode::attention(&operands);
    let by_tiles = || tiled::attention(&operands);
    let found = if operands.scores() < LEAST_OF_WARPS || q.dims()[2] == 1 {
        by_decode().or_else(by_tiles).or_else(by_warps)
    } else {
        by_warps().or_else(by_tiles)
    };
    if let Some(out) = found {
        return Some(out);
    }
    let (heads, scoring) = (operands.heads(), operands.scoring());
    // Of 64-bit floats there are too many bits for the variables of an invocation.
    if !operands.fit(LONGEST) || q.dtype == DType::F64 || scoring.is_added() && scoring.is_causal {
        return None;
    }
    let limits = R::limits(&q.device);
    let [batch, query_heads, queries, _] = operands.sizes();
    let longest = heads.size.max(heads.value_size) as usize;
    let out = operands.result();
    let words = operands.words(&out);
    let template = Attention {
        heads,
        scoring,
        lanes: if limits.shared_memory { WIDE } else { LANES },
        queries: if limits.shared_memory { 1 } else { together(queries, longest) },
    };
    let block = (template.lanes * template.queries) as usize;
    let blocks = [queries.div_ceil(block), batch * query_heads, 1];
    let mut tensors = vec![q, k, v];
    tensors.extend(mask);
    tensors.push(&out);
    launch_blocks::<R>(&q.device, template, &tensors, &words, blocks, false);
    Some(out)
}
