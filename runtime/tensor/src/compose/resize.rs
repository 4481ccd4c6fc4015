//! Resizing: each axis on its own, as a gather of few taps or as a small matrix.
//!
//! The rules are those of ONNX's `Resize`. Positions are computed in single precision, as ONNX Runtime computes them: with
//! more digits, `x / scale` would fall below the whole number that it stands for (5 / 0.6 rounded up), and the nearest
//! neighbour would be another one.

use super::calc::{T, add, along, indices, mul, reshape, swapped, weights};
use crate::TensorData;
use crate::backend::{Backend, Primitive};
use crate::{
    BinaryOp, CoordinateTransform, InlineVec, InterpolateMode, InterpolateOptions, NearestRounding, ReduceOp,
    Scalar,
};
use alloc::vec;
use alloc::vec::Vec;
use num_traits::Float;

/// More taps than this per output element and a matrix product is quicker than gathering.
pub(super) const MAX_GATHERED_TAPS: usize = 4;

/// One output element along one axis: positions in the input (within it) and their weights.
pub type Taps = InlineVec<(usize, f64)>;

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
    let rank = x.shape().rank();
    let dtype = x.dtype();
    let mut y = if dtype.is_float() { x } else { to_work_dtype::<B>(x, options) };
    let outside = outside::<B>(&y.shape().dims, options, &y);
    for axis in 0..rank {
        let resized = ResizedAxis::new(y.shape()[axis], axis, options);
        if !resized.is_identity() {
            y = resized.apply::<B>(y, axis);
        }
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
        let last = resized.input as f32 - 1.0;
        let out: Vec<bool> =
            (0..resized.output).map(|n| resized.coordinate(n)).map(|at| at < 0.0 || at > last).collect();
        let n = out.len();
        out.contains(&true).then(|| {
            let out = B::from_data(TensorData::new(out, [n]), &B::device(like));
            along::<B>(out, axis, dims.len())
        })
    });
    masks.reduce(|all, mask| B::binary(BinaryOp::Or, all, mask))
}

/// The axes that change, and how each is resized. For backends that resize by a kernel.
///
/// Values outside of a cropped region are the caller's affair.
pub fn resized_axes<'a>(
    dims: &'a [usize],
    options: &'a InterpolateOptions,
) -> impl Iterator<Item = (usize, ResizedAxis<'a>)> {
    let axes = dims.iter().enumerate().map(|(axis, &size)| (axis, ResizedAxis::new(size, axis, options)));
    axes.filter(|(_, resized)| !resized.is_identity())
}

/// Integers are mixed as f32 (f64 would be exact for more, but no kernel is tuned for it); picking needs no change.
fn to_work_dtype<B: Backend>(x: T<B>, options: &InterpolateOptions) -> T<B> {
    match options.mode {
        InterpolateMode::Nearest(_) => x,
        _ => B::cast(x, crate::DType::F32),
    }
}

/// How one axis is resized.
pub struct ResizedAxis<'a> {
    input: usize,
    output: usize,
    scale: f32,
    roi: (f32, f32),
    options: &'a InterpolateOptions,
}

impl<'a> ResizedAxis<'a> {
    fn new(input: usize, axis: usize, options: &'a InterpolateOptions) -> Self {
        let roi = options.roi.as_ref().and_then(|roi| roi.get(axis)).copied().unwrap_or((0.0, 1.0));
        Self {
            input,
            output: options.output_size[axis],
            scale: options.scales[axis] as f32,
            roi: (roi.0 as f32, roi.1 as f32),
            options,
        }
    }

    /// Whether every output element is the input element at its place.
    fn is_identity(&self) -> bool {
        let cropped =
            self.options.coordinates == CoordinateTransform::TfCropAndResize && self.roi != (0.0, 1.0);
        self.input == self.output && self.scale == 1.0 && !cropped
    }

    /// Where in the input the `n`-th output element lies.
    fn coordinate(&self, n: usize) -> f32 {
        let (input, output, x) = (self.input as f32, self.output as f32, n as f32);
        match self.options.coordinates {
            CoordinateTransform::HalfPixel => (x + 0.5) / self.scale - 0.5,
            CoordinateTransform::PytorchHalfPixel if self.output == 1 => 0.0,
            CoordinateTransform::PytorchHalfPixel => (x + 0.5) / self.scale - 0.5,
            CoordinateTransform::HalfPixelSymmetric => {
                let adjustment = output / (self.scale * input);
                input / 2.0 * (1.0 - adjustment) + (x + 0.5) / self.scale - 0.5
            }
            CoordinateTransform::AlignCorners if self.output == 1 => 0.0,
            CoordinateTransform::AlignCorners => x * (input - 1.0) / (output - 1.0),
            CoordinateTransform::Asymmetric => x / self.scale,
            CoordinateTransform::TfHalfPixelForNn => (x + 0.5) / self.scale,
            CoordinateTransform::TfCropAndResize if self.output == 1 => {
                (self.roi.0 + self.roi.1) * (input - 1.0) / 2.0
            }
            CoordinateTransform::TfCropAndResize => {
                let length = (self.roi.1 - self.roi.0) * (input - 1.0);
                x * length / (output - 1.0) + self.roi.0 * (input - 1.0)
            }
        }
    }

    /// Resizes `axis`.
    fn apply<B: Backend>(&self, x: T<B>, axis: usize) -> T<B> {
        let taps: Vec<Taps> = self.taps().collect();
        if let InterpolateMode::Nearest(_) = self.options.mode {
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

    /// The taps of each output element.
    pub fn taps(&self) -> impl Iterator<Item = Taps> {
        let stretch = if self.options.antialias { f64::from(self.scale.min(1.0)) } else { 1.0 };
        (0..self.output).map(move |n| {
            let at = self.coordinate(n);
            match self.options.mode {
                InterpolateMode::Nearest(rounding) => [(self.inside(rounded(at, rounding)), 1.0)].into(),
                InterpolateMode::Linear => self.near(at.into(), 1.0, stretch, |d| 1.0 - d),
                InterpolateMode::Cubic { a } => self.near(at.into(), 2.0, stretch, |d| cubic(d, a)),
            }
        })
    }

    /// Samples within `radius / stretch` of `at`, weighted by a kernel of their (stretched) distance. Samples beyond
    /// the border show the border, or are left out.
    fn near(&self, at: f64, radius: f64, stretch: f64, kernel: impl Fn(f64) -> f64) -> Taps {
        let exclude_outside = self.options.exclude_outside;
        let reach = radius / stretch;
        let (first, last) = (Float::ceil(at - reach) as i64, Float::floor(at + reach) as i64);
        let mut taps = Taps::new();
        let mut sum = 0.0;
        for position in first..=last {
            let distance = (position as f64 - at).abs() * stretch;
            let inside = self.inside(position);
            if distance >= radius || (exclude_outside && inside as i64 != position) {
                continue;
            }
            let weight = kernel(distance);
            sum += weight;
            match taps.last_mut() {
                Some((same, total)) if *same == inside => *total += weight,
                _ => taps.push((inside, weight)),
            }
        }
        // Weights of whole kernels already sum to 1, up to rounding.
        if exclude_outside || stretch != 1.0 {
            taps.iter_mut().for_each(|(_, weight)| *weight /= sum);
        }
        taps
    }

    /// The nearest position within the input.
    fn inside(&self, position: i64) -> usize {
        usize::try_from(position).unwrap_or(0).min(self.input.saturating_sub(1))
    }
}

/// The position that stands for a coordinate.
fn rounded(at: f32, rounding: NearestRounding) -> i64 {
    // Wider, so that adding a half does not round.
    let at = f64::from(at);
    let nearest = match rounding {
        NearestRounding::RoundPreferFloor => Float::ceil(at - 0.5),
        NearestRounding::RoundPreferCeil => Float::floor(at + 0.5),
        NearestRounding::Floor => Float::floor(at),
        NearestRounding::Ceil => Float::ceil(at),
    };
    nearest as i64
}

/// Keys' cubic convolution kernel with parameter `a`.
fn cubic(d: f64, a: f64) -> f64 {
    if d <= 1.0 {
        ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    } else {
        ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
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
