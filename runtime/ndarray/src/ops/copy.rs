//! Moving elements: contiguous copies of views, assignments to parts, joins. Works on element sizes.

use crate::order::moved_axis;
use crate::storage::Buffer;
use crate::tensor::{NdArrayTensor, same_dtype};
use alloc::vec::Vec;
use bytemuck::Pod;
use kiln_kernels::copy as kernel;
use kiln_tensor::backend::Layout;
use kiln_tensor::backend::{Primitive, SliceRange};

/// Copies the elements that `from` names in `source` to those that `to` (of the same shape) names in `target`.
pub(crate) fn strided<T: Pod + Send + Sync>(target: &mut [T], to: &Layout, source: &[T], from: &Layout) {
    if from.is_contiguous() && to.is_contiguous() {
        let len = from.len();
        if len > 0 {
            target[to.offset..][..len].copy_from_slice(&source[from.offset..][..len]);
        }
        return;
    }
    kernel::copy_strided(
        &from.shape.dims,
        source,
        kernel::Layout { offset: from.offset, strides: &from.strides },
        target,
        kernel::Layout { offset: to.offset, strides: &to.strides },
    );
}

/// A row-major copy of a view.
pub(crate) fn contiguous(tensor: &NdArrayTensor) -> NdArrayTensor {
    let layout = tensor.layout();
    by_size!(tensor.dtype(), T => NdArrayTensor::build(layout.shape.clone(), tensor.dtype(), |out: &mut [T]| {
        strided(out, &Layout::contiguous(layout.shape.clone()), tensor.storage(), layout);
    }))
}

/// `tensor` with the ranges replaced by `value`.
pub(crate) fn slice_assign(
    tensor: NdArrayTensor,
    ranges: &[SliceRange],
    value: NdArrayTensor,
) -> NdArrayTensor {
    let part = Layout::contiguous(tensor.shape()).slice(ranges);
    same_dtype("slice_assign", &tensor, &value);
    assert_eq!(part.shape, value.shape(), "slice_assign: the ranges do not have the value's shape");
    by_size!(tensor.dtype(), T => tensor.edit(|out: &mut [T]| strided(out, &part, value.storage(), value.layout())))
}

/// Joins along a dim.
pub(crate) fn cat(tensors: Vec<NdArrayTensor>, dim: usize) -> NdArrayTensor {
    if dim > 0 && tensors.iter().any(|tensor| tensor.layout().is_channels_last()) {
        return cat_channels_last(tensors, dim);
    }
    let [first, others @ ..] = tensors.as_slice() else { panic!("cat: no tensors") };
    let (dtype, mut shape) = (first.dtype(), first.shape());
    for other in others {
        let fits = other.dims().iter().enumerate().all(|(i, &d)| i == dim || d == first.dims()[i]);
        assert!(
            fits && other.dims().len() == first.dims().len() && other.dtype() == dtype,
            "cat: {} of {} does not fit {} of {dtype} along dim {dim}",
            other.shape(),
            other.dtype(),
            first.shape()
        );
        shape.dims[dim] += other.dims()[dim];
    }
    let whole = Layout::contiguous(shape.clone());
    let mut buffer = Buffer::new::<u8>(shape.num_elements() * dtype.size());
    let mut start = 0;
    for tensor in &tensors {
        let size = tensor.dims()[dim];
        let mut part = Layout { shape: tensor.shape(), strides: whole.strides.clone(), offset: 0 };
        part.offset = start * whole.strides[dim] as usize;
        by_size!(dtype, T => strided(buffer.as_mut::<T>(), &part, tensor.storage(), tensor.layout()));
        start += size;
    }
    NdArrayTensor::from_buffer(buffer, shape, dtype)
}

/// [`cat`] of images with their channels last, if more than half of the elements are in that order.
fn cat_channels_last(tensors: Vec<NdArrayTensor>, dim: usize) -> NdArrayTensor {
    let rank = tensors[0].dims().len();
    let elements =
        |tensors: &mut dyn Iterator<Item = &NdArrayTensor>| tensors.map(NdArrayTensor::len).sum::<usize>();
    let last = elements(&mut tensors.iter().filter(|tensor| tensor.layout().is_channels_last()));
    if tensors.iter().any(|tensor| tensor.dims().len() != rank) || 2 * last < elements(&mut tensors.iter()) {
        return cat(tensors.into_iter().map(NdArrayTensor::into_contiguous).collect(), dim);
    }
    // Contiguous once moved, or at least not channels last in the moved dims, which would move them again.
    let moved = |tensor: NdArrayTensor| tensor.channels_last().into_contiguous();
    cat(tensors.into_iter().map(moved).collect(), moved_axis(dim, rank)).channels_first()
}

/// Another shape: a view, or a copy where the strides do not allow one.
pub(crate) fn reshape(tensor: NdArrayTensor, shape: kiln_tensor::Shape) -> NdArrayTensor {
    assert_eq!(
        tensor.len(),
        shape.num_elements(),
        "reshape: {} does not have the elements of {shape}",
        tensor.shape()
    );
    if tensor.layout().shape == shape {
        return tensor;
    }
    match tensor.layout().reshape(&shape) {
        Some(layout) => tensor.with_layout(layout),
        None => {
            let tensor = contiguous(&tensor);
            tensor.with_layout(Layout::contiguous(shape))
        }
    }
}
