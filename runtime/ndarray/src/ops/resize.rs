//! Resizing of f32 tensors, one axis after the other.

#[cfg(feature = "std")]
use crate::kept::{self, Kept};
use crate::order::moved_axis;
use crate::tensor::NdArrayTensor;
use kiln_kernels::resize::{Taps, resize_axis};
use kiln_tensor::backend::Primitive;
use kiln_tensor::compose::{ResizedAxis, resized_axes};
use kiln_tensor::{DType, InlineVec, InterpolateOptions};

/// Axes that change, each with the taps of its elements.
pub(crate) type Axes = InlineVec<(usize, Taps)>;

// Taps whose memory is used again.
#[cfg(feature = "std")]
std::thread_local!(static FREE: Kept<Taps> = const { Kept::new() });

/// The taps of an axis, in the memory of earlier ones.
fn taps(axis: &ResizedAxis<'_>) -> Taps {
    #[cfg(feature = "std")]
    if let Some(mut taps) = kept::pop(&FREE) {
        taps.refill(axis.taps());
        return taps;
    }
    Taps::new(axis.taps())
}

/// See [`kiln_tensor::backend::Backend::interpolate`]; without cropping, which is composed.
pub(crate) fn interpolate(x: NdArrayTensor, options: &InterpolateOptions) -> NdArrayTensor {
    let axes = resized_axes(x.dims(), options).map(|(axis, resized)| (axis, taps(&resized))).collect();
    in_either_order(x, axes)
}

/// Resizes one axis after the other and keeps the order of the memory.
pub(crate) fn in_either_order(x: NdArrayTensor, mut axes: Axes) -> NdArrayTensor {
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

fn resized(x: NdArrayTensor, axes: Axes) -> NdArrayTensor {
    axes.into_iter().fold(x, |x, (axis, taps)| {
        let x = x.into_contiguous();
        let mut shape = x.shape();
        let dims = &mut shape.dims;
        let sizes = [dims[..axis].iter().product(), dims[axis], dims[axis + 1..].iter().product()];
        dims[axis] = taps.len();
        let y = NdArrayTensor::build(shape, DType::F32, |out| resize_axis(x.slice(), sizes, &taps, out));
        #[cfg(feature = "std")]
        kept::push(&FREE, taps);
        y
    })
}
