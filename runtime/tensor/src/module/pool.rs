//! Pooling and resizing: `[batch, channels, spatial…]`.

use crate::backend::Backend;
use crate::check::ensure;
use crate::{
    CoordinateTransform, Dims, InlineVec, Int, InterpolateMode, InterpolateOptions, Numeric, PoolOp,
    PoolOptions, Tensor,
};

#[track_caller]
fn check_pool(x: &[usize], options: &PoolOptions) {
    let spatial = x.len().saturating_sub(2);
    ensure!(
        (1..=3).contains(&spatial),
        "pool",
        "{x:?} should be [batch, channels, …] with 1 to 3 spatial dims"
    );
    let lengths = [options.kernel.len(), options.stride.len(), options.padding.len(), options.dilation.len()];
    ensure!(
        lengths.iter().all(|&n| n == spatial),
        "pool",
        "the options are not for the {spatial} spatial dims of {x:?}"
    );
    for i in 0..spatial {
        let ((before, after), kernel) = (options.padding[i], options.kernel[i]);
        let reach = options.dilation[i] * (kernel.max(1) - 1) + 1;
        // Rounded up, there is one that hangs over the end by less than a step.
        let hanging = if options.ceil_mode { options.stride[i].saturating_sub(1) } else { 0 };
        ensure!(
            kernel > 0 && options.stride[i] > 0 && x[i + 2] + before + after + hanging >= reach,
            "pool",
            "a window of {reach} does not fit dim {} of {x:?}, padded by {before} and {after}",
            i + 2
        );
    }
}

/// Pools windows; see [`PoolOp`].
///
/// # Panics
/// When the options do not fit the input.
pub fn pool<B: Backend, const D: usize>(op: PoolOp, x: Tensor<B, D>, options: PoolOptions) -> Tensor<B, D> {
    check_pool(x.sizes(), &options);
    Tensor::wrap(B::pool(op, x.into_backend(), &options))
}

/// Max pooling of floats or integers; a window of padding alone has the least number of its dtype.
///
/// # Panics
/// When the options do not fit the input.
pub fn max_pool<B: Backend, const D: usize, K: Numeric<B>>(
    x: Tensor<B, D, K>,
    options: PoolOptions,
) -> Tensor<B, D, K> {
    check_pool(x.sizes(), &options);
    Tensor::wrap(B::pool(PoolOp::Max, x.into_backend(), &options))
}

/// Max pooling of floats or integers, with the position of each maximum in the flattened spatial dims of its channel.
///
/// # Panics
/// When the options do not fit the input.
pub fn max_pool_with_indices<B: Backend, const D: usize, K: Numeric<B>>(
    x: Tensor<B, D, K>,
    options: PoolOptions,
) -> (Tensor<B, D, K>, Tensor<B, D, Int>) {
    check_pool(x.sizes(), &options);
    let (values, indices) = B::max_pool_with_indices(x.into_backend(), &options);
    (Tensor::wrap(values), Tensor::wrap(indices))
}

/// Average pooling to a spatial size.
///
/// # Panics
/// When `output_size` has not one entry per spatial dim.
pub fn adaptive_avg_pool<B: Backend, const D: usize>(x: Tensor<B, D>, output_size: &[usize]) -> Tensor<B, D> {
    ensure!(
        D == output_size.len() + 2,
        "adaptive_avg_pool",
        "a spatial size {output_size:?} does not fit {}",
        x.shape()
    );
    Tensor::wrap(B::adaptive_avg_pool(x.into_backend(), output_size))
}

/// [`adaptive_avg_pool`] with one spatial dim.
pub fn adaptive_avg_pool1d<B: Backend>(x: Tensor<B, 3>, output_size: usize) -> Tensor<B, 3> {
    adaptive_avg_pool(x, &[output_size])
}

/// [`adaptive_avg_pool`] with two spatial dims.
pub fn adaptive_avg_pool2d<B: Backend>(x: Tensor<B, 4>, output_size: [usize; 2]) -> Tensor<B, 4> {
    adaptive_avg_pool(x, &output_size)
}

/// Max pooling with one spatial dim.
pub fn max_pool1d<B: Backend>(
    x: Tensor<B, 3>,
    kernel_size: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    ceil_mode: bool,
) -> Tensor<B, 3> {
    pool(PoolOp::Max, x, PoolOptions::new([kernel_size], [stride], [padding], [dilation], ceil_mode))
}

/// Max pooling with two spatial dims.
pub fn max_pool2d<B: Backend>(
    x: Tensor<B, 4>,
    kernel_size: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil_mode: bool,
) -> Tensor<B, 4> {
    pool(PoolOp::Max, x, PoolOptions::new(kernel_size, stride, padding, dilation, ceil_mode))
}

/// Max pooling with one spatial dim, with the positions of the maxima.
pub fn max_pool1d_with_indices<B: Backend>(
    x: Tensor<B, 3>,
    kernel_size: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    ceil_mode: bool,
) -> (Tensor<B, 3>, Tensor<B, 3, Int>) {
    max_pool_with_indices(x, PoolOptions::new([kernel_size], [stride], [padding], [dilation], ceil_mode))
}

/// Max pooling with two spatial dims, with the positions of the maxima.
pub fn max_pool2d_with_indices<B: Backend>(
    x: Tensor<B, 4>,
    kernel_size: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil_mode: bool,
) -> (Tensor<B, 4>, Tensor<B, 4, Int>) {
    max_pool_with_indices(x, PoolOptions::new(kernel_size, stride, padding, dilation, ceil_mode))
}

/// Average pooling with one spatial dim.
pub fn avg_pool1d<B: Backend>(
    x: Tensor<B, 3>,
    kernel_size: usize,
    stride: usize,
    padding: usize,
    count_include_pad: bool,
    ceil_mode: bool,
) -> Tensor<B, 3> {
    let options = PoolOptions::new([kernel_size], [stride], [padding], [1], ceil_mode);
    pool(PoolOp::Average { include_pad: count_include_pad }, x, options)
}

/// Average pooling with two spatial dims.
pub fn avg_pool2d<B: Backend>(
    x: Tensor<B, 4>,
    kernel_size: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    count_include_pad: bool,
    ceil_mode: bool,
) -> Tensor<B, 4> {
    let options = PoolOptions::new(kernel_size, stride, padding, [1, 1], ceil_mode);
    pool(PoolOp::Average { include_pad: count_include_pad }, x, options)
}

/// Resizes; see [`InterpolateOptions`], which has one entry per dim. Integers between samples are mixed in single precision.
///
/// # Panics
/// When the options are not for the rank.
pub fn interpolate_with<B: Backend, const D: usize, K: Numeric<B>>(
    x: Tensor<B, D, K>,
    options: InterpolateOptions,
) -> Tensor<B, D, K> {
    let shape = x.shape();
    let fits = options.output_size.len() == D
        && options.scales.len() == D
        && options.roi.as_ref().is_none_or(|roi| roi.len() == D);
    ensure!(fits, "interpolate", "the options are not for rank {D}");
    let shown = shape.iter().zip(&options.output_size).all(|(&from, &to)| from > 0 || to == 0);
    ensure!(shown, "interpolate", "{shape} has an empty dim, {:?} has not", options.output_size);
    Tensor::wrap(B::interpolate(x.into_backend(), &options))
}

/// Resizes the spatial dims of `[batch, channels, spatial…]` to `output_size`.
///
/// # Panics
/// When `output_size` has not one entry per spatial dim.
pub fn interpolate<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    output_size: &[usize],
    mode: InterpolateMode,
    coordinates: CoordinateTransform,
) -> Tensor<B, D> {
    let shape = x.shape();
    ensure!(D == output_size.len() + 2, "interpolate", "a spatial size {output_size:?} does not fit {shape}");
    let mut sizes = Dims::from(&shape[..2]);
    sizes.extend_from_slice(output_size);
    let scales: InlineVec<f64> =
        shape.iter().zip(&sizes).map(|(&from, &to)| to as f64 / from.max(1) as f64).collect();
    let options = InterpolateOptions {
        output_size: sizes,
        scales,
        mode,
        coordinates,
        antialias: false,
        exclude_outside: false,
        roi: None,
        extrapolation_value: 0.0,
    };
    interpolate_with(x, options)
}

/// The smallest of the scales that make sizes others: of pairs of the new size and the old one.
pub fn smallest_ratio<const N: usize>(sizes: [(usize, usize); N]) -> f64 {
    sizes.into_iter().map(|(to, from)| to as f64 / from as f64).fold(f64::INFINITY, f64::min)
}

/// The largest of the scales that make sizes others: of pairs of the new size and the old one.
pub fn largest_ratio<const N: usize>(sizes: [(usize, usize); N]) -> f64 {
    sizes.into_iter().map(|(to, from)| to as f64 / from as f64).fold(0.0, f64::max)
}

/// A size as a number, for scales.
pub fn size_as_float(size: usize) -> f64 {
    size as f64
}
