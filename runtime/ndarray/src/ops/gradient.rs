//! Gradients of f32 tensors by the kernels: convolutions, poolings, resizing, normalizations, softmax. Convolutions' and poolings'
//! images come and go with their channels last in memory; others in the order in which they are.

use crate::ops::lanes::Lanes;
use crate::ops::resize::{Axes, in_either_order};
use crate::order::moved_axis;
use crate::tensor::NdArrayTensor;
use kiln_kernels::InOut;
use kiln_kernels::batch_norm::{self, BatchNormGradients};
use kiln_kernels::conv::{self, ConvShape, ConvTransposeShape, ConvWeight};
use kiln_kernels::norm::{self, GroupNormShape};
use kiln_kernels::pool::{self, PoolGradient, PoolShape};
use kiln_kernels::resize::Taps;
use kiln_kernels::softmax::{self, SoftmaxKind};
use kiln_tensor::backend::Primitive;
use kiln_tensor::compose::{BatchNormTrained, NormGradients, adaptive_taps, resized_axes};
use kiln_tensor::{ConvOptions, ConvTransposeOptions, DType, InterpolateOptions, PoolOptions, Shape};
use num_traits::Float;

/// The image's elements with the channels last, without gaps.
fn turned(image: NdArrayTensor) -> NdArrayTensor {
    image.channels_last().into_contiguous()
}

/// An image with the channels last in memory.
fn image(shape: &Shape, fill: impl FnOnce(&mut [f32])) -> NdArrayTensor {
    let mut dims = shape.dims.clone();
    dims[1..].rotate_left(1);
    NdArrayTensor::build(dims.into(), DType::F32, fill).channels_first()
}

/// See [`kiln_tensor::backend::Backend::conv_input_gradient`].
pub(crate) fn conv_input(
    gradient: NdArrayTensor,
    weight: NdArrayTensor,
    input: &Shape,
    options: &ConvOptions,
) -> NdArrayTensor {
    let shape = ConvShape::new(&input.dims, weight.dims(), options);
    let (gradient, weight) = (turned(gradient), weight.into_contiguous());
    image(input, |out| conv::conv_input_gradient(&shape, gradient.slice(), weight.slice(), out))
}

/// See [`kiln_tensor::backend::Backend::conv_weight_gradient`].
pub(crate) fn conv_weight(
    x: NdArrayTensor,
    gradient: NdArrayTensor,
    weight: &Shape,
    options: &ConvOptions,
) -> NdArrayTensor {
    let shape = ConvShape::new(x.dims(), &weight.dims, options);
    let (x, gradient) = (turned(x), turned(gradient));
    NdArrayTensor::build(weight.clone(), DType::F32, |out| {
        conv::conv_weight_gradient(&shape, x.slice(), gradient.slice(), out);
    })
}

/// See [`kiln_tensor::backend::Backend::conv_transpose_input_gradient`].
pub(crate) fn conv_transpose_input(
    gradient: NdArrayTensor,
    weight: NdArrayTensor,
    input: &Shape,
    options: &ConvTransposeOptions,
) -> NdArrayTensor {
    let shape = ConvTransposeShape::new(&input.dims, weight.dims(), options).adjoint();
    let gradient = if shape.takes_channels_first() { gradient } else { gradient.channels_last() };
    let (gradient, weight) = (gradient.into_contiguous(), weight.into_contiguous());
    image(input, |out| {
        conv::conv(&shape, gradient.slice(), ConvWeight::Plain(weight.slice()), None, None, false, out);
    })
}

/// See [`kiln_tensor::backend::Backend::conv_transpose_weight_gradient`].
pub(crate) fn conv_transpose_weight(
    x: NdArrayTensor,
    gradient: NdArrayTensor,
    weight: &Shape,
    options: &ConvTransposeOptions,
) -> NdArrayTensor {
    let shape = ConvTransposeShape::new(x.dims(), &weight.dims, options).adjoint();
    let (x, gradient) = (turned(x), turned(gradient));
    NdArrayTensor::build(weight.clone(), DType::F32, |out| {
        conv::conv_weight_gradient(&shape, gradient.slice(), x.slice(), out);
    })
}

/// The gradient of a max pooling's input.
pub(crate) fn max_pool(
    gradient: NdArrayTensor,
    x: NdArrayTensor,
    output: NdArrayTensor,
    options: &PoolOptions,
) -> NdArrayTensor {
    let (shape, dims) = (PoolShape::new(x.dims(), options), x.shape());
    let [gradient, x, output] = [gradient, x, output].map(turned);
    let what = PoolGradient::Max { x: x.slice(), output: output.slice() };
    image(&dims, |out| pool::pool_gradient_channels_last(&shape, what, gradient.slice(), out))
}

/// The gradient of the input of an average pooling, which has the shape `input`.
pub(crate) fn average_pool(
    gradient: NdArrayTensor,
    input: &Shape,
    include_pad: bool,
    options: &PoolOptions,
) -> NdArrayTensor {
    let shape = PoolShape::new(&input.dims, options);
    let gradient = turned(gradient);
    let what = PoolGradient::Average { include_pad };
    image(input, |out| pool::pool_gradient_channels_last(&shape, what, gradient.slice(), out))
}

/// The gradient of the input of a pooling to norms of order `p`.
pub(crate) fn norm_pool(
    p: u32,
    gradient: NdArrayTensor,
    x: NdArrayTensor,
    output: NdArrayTensor,
    options: &PoolOptions,
) -> NdArrayTensor {
    let (shape, dims) = (PoolShape::new(x.dims(), options), x.shape());
    let [gradient, x, output] = [gradient, x, output].map(turned);
    let what = PoolGradient::Lp { p, x: x.slice(), output: output.slice() };
    image(&dims, |out| pool::pool_gradient_channels_last(&shape, what, gradient.slice(), out))
}

/// See [`kiln_tensor::backend::Backend::adaptive_avg_pool_gradient`].
pub(crate) fn adaptive_average_pool(gradient: NdArrayTensor, input: &Shape) -> NdArrayTensor {
    let output = gradient.shape();
    let taps = |axis: usize| Taps::adjoint(adaptive_taps(input[axis], output[axis]), input[axis]);
    let changed = (2..input.rank()).filter(|&axis| input[axis] != output[axis]);
    let axes: Axes = changed.map(|axis| (axis, taps(axis))).collect();
    in_either_order(gradient, axes)
}

/// See [`kiln_tensor::backend::Backend::interpolate_gradient`]; without cropping, which is composed.
pub(crate) fn interpolate(
    gradient: NdArrayTensor,
    input: &Shape,
    options: &InterpolateOptions,
) -> NdArrayTensor {
    let axes = resized_axes(&input.dims, options);
    let back = axes.map(|(axis, resized)| (axis, Taps::adjoint(resized.taps(), input[axis])));
    let back = back.collect();
    in_either_order(gradient, back)
}

/// See [`kiln_tensor::backend::Backend::batch_norm_train`].
pub(crate) fn batch_norm_train(
    x: NdArrayTensor,
    weight: NdArrayTensor,
    bias: NdArrayTensor,
    epsilon: f64,
) -> BatchNormTrained<NdArrayTensor> {
    let dims = x.shape();
    let channels = dims[1];
    let [x, weight, bias] = [turned(x), weight.into_contiguous(), bias.into_contiguous()];
    let one_each = || NdArrayTensor::build([channels].into(), DType::F32, |out: &mut [f32]| out.fill(0.0));
    let (mut mean, mut variance) = (one_each(), one_each());
    if let (Some(mean), Some(variance)) = (mean.slice_mut(), variance.slice_mut()) {
        batch_norm::channel_moments(x.slice(), mean, variance);
    }
    let [mut scale, mut shift] = [weight.slice::<f32>().to_vec(), bias.slice::<f32>().to_vec()];
    for (c, (scale, shift)) in scale.iter_mut().zip(&mut shift).enumerate() {
        let deviation = Float::sqrt(f64::from(variance.slice::<f32>()[c]) + epsilon);
        *scale = (f64::from(*scale) / deviation) as f32;
        *shift = (f64::from(*shift) - f64::from(mean.slice::<f32>()[c]) * f64::from(*scale)) as f32;
    }
    let output = image(&dims, |out| {
        batch_norm::scale_shift_rows(&scale, &shift, InOut::Copy { from: x.slice(), to: out });
    });
    BatchNormTrained { output, mean, variance }
}

/// See [`kiln_tensor::backend::Backend::batch_norm_gradient`].
pub(crate) fn batch_norm(
    gradient: NdArrayTensor,
    x: NdArrayTensor,
    parameters: [NdArrayTensor; 3],
    epsilon: f64,
) -> NormGradients<NdArrayTensor> {
    let dims = x.shape();
    let channels = dims[1];
    let [gradient, x] = [gradient, x].map(turned);
    let [weight, mean, variance] = parameters.map(NdArrayTensor::into_contiguous);
    let one_each = || NdArrayTensor::build([channels].into(), DType::F32, |out: &mut [f32]| out.fill(0.0));
    let (mut of_weight, mut bias) = (one_each(), one_each());
    let input = image(&dims, |input| {
        let (Some(of_weight), Some(bias)) = (of_weight.slice_mut(), bias.slice_mut()) else { return };
        let into = BatchNormGradients { input, weight: of_weight, bias };
        let statistics = [mean.slice(), variance.slice()];
        batch_norm::batch_norm_gradient(
            gradient.slice(),
            x.slice(),
            weight.slice(),
            statistics,
            epsilon,
            into,
        );
    });
    NormGradients { input, weight: of_weight, bias }
}

/// See [`kiln_tensor::backend::Backend::layer_norm_gradient`]; without a mean that was taken away, of division by the root mean
/// square.
pub(crate) fn rows_norm(
    gradient: NdArrayTensor,
    x: NdArrayTensor,
    weight: NdArrayTensor,
    centered: bool,
    epsilon: f64,
) -> NormGradients<NdArrayTensor> {
    let [gradient, x, weight] = [gradient, x, weight].map(NdArrayTensor::into_contiguous);
    let like_weight = || NdArrayTensor::build(weight.shape(), DType::F32, |_: &mut [f32]| {});
    let (mut of_weight, mut bias) = (like_weight(), like_weight());
    let input = NdArrayTensor::build(x.shape(), DType::F32, |input| {
        let (Some(of_weight), Some(bias)) = (of_weight.slice_mut(), bias.slice_mut()) else { return };
        let into = norm::NormGradients { input, weight: of_weight, bias };
        let kernel = if centered { norm::layer_norm_gradient } else { norm::rms_norm_gradient };
        kernel(weight.slice(), epsilon as f32, gradient.slice(), x.slice(), into);
    });
    NormGradients { input, weight: of_weight, bias }
}

/// See [`kiln_tensor::backend::Backend::group_norm_gradient`].
pub(crate) fn group_norm(
    gradient: NdArrayTensor,
    x: NdArrayTensor,
    weight: Option<NdArrayTensor>,
    groups: usize,
    epsilon: f64,
) -> NormGradients<NdArrayTensor> {
    let (dims, channels_last) = (x.shape(), x.layout().is_channels_last());
    let shape = GroupNormShape::new(&dims.dims, groups);
    let [gradient, x] = [gradient, x].map(|t| if channels_last { turned(t) } else { t.into_contiguous() });
    let weight = weight.map(NdArrayTensor::into_contiguous);
    let one_each =
        || NdArrayTensor::build([shape.channels].into(), DType::F32, |out: &mut [f32]| out.fill(0.0));
    let (mut of_weight, mut bias) = (one_each(), one_each());
    let fill = |input: &mut [f32]| {
        let (Some(of_weight), Some(bias)) = (of_weight.slice_mut(), bias.slice_mut()) else { return };
        let weight = weight.as_ref().map(NdArrayTensor::slice);
        let into = norm::NormGradients { input, weight: of_weight, bias };
        norm::group_norm_gradient(&shape, channels_last, weight, epsilon, gradient.slice(), x.slice(), into);
    };
    let input = if channels_last { image(&dims, fill) } else { NdArrayTensor::build(dims, DType::F32, fill) };
    NormGradients { input, weight: of_weight, bias }
}

/// The gradient of what went into a softmax, or its logarithm, along `dim`.
pub(crate) fn softmax(
    kind: SoftmaxKind,
    gradient: NdArrayTensor,
    output: NdArrayTensor,
    dim: usize,
) -> NdArrayTensor {
    if output.layout().is_channels_last() {
        let dim = moved_axis(dim, output.dims().len());
        return softmax(kind, gradient.channels_last(), output.channels_last(), dim).channels_first();
    }
    let [gradient, output] = [gradient, output].map(NdArrayTensor::into_contiguous);
    let Lanes { outer, size, inner } = Lanes::along(output.dims(), dim);
    NdArrayTensor::build(output.shape(), DType::F32, |out| {
        softmax::softmax_gradient(kind, [outer, size, inner], gradient.slice(), output.slice(), out);
    })
}
