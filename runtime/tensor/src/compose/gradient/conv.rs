//! Gradients of convolutions: convolutions again.

use super::zeros;
use crate::backend::{Backend, Primitive};
use crate::compose::calc::{T, narrow, reshape, swapped};
use crate::{ConvOptions, ConvTransposeOptions, Shape};
use alloc::vec::Vec;

/// Default of [`Backend::conv_input_gradient`]: the transposed convolution with the same weight.
pub fn conv_input_gradient<B: Backend>(
    gradient: T<B>,
    weight: T<B>,
    input: &Shape,
    options: &ConvOptions,
) -> T<B> {
    if gradient.shape().num_elements() == 0 {
        return zeros::<B>(input, &gradient);
    }
    let (outputs, kernel) = (gradient.shape(), weight.shape());
    // What the last window does not reach.
    let rest = |i: usize| {
        let (before, after) = options.padding[i];
        let reached =
            (outputs[i + 2] - 1) * options.stride[i] + options.dilation[i] * (kernel[i + 2] - 1) + 1;
        (input[i + 2] + before + after).saturating_sub(reached)
    };
    let options = ConvTransposeOptions {
        stride: options.stride.clone(),
        padding: options.padding.clone(),
        output_padding: (0..options.stride.len()).map(rest).collect(),
        dilation: options.dilation.clone(),
        groups: options.groups,
    };
    B::conv_transpose(gradient, weight, None, &options)
}

/// Default of [`Backend::conv_weight_gradient`]: the input, convolved with the gradient. Batch and channels change places,
/// stride and dilation too.
pub fn conv_weight_gradient<B: Backend>(
    x: T<B>,
    gradient: T<B>,
    weight: &Shape,
    options: &ConvOptions,
) -> T<B> {
    if x.shape().num_elements() == 0 || gradient.shape().num_elements() == 0 {
        return zeros::<B>(weight, &gradient);
    }
    let (shape, rank, groups) = (x.shape(), weight.rank(), options.groups);
    let (batch, per_group, spatial) = (shape[0], weight[1], &shape[2..]);
    let dims = |lead: &[usize]| -> Vec<usize> { lead.iter().chain(spatial).copied().collect() };
    let mut axes = swapped(rank + 1, 0, 2);
    axes[1] = 1;
    let x = B::permute(reshape::<B>(x, &dims(&[batch, groups, per_group])), &axes);
    let images = reshape::<B>(x, &dims(&[per_group, groups * batch]));
    let kernels = B::permute(gradient, &swapped(rank, 0, 1));
    let options =
        ConvOptions { stride: options.dilation.clone(), dilation: options.stride.clone(), ..options.clone() };
    let mut result = B::conv(images, kernels, None, &options);
    for dim in 2..rank {
        // Behind the kernel lies what no window reached.
        result = narrow::<B>(result, dim, 0, weight[dim]);
    }
    B::permute(result, &swapped(rank, 0, 1))
}

/// The convolution whose adjoint a transposed convolution is.
fn adjoint(options: &ConvTransposeOptions) -> ConvOptions {
    ConvOptions {
        stride: options.stride.clone(),
        padding: options.padding.clone(),
        dilation: options.dilation.clone(),
        groups: options.groups,
    }
}

/// Default of [`Backend::conv_transpose_input_gradient`].
pub fn conv_transpose_input_gradient<B: Backend>(
    gradient: T<B>,
    weight: T<B>,
    input: &Shape,
    options: &ConvTransposeOptions,
) -> T<B> {
    if gradient.shape().num_elements() == 0 {
        return zeros::<B>(input, &gradient);
    }
    let mut result = B::conv(gradient, weight, None, &adjoint(options));
    for dim in 2..input.rank() {
        // Padding of the output may have made room for one window more.
        result = narrow::<B>(result, dim, 0, input[dim]);
    }
    result
}

/// Default of [`Backend::conv_transpose_weight_gradient`].
pub fn conv_transpose_weight_gradient<B: Backend>(
    x: T<B>,
    gradient: T<B>,
    weight: &Shape,
    options: &ConvTransposeOptions,
) -> T<B> {
    conv_weight_gradient::<B>(gradient, x, weight, &adjoint(options))
}
