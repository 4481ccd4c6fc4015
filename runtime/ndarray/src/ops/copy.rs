//! Moving elements: contiguous copies of views, assignments to parts, joins. Works on element sizes.

use crate::order::moved_axis;
use crate::storage::Buffer;
use crate::tensor::{NdArrayTensor, same_dtype};
use bytemuck::Pod;
use kiln_kernels::copy as kernel;
use kiln_kernels::join::{JoinedRows, join_rows};
use kiln_tensor::InlineVec;
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
pub(crate) fn cat(tensors: &[NdArrayTensor], dim: usize) -> NdArrayTensor {
    if dim > 0 && tensors.iter().any(|tensor| tensor.layout().is_channels_last()) {
        return cat_channels_last(tensors, dim);
    }
    join(tensors, dim)
}

/// [`cat`] in row-major order.
fn join(tensors: &[NdArrayTensor], dim: usize) -> NdArrayTensor {
    let [first, others @ ..] = tensors else { panic!("cat: no tensors") };
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
    let steps: Option<InlineVec<usize>> =
        tensors.iter().map(|tensor| row_step(tensor.layout(), dim)).collect();
    if let Some(steps) = steps {
        let rows = shape.dims[..dim].iter().product();
        by_size!(dtype, T => {
            let source = |(tensor, step)| rows_of::<T>(tensor, dim, step);
            let sources: InlineVec<_> = tensors.iter().zip(steps).map(source).collect();
            join_rows(rows, &sources, buffer.as_mut::<T>());
        });
        return NdArrayTensor::from_buffer(buffer, shape, dtype);
    }
    let mut start = 0;
    for tensor in tensors {
        let size = tensor.dims()[dim];
        let mut part = Layout { shape: tensor.shape(), strides: whole.strides.clone(), offset: 0 };
        part.offset = start * whole.strides[dim] as usize;
        by_size!(dtype, T => strided(buffer.as_mut::<T>(), &part, tensor.storage(), tensor.layout()));
        start += size;
    }
    NdArrayTensor::from_buffer(buffer, shape, dtype)
}

/// A tensor as rows of the elements of each position in the dims before `dim`, which are `step` apart.
fn rows_of<T: Pod>(tensor: &NdArrayTensor, dim: usize, step: usize) -> JoinedRows<'_, T> {
    let len = tensor.dims()[dim..].iter().product();
    match tensor.is_empty() {
        true => JoinedRows { data: &[], step: 0, len },
        false => JoinedRows { data: &tensor.storage()[tensor.layout().offset..], step, len },
    }
}

/// Elements between the rows of a layout that are the elements of each position in the dims before `dim`; nothing if these are no runs of elements, or
/// not equally far apart.
fn row_step(layout: &Layout, dim: usize) -> Option<usize> {
    let axes = |range: core::ops::Range<usize>| {
        let axes = range.rev().map(|axis| (layout.shape.dims[axis], layout.strides[axis]));
        axes.filter(|(size, _)| *size > 1)
    };
    let mut run = 1;
    for (size, stride) in axes(dim..layout.shape.rank()) {
        if stride != run {
            return None;
        }
        run *= size as isize;
    }
    let mut outer = axes(0..dim);
    let Some((size, step)) = outer.next() else { return Some(0) };
    let mut next = step * size as isize;
    for (size, stride) in outer {
        if stride != next {
            return None;
        }
        next *= size as isize;
    }
    usize::try_from(step).ok()
}

/// [`cat`] of images with their channels last, if more than half of the elements are in that order.
fn cat_channels_last(tensors: &[NdArrayTensor], dim: usize) -> NdArrayTensor {
    let rank = tensors[0].dims().len();
    let elements =
        |tensors: &mut dyn Iterator<Item = &NdArrayTensor>| tensors.map(NdArrayTensor::len).sum::<usize>();
    let last = elements(&mut tensors.iter().filter(|tensor| tensor.layout().is_channels_last()));
    if tensors.iter().any(|tensor| tensor.dims().len() != rank) || 2 * last < elements(&mut tensors.iter()) {
        let tensors: InlineVec<_> = tensors.iter().cloned().map(NdArrayTensor::into_contiguous).collect();
        return cat(&tensors, dim);
    }
    let tensors: InlineVec<_> = tensors.iter().cloned().map(NdArrayTensor::channels_last).collect();
    join(&tensors, moved_axis(dim, rank)).channels_first()
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
    if tensor.is_contiguous() {
        return tensor.map_layout(|Layout { offset, .. }| Layout { offset, ..Layout::contiguous(shape) });
    }
    match tensor.layout().reshape(&shape) {
        Some(layout) => tensor.with_layout(layout),
        None if regroups_last_channels(tensor.layout(), &shape.dims) => {
            let (spatial, mut dims) = (shape.dims.len() - 2, shape.dims);
            let mut axes: InlineVec<usize> = (0..tensor.dims().len()).collect();
            axes[1..].rotate_right(spatial);
            let layout = tensor.layout().permute(&axes);
            dims[1..].rotate_left(1);
            contiguous(&tensor.with_layout(layout))
                .with_layout(Layout::contiguous(dims.into()))
                .channels_first()
        }
        None => {
            let tensor = contiguous(&tensor);
            tensor.with_layout(Layout::contiguous(shape))
        }
    }
}

/// Whether images `[batch, channels…, spatial…]` whose channels stand last in memory, in whatever order, become `[batch, channels, spatial…]`.
fn regroups_last_channels(from: &Layout, to: &[usize]) -> bool {
    let dims = &from.shape.dims;
    if to.len() < 3 || dims.len() < to.len() {
        return false;
    }
    let spatial = dims.len() - (to.len() - 2);
    let largest =
        |axes: core::ops::Range<usize>| axes.filter(|&i| dims[i] > 1).map(|i| from.strides[i]).max();
    let smallest = (spatial..dims.len()).filter(|&i| dims[i] > 1).map(|i| from.strides[i]).min();
    dims[0] == to[0]
        && dims[spatial..] == to[2..]
        && largest(1..spatial).zip(smallest).is_some_and(|(c, s)| c < s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use kiln_tensor::TensorData;

    /// Parts of larger images, with their channels last, and images as they are: the same as of row-major copies.
    #[test]
    fn channels_are_joined_where_they_lie() {
        let image = |seed: usize, channels: usize| {
            let dims = [2, 5, 6, channels];
            let values: Vec<f32> = (0..dims.iter().product::<usize>()).map(|i| (i + seed) as f32).collect();
            NdArrayTensor::from_data(TensorData::new(values, dims.to_vec())).channels_first()
        };
        let part = |start, end| {
            let x = image(0, 40);
            let range = |start, end| SliceRange { start, end, step: 1 };
            let layout = x.layout().slice(&[range(0, 2), range(start, end), range(0, 5), range(0, 6)]);
            x.with_layout(layout)
        };
        let copies = |tensors: &[NdArrayTensor]| -> Vec<NdArrayTensor> {
            tensors.iter().cloned().map(NdArrayTensor::into_contiguous).collect()
        };
        for (tensors, dim) in [
            (vec![part(20, 40), image(7, 24)], 1),
            (vec![image(1, 1), part(3, 20), image(2, 30)], 1),
            (vec![image(3, 9), image(4, 9)], 2),
            (vec![part(0, 9), image(5, 9)], 3),
        ] {
            let (got, want) = (cat(&tensors, dim), cat(&copies(&tensors), dim));
            assert!(got.layout().is_channels_last(), "dim {dim}");
            assert_eq!(got.into_contiguous().slice::<f32>(), want.slice::<f32>(), "dim {dim}");
        }
    }

    /// Shuffled channels, as networks shuffle them, and others that are joined: the same as of row-major images, and still last.
    #[test]
    fn channels_that_are_last_stay_last_when_they_are_regrouped() {
        for (groups, each, axes) in
            [(2, 29, [0, 2, 1, 3, 4]), (3, 5, [0, 2, 1, 3, 4]), (4, 3, [0, 1, 2, 4, 3])]
        {
            let dims = [2, 7, 6, groups * each];
            let values: Vec<f32> = (0..dims.iter().product::<usize>()).map(|i| i as f32).collect();
            let last = NdArrayTensor::from_data(TensorData::new(values, dims.to_vec())).channels_first();
            let shuffle = |x: NdArrayTensor| {
                let apart = reshape(x, [2, groups, each, 7, 6].into());
                let layout = apart.layout().permute(&axes);
                let dims = &layout.shape.dims;
                let joined = [2, groups * each, dims[3], dims[4]];
                reshape(apart.with_layout(layout), joined.into())
            };
            let (got, want) = (shuffle(last.clone()), shuffle(last.into_contiguous()));
            assert_eq!(got.layout().is_channels_last(), axes[3] == 3, "{groups} groups");
            assert_eq!(got.into_contiguous().slice::<f32>(), want.into_contiguous().slice::<f32>());
        }
    }
}
