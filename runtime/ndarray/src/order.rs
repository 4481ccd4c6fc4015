//! Tensors of images whose channels stand last in memory: `[batch, channels, spatial…]` to their users, row-major once dim 1
//! is moved behind the others.
//!
//! Convolutions write their results that way, and what follows elementwise keeps it, so that a network's images are not
//! turned around between its layers.

use crate::tensor::NdArrayTensor;
use kiln_tensor::Dims;
use kiln_tensor::backend::Layout;

/// Where a dim is once the channels are last.
pub(crate) fn moved_axis(axis: usize, rank: usize) -> usize {
    match axis {
        0 => 0,
        1 => rank - 1,
        _ => axis - 1,
    }
}

impl NdArrayTensor {
    /// The view with dim 1 moved behind the others.
    pub(crate) fn channels_last(self) -> Self {
        self.map_layout(Layout::into_channels_last)
    }

    /// The view with the last dim moved to place 1.
    pub(crate) fn channels_first(self) -> Self {
        self.map_layout(Layout::into_channels_first)
    }
}

/// Turns tensors of one rank to one order of their memory: with dim 1 moved last if any has it so, as is said then.
pub(crate) fn into_one_order(tensors: &mut [NdArrayTensor]) -> bool {
    let rank = tensors.first().map_or(0, |tensor| tensor.dims().len());
    let one_rank = tensors.iter().all(|tensor| tensor.dims().len() == rank);
    if !one_rank || !tensors.iter().any(|tensor| tensor.layout().is_channels_last()) {
        return false;
    }
    let largest = tensors.iter().map(NdArrayTensor::len).max();
    for tensor in tensors {
        tensor.change_layout(Layout::into_channels_last);
        // Walking an image against its order takes longer than turning it around. What would now count as channels last
        // (a row-major operand of rank 3) would be moved again, for ever.
        if Some(tensor.len()) == largest || tensor.layout().is_channels_last() {
            tensor.make_contiguous();
        }
    }
    true
}

/// The order of dims in which a view's elements stand in memory without gaps; nothing for those that are row-major, or have gaps.
pub(crate) fn memory_order(layout: &Layout) -> Option<Dims> {
    if layout.is_contiguous() {
        return None;
    }
    let mut axes: Dims = (0..layout.shape.rank()).collect();
    // Of dims of one stride those of one element come first.
    axes.sort_by_key(|&axis| (core::cmp::Reverse(layout.strides[axis]), layout.shape.dims[axis]));
    layout.permute(&axes).is_contiguous().then_some(axes)
}

/// The order that undoes another.
pub(crate) fn inverse(axes: &[usize]) -> Dims {
    let mut inverse = Dims::repeat(0, axes.len());
    for (place, &axis) in axes.iter().enumerate() {
        inverse[axis] = place;
    }
    inverse
}
