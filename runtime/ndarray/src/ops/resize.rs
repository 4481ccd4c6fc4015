//! Resizing of f32 tensors, one axis after the other.

use crate::order::moved_axis;
use crate::tensor::NdArrayTensor;
use alloc::vec::Vec;
use kiln_kernels::resize::{Taps, resize_axis};
use kiln_tensor::compose::resized_axes;
use kiln_tensor::{DType, InterpolateOptions};

/// See [`kiln_tensor::backend::Backend::interpolate`]; without cropping, which is composed.
pub(crate) fn interpolate(x: NdArrayTensor, options: &InterpolateOptions) -> NdArrayTensor {
    let mut axes = resized_axes(x.dims(), options);
    // Rows are mixed as vectors, the elements of a row one by one: the last axis goes when the rows are few.
    if axes.last().is_some_and(|(axis, taps)| taps.len() > x.dims()[*axis]) {
        axes.rotate_right(1);
    }
    if x.layout().is_channels_last() {
        // Pixels are mixed as vectors of their channels.
        let rank = x.dims().len();
        axes.iter_mut().for_each(|(axis, _)| *axis = moved_axis(*axis, rank));
        return resized(x.channels_last(), axes).channels_first();
    }
    resized(x, axes)
}

/// Axes, each with the taps of its elements.
type Axes = Vec<(usize, Vec<Vec<(usize, f64)>>)>;

/// Resizes one axis after the other.
fn resized(x: NdArrayTensor, axes: Axes) -> NdArrayTensor {
    axes.into_iter().fold(x, |x, (axis, taps)| {
        let x = x.into_contiguous();
        let (taps, mut dims) = (Taps::new(&taps), x.dims().to_vec());
        let sizes = [dims[..axis].iter().product(), dims[axis], dims[axis + 1..].iter().product()];
        dims[axis] = taps.len();
        NdArrayTensor::build(dims.into(), DType::F32, |out| resize_axis(x.slice(), sizes, &taps, out))
    })
}
