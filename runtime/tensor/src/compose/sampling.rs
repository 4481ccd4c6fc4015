//! Reading tensors at fractional positions: grids, regions, deformed kernels.

use super::calc::{
    T, add, add_scalar, index_dtype, index_tensor, mul, mul_scalar, reshape, to_dtype, weights, wide,
};
use crate::backend::{Backend, Primitive};
use crate::trace;
use crate::{BinaryOp, CompareOp, ReduceOp, Scalar, Shape, Traced, UnaryOp};
use alloc::vec;
use alloc::vec::Vec;

/// How values between samples are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleMode {
    /// The nearest sample; halves go to the even one.
    Nearest,
    /// Linear along each dim.
    Linear,
    /// Cubic convolution along each dim, with parameter -0.75.
    Cubic,
}

/// What stands outside the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplePadding {
    /// Zeros.
    Zeros,
    /// The border.
    Border,
    /// The samples mirrored.
    Reflection,
}

/// How a grid reads a tensor; see [`grid_sample`](crate::module::grid_sample).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridSampleOptions {
    /// How values between samples are computed.
    pub mode: SampleMode,
    /// What stands outside.
    pub padding: SamplePadding,
    /// Whether ±1 are the centers of the outermost samples, or their outer borders.
    pub align_corners: bool,
}

impl Default for GridSampleOptions {
    fn default() -> Self {
        Self { mode: SampleMode::Linear, padding: SamplePadding::Zeros, align_corners: false }
    }
}

impl GridSampleOptions {
    /// Zeros outside, ±1 at the outer borders.
    pub fn new(mode: impl Into<SampleMode>) -> Self {
        Self { mode: mode.into(), ..Self::default() }
    }

    /// With something else outside.
    #[must_use]
    pub fn with_padding_mode(self, padding: SamplePadding) -> Self {
        Self { padding, ..self }
    }

    /// With ±1 at the centers of the outermost samples, or not.
    #[must_use]
    pub fn with_align_corners(self, align_corners: bool) -> Self {
        Self { align_corners, ..self }
    }
}

impl<M: Into<SampleMode>> From<M> for GridSampleOptions {
    fn from(mode: M) -> Self {
        Self::new(mode)
    }
}

/// One sample that contributes along one dim: its position within the dim and its weight, `[batch, points]`.
struct Tap<B: Backend> {
    position: T<B>,
    weight: T<B>,
}

impl<B: Backend> Clone for Tap<B> {
    fn clone(&self) -> Self {
        Self { position: self.position.clone(), weight: self.weight.clone() }
    }
}

fn clamped<B: Backend>(x: T<B>, high: f64) -> T<B> {
    B::clamp(x, Some(Scalar::Float(0.0)), Some(Scalar::Float(high)))
}

/// [`clamped`], but that a border itself has no slope, as in PyTorch: what keeps all corners in place has its outermost coordinates there.
fn held<B: Backend>(x: T<B>, high: f64) -> T<B> {
    let [held] = trace::run::<B, 1, 1>([x], |[x]| {
        let high = || Traced::parameter(high);
        let (before, behind) = (x.clone().lower_equal(0.0), x.clone().greater_equal(high()));
        [x.mask_where(before, 0.0).mask_where(behind, high())]
    });
    held
}

/// Mirrors coordinates at the borders: the outermost centers, or half a sample beyond them.
fn reflected<B: Backend>(x: T<B>, size: usize, align_corners: bool) -> T<B> {
    let (low, span) = if align_corners { (0.0, size as f64 - 1.0) } else { (-0.5, size as f64) };
    if span <= 0.0 {
        return mul_scalar::<B>(x, 0.0);
    }
    let distance = B::unary(UnaryOp::Abs, add_scalar::<B>(x, -low));
    let once = B::binary_scalar(BinaryOp::Fmod, distance, Scalar::Float(2.0 * span));
    let back = add_scalar::<B>(B::unary(UnaryOp::Neg, once.clone()), 2.0 * span);
    add_scalar::<B>(B::binary(BinaryOp::Min, once, back), low)
}

/// Brings whole or fractional coordinates inside, where the padding says so.
fn padded<B: Backend>(x: T<B>, size: usize, options: &GridSampleOptions) -> T<B> {
    let high = size as f64 - 1.0;
    match options.padding {
        SamplePadding::Zeros => x,
        SamplePadding::Border => held::<B>(x, high),
        SamplePadding::Reflection => clamped::<B>(reflected::<B>(x, size, options.align_corners), high),
    }
}

/// The tap at a whole coordinate; outside it weighs nothing.
fn tap<B: Backend>(at: T<B>, weight: T<B>, size: usize) -> Tap<B> {
    let high = size as f64 - 1.0;
    let inside = clamped::<B>(at.clone(), high);
    let is_inside = B::cast(B::compare(CompareOp::Equal, at, inside.clone()), weight.dtype());
    Tap { position: B::cast(inside, index_dtype::<B>()), weight: mul::<B>(weight, is_inside) }
}

/// `1 - |distance|`-like weight of the cubic kernel for a distance below 2.
fn cubic_weight<B: Backend>(distance: T<B>, far: bool) -> T<B> {
    const A: f64 = -0.75;
    // Horner's scheme; the kernel of Keys (1981).
    let coefficients = if far { [A, -5.0 * A, 8.0 * A, -4.0 * A] } else { [A + 2.0, -A - 3.0, 0.0, 1.0] };
    let [cubed, squared, linear, constant] = coefficients;
    let sum = add_scalar::<B>(mul_scalar::<B>(distance.clone(), cubed), squared);
    let sum = add_scalar::<B>(mul::<B>(sum, distance.clone()), linear);
    add_scalar::<B>(mul::<B>(sum, distance), constant)
}

/// The samples that contribute to coordinates along one dim.
fn taps<B: Backend>(x: T<B>, size: usize, options: &GridSampleOptions) -> Vec<Tap<B>> {
    let ones = |like: &T<B>| B::full(like.shape(), Scalar::Int(1), like.dtype(), &B::device(like));
    match options.mode {
        SampleMode::Nearest => {
            let at = B::unary(UnaryOp::Round, padded::<B>(x, size, options));
            let weight = ones(&at);
            vec![tap::<B>(at, weight, size)]
        }
        SampleMode::Linear => {
            let x = padded::<B>(x, size, options);
            let first = B::unary(UnaryOp::Floor, x.clone());
            let share = B::binary(BinaryOp::Sub, x, first.clone());
            let rest = B::binary(BinaryOp::Sub, ones(&share), share.clone());
            vec![tap::<B>(first.clone(), rest, size), tap::<B>(add_scalar::<B>(first, 1.0), share, size)]
        }
        SampleMode::Cubic => {
            let first = B::unary(UnaryOp::Floor, x.clone());
            let share = B::binary(BinaryOp::Sub, x, first.clone());
            let rest = B::binary(BinaryOp::Sub, ones(&share), share.clone());
            let at = |offset: f64| padded::<B>(add_scalar::<B>(first.clone(), offset), size, options);
            vec![
                tap::<B>(at(-1.0), cubic_weight::<B>(add_scalar::<B>(share.clone(), 1.0), true), size),
                tap::<B>(at(0.0), cubic_weight::<B>(share, false), size),
                tap::<B>(at(1.0), cubic_weight::<B>(rest.clone(), false), size),
                tap::<B>(at(2.0), cubic_weight::<B>(add_scalar::<B>(rest, 1.0), true), size),
            ]
        }
    }
}

/// Reads `[batch, channels, spatial…]` at points given by one coordinate tensor `[batch, points]` per spatial dim, in
/// samples: `[batch, channels, points]`.
pub(crate) fn sample<B: Backend>(x: T<B>, coordinates: Vec<T<B>>, options: &GridSampleOptions) -> T<B> {
    let shape = x.shape();
    let (batch, channels, spatial) = (shape[0], shape[1], &shape[2..]);
    let mut combined: Vec<Tap<B>> = Vec::new();
    for (coordinate, &size) in coordinates.into_iter().zip(spatial) {
        let along = taps::<B>(coordinate, size, options);
        combined = if combined.is_empty() {
            along
        } else {
            let pairs = combined.iter().flat_map(|outer| along.iter().map(move |inner| (outer, inner)));
            pairs
                .map(|(outer, inner)| {
                    let row = B::binary_scalar(BinaryOp::Mul, outer.position.clone(), Scalar::from(size));
                    Tap {
                        position: add::<B>(row, inner.position.clone()),
                        weight: mul::<B>(outer.weight.clone(), inner.weight.clone()),
                    }
                })
                .collect()
        };
    }
    let flat = reshape::<B>(x, &[batch, channels, spatial.iter().product()]);
    let mut sum: Option<T<B>> = None;
    for Tap { position, weight } in combined {
        let points = position.shape()[1];
        let index =
            B::expand(reshape::<B>(position, &[batch, 1, points]), Shape::from([batch, channels, points]));
        let weight = reshape::<B>(to_dtype::<B>(weight, flat.dtype()), &[batch, 1, points]);
        let part = mul::<B>(B::gather(flat.clone(), 2, index), weight);
        sum = Some(match sum {
            Some(sum) => add::<B>(sum, part),
            None => part,
        });
    }
    sum.unwrap_or(flat)
}

/// See `module::grid_sample`: `grid` is `[batch, points…, spatial rank]`, its last dim innermost coordinate first.
pub(crate) fn grid_sample<B: Backend>(x: T<B>, grid: T<B>, options: &GridSampleOptions) -> T<B> {
    let (shape, grid_shape, grid_dtype) = (x.shape(), grid.shape(), grid.dtype());
    let spatial = &shape[2..];
    let points = &grid_shape[1..grid_shape.rank() - 1];
    let count = points.iter().product();
    // Half precision counts no pixels beyond a few hundred.
    let grid = to_dtype::<B>(grid, wide(grid_dtype));
    let columns = reshape::<B>(grid, &[shape[0], count, spatial.len()]);
    let coordinates = (0..spatial.len()).map(|dim| {
        let column = super::calc::narrow::<B>(columns.clone(), 2, spatial.len() - 1 - dim, 1);
        let (size, column) = (spatial[dim] as f64, reshape::<B>(column, &[shape[0], count]));
        // From -1…1 to samples, in this order: `Nearest` must round what other runtimes round.
        let column = add_scalar::<B>(column, 1.0);
        let column = if options.align_corners {
            mul_scalar::<B>(column, size - 1.0)
        } else {
            add_scalar::<B>(mul_scalar::<B>(column, size), -1.0)
        };
        mul_scalar::<B>(column, 0.5)
    });
    let coordinates = coordinates.collect();
    let sampled = sample::<B>(x, coordinates, options);
    let mut dims = shape[..2].to_vec();
    dims.extend_from_slice(points);
    reshape::<B>(sampled, &dims)
}

/// Samples of a region: flat positions in `[height, width]` with weights, four per sampled point.
pub(crate) struct RegionTaps {
    /// `[regions, bins, taps]`, row-major.
    pub positions: Vec<i64>,
    /// Likewise.
    pub weights: Vec<f64>,
    /// Taps per bin.
    pub per_bin: usize,
}

/// Reduces weighted taps of `[batch, channels, height, width]`, whose positions include the batch: `[bins, channels]`.
pub(crate) fn reduce_taps<B: Backend>(x: T<B>, taps: RegionTaps, op: ReduceOp) -> T<B> {
    let [batch, channels, height, width] = x.shape().dims();
    let rows = B::permute(x, &[0, 2, 3, 1]);
    let rows = reshape::<B>(rows, &[batch * height * width, channels]);
    let count = taps.positions.len();
    let bins = count / taps.per_bin.max(1);
    let positions = index_tensor::<B>(taps.positions, Shape::from([count]), &B::device(&rows));
    let factors = weights::<B>(taps.weights, vec![count, 1], &rows);
    let weighted = mul::<B>(B::select(rows, 0, positions), factors);
    let reduced = B::reduce(op, reshape::<B>(weighted, &[bins, taps.per_bin, channels]), &[1]);
    reshape::<B>(reduced, &[bins, channels])
}
