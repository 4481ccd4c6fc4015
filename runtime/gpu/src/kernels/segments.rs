//! Reductions of values into the rows that an index names, when many name the same: positions are brought into the order of their rows, and what lies one after another then is reduced
//! in chunks.
//!
//! Each chunk is walked by one invocation a lane. Rows that begin and end within one are done; of those that may go on beyond it, its first and its last, it leaves two numbers. These
//! lie in the order of their rows again, and are reduced likewise, until there is one chunk. So the work is that of the sort and one look at each value, one hot row is
//! reduced in as many chunks as many rows, and all numbers meet in an order that depends on the index alone.

use super::access::{self, Access, Operand, Walk};
use super::reduce::Reducer;
use super::sort::{self, Keys};
use super::{LINE, elementwise, line_of, run};
use crate::language::{Builder, Kernel, Storage, Type, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, computed_in, held_as};
use kiln_tensor::backend::Layout;
use kiln_tensor::{DType, Shape};

/// Entries of a chunk. Each level leaves a 32nd part of its entries to the next: of a million these are 4 levels.
const CHUNK: usize = 64;

/// A level of such a reduction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SegmentedReduction {
    /// How values meet.
    pub reducer: Reducer,
    /// The elements' dtype.
    pub dtype: DType,
    /// What is reduced.
    pub entries: Entries,
    /// How lanes of the target are walked.
    pub target: Access,
    /// Over how many dims strides are told.
    pub rank: usize,
    /// Whether there is a single chunk.
    pub last: bool,
}

/// What a level reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entries {
    /// Values, at positions in the order of their rows; how lanes of these positions and of the values are walked.
    Values(Access, Access),
    /// What the level before left.
    Left,
}

impl SegmentedReduction {
    /// The kernel. Buffers: the rows of the entries; their positions and the values, or what was left of these; the rows and what is left, unless there is a single chunk; the target.
    /// Parameters: chunks of all lanes, lanes, their dims; operand target; entries, the target's stride along the dim and its rows; of values operands positions and values, and
    /// the values' stride along the dim.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("segmented_reduction", [LINE, 1], |k| {
            let (own, wide) = (held_as(self.dtype), held_as(computed_in(self.dtype)));
            // For more of them a compiler takes so few registers that some go to memory and back.
            k.resident(4);
            let named = k.input(Storage::U32);
            let (order, values) = match self.entries {
                Entries::Values(..) => (Some(k.input(Storage::U32)), k.input(own)),
                Entries::Left => (None, k.input(wide)),
            };
            let left = (!self.last).then(|| (k.output(Storage::U32), k.output(wide)));
            let target = k.output(own);
            let (count, lanes) = (k.parameter(), k.parameter());
            let dims = k.parameters(self.rank);
            let to = Operand::declare(k, self.target, self.rank);
            let (length, stride, rows) = (k.parameter(), k.parameter(), k.parameter());
            let walked = match self.entries {
                Entries::Values(positions, values) => {
                    let operands = [positions, values].map(|access| Operand::declare(k, access, self.rank));
                    Some((operands, k.parameter()))
                }
                Entries::Left => None,
            };
            let position = k.position(LINE);
            k.when(position.below(count), || {
                let (chunk, lane) = (position / lanes, position % lanes);
                let coordinates = access::coordinates(lane, &dims);
                let to = to.at(lane, &coordinates);
                let walked = walked.map(|([ordered, values], stride)| {
                    (ordered.at(lane, &coordinates), values.at(lane, &coordinates), stride)
                });
                let entry = |at| match (walked, order) {
                    (Some((start, first, stride)), Some(order)) => {
                        let at = start + at;
                        (named.at(at), values.at(first + order.at(at) * stride))
                    }
                    _ => {
                        let at = lane + lanes * at;
                        (named.at(at), values.at(at))
                    }
                };
                let leave = |second: u32, row: Value<'_>, number: Value<'_>| {
                    if let Some((rows_left, left)) = left {
                        let at = (chunk + chunk + second) * lanes + lane;
                        rows_left.set(at, row);
                        left.set(at, number);
                    }
                };
                let finish = |row: Value<'_>, number: Value<'_>| {
                    // What names no row comes last, and is left out.
                    k.when(row.below(rows), || {
                        let at = to + row * stride;
                        target.set(at, self.reducer.join(target.at(at), number));
                    });
                };

                let start = chunk * CHUNK as u32;
                let end = start + (length - start).min(CHUNK as u32);
                let (row, number) = entry(start);
                let (row, number) = (k.variable(row), k.variable(number));
                let is_first = k.variable(k.value(true));
                k.range(start + 1_u32, end, 1_u32, |at| {
                    let (next, value) = entry(at);
                    k.either(
                        next.equals(row.get()),
                        || number.set(self.reducer.join(number.get(), value)),
                        || {
                            if self.last {
                                finish(row.get(), number.get());
                            } else {
                                k.either(
                                    is_first.get(),
                                    || leave(0, row.get(), number.get()),
                                    || finish(row.get(), number.get()),
                                );
                                is_first.set(k.value(false));
                            }
                            row.set(next);
                            number.set(value);
                        },
                    );
                });
                if self.last {
                    finish(row.get(), number.get());
                } else {
                    // A chunk of one row leaves that once, and what changes nothing.
                    k.when(is_first.get(), || {
                        leave(0, row.get(), number.get());
                        number.set(self.neutral(k, own));
                    });
                    leave(1, row.get(), number.get());
                }
            });
        })
    }

    /// What changes no number: not the sign of a zero either.
    fn neutral<'k>(&self, k: &'k Builder, storage: Storage) -> Value<'k> {
        match (self.reducer, storage.value()) {
            (Reducer::Sum, Type::F64) => k.double(-0.0),
            (Reducer::Sum, Type::F32) => k.value(-0.0_f32),
            _ => self.reducer.neutral_of(k, storage),
        }
    }
}

/// Values that a lane has at least, so that their order is worth it.
const SHORTEST: usize = 128;

/// Values that a lane has at most, if it is reduced one after another: Mesa's llvmpipe, which computes on the CPU, ends every loop after 65,535 rounds.
const LONGEST: usize = 1 << 15;

/// Whether values are reduced faster in the order of their rows than lane by lane, of which each has so many of them, with as many indices as differ. Counted in elements
/// that a device goes through while it is busy, a few hundred thousand in a microsecond.
///
/// Lane by lane, an element waits for the one before it, so that fewer lanes than [`BUSY`] take as long as these. In order, there are a few launches, of which each takes as long as a million
/// elements; a sort within workgroups costs an index about eight of them, as does each merge; and each value is read with its row and its position.
pub(super) fn are_faster<R: Runtime>(
    device: &R::Device,
    lanes: usize,
    values: usize,
    indices: usize,
) -> bool {
    const BUSY: u64 = 1 << 16;
    const LAUNCH: u64 = 1 << 20;
    const SORTED: u64 = 8;
    if values > LONGEST {
        return true;
    }
    // Devices without what workgroups share are no faster for more invocations than lanes, or not by much: they do the least.
    if values <= SHORTEST || !R::limits(device).shared_memory {
        return false;
    }
    let merges = u64::from(sort::merges(values));
    let launches = 1 + merges + u64::from(levels(values));
    let [lanes, values, indices] = [lanes, values, indices].map(|n| n as u64);
    let by_lanes = values * lanes.max(BUSY);
    let sorted = indices * values * SORTED * (1 + merges);
    let reduced = 2 * (values * lanes).max(CHUNK as u64 * BUSY / 2);
    launches * LAUNCH + sorted + reduced < by_lanes
}

/// Launches that reduce so many entries.
fn levels(mut entries: usize) -> u32 {
    let mut levels = 1;
    while entries > CHUNK {
        entries = 2 * entries.div_ceil(CHUNK);
        levels += 1;
    }
    levels
}

/// The layout of an index with one place for what is the same along other dims than `dim`, which goes last.
pub(super) fn different(layout: &Layout, dim: usize) -> Layout {
    let mut layout = layout.clone();
    for axis in (0..layout.strides.len()).filter(|&axis| axis != dim) {
        if layout.strides[axis] == 0 {
            layout.shape.dims[axis] = 1;
        }
    }
    let last: Vec<usize> = (0..layout.strides.len()).filter(|&axis| axis != dim).chain([dim]).collect();
    layout.permute(&last)
}

/// Reduces `values` into the rows of `dim` that `indices`, of the same rank, name. Nobody else reads the tensor.
pub(super) fn reduce_rows<R: Runtime>(
    tensor: &GpuTensor<R>,
    dim: usize,
    indices: &GpuTensor<R>,
    values: &GpuTensor<R>,
    reducer: Reducer,
) {
    let (device, rows) = (&tensor.device, tensor.dims()[dim]);
    let mut dims = indices.dims().to_vec();
    let length = core::mem::replace(&mut dims[dim], 1);
    let lanes: usize = dims.iter().product();
    let keys = elementwise::from_start(indices.clone().with_layout(different(&indices.layout, dim)));
    let ordered = sort::ordered(&keys, length, length, Keys::Rows(indices.dtype), &[rows as u32]);

    let mut of_lanes: Vec<isize> = keys.layout.strides[..dims.len() - 1].to_vec();
    of_lanes.insert(dim, 0);
    for (stride, &once) in of_lanes.iter_mut().zip(&indices.layout.strides) {
        *stride = if once == 0 { 0 } else { *stride };
    }
    let [mut of_target, mut of_values] =
        [&tensor.layout, &values.layout].map(|layout| layout.strides.to_vec());
    let [stride, value_stride] =
        [&mut of_target, &mut of_values].map(|strides| access::word(core::mem::take(&mut strides[dim])));
    let walk = Walk::new(&dims, &[&of_target, &of_lanes, &of_values]);
    let access = [0, 1, 2].map(|operand| walk.access(operand));
    let operand = |words: &mut Vec<u32>, operand: usize, start: usize| {
        words.push(start as u32);
        words.extend(walk.stride_words(operand));
    };

    let (mut entries, mut left): (usize, Option<[GpuTensor<R>; 2]>) = (length, None);
    loop {
        let chunks = entries.div_ceil(CHUNK);
        let last = chunks == 1;
        let walked = if left.is_none() { &access[..] } else { &access[..1] };
        let rank = if walked.contains(&Access::Strided) { walk.dims.len() } else { 0 };
        let mut words = vec![(chunks * lanes) as u32, lanes as u32];
        words.extend(walk.dim_words().filter(|_| rank > 0));
        operand(&mut words, 0, tensor.layout.offset);
        words.extend([entries as u32, stride, rows as u32]);
        let kind = match &left {
            None => {
                operand(&mut words, 1, 0);
                operand(&mut words, 2, values.layout.offset);
                words.push(value_stride);
                Entries::Values(access[1], access[2])
            }
            Some(_) => Entries::Left,
        };
        let next = (!last).then(|| {
            let shape = Shape::from([2 * chunks, lanes]);
            [DType::U32, computed_in(tensor.dtype)]
                .map(|dtype| GpuTensor::empty(shape.clone(), dtype, device))
        });
        let template =
            SegmentedReduction { reducer, dtype: tensor.dtype, entries: kind, target: access[0], rank, last };
        let mut tensors: Vec<&GpuTensor<R>> = match &left {
            None => vec![&ordered.keys, &ordered.positions, values],
            Some(left) => left.iter().collect(),
        };
        tensors.extend(next.iter().flatten());
        tensors.push(tensor);
        // Of the target no more is written than is reduced.
        let others: usize = tensors.iter().rev().skip(1).map(|tensor| tensor.bytes_in_memory()).sum();
        let written = entries * lanes * held_as(tensor.dtype).bytes();
        let moved = others + tensor.bytes_in_memory().min(written);
        let groups = line_of::<R>(device, chunks * lanes);
        run::<R>(device, template.into(), &tensors, &words, groups, moved, None);
        if last {
            return;
        }
        (entries, left) = (2 * chunks, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_leaves_a_part() {
        assert_eq!([1, 64, 65, 2048, 2049, 1 << 20].map(levels), [1, 1, 2, 2, 3, 4]);
    }

    #[test]
    fn an_index_of_rows_has_one_lane() {
        let of = |dims: &[usize], strides: &[isize]| Layout {
            shape: Shape::from(dims),
            strides: strides.into(),
            offset: 3,
        };
        assert_eq!(different(&of(&[5, 7], &[1, 0]), 0), of(&[1, 5], &[0, 1]));
        assert_eq!(different(&of(&[5, 7, 2], &[14, 2, 1]), 1), of(&[5, 2, 7], &[14, 1, 2]));
        assert_eq!(different(&of(&[5], &[0]), 0), of(&[5], &[0]));
    }
}
