//! Attention in tiles that a workgroup shares, by plain arithmetic: all invocations compute a part of a tile of scores, whose weights they
//! share, and a part of the sums of the values (Dao et al. 2022, "FlashAttention").

use super::LOWEST;
use super::call::{Call, Heads, Operands, Scoring};
use crate::kernels::direct::Side;
use crate::kernels::{block, launch_blocks};
use crate::language::{Array, Buffer, Builder, Builtin, Fours, Kernel, Type, Value, Variable};
use crate::runtime::{Runtime, Subgroups};
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::DType;

/// The longest head.
const LONGEST: usize = 256;
/// Invocations that share a few queries, each with some of the keys of a tile, and some elements of the sums.
const ACROSS: u32 = 16;
/// How many times these a workgroup has.
const DOWN: u32 = 8;
/// Of neighbours so many have different queries and the same keys: what two of them read of a key is read at once.
const NEIGHBOURS: u32 = 2;
/// Workgroups that a multiprocessor is to hold at once: left to itself, the compiler takes fewer registers than it needs for that.
const RESIDENT: u32 = 3;
/// Elements that are read and written at once.
const CHUNK: u32 = 4;
/// What queries and keys of an invocation may be, the best first: the more, the more is computed of what is read of a tile.
const EACH: [[u32; 2]; 8] = [[4, 4], [4, 2], [2, 4], [2, 2], [2, 1], [1, 4], [1, 2], [1, 1]];
/// Workgroups that large GPUs should have at least.
const WORKGROUPS: usize = 96;
/// Attention in tiles without tensor cores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TiledAttention {
    /// Queries, keys and values.
    pub heads: Heads,
    /// Their scores.
    pub scoring: Scoring,
    /// Queries and keys of an invocation.
    pub each: [u32; 2],
    /// Whether weights are written over the keys that they are of, which takes less of what a workgroup shares.
    pub over_keys: bool,
    /// Whether there are warps, whose lanes exchange numbers.
    pub warps: bool,
}

/// Chunks of vectors in shared memory, of an odd number each with the padding: of eight neighbours, a chunk of each is read at once.
#[derive(Clone, Copy)]
struct Rows {
    chunks: u32,
    count: u32,
}

impl Rows {
    fn new(count: u32, size: u32) -> Self {
        Self { chunks: size.div_ceil(CHUNK), count }
    }

    /// From each vector to the next.
    fn stride(self) -> u32 {
        (self.chunks | 1) * CHUNK
    }

    fn length(self) -> u32 {
        self.stride() * self.count
    }
}

/// Vectors of an operand, and where they come to in shared memory.
struct Tile<'k> {
    side: Side<'k>,
    /// Elements of a vector.
    size: u32,
    rows: Rows,
    array: Array<'k>,
    /// Which invocation of the workgroup brings them.
    local: Value<'k>,
}

impl<'k> Tile<'k> {
    /// What the invocation brings of them, by turns: whether there is such a chunk, if that is not certain, its vector, and its number there.
    fn turns(&self) -> impl Iterator<Item = (Option<Value<'k>>, Value<'k>, Value<'k>)> {
        let (chunks, all, threads) = (self.rows.chunks, self.rows.chunks * self.rows.count, ACROSS * DOWN);
        let local = self.local;
        (0..all).step_by(threads as usize).map(move |first| {
            let at = local + first;
            let is_certain = first + threads <= all;
            ((!is_certain).then(|| at.below(all)), at / chunks, at % chunks)
        })
    }

    /// Variables for what the invocation brings.
    fn variables(&self) -> Vec<[Variable<'k>; 4]> {
        self.turns().map(|_| [(); 4].map(|()| self.local.kernel().variable(0.0))).collect()
    }

    /// Reads what the invocation brings, of vectors that start where `start` says; those beyond `count` are zeros, if one is told.
    fn read(
        &self,
        along: Value<'k>,
        count: Option<Value<'k>>,
        start: impl Fn(Value<'k>) -> Value<'k>,
        to: &[[Variable<'k>; 4]],
    ) {
        for ((_, row, chunk), to) in self.turns().zip(to) {
            let within = count.map(|count| row.below(count));
            for (to, x) in to.iter().zip(self.chunk(start(row), along, chunk)) {
                to.set(within.map_or(x, |within| within.select(x, 0.0)));
            }
        }
    }

    /// Four elements of the vector that starts there; those beyond its end are zeros.
    fn chunk(&self, start: Value<'k>, along: Value<'k>, chunk: Value<'k>) -> [Value<'k>; 4] {
        match self.side {
            Side::Fours(buffer) => buffer.at(start / CHUNK + chunk),
            Side::Single(buffer) => [0, 1, 2, 3].map(|n: u32| {
                let element = chunk * CHUNK + n;
                let x = buffer.at(start + element * along);
                if self.size.is_multiple_of(CHUNK) { x } else { element.below(self.size).select(x, 0.0) }
            }),
        }
    }

    /// Has the workgroup share what the invocation read.
    fn share(&self, from: &[[Variable<'k>; 4]]) {
        for ((within, row, chunk), from) in self.turns().zip(from) {
            let write = || {
                let at = row * self.rows.stride() + chunk * CHUNK;
                for (n, x) in (0_u32..).zip(from) {
                    self.array.set(at + n, x.get());
                }
            };
            match within {
                Some(within) => self.local.kernel().when(within, write),
                None => write(),
            }
        }
    }
}

/// Four neighbours of a shared array.
fn four<'k>(array: Array<'k>, at: Value<'k>) -> [Value<'k>; 4] {
    [0, 1, 2, 3].map(|n: u32| array.at(at + n))
}

/// Where results go.
enum Results<'k> {
    Single(Buffer<'k>),
    Fours(Fours<'k>),
}

/// What an invocation keeps of one of its queries.
struct Query<'k> {
    /// Its number; beyond the last it repeats that, and is not written.
    number: Value<'k>,
    is_written: Value<'k>,
    /// The highest score.
    best: Variable<'k>,
    /// The sum of the weights of the keys that the invocation sees.
    sum: Variable<'k>,
    /// Its elements of the sum of the values by their weights.
    weighted: Vec<[Variable<'k>; 4]>,
}

/// The invocations that share queries.
struct Across<'k> {
    /// Which of them the invocation is, and which queries they share.
    x: Value<'k>,
    y: Value<'k>,
    /// Where there are no warps, what they hand to each other.
    shared: Option<Array<'k>>,
}

impl<'k> Across<'k> {
    /// Reduces what each of them has, a number a query. Where there are no warps, that waits for the workgroup.
    fn reduce(
        &self,
        numbers: Vec<Value<'k>>,
        join: impl Fn(Value<'k>, Value<'k>) -> Value<'k>,
    ) -> Vec<Value<'k>> {
        let Some(shared) = self.shared else {
            let lanes = || (0..ACROSS.ilog2()).map(|n| NEIGHBOURS << n);
            let all = |x: Value<'k>| lanes().fold(x, |x, lanes| join(x, x.exchanged(lanes)));
            return numbers.into_iter().map(all).collect();
        };
        let first = self.y * (numbers.len() as u32 * ACROSS);
        let at = |n: usize| first + n as u32 * ACROSS;
        for (n, &x) in numbers.iter().enumerate() {
            shared.set(at(n) + self.x, x);
        }
        self.x.kernel().barrier();
        let of_query = |n| (1..ACROSS).fold(shared.at(at(n)), |x, other| join(x, shared.at(at(n) + other)));
        (0..numbers.len()).map(of_query).collect()
    }
}

impl TiledAttention {
    /// The kernel. Buffers and parameters: those of [`Attention`](super::Attention).
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("tiled_attention", [ACROSS * DOWN, 1], |k| self.write(k))
    }

    /// The queries, keys and values of a tile, and their weights, of which each vector is a query's.
    fn rows(&self) -> [Rows; 4] {
        let [queries, keys] = [self.each[0] * DOWN, self.each[1] * ACROSS];
        let Heads { size, value_size, .. } = self.heads;
        [
            Rows::new(queries, size),
            Rows::new(keys, size),
            Rows::new(keys, value_size),
            Rows::new(queries, keys),
        ]
    }

    /// Bytes that a workgroup shares.
    fn shared_bytes(&self) -> u32 {
        let [queries, keys, values, weights] = self.rows().map(Rows::length);
        let keys = if self.over_keys { keys.max(weights) } else { keys + weights };
        let handed = if self.warps { 0 } else { self.each[0] * DOWN * ACROSS };
        4 * (queries + keys + values + handed)
    }

    fn write<'k>(&self, k: &'k Builder) {
        k.resident(RESIDENT);
        let Self { heads: Heads { dtype, size, value_size, .. }, scoring, .. } = *self;
        let sizes = [size, size, value_size];
        let sides = self.heads.declare(k);
        let mask = scoring.mask_buffer(k);
        let storage = held_as(dtype);
        let results = match value_size.is_multiple_of(CHUNK) {
            true => Results::Fours(k.output_of_fours(storage)),
            false => Results::Single(k.output(storage)),
        };
        // Queries, heads of all batches.
        let [block_query, block_head, _] = block(k);
        let call = Call::declare(k, mask);
        let (batch, head) = (block_head / call.heads, block_head % call.heads);
        let of_keys = [batch, head / call.sharing];

        let local = k.builtin(Builtin::LocalX);
        let x = local / NEIGHBOURS % ACROSS;
        let y = local / (NEIGHBOURS * ACROSS) * NEIGHBOURS + local % NEIGHBOURS;
        let [each_queries, _] = self.each;
        let rows = self.rows();
        let [query_rows, key_rows, ..] = rows;
        let lengths = rows.map(Rows::length);
        let shared = |n: usize| match n {
            1 if self.over_keys => k.shared(Type::F32, lengths[1].max(lengths[3])),
            n => k.shared(Type::F32, lengths[n]),
        };
        let mut tiles = (0..).zip(sides).map(|(n, side)| Tile {
            side,
            size: sizes[n],
            rows: rows[n],
            array: shared(n),
            local,
        });
        let [queries, keys, values] = [(); 3].map(|()| tiles.next().expect("three sides"));
        let weights = if self.over_keys { keys.array } else { shared(3) };
        let handed = (!self.warps).then(|| k.shared(Type::F32, each_queries * DOWN * ACROSS));
        let across = Across { x, y, shared: handed };
        let sums = Sums::new(self, x);

        let first = block_query * query_rows.count;
        let query = |n: u32| {
            let number = first + y * each_queries + n;
            Query {
                number: number.min(call.queries - 1_u32),
                is_written: number.below(call.queries),
                best: k.variable(LOWEST),
                sum: k.variable(0.0),
                weighted: sums.own.iter().map(|_| [(); 4].map(|()| k.variable(0.0))).collect(),
            }
        };
        let own: Vec<Query<'k>> = (0..each_queries).map(query).collect();
        let work = Work {
            kernel: self,
            k,
            call,
            at: [batch, head],
            queries,
            keys,
            values,
            weights,
            across,
            sums,
            own,
        };

        let Work { call, queries, keys, values, .. } = &work;
        let [of_query, of_key, of_value, _] = &call.places;
        let read = queries.variables();
        queries.read(of_query.along, None, |row| of_query.row([batch, head], first + row), &read);
        queries.share(&read);
        let (next_keys, next_values) = (keys.variables(), values.variables());
        // What comes next is on its way while the workgroup computes.
        let bring = |tile: Value<'k>| {
            keys.read(of_key.along, None, |row| of_key.row(of_keys, tile + row), &next_keys);
            let count = call.keys - tile;
            values.read(of_value.along, Some(count), |row| of_value.row(of_keys, tile + row), &next_values);
        };
        // The last of the workgroup's queries sees most.
        let last = (first + (query_rows.count - 1)).min(call.queries - 1_u32);
        let end = scoring.end(call, last);
        bring(k.value(0_u32));
        k.range(0_u32, end, key_rows.count, |tile| {
            keys.share(&next_keys);
            values.share(&next_values);
            k.barrier();
            k.when((tile + key_rows.count).below(end), || bring(tile + key_rows.count));
            let weights = work.weigh(tile);
            k.barrier();
            work.add_values(weights);
            k.barrier();
        });
        work.write_results(results);
    }
}

/// Elements of the sums: where they are few, some invocations have the same ones of other keys.
struct Sums<'k> {
    /// Groups of keys of a tile, and among how many invocations they are shared out.
    groups: u32,
    splits: u32,
    /// Which of these the invocation is.
    split: Value<'k>,
    /// Invocations with different elements.
    lanes: u32,
    /// Chunks of a sum, and which of them are the invocation's.
    chunks: u32,
    own: Vec<Value<'k>>,
}

impl<'k> Sums<'k> {
    fn new(kernel: &TiledAttention, x: Value<'k>) -> Self {
        let [_, key_rows, value_rows, _] = kernel.rows();
        let chunks = value_rows.chunks;
        let groups = key_rows.count / CHUNK;
        let splits = if kernel.warps { (ACROSS / chunks.next_power_of_two()).clamp(1, groups) } else { 1 };
        let lanes = ACROSS / splits;
        let (split, first_chunk) = (x / lanes, x % lanes);
        let own = (0..chunks).step_by(lanes as usize).map(|n| first_chunk + n).collect();
        Self { groups, splits, split, lanes, chunks, own }
    }
}

/// What an invocation works with.
struct Work<'a, 'k> {
    kernel: &'a TiledAttention,
    k: &'k Builder,
    call: Call<'k>,
    /// The batch and the head.
    at: [Value<'k>; 2],
    queries: Tile<'k>,
    keys: Tile<'k>,
    values: Tile<'k>,
    /// The weights of a tile's keys, a vector for each query.
    weights: Array<'k>,
    across: Across<'k>,
    sums: Sums<'k>,
    own: Vec<Query<'k>>,
}

impl<'k> Work<'_, 'k> {
    /// From one query's weights to the next one's.
    fn weight_stride(&self) -> u32 {
        let [.., weight_rows] = self.kernel.rows();
        weight_rows.stride()
    }

    /// The products of its queries with its keys of a tile.
    fn products(&self) -> Vec<Vec<Variable<'k>>> {
        let Self { k, queries, keys, .. } = self;
        let [each_queries, each_keys] = self.kernel.each;
        let products: Vec<Vec<_>> =
            (0..each_queries).map(|_| (0..each_keys).map(|_| k.variable(0.0)).collect()).collect();
        let (query_stride, key_stride) = (queries.rows.stride(), keys.rows.stride());
        k.range(0_u32, queries.rows.chunks, 1_u32, |chunk| {
            let (left, right) = (self.across.y * (each_queries * query_stride), self.across.x * key_stride);
            let lefts: Vec<_> = (0..each_queries)
                .map(|n| four(queries.array, left + chunk * CHUNK + n * query_stride))
                .collect();
            let rights: Vec<_> = (0..each_keys)
                .map(|m| four(keys.array, right + chunk * CHUNK + m * (ACROSS * key_stride)))
                .collect();
            for at in 0..CHUNK as usize {
                for (products, left) in products.iter().zip(&lefts) {
                    for (product, right) in products.iter().zip(&rights) {
                        product.set(left[at].fma(right[at], product.get()));
                    }
                }
            }
        });
        products
    }

    /// Has the workgroup share the weights of a tile's keys, and what is there of the sums shrink as the highest score grows; yields where
    /// those of its own queries begin.
    fn weigh(&self, tile: Value<'k>) -> Value<'k> {
        let Self {
            kernel: TiledAttention { scoring, each, over_keys, warps, .. }, k, call, across, own, ..
        } = self;
        let [each_queries, each_keys] = *each;
        let Across { x, y, .. } = *across;
        let [batch, head] = self.at;
        let numbers: Vec<_> = (0..each_keys).map(|m| tile + x + m * ACROSS).collect();
        let masks: Vec<Vec<_>> = own
            .iter()
            .map(|query| numbers.iter().map(|&key| call.masked([batch, head, query.number, key])).collect())
            .collect();
        let products = self.products();
        let scores: Vec<Vec<_>> = (own.iter().zip(&products).zip(&masks))
            .map(|((query, products), masks)| {
                let of_key = |((&key, product), &mask): ((&Value<'k>, &Variable<'k>), &Option<Value<'k>>)| {
                    let score = scoring.score(call, product.get());
                    scoring.shown_by(call, score, mask, [query.number, key])
                };
                numbers.iter().zip(products).zip(masks).map(of_key).collect()
            })
            .collect();
        let highest = |scores: &Vec<Value<'k>>| scores.iter().copied().reduce(|a, b| a.max(b));
        let highest = across.reduce(scores.iter().filter_map(highest).collect(), |a, b| a.max(b));
        if *over_keys && *warps {
            k.barrier();
        }
        let exp = |x: Value<'k>| if *warps { x.shrinking_exp() } else { x.exp() };
        let stride = self.weight_stride();
        let row = y * (each_queries * stride);
        for (((n, query), scores), highest) in (0_u32..).zip(own).zip(scores).zip(highest) {
            let best = query.best.get();
            let new_best = best.max(highest);
            let shrinks = exp(best - new_best);
            query.best.set(new_best);
            let mut sum = query.sum.get() * shrinks;
            for (m, score) in (0_u32..).zip(scores) {
                let weight = exp(score - new_best);
                sum = sum + weight;
                self.weights.set(row + x + (n * stride + m * ACROSS), weight);
            }
            query.sum.set(sum);
            for sum in query.weighted.iter().flatten() {
                sum.set(sum.get() * shrinks);
            }
        }
        row
    }

    /// Adds a tile's values by their weights, of which those of its own queries begin at `row`.
    fn add_values(&self, row: Value<'k>) {
        let Self { values, sums: Sums { groups, splits, split, chunks, own: own_chunks, .. }, own, .. } =
            self;
        let [each_queries, _] = self.kernel.each;
        let stride = self.weight_stride();
        self.k.range(*split, *groups, *splits, |group| {
            let lefts: Vec<_> =
                (0..each_queries).map(|n| four(self.weights, row + group * CHUNK + n * stride)).collect();
            for (at, &chunk) in own_chunks.iter().enumerate() {
                // Those beyond the end are not written.
                let chunk = chunk.min(chunks - 1);
                let first = group * (CHUNK * values.rows.stride()) + chunk * CHUNK;
                for n in 0..CHUNK {
                    let right = four(values.array, first + n * values.rows.stride());
                    for (query, left) in own.iter().zip(&lefts) {
                        for (sum, right) in query.weighted[at].iter().zip(right) {
                            sum.set(left[n as usize].fma(right, sum.get()));
                        }
                    }
                }
            }
        });
    }

    /// Writes the sums over their weights.
    fn write_results(&self, results: Results<'k>) {
        let Self {
            k,
            call,
            across,
            sums: Sums { splits, split, lanes, chunks, own: own_chunks, .. },
            own,
            ..
        } = self;
        let of_result = &call.places[3];
        let Heads { value_size, .. } = self.kernel.heads;
        let zeros = self.kernel.scoring.leaves_zeros();
        let totals = across.reduce(own.iter().map(|query| query.sum.get()).collect(), |a, b| a + b);
        for (query, total) in own.iter().zip(totals) {
            let is_empty = total.equals(0.0);
            let start = of_result.row(self.at, query.number);
            for (&chunk, sums) in own_chunks.iter().zip(&query.weighted) {
                let shares = sums.map(|sum| {
                    let others = (0..splits.ilog2()).map(|n| (NEIGHBOURS * lanes) << n);
                    let sum = others.fold(sum.get(), |sum, lanes| sum + sum.exchanged(lanes));
                    let share = sum / total;
                    if zeros { is_empty.select(0.0, share) } else { share }
                });
                let is_first = split.equals(0_u32) & chunk.below(*chunks);
                k.when(query.is_written & is_first, || match results {
                    Results::Fours(results) => results.set(start / CHUNK + chunk, shares),
                    Results::Single(results) => {
                        for (n, share) in (0_u32..).zip(shares) {
                            let element = chunk * CHUNK + n;
                            k.when(element.below(value_size), || {
                                results.set(start + element * of_result.along, share);
                            });
                        }
                    }
                });
            }
        }
    }
}

/// Attention in tiles, or nothing where the device has no use for them, or a workgroup would share too much.
pub(super) fn attention<R: Runtime>(operands: &Operands<'_, R>) -> Option<GpuTensor<R>> {
    let &Operands { q, k, v, mask, .. } = operands;
    let limits = R::limits(&q.device);
    // Of 64-bit floats there are too many bits for the variables of an invocation.
    if !limits.shared_memory || !operands.fit(LONGEST) || q.dtype == DType::F64 {
        return None;
    }
    let [batch, heads, queries, keys] = operands.sizes();
    if operands.is_refused() {
        return None;
    }
    let out = operands.result();
    let words = operands.words(&out);
    let (of_heads, scoring) = (operands.heads(), operands.scoring());
    let of = |each: [u32; 2]| TiledAttention {
        heads: of_heads,
        scoring,
        each,
        over_keys: false,
        warps: limits.subgroups == Subgroups::Warps,
    };
    let blocks = |each: u32| [queries.div_ceil((each * DOWN) as usize), batch * heads, 1];
    let is_enough = |&[each, of_keys]: &[u32; 2]| {
        let [across, down, _] = blocks(each);
        let few = across * down < WORKGROUPS || queries <= (each * DOWN / 2) as usize;
        (each == 1 || !few) && (of_keys == 1 || keys > (of_keys * ACROSS / 2) as usize)
    };
    let fitting = |template: TiledAttention| {
        let over_keys = TiledAttention { over_keys: true, ..template.clone() };
        [template, over_keys].into_iter().find(|template| template.shared_bytes() <= limits.shared_bytes)
    };
    let template = EACH.into_iter().filter(is_enough).map(of).find_map(fitting)?;
    let blocks = blocks(template.each[0]);
    let tensors: Vec<_> = [q, k, v].into_iter().chain(mask).chain([&out]).collect();
    launch_blocks::<R>(&q.device, template, &tensors, &words, blocks, false);
    Some(out)
}
