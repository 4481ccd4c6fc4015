//! Sorting: Batcher's bitonic network over positions, each lane filled up to a power of two.

use super::{LINE, elementwise, index, launch, line_of};
use crate::language::{Builder, Kernel, Storage, Type, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, MOST_WRITTEN, held_as};
use kiln_tensor::backend::{Layout, Primitive, SliceRange};
use kiln_tensor::{DType, Expression, Shape, Step};

/// One round of comparisons of the network, over the positions of a lane's elements.
///
/// Positions break ties, so the order is total and the sort is stable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SortStep {
    /// The elements' dtype.
    pub dtype: DType,
    /// Largest first.
    pub descending: bool,
}

impl SortStep {
    /// The kernel. Buffers: the elements, row-major lanes, and the positions. Parameters: the number of pairs, the length of a lane
    /// of elements, of a lane of positions (a power of two), the size of a sorted block, the distance of a pair.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("sort_step", [LINE, 1], |k| {
            let (keys, order) = (k.input(held_as(self.dtype)), k.output(Storage::U32));
            let (pairs, length, padded) = (k.parameter(), k.parameter(), k.parameter());
            let (block, distance) = (k.parameter(), k.parameter());
            let pair = k.position(LINE);
            k.when(pair.below(pairs), || {
                let half = padded >> 1_u32;
                let (lane, within) = (pair / half, pair % half);
                let low = within + within - (within & (distance - 1_u32));
                let high = low + distance;
                let (first, second) = (order.at(lane * padded + low), order.at(lane * padded + high));
                let base = lane * length;
                // What fills the lane up comes last.
                let inside = [first, second].map(|position| base + position.min(length - 1_u32));
                let [a, b] = inside.map(|at| {
                    let key = sortable(keys.at(at));
                    if self.descending { !key } else { key }
                });
                let (a_fills, b_fills) = (first.at_least(length), second.at_least(length));
                let after = a.above(b) | (a.equals(b) & first.above(second));
                let swapped = (!b_fills & (a_fills | after)) | (b_fills & a_fills & first.above(second));
                let ascending = (low & block).equals(0_u32);
                k.when(swapped.to(Type::U32).equals(ascending.to(Type::U32)), || {
                    order.set(lane * padded + low, second);
                    order.set(lane * padded + high, first);
                });
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
    let order = positions_in_order(&tensor, length, descending);
    let mut kept: Vec<SliceRange> = tensor.dims().iter().map(|&size| SliceRange::full(size)).collect();
    kept[rank - 1] = SliceRange { start: 0, end: keep, step: 1 };
    let layout = order.layout.slice(&kept);
    let order = order.with_layout(layout);
    let values = index::gather(&tensor, rank - 1, &order);
    let order = elementwise::cast(&order, positions);
    let turn = |tensor: GpuTensor<R>| {
        let layout = tensor.layout.permute(&back);
        tensor.with_layout(layout)
    };
    (turn(values), turn(order))
}

/// The positions of a tensor's elements along its last dim, as they come in order: a view of lanes that are filled up.
fn positions_in_order<R: Runtime>(tensor: &GpuTensor<R>, length: usize, descending: bool) -> GpuTensor<R> {
    let padded = length.next_power_of_two();
    let lanes = tensor.len().checked_div(length).unwrap_or(0);
    assert!(
        lanes.saturating_mul(padded) <= MOST_WRITTEN,
        "sort: {lanes} lanes of {length} are filled up to {padded}, and kernels on a GPU count {MOST_WRITTEN} elements"
    );
    let positions = Expression::new(vec![Step::Iota(1, DType::U32)]);
    let order = elementwise::fill(&positions, &[], Shape::from([lanes, padded]), DType::U32, &tensor.device);
    let pairs = lanes * padded / 2;
    let template = SortStep { dtype: tensor.dtype, descending };
    let mut block = 2;
    while block <= padded && pairs > 0 {
        let mut distance = block / 2;
        while distance > 0 {
            // The last block is sorted upwards: its bit is set in no position.
            let words = [pairs, length, padded, block, distance].map(|n| n as u32);
            let tensors = [tensor, &order];
            let groups = line_of::<R>(&tensor.device, pairs);
            launch::<R>(&tensor.device, template.clone(), &tensors, &words, groups);
            distance /= 2;
        }
        block *= 2;
    }
    let mut strides = Layout::contiguous(tensor.shape()).strides;
    let rank = strides.len();
    for stride in &mut strides[..rank - 1] {
        *stride = *stride / length.max(1) as isize * padded as isize;
    }
    order.with_layout(Layout { shape: tensor.shape(), strides, offset: 0 })
}
