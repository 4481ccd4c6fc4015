//! Attention of few queries to many keys, as a decoder has it for each token ("Flash-Decoding", Dao et al. 2023): a workgroup has one query, and its
//! keys are divided among groups of neighbours of a warp, each of which keeps its highest score, the sum of its weights and that of its
//! values. These are joined at the end. Where keys are many and queries few, they are divided among workgroups too, and a second kernel joins
//! what those have.
//!
//! H200: one query, 256 keys and heads of 64 took tiles 9.45 µs with 32 heads of bf16, and 8.9 with 12 of f32. This kernel has not been
//! measured yet.

use super::LOWEST;
use super::call::{Call, Operands, Place, Scoring};
use crate::kernels::tiles::WARP;
use crate::kernels::wide::{self, Runs, is_wide};
use crate::kernels::{block, launch_blocks};
use crate::language::{Array, Builder, Builtin, Kernel, Type, Value, Variable};
use crate::runtime::{Runtime, Subgroups};
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::{DType, Shape};

/// Queries that are few.
const MOST_QUERIES: usize = 4;
/// The longest head.
const LONGEST: usize = 256;
/// Keys, with their values, that neighbours ask for before they use the first.
const UNROLLED: u32 = 4;
/// Warps of a workgroup: as many as have keys, within these bounds.
const WARPS: [usize; 2] = [4, 16];
/// Keys from which on they are divided among workgroups.
const MANY_KEYS: usize = 2048;
/// Keys of a workgroup then, at least: a second launch costs as much as some hundreds of them.
const LEAST_KEYS: usize = 512;
/// Workgroups that large GPUs should have then.
const WORKGROUPS: usize = 256;
/// Invocations of a workgroup that joins what others have.
const JOINING: u32 = 128;
/// What a workgroup leaves beside the sum of its values: the highest score and the sum of its weights.
const BESIDE: u32 = 2;

/// Attention of few queries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decode {
    /// The elements' dtype.
    pub dtype: DType,
    /// Size of a query and a key.
    pub size: u32,
    /// Size of a value.
    pub value_size: u32,
    /// Whether of queries, keys and values 16 bytes are read at once.
    pub wide: [bool; 3],
    /// Their scores.
    pub scoring: Scoring,
    /// Warps of a workgroup.
    pub warps: u32,
    /// Whether workgroups have parts of the keys, and leave what is to be joined.
    pub in_parts: bool,
}

/// Joins what workgroups leave of parts of the keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DecodeJoin {
    /// The results' dtype.
    pub dtype: DType,
    /// Size of a value.
    pub value_size: u32,
    /// Whether a query that sees no key yields zeros.
    pub leaves_zeros: bool,
}

/// Vectors of an operand, of which neighbours have runs in turn.
struct Vectors<'k> {
    runs: Runs<'k>,
    size: u32,
    /// Elements of a run.
    width: u32,
    /// From one element to the next.
    along: Value<'k>,
    /// Which of the neighbours the invocation is, and how many there are.
    lane: Value<'k>,
    lanes: u32,
}

impl<'k> Vectors<'k> {
    /// The invocation's runs, by their numbers.
    fn own(&self) -> impl Iterator<Item = Value<'k>> {
        let (lane, count) = (self.lane, self.size.div_ceil(self.width));
        (0..count).step_by(self.lanes as usize).map(move |first| lane + first)
    }

    /// Room for the invocation's runs; zeros.
    fn room(&self) -> Vec<Vec<Variable<'k>>> {
        self.own().map(|_| self.runs.room(self.lane.kernel(), self.width)).collect()
    }

    /// Reads the invocation's runs of the vector that starts there; what lies beyond its end stays as it is.
    fn read(&self, start: Value<'k>, room: &[Vec<Variable<'k>>]) {
        let k = self.lane.kernel();
        for (run, room) in self.own().zip(room) {
            let first = run * self.width;
            let read = || self.runs.read(start + first * self.along, self.along, self.width, room);
            if self.size.is_multiple_of(self.width * self.lanes) {
                read();
            } else if self.size.is_multiple_of(self.width) {
                k.when(first.below(self.size), read);
            } else {
                for (n, room) in (0_u32..).zip(room) {
                    let element = first + n;
                    let position = start + element * self.along;
                    k.when(element.below(self.size), || {
                        self.runs.read(position, self.along, 1, std::slice::from_ref(room));
                    });
                }
            }
        }
    }

    /// The elements of runs that were read.
    fn elements(&self, room: &[Vec<Variable<'k>>]) -> Vec<Value<'k>> {
        room.iter().flat_map(|room| self.runs.elements(room)).collect()
    }
}

/// What is known of some of the keys.
struct State<'k> {
    /// The highest score.
    best: Variable<'k>,
    /// The sum of the weights.
    sum: Variable<'k>,
    /// The invocation's elements of the sum of the values by their weights.
    weighted: Vec<Variable<'k>>,
}

impl<'k> State<'k> {
    fn new(k: &'k Builder, elements: u32) -> Self {
        let zero = || k.variable(0.0);
        Self { best: k.variable(LOWEST), sum: zero(), weighted: (0..elements).map(|_| zero()).collect() }
    }

    /// Adds keys with the invocation's elements of their values.
    fn add(&self, scores: &[Value<'k>], values: &[Vec<Value<'k>>]) {
        let best = self.best.get();
        let new_best = scores.iter().fold(best, |best, &score| best.max(score));
        let shrinks = (best - new_best).shrinking_exp();
        self.best.set(new_best);
        let weights: Vec<_> = scores.iter().map(|&score| (score - new_best).shrinking_exp()).collect();
        self.sum.set(weights.iter().fold(self.sum.get() * shrinks, |sum, &weight| sum + weight));
        for (n, weighted) in self.weighted.iter().enumerate() {
            let start = weighted.get() * shrinks;
            let of_keys = weights.iter().zip(values);
            weighted.set(of_keys.fold(start, |sum, (weight, value)| weight.fma(value[n], sum)));
        }
    }

    /// Joins it with that of the lanes whose numbers differ in a bit.
    fn join(&self, lanes: u32) {
        let best = self.best.get();
        let new_best = best.max(best.exchanged(lanes));
        let shrinks = (best - new_best).shrinking_exp();
        self.best.set(new_best);
        for x in [&self.sum].into_iter().chain(&self.weighted) {
            let shrunk = x.get() * shrinks;
            x.set(shrunk + shrunk.exchanged(lanes));
        }
    }
}

/// The highest score of several parts of the keys, and by what the numbers of each are multiplied then.
fn factors<'k>(bests: &[Value<'k>]) -> (Value<'k>, Vec<Value<'k>>) {
    let best = bests.iter().skip(1).fold(bests[0], |best, &other| best.max(other));
    (best, bests.iter().map(|&own| (own - best).shrinking_exp()).collect())
}

/// An element of the result; of a query without keys 0, if `zeros`, or NaN.
fn share<'k>(weighted: Value<'k>, total: Value<'k>, zeros: bool) -> Value<'k> {
    let share = weighted / total;
    if zeros { total.equals(0.0).select(0.0, share) } else { share }
}

/// What the warps of a workgroup tell each other.
struct Shared<'k> {
    bests: Array<'k>,
    sums: Array<'k>,
    weighted: Array<'k>,
}

impl Decode {
    /// Neighbours that share a key.
    fn lanes(&self) -> u32 {
        let runs = self.size.max(self.value_size).div_ceil(wide::width(self.dtype));
        runs.next_power_of_two().min(WARP)
    }

    /// Keys that a warp asks for before it uses the first.
    fn keys_of_warp(&self) -> u32 {
        WARP / self.lanes() * UNROLLED
    }

    /// The kernel. Buffers and parameters: those of [`Attention`](super::Attention); of parts how many keys each has comes last, and the result's
    /// rows hold for each part the sum of its values, the highest score and the sum of its weights.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("decode_attention", [WARP * self.warps, 1], |k| self.write(k))
    }

    fn write<'k>(&self, k: &'k Builder) {
        // Left to itself the compiler takes so few registers that what was read is used before the next is asked for.
        k.resident(1);
        let Self { dtype, scoring, warps, value_size, .. } = *self;
        let sides = self.wide.map(|is_wide| Runs::declare(k, dtype, is_wide));
        let mask = scoring.mask_buffer(k);
        let output = k.output(if self.in_parts { held_as(DType::F32) } else { held_as(dtype) });
        // Parts of the keys, heads of all batches, queries.
        let [part, block_head, query] = block(k);
        let call = Call::declare(k, mask);
        let run = self.in_parts.then(|| k.parameter());
        let [of_query, of_key, of_value, of_result] = &call.places;
        let (batch, head) = (block_head / call.heads, block_head % call.heads);
        let of_keys = [batch, head / call.sharing];

        let (local, lanes) = (k.builtin(Builtin::LocalX), self.lanes());
        let (own, lane) = (local / lanes, local % lanes);
        let groups = WARP * warps / lanes;
        let vectors = |n: usize, place: &Place<'k>, size: u32| {
            let width = wide::width(dtype);
            Vectors { runs: sides[n], size, width, along: place.along, lane, lanes }
        };
        let queries = vectors(0, of_query, self.size);
        let (keys, values) = (vectors(1, of_key, self.size), vectors(2, of_value, value_size));

        let room = queries.room();
        queries.read(of_query.row([batch, head], query), &room);
        let elements = queries.elements(&room);
        let own_values = values.own().count() as u32 * values.width;
        let state = State::new(k, own_values);
        let end = scoring.end(&call, query);
        let (start, end) = match run {
            Some(run) => (part * run, (part * run + run).min(end)),
            None => (k.value(0_u32), end),
        };
        // All lanes of a warp take each step, since they hand numbers to each other.
        k.range(start, end, groups * UNROLLED, |first| {
            let read = |n: u32| {
                let key = first + own + n * groups;
                let (of_this_key, of_this_value) = (keys.room(), values.room());
                k.when(key.below(end), || {
                    keys.read(of_key.row(of_keys, key), &of_this_key);
                    values.read(of_value.row(of_keys, key), &of_this_value);
                });
                (key, call.masked([batch, head, query, key]), of_this_key, of_this_value)
            };
            let read: Vec<_> = (0..UNROLLED).map(read).collect();
            let score = |(key, mask, of_this_key, _): &(Value<'k>, Option<Value<'k>>, Vec<_>, Vec<_>)| {
                let pairs = elements.iter().zip(keys.elements(of_this_key));
                let product = pairs.fold(k.value(0.0), |sum, (a, b)| a.fma(b, sum));
                let bits = (0..lanes.ilog2()).map(|bit| 1 << bit);
                let product = bits.fold(product, |sum, lanes| sum + sum.exchanged(lanes));
                let score = scoring.shown_by(&call, scoring.score(&call, product), *mask, [query, *key]);
                // Keys of the next part are that one's.
                if self.in_parts { key.below(end).select(score, f32::NEG_INFINITY) } else { score }
            };
            let scores: Vec<_> = read.iter().map(score).collect();
            let of_values: Vec<_> = read.iter().map(|(.., room)| values.elements(room)).collect();
            state.add(&scores, &of_values);
        });
        for bit in lanes.ilog2()..WARP.ilog2() {
            state.join(1 << bit);
        }

        let padded = own_values * lanes;
        let shared = |length: u32| k.shared(Type::F32, length);
        let all = Shared { bests: shared(warps), sums: shared(warps), weighted: shared(warps * padded) };
        let warp = local / WARP;
        k.when((local % WARP).below(lanes), || {
            all.bests.set(warp, state.best.get());
            all.sums.set(warp, state.sum.get());
            for (run, weighted) in values.own().zip(state.weighted.chunks(values.width as usize)) {
                for (n, weighted) in (0_u32..).zip(weighted) {
                    all.weighted.set(warp * padded + run * values.width + n, weighted.get());
                }
            }
        });
        k.barrier();
        let of_warps = |array: Array<'k>, at: &dyn Fn(u32) -> Value<'k>| -> Vec<Value<'k>> {
            (0..warps).map(|warp| array.at(at(warp))).collect()
        };
        let (best, factors) = factors(&of_warps(all.bests, &|warp| k.value(warp)));
        let joined = |numbers: Vec<Value<'k>>| {
            factors.iter().zip(numbers).fold(k.value(0.0), |sum, (factor, x)| factor.fma(x, sum))
        };
        let total = joined(of_warps(all.sums, &|warp| k.value(warp)));
        let row = of_result.row([batch, head], query);
        let row = if self.in_parts { row + part * (value_size + BESIDE) } else { row };
        k.range(local, value_size, WARP * warps, |element| {
            let weighted = joined(of_warps(all.weighted, &|warp| element + warp * padded));
            let position = row + element * of_result.along;
            let zeros = scoring.leaves_zeros();
            output.set(position, if self.in_parts { weighted } else { share(weighted, total, zeros) });
        });
        if self.in_parts {
            k.when(local.equals(0_u32), || {
                output.set(row + value_size, best);
                output.set(row + (value_size + 1), total);
            });
        }
    }
}

impl DecodeJoin {
    /// The kernel. Buffers: what the parts left, the result. Parameters: its `block`; heads, queries, parts; where the result starts, with its
    /// strides.
    pub fn kernel(&self) -> Kernel {
        let Self { dtype, value_size, leaves_zeros } = *self;
        Builder::kernel("decode_join", [JOINING, 1], |k| {
            let (parts, output) = (k.input(held_as(DType::F32)), k.output(held_as(dtype)));
            // Queries, heads of all batches.
            let [query, block_head, _] = block(k);
            let [heads, queries, count] = [k.parameter(), k.parameter(), k.parameter()];
            let place = Place::declare(k);
            let length = value_size + BESIDE;
            let start = (block_head * queries + query) * count * length;
            let best = k.variable(parts.at(start + value_size));
            k.range(1_u32, count, 1_u32, |part| {
                best.set(best.get().max(parts.at(start + part * length + value_size)));
            });
            let best = best.get();
            k.range(k.builtin(Builtin::LocalX), value_size, JOINING, |element| {
                let (weighted, total) = (k.variable(0.0), k.variable(0.0));
                k.range(0_u32, count, 1_u32, |part| {
                    let at = start + part * length;
                    let factor = (parts.at(at + value_size) - best).shrinking_exp();
                    weighted.set(factor.fma(parts.at(at + element), weighted.get()));
                    total.set(factor.fma(parts.at(at + (value_size + 1)), total.get()));
                });
                let row = place.row([block_head / heads, block_head % heads], query);
                output.set(row + element * place.along, share(weighted.get(), total.get(), leaves_zeros));
            });
        })
    }
}

/// Attention of few queries, or nothing where they are more, or the device has no warps.
pub(super) fn attention<R: Runtime>(operands: &Operands<'_, R>) -> Option<GpuTensor<R>> {
    let &Operands { q, k, v, mask, .. } = operands;
    let [batch, heads, queries, keys] = operands.sizes();
    let has_warps = R::limits(&q.device).subgroups == Subgroups::Warps;
    // Of 64-bit floats there are too many bits for the variables of an invocation.
    let serves = has_warps && queries <= MOST_QUERIES && q.dtype != DType::F64;
    if !serves || !operands.fit(LONGEST) || operands.is_refused() {
        return None;
    }
    let scoring = operands.scoring();
    let mut template = Decode {
        dtype: q.dtype,
        size: q.dims()[3] as u32,
        value_size: v.dims()[3] as u32,
        wide: [q, k, v].map(|tensor| is_wide(&tensor.layout, tensor.dtype)),
        scoring,
        warps: 1,
        in_parts: false,
    };
    let rows = batch * heads * queries;
    let parts = match keys >= MANY_KEYS {
        true => (WORKGROUPS / rows).clamp(1, keys / LEAST_KEYS),
        false => 1,
    };
    let run = keys.div_ceil(parts);
    let [fewest, most] = WARPS;
    let warps = run.div_ceil(template.keys_of_warp() as usize).next_power_of_two();
    template.warps = warps.clamp(fewest, most) as u32;

    let out = operands.result();
    let blocks = [parts, batch * heads, queries];
    let launch = |template: Decode, words: &[u32], result: &GpuTensor<R>| {
        let tensors: Vec<_> = [q, k, v].into_iter().chain(mask).chain([result]).collect();
        launch_blocks::<R>(&q.device, template, &tensors, words, blocks, false);
    };
    if parts == 1 {
        launch(template, &operands.words(&out), &out);
        return Some(out);
    }
    template.in_parts = true;
    let length = template.value_size as usize + BESIDE as usize;
    let left = GpuTensor::empty(Shape::from([batch, heads, queries, parts * length]), DType::F32, &q.device);
    let mut words = operands.words(&left);
    words.push(run as u32);
    let leaves_zeros = scoring.leaves_zeros();
    let join = DecodeJoin { dtype: q.dtype, value_size: template.value_size, leaves_zeros };
    launch(template, &words, &left);
    let mut words = [heads, queries, parts].map(|n| n as u32).to_vec();
    words.extend(Place::words(&out.layout));
    launch_blocks::<R>(&q.device, join, &[&left, &out], &words, [queries, batch * heads, 1], false);
    Some(out)
}
