//! Sorting, stably: blocks in what workgroups share, then runs by what of the others comes before each element of theirs.

use super::index::named_row;
use super::{LINE, elementwise, index, launch, line_of, line_of_groups};
use crate::language::{Builder, Builtin, Kernel, Storage, Type, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::backend::{Layout, Primitive};
use kiln_tensor::{DType, Shape};

/// Elements that a workgroup sorts: with keys of 64 bits they take 12 KiB of the 16 that every device shares.
const TILE: u32 = 4 * LINE;

/// By what is sorted: unsigned integers, of which the least comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keys {
    /// Those of elements.
    Elements {
        /// The elements' dtype.
        dtype: DType,
        /// Largest first.
        descending: bool,
    },
    /// The rows that positions of a dtype name, what names none behind all others.
    Rows(DType),
    /// Keys that were made of something else, which lies at other positions: in words of 64 bits, or 32.
    Made {
        /// Whether they have 64 bits.
        wide: bool,
    },
}

impl Keys {
    /// As what they are kept.
    fn dtype(self) -> DType {
        let wide = match self {
            Keys::Elements { dtype, .. } => held_as(dtype).value().words() > 1,
            Keys::Rows(_) => false,
            Keys::Made { wide } => wide,
        };
        if wide { DType::U64 } else { DType::U32 }
    }

    /// The dtype of what they are made of.
    fn source(self) -> DType {
        match self {
            Keys::Elements { dtype, .. } | Keys::Rows(dtype) => dtype,
            Keys::Made { .. } => self.dtype(),
        }
    }
}

/// Sorts blocks of lanes, each within a workgroup, by Batcher's bitonic network; those of short lanes share one.
///
/// Places break ties, so the order is total and the sort is stable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BlockSort {
    /// By what.
    pub keys: Keys,
}

impl BlockSort {
    /// The kernel. Buffers: the elements, row-major lanes, where they come from if keys are made; their keys in order, their positions. Parameters: how many blocks there are, how
    /// many a lane has, the length of a lane, how often a block's size is halved until it is 1; how many elements of a block are kept, how many of a lane; of rows their number.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("block_sort", [LINE, 1], |k| {
            let ty = held_as(self.keys.dtype()).value();
            let input = k.input(held_as(self.keys.source()));
            let from = matches!(self.keys, Keys::Made { .. }).then(|| k.input(Storage::U32));
            let (sorted, order) = (k.output(held_as(self.keys.dtype())), k.output(Storage::U32));
            let (blocks, of_lane, length, stages) =
                (k.parameter(), k.parameter(), k.parameter(), k.parameter());
            let (keep, kept) = (k.parameter(), k.parameter());
            let rows = matches!(self.keys, Keys::Rows(_)).then(|| k.parameter());
            let (keys, places) = (k.shared(ty, TILE), k.shared(Type::U32, TILE));
            let local = k.builtin(Builtin::LocalIndex);
            let size = k.value(1_u32) << stages;
            let first = k.group() * (k.value(TILE) >> stages);
            // Which lane the element of a slot is of, where the block begins there, which element of that it is, and whether there is one.
            let slot = |n: u32| {
                let slot = local + n * LINE;
                let (number, within) = (first + (slot >> stages), slot & (size - 1_u32));
                let block = number % of_lane;
                let start = block << stages;
                let inside = number.below(blocks) & within.below(length - start.min(length));
                (slot, number / of_lane, block, start, within, inside)
            };
            for n in 0..TILE / LINE {
                let (slot, lane, _, start, within, inside) = slot(n);
                // What fills the block up comes last.
                let most = if ty == Type::U64 { k.value(u64::MAX) } else { k.value(u32::MAX) };
                let key = k.variable(most);
                k.when(inside, || {
                    let element = input.at(lane * length + start + within);
                    key.set(match (self.keys, rows) {
                        (Keys::Elements { descending: true, .. }, _) => !sortable(element),
                        (Keys::Rows(_), Some(rows)) => {
                            let (row, is_there) = named_row(element, rows);
                            is_there.select(row, rows)
                        }
                        (Keys::Elements { .. } | Keys::Rows(_) | Keys::Made { .. }, _) => sortable(element),
                    });
                });
                keys.set(slot, key.get());
                places.set(slot, within);
            }
            k.barrier();
            k.range(0_u32, stages, 1_u32, |stage| {
                k.range(0_u32, stage + 1_u32, 1_u32, |round| {
                    let distance = k.value(1_u32) << (stage - round);
                    for n in 0..TILE / LINE / 2 {
                        let pair = local + n * LINE;
                        let low = pair + pair - (pair & (distance - 1_u32));
                        let high = low + distance;
                        let ([a, b], [first, second]) =
                            ([low, high].map(|at| keys.at(at)), [low, high].map(|at| places.at(at)));
                        let after = a.above(b) | (a.equals(b) & first.above(second));
                        // What is sorted last, whole blocks, is sorted upwards.
                        let downwards = (((low & (size - 1_u32)) >> (stage + 1_u32)) & 1_u32).equals(1_u32);
                        k.when(after.to(Type::U32).differs(downwards.to(Type::U32)), || {
                            keys.set(low, b);
                            keys.set(high, a);
                            places.set(low, second);
                            places.set(high, first);
                        });
                    }
                    k.barrier();
                });
            });
            for n in 0..TILE / LINE {
                let (slot, lane, block, start, within, inside) = slot(n);
                k.when(inside & within.below(keep), || {
                    let to = lane * kept + block * keep + within;
                    sorted.set(to, keys.at(slot));
                    let position = start + places.at(slot);
                    order.set(to, from.map_or(position, |from| from.at(lane * length + position)));
                });
            }
        })
    }
}

/// Makes of a few sorted runs one: an invocation an element, which stands behind all that comes before it in each of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MergeRuns {
    /// Whether keys have 64 bits.
    pub wide: bool,
}

impl MergeRuns {
    /// The kernel. Buffers: keys and positions, and those of longer runs. Parameters: how many elements there are, the length of a lane, that of a run, how many
    /// runs become one, how often a run is halved until nothing is left.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("merge_runs", [LINE, 1], |k| {
            let storage = if self.wide { Storage::U64 } else { Storage::U32 };
            let (keys, order) = (k.input(storage), k.input(Storage::U32));
            let (sorted, merged) = (k.output(storage), k.output(Storage::U32));
            let (count, length, run) = (k.parameter(), k.parameter(), k.parameter());
            let (runs, halvings) = (k.parameter(), k.parameter());
            let at = k.position(LINE);
            k.when(at.below(count), || {
                let (lane, within) = (at / length * length, at % length);
                let first = within - within % (runs * run);
                let own = (within - first) / run;
                let key = keys.at(at);
                let rank = k.variable(within - first - own * run);
                k.range(0_u32, runs, 1_u32, |other| {
                    k.when(other.differs(own), || {
                        let start = (first + other * run).min(length);
                        let (low, high) = (k.variable(start), k.variable(start + run.min(length - start)));
                        // Of equal keys those of earlier runs come first.
                        let is_earlier = other.below(own);
                        k.range(0_u32, halvings, 1_u32, |_| {
                            k.when(low.get().below(high.get()), || {
                                let middle = (low.get() + high.get()) >> 1_u32;
                                let found = keys.at(lane + middle);
                                let before = found.below(key) | (is_earlier & found.equals(key));
                                k.either(before, || low.set(middle + 1_u32), || high.set(middle));
                            });
                        });
                        rank.set(rank.get() + (low.get() - start));
                    });
                });
                let to = lane + first + rank.get();
                sorted.set(to, key);
                merged.set(to, order.at(at));
            });
        })
    }
}

/// An unsigned integer that orders as the number does; NaN is the largest, both zeros are equal.
fn sortable(x: Value<'_>) -> Value<'_> {
    match x.ty() {
        Type::F64 => {
            let bits = x.equals(0.0).select(0.0, x).bits(Type::U64);
            let ordered = bits.at_least(1_u64 << 63).select(!bits, bits | (1_u64 << 63));
            x.is_nan().select(u64::MAX, ordered)
        }
        Type::F32 => {
            let bits = x.equals(0.0).select(x.kernel().value(0.0), x).bits(Type::U32);
            let ordered = bits.at_least(0x8000_0000_u32).select(!bits, bits | 0x8000_0000_u32);
            x.is_nan().select(u32::MAX, ordered)
        }
        Type::I64 => x.bits(Type::U64) ^ (1_u64 << 63),
        Type::I32 => x.bits(Type::U32) ^ 0x8000_0000_u32,
        Type::U64 | Type::U32 => x,
        Type::Bool => x.to(Type::U32),
    }
}

/// What of lanes comes first.
pub(super) struct Ordered<R: Runtime> {
    /// The keys.
    pub keys: GpuTensor<R>,
    /// The positions in the lanes.
    pub positions: GpuTensor<R>,
    /// Elements from each lane to the next: at least as many as are kept.
    pub stride: usize,
}

/// Of how many elements that are kept those of each block are chosen, and of these again, until one block is left: blocks of 1,024 become a quarter at most. More are sorted whole.
const MOST_SELECTED: usize = TILE as usize / 4;

/// Runs that one launch makes one of. More searches an element, but fewer launches that read and write all: with two of them a million elements would take 10 behind that of their
/// blocks, with four 5, and with eight 4.
const RUNS: usize = 4;

/// Launches that merge the blocks of a lane of a length.
pub(super) fn merges(length: usize) -> u32 {
    let (mut run, mut launches) = (TILE as usize, 0);
    while run < length {
        run = run.saturating_mul(RUNS);
        launches += 1;
    }
    launches
}

/// The first `keep` elements of lanes of a length, which lie one after another from the start of memory, and the words that tell a kernel of their keys.
pub(super) fn ordered<R: Runtime>(
    tensor: &GpuTensor<R>,
    length: usize,
    keep: usize,
    keys: Keys,
    words_of_keys: &[u32],
) -> Ordered<R> {
    let device = &tensor.device;
    let (lanes, wide) = (tensor.len().checked_div(length).unwrap_or(0), keys.dtype() == DType::U64);
    let selects = keep <= MOST_SELECTED;
    let mut made: Option<Ordered<R>> = None;
    let mut length = length;
    loop {
        let block = length.next_power_of_two().min(TILE as usize);
        let of_lane = length.div_ceil(block).max(1);
        let of_block = if selects || of_lane == 1 { keep.min(block) } else { block };
        let before_last = of_lane - 1;
        let kept = before_last * of_block + of_block.min(length - before_last * block);
        let shape = Shape::from([lanes, kept]);
        let next = Ordered {
            keys: GpuTensor::empty(shape.clone(), keys.dtype(), device),
            positions: GpuTensor::empty(shape, DType::U32, device),
            stride: kept,
        };
        if !next.keys.is_empty() {
            let blocks = lanes * of_lane;
            let words = [blocks, of_lane, length, block.ilog2() as usize, of_block, kept].map(|n| n as u32);
            let groups = line_of_groups::<R>(device, blocks.div_ceil(TILE as usize / block));
            match &made {
                None => {
                    let tensors = [tensor, &next.keys, &next.positions];
                    let words = [&words, words_of_keys].concat();
                    launch::<R>(device, BlockSort { keys }, &tensors, &words, groups);
                }
                Some(before) => {
                    let tensors = [&before.keys, &before.positions, &next.keys, &next.positions];
                    let keys = Keys::Made { wide };
                    launch::<R>(device, BlockSort { keys }, &tensors, &words, groups);
                }
            }
        }
        if of_lane == 1 || next.keys.is_empty() {
            return next;
        }
        if !selects {
            return merged(next, wide);
        }
        (length, made) = (kept, Some(next));
    }
}

/// Lanes of sorted blocks, sorted whole.
fn merged<R: Runtime>(mut ordered: Ordered<R>, wide: bool) -> Ordered<R> {
    let (device, length) = (ordered.keys.device.clone(), ordered.stride);
    let mut run = TILE as usize;
    while run < length {
        let next = Ordered {
            keys: GpuTensor::empty(ordered.keys.shape(), ordered.keys.dtype, &device),
            positions: GpuTensor::empty(ordered.keys.shape(), DType::U32, &device),
            stride: length,
        };
        // Positions have 32 bits.
        let runs = if run <= 1 << 28 { RUNS } else { 2 };
        let words = [next.keys.len(), length, run, runs, run.ilog2() as usize + 1].map(|n| n as u32);
        let tensors = [&ordered.keys, &ordered.positions, &next.keys, &next.positions];
        let groups = line_of::<R>(&device, next.keys.len());
        launch::<R>(&device, MergeRuns { wide }, &tensors, &words, groups);
        ordered = next;
        run *= runs;
    }
    ordered
}

/// The first `keep` values along `dim` in order, and their positions.
pub(crate) fn sorted<R: Runtime>(
    tensor: GpuTensor<R>,
    dim: usize,
    descending: bool,
    keep: usize,
    positions: DType,
) -> (GpuTensor<R>, GpuTensor<R>) {
    // The dim goes last, in row-major lanes from the start of memory.
    let rank = tensor.dims().len();
    let last: Vec<usize> = (0..rank).filter(|&axis| axis != dim).chain([dim]).collect();
    let mut back: Vec<usize> = (0..rank - 1).collect();
    back.insert(dim, rank - 1);
    let layout = tensor.layout.permute(&last);
    let tensor = elementwise::from_start(tensor.with_layout(layout));
    let length = tensor.dims()[rank - 1];
    let ordered = ordered(&tensor, length, keep, Keys::Elements { dtype: tensor.dtype, descending }, &[]);
    let mut shape = tensor.shape();
    shape.dims[rank - 1] = keep;
    let mut lanes = shape.clone();
    lanes.dims[rank - 1] = ordered.stride;
    let layout = Layout { shape, ..Layout::contiguous(lanes) };
    let order = ordered.positions.with_layout(layout);
    let values = index::gather(&tensor, rank - 1, &order);
    let order = elementwise::cast(&order, positions);
    let turn = |tensor: GpuTensor<R>| {
        let layout = tensor.layout.permute(&back);
        tensor.with_layout(layout)
    };
    (turn(values), turn(order))
}
