//! Tensors of images whose channels stand last in memory: `[batch, channels, spatial…]` to their users, row-major once dim 1 is moved behind
//! the others.
//!
//! Vendors' libraries write such images where tensor cores compute convolutions, and views make others. What follows keeps the order, so that
//! images are not turned around between a network's layers.

use super::elementwise;
use crate::runtime::Runtime;
use crate::tensor::GpuTensor;
use kiln_tensor::backend::Layout;
use kiln_tensor::{DType, Shape};
use std::sync::Arc;

/// Where a dim is once the channels are last.
pub(super) fn moved_axis(axis: usize, rank: usize) -> usize {
    match axis {
        0 => 0,
        1 => rank - 1,
        _ => axis - 1,
    }
}

/// How images of a shape lie with their channels last, from the start of their memory.
pub(super) fn channels_last(shape: Shape) -> Layout {
    let shape = Layout::contiguous(shape).into_channels_last().shape;
    Layout::contiguous(shape).into_channels_first()
}

impl<R: Runtime> GpuTensor<R> {
    /// Whether it holds images of two or three dims whose channels stand last in memory, without gaps.
    pub(super) fn is_channels_last(&self) -> bool {
        self.dims().len() >= 4 && self.layout.is_channels_last()
    }

    /// The view with dim 1 moved behind the others.
    pub(super) fn channels_last(self) -> Self {
        let layout = (*self.layout).clone().into_channels_last();
        self.with_layout(layout)
    }

    /// The view with the last dim moved to place 1.
    pub(super) fn channels_first(self) -> Self {
        let layout = (*self.layout).clone().into_channels_first();
        self.with_layout(layout)
    }

    /// Images of a shape with their channels last in memory, and arbitrary contents.
    pub(super) fn empty_channels_last(shape: Shape, dtype: DType, device: &R::Device) -> Self {
        Self::empty(shape, dtype, device).laid_channels_last()
    }

    /// A new tensor, whose contents are arbitrary, as such images.
    pub(super) fn laid_channels_last(self) -> Self {
        let layout = channels_last(self.layout.shape.clone());
        self.with_layout(layout)
    }

    /// The same images with their channels last from the start of their memory; copies where they are not.
    pub(super) fn with_channels_last(self) -> Self {
        elementwise::from_start(self.channels_last()).channels_first()
    }
}

/// Turns tensors of one rank, if the channels of the largest stand last in memory, to views with dim 1 moved behind the others; says whether it
/// does.
pub(super) fn into_channels_last<R: Runtime>(tensors: &mut [GpuTensor<R>]) -> bool {
    let rank = tensors.first().map_or(0, |tensor| tensor.dims().len());
    if rank < 4 {
        return false;
    }
    let largest = tensors.iter().map(GpuTensor::len).max().unwrap_or(0);
    let decides = |tensor: &GpuTensor<R>| tensor.len() == largest && tensor.is_channels_last();
    if tensors.iter().any(|tensor| tensor.dims().len() != rank) || !tensors.iter().any(decides) {
        return false;
    }
    for tensor in tensors {
        tensor.layout = Arc::new((*tensor.layout).clone().into_channels_last());
    }
    true
}
