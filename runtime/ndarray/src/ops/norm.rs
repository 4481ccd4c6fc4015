//! Softmax and normalizations of f32 tensors by the kernels.

use crate::ops::lanes::Lanes;
use crate::order::moved_axis;
use crate::storage::Buffer;
use crate::tensor::NdArrayTensor;
use kiln_kernels::batch_norm;
use kiln_kernels::norm::{self, GroupNormShape};
use kiln_kernels::softmax::{self, SoftmaxKind};
use kiln_tensor::DType;
use kiln_tensor::backend::Primitive;
use num_traits::Float;

/// Softmax or its logarithm along `dim`.
pub(crate) fn softmax(kind: SoftmaxKind, x: NdArrayTensor, dim: usize) -> NdArrayTensor {
    if x.layout().is_channels_last() {
        let dim = moved_axis(dim, x.dims().len());
        return softmax(kind, x.channels_last(), dim).channels_first();
    }
    let Lanes { outer, size, inner } = Lanes::along(x.dims(), dim);
    x.transform(|data| softmax::softmax(kind, outer, size, inner, data))
}

/// Over the last `weight.rank()` dims.
pub(crate) fn layer_norm(
    x: NdArrayTensor,
    weight: NdArrayTensor,
    bias: Option<NdArrayTensor>,
    epsilon: f64,
) -> NdArrayTensor {
    let (weight, bias) = (weight.into_contiguous(), bias.map(NdArrayTensor::into_contiguous));
    x.transform(|data| {
        norm::layer_norm(weight.slice(), bias.as_ref().map(NdArrayTensor::slice), epsilon as f32, data);
    })
}

/// Over the last `weight.rank()` dims.
pub(crate) fn rms_norm(x: NdArrayTensor, weight: NdArrayTensor, epsilon: f64) -> NdArrayTensor {
    let weight = weight.into_contiguous();
    x.transform(|data| norm::rms_norm(weight.slice(), epsilon as f32, data))
}

/// Of `[batch, channels, …]`.
pub(crate) fn group_norm(
    x: NdArrayTensor,
    weight: Option<NdArrayTensor>,
    bias: Option<NdArrayTensor>,
    groups: usize,
    epsilon: f64,
) -> NdArrayTensor {
    let shape = GroupNormShape::new(x.dims(), groups);
    let [weight, bias] = [weight, bias].map(|parameter| parameter.map(NdArrayTensor::into_contiguous));
    let [weight, bias] = [&weight, &bias].map(|parameter| parameter.as_ref().map(NdArrayTensor::slice));
    if x.layout().is_channels_last() {
        let x = x.channels_last();
        let fill = |out: &mut [f32]| {
            norm::group_norm_channels_last(&shape, weight, bias, epsilon, x.slice(), out);
        };
        return NdArrayTensor::build(x.shape(), DType::F32, fill).channels_first();
    }
    let (channels, spatial) = (shape.channels, shape.spatial);
    x.transform(|data| norm::group_norm(channels, spatial, groups, weight, bias, epsilon as f32, data))
}

/// Of `[batch, channels, …]` with given statistics.
pub(crate) fn batch_norm(x: NdArrayTensor, parameters: [NdArrayTensor; 4], epsilon: f64) -> NdArrayTensor {
    let spatial = x.dims()[2..].iter().product();
    let parameters = parameters.map(NdArrayTensor::into_contiguous);
    let [weight, bias, mean, variance] = [0, 1, 2, 3].map(|i| parameters[i].slice::<f32>());
    let deviation = |variance: &f32| Float::sqrt(f64::from(*variance) + epsilon);
    let mut space = Buffer::new::<f32>(2 * weight.len());
    let (scale, shift) = space.as_mut::<f32>().split_at_mut(weight.len());
    let scales = weight.iter().zip(variance).map(|(&w, v)| (f64::from(w) / deviation(v)) as f32);
    scale.iter_mut().zip(scales).for_each(|(to, scale)| *to = scale);
    let shifts = bias.iter().zip(mean).zip(&*scale).map(|((&b, &mean), &scale)| b - mean * scale);
    shift.iter_mut().zip(shifts).for_each(|(to, shift)| *to = shift);
    let (scale, shift) = (&*scale, &*shift);
    if x.layout().is_channels_last() {
        let x = x.channels_last();
        return x.transform(|data| batch_norm::scale_shift_rows(scale, shift, data)).channels_first();
    }
    x.transform(|data| norm::scale_shift(spatial, scale, shift, data))
}
