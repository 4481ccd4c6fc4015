//! Gradients of poolings.

use super::{resize, zeros};
use crate::backend::{Backend, Primitive, SliceRange};
use crate::compose::calc::{T, along, mul, reshape, weights};
use crate::compose::resize::adaptive_taps;
use crate::{ConvTransposeOptions, InlineVec, PadMode, PoolOp, PoolOptions, Scalar, ScatterOp, Shape, trace};
use alloc::{vec, vec::Vec};

/// Default of [`Backend::max_pool_gradient`]: each gradient goes to where its maximum stood.
pub fn max_pool_gradient<B: Backend>(gradient: T<B>, positions: T<B>, input: &Shape) -> T<B> {
    let (batch, channels, size) = (input[0], input[1], input[2..].iter().product());
    let outputs = gradient.shape()[2..].iter().product();
    let [gradient, positions] = [gradient, positions].map(|t| reshape::<B>(t, &[batch, channels, outputs]));
    let flat = zeros::<B>(&Shape::from([batch, channels, size]), &gradient);
    reshape::<B>(B::scatter(flat, 2, positions, gradient, ScatterOp::Add), &input.dims)
}

/// Default of [`Backend::pool_gradient`].
pub fn pool_gradient<B: Backend>(
    op: PoolOp,
    gradient: T<B>,
    x: T<B>,
    output: T<B>,
    options: &PoolOptions,
) -> T<B> {
    let input = x.shape();
    match op {
        PoolOp::Max => {
            let (_, positions) = B::max_pool_with_indices(x, options);
            B::max_pool_gradient(gradient, positions, &input, options)
        }
        PoolOp::Average { include_pad } => {
            let shares = shared::<B>(gradient, &input, options, include_pad);
            spread::<B>(shares, &input, options)
        }
        // y = (Σ |x|^p)^(1/p), so dy/dx = |x|^(p-1) sign(x) / y^(p-1); nothing flows where all are 0.
        PoolOp::Lp { p } => {
            let order = f64::from(p) - 1.0;
            let [shares] = trace::run::<B, 2, 1>([gradient, output], |[gradient, y]| {
                let share = gradient / y.clone().powf_scalar(order);
                [share.mask_fill(y.lower_equal_elem(0.0), 0.0)]
            });
            let [result] = trace::run::<B, 2, 1>([spread::<B>(shares, &input, options), x], |[shares, x]| {
                [shares * x.clone().abs().powf_scalar(order) * x.sign()]
            });
            result
        }
    }
}

/// Gradients of means, divided by the numbers of elements that the windows averaged.
fn shared<B: Backend>(gradient: T<B>, input: &Shape, options: &PoolOptions, include_pad: bool) -> T<B> {
    let shape = gradient.shape();
    (2..shape.rank()).fold(gradient, |gradient, dim| {
        let (before, after) = options.padding[dim - 2];
        // Coordinates of the padded input.
        let counted = if include_pad { 0..input[dim] + before + after } else { before..before + input[dim] };
        let share = |window: usize| {
            let at = |k: usize| window * options.stride[dim - 2] + k * options.dilation[dim - 2];
            let count = (0..options.kernel[dim - 2]).filter(|&k| counted.contains(&at(k))).count();
            1.0 / count.max(1) as f64
        };
        let shares: Vec<f64> = (0..shape[dim]).map(share).collect();
        let shares = weights::<B>(shares, vec![shape[dim]], &gradient);
        mul::<B>(gradient, along::<B>(shares, dim, shape.rank()))
    })
}

/// Adds each window's number to all elements of the window: the adjoint of summing windows.
fn spread<B: Backend>(windows: T<B>, input: &Shape, options: &PoolOptions) -> T<B> {
    let shape = windows.shape();
    if shape.num_elements() == 0 {
        return zeros::<B>(input, &windows);
    }
    let spatial = shape.rank() - 2;
    let channels = shape[0] * shape[1];
    let dims =
        |lead: [usize; 2], rest: &[usize]| -> Vec<usize> { lead.iter().chain(rest).copied().collect() };
    let ones = B::full(
        Shape::from(dims([1, 1], &options.kernel)),
        Scalar::Int(1),
        windows.dtype(),
        &B::device(&windows),
    );
    let whole = ConvTransposeOptions {
        stride: options.stride.clone(),
        padding: InlineVec::repeat((0, 0), spatial),
        output_padding: InlineVec::repeat(0, spatial),
        dilation: options.dilation.clone(),
        groups: 1,
    };
    let windows = reshape::<B>(windows, &dims([channels, 1], &shape[2..]));
    let covered = B::conv_transpose(windows, ones, None, &whole);
    // The windows may end before the input does, or beyond it.
    let reached = covered.shape();
    let missing = |i: usize| (input[i + 2] + options.padding[i].0).saturating_sub(reached[i + 2]);
    let mut padding = vec![(0, 0); 2];
    padding.extend((0..spatial).map(|i| (0, missing(i))));
    let mut ranges = vec![SliceRange::full(channels), SliceRange::full(1)];
    ranges.extend((0..spatial).map(|i| {
        let start = options.padding[i].0;
        SliceRange { start, end: start + input[i + 2], step: 1 }
    }));
    let padded = B::pad(covered, &padding, PadMode::Constant, Scalar::Int(0));
    reshape::<B>(B::slice(padded, &ranges), &input.dims)
}

/// Default of [`Backend::adaptive_avg_pool_gradient`].
pub fn adaptive_avg_pool_gradient<B: Backend>(gradient: T<B>, input: &Shape) -> T<B> {
    let output = gradient.shape();
    (2..input.rank()).fold(gradient, |gradient, dim| {
        resize::spread_taps::<B>(gradient, dim, input[dim], &adaptive_taps(input[dim], output[dim]))
    })
}
