//! Resizing: each axis on its own, as a gather of few taps or as a small matrix.
//!
//! The rules are those of ONNX's `Resize` ([`kiln_types::ResizedAxis`]).

use super::calc::{T, add, along, indices, mul, reshape, swapped, weights};
use crate::TensorData;
use crate::backend::{Backend, Primitive};
use crate::{BinaryOp, CoordinateTransform, InterpolateMode, InterpolateOptions, ReduceOp, Scalar};
use alloc::vec;
use alloc::vec::Vec;
use kiln_types::{ResizedAxis, Taps, resized_axes};

/// More taps than this per output element and a matrix product is quicker than gathering.
pub(super) const MAX_GATHERED_TAPS: usize = 4;

/// Default of [`Backend::adaptive_avg_pool`].
pub fn adaptive_avg_pool<B: Backend>(x: T<B>, output_size: &[usize]) -> T<B> {
    let shape = x.shape();
    let sizes: Vec<(usize, usize)> =
        shape.dims[2..].iter().copied().zip(output_size.iter().copied()).collect();
    if sizes.iter().all(|&(input, output)| output > 0 && input % output == 0) {
        let mut split = shape.dims[..2].to_vec();
        let mut pooled = split.clone();
        let mut axes = Vec::new();
        for &(input, output) in &sizes {
            split.extend([output, input / output]);
            axes.push(split.len() - 1);
            pooled.push(output);
        }
        return reshape::<B>(B::reduce(ReduceOp::Mean, reshape::<B>(x, &split), &axes), &pooled);
    }
    let mut x = x;
    for (i, &(input, output)) in sizes.iter().enumerate() {
        x = mixed_by_matrix::<B>(x, i + 2, &adaptive_taps(input, output));
    }
    x
}

/// What each output element of an adaptive average averages along one axis: its taps. For backends that average by a kernel.
pub fn adaptive_taps(input: usize, output: usize) -> Vec<Taps> {
    let taps = (0..output).map(|at| {
        let (start, end) = (at * input / output, ((at + 1) * input).div_ceil(output));
        (start..end).map(|from| (from, 1.0 / (end - start) as f64)).collect()
    });
    taps.collect()
}

/// Default of [`Backend::interpolate`].
pub fn interpolate<B: Backend>(x: T<B>, options: &InterpolateOptions) -> T<B> {
    let dtype = x.dtype();
    let mut y = if dtype.is_float() { x } else { to_work_dtype::<B>(x, options) };
    let outside = outside::<B>(&y.shape().dims, options, &y);
    for (axis, resized) in resized_axes(&y.shape().dims.clone(), options) {
        y = resize_axis::<B>(y, axis, &resized, options.mode);
    }
    if let Some(outside) = outside {
        y = B::mask_fill(y, outside, Scalar::Float(options.extrapolation_value));
    }
    if y.dtype() == dtype { y } else { B::cast(y, dtype) }
}

/// Where the result of a cropped resize lies outside of the input, if it does anywhere.
pub(super) fn outside<B: Backend>(dims: &[usize], options: &InterpolateOptions, like: &T<B>) -> Option<T<B>> {
    if options.coordinates != CoordinateTransform::TfCropAndResize {
        return None;
    }
    let masks = resized_axes(dims, options).filter_map(|(axis, resized)| {
        let last = resized.input() as f32 - 1.0;
        let out: Vec<bool> =
            (0..resized.output()).map(|n| resized.coordinate(n)).map(|at| at < 0.0 || at > last).collect();
        let n = out.len();
        out.contains(&true).then(|| {
            let out = B::from_data(TensorData::new(out, [n]), &B::device(like));
            along::<B>(out, axis, dims.len())
        })
    });
    masks.reduce(|all, mask| B::binary(BinaryOp::Or, all, mask))
}

/// Integers are mixed as f32 (f64 would be exact for more, but no kernel is tuned for it); picking needs no change.
fn to_work_dtype<B: Backend>(x: T<B>, options: &InterpolateOptions) -> T<B> {
    match options.mode {
        InterpolateMode::Nearest(_) => x,
        _ => B::cast(x, crate::DType::F32),
    }
}

/// Resizes `axis`.
fn resize_axis<B: Backend>(x: T<B>, axis: usize, resized: &ResizedAxis<'_>, mode: InterpolateMode) -> T<B> {
    let taps: Vec<Taps> = resized.taps().collect();
    if let InterpolateMode::Nearest(_) = mode {
        let positions = taps.iter().filter_map(|taps| Some(taps.first()?.0 as i64)).collect();
        let positions = indices::<B>(positions, &x);
        return B::select(x, axis, positions);
    }
    if taps.iter().map(|taps| taps.len()).max().unwrap_or(0) <= MAX_GATHERED_TAPS {
        mixed_by_gathering::<B>(x, axis, &taps)
    } else {
        mixed_by_matrix::<B>(x, axis, &taps)
    }
}

/// `Σ weight · x[position]` along `axis`, by one gather per tap.
fn mixed_by_gathering<B: Backend>(x: T<B>, axis: usize, taps: &[Taps]) -> T<B> {
    let rank = x.shape().rank();
    let most = taps.iter().map(|taps| taps.len()).max().unwrap_or(0);
    let mut sum: Option<T<B>> = None;
    for n in 0..most.max(1) {
        let nth = |taps: &Taps| taps.get(n).copied().unwrap_or((taps.first().map_or(0, |tap| tap.0), 0.0));
        let positions = taps.iter().map(|taps| nth(taps).0 as i64).collect();
        let factors = taps.iter().map(|taps| nth(taps).1).collect();
        let positions = indices::<B>(positions, &x);
        let factors = along::<B>(weights::<B>(factors, vec![taps.len()], &x), axis, rank);
        let part = mul::<B>(B::select(x.clone(), axis, positions), factors);
        sum = Some(match sum {
            Some(sum) => add::<B>(sum, part),
            None => part,
        });
    }
    sum.unwrap_or(x)
}

/// `Σ weight · x[position]` along `axis`, by a matrix product.
fn mixed_by_matrix<B: Backend>(x: T<B>, axis: usize, taps: &[Taps]) -> T<B> {
    let (input, output) = (x.shape()[axis], taps.len());
    let mut matrix = vec![0.0; input * output];
    for (column, taps) in taps.iter().enumerate() {
        for &(row, weight) in taps {
            matrix[row * output + column] += weight;
        }
    }
    times_matrix::<B>(x, axis, matrix, output)
}

/// Multiplies the vectors along `axis` with a matrix `[size of the axis, output]`.
pub(super) fn times_matrix<B: Backend>(x: T<B>, axis: usize, matrix: Vec<f64>, output: usize) -> T<B> {
    let (rank, input) = (x.shape().rank(), x.shape()[axis]);
    let matrix = weights::<B>(matrix, vec![input, output], &x);
    let axes = swapped(rank, axis, rank - 1);
    let x = B::permute(x, &axes);
    let mut dims = x.shape().dims;
    let rows = dims[..rank - 1].iter().product();
    let y = B::matmul(reshape::<B>(x, &[rows, input]), matrix);
    dims[rank - 1] = output;
    B::permute(reshape::<B>(y, &dims), &axes)
}
