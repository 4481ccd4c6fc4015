//! Gradients of softmax and the normalizations, and batch normalization with the statistics of its batch.

use crate::backend::{Backend, Primitive};
use crate::compose::calc::{
    T, add_scalar, along, lead_to_rank, mean, mul, reshape, scalar_like, sub, to_dtype, wide,
};
use crate::trace::{self, Traced};
use crate::{ReduceOp, Scalar, UnaryOp};
use alloc::vec::Vec;

/// Default of [`Backend::softmax_gradient`].
pub fn softmax_gradient<B: Backend>(gradient: T<B>, output: T<B>, dim: usize) -> T<B> {
    let dtype = output.dtype();
    let [gradient, y] = [gradient, output].map(|t| to_dtype::<B>(t, wide(dtype)));
    let flow = B::reduce(ReduceOp::Sum, mul::<B>(gradient.clone(), y.clone()), &[dim]);
    let [result] = trace::run::<B, 3, 1>([gradient, y, flow], |[gradient, y, flow]| [y * (gradient - flow)]);
    to_dtype::<B>(result, dtype)
}

/// Default of [`Backend::log_softmax_gradient`].
pub fn log_softmax_gradient<B: Backend>(gradient: T<B>, output: T<B>, dim: usize) -> T<B> {
    let dtype = output.dtype();
    let [gradient, y] = [gradient, output].map(|t| to_dtype::<B>(t, wide(dtype)));
    let sum = B::reduce(ReduceOp::Sum, gradient.clone(), &[dim]);
    let [result] = trace::run::<B, 3, 1>([gradient, y, sum], |[gradient, y, sum]| [gradient - y.exp() * sum]);
    to_dtype::<B>(result, dtype)
}

/// Gradients of a normalization.
#[derive(Clone, Debug)]
pub struct NormGradients<P> {
    /// Of the input.
    pub input: P,
    /// Of the weight, or of what would be one.
    pub weight: P,
    /// Of the bias, or of what would be one.
    pub bias: P,
}

impl<P> NormGradients<P> {
    /// Each of them, changed.
    #[must_use]
    pub fn map(self, f: impl Fn(P) -> P) -> Self {
        Self { input: f(self.input), weight: f(self.weight), bias: f(self.bias) }
    }
}

/// `x` with mean 0 and variance 1 over `axes`, and what it was divided by, inverted.
fn standardized<B: Backend>(x: T<B>, axes: &[usize], epsilon: f64) -> (T<B>, T<B>) {
    let x = sub::<B>(x.clone(), mean::<B>(x, axes));
    let square = mean::<B>(mul::<B>(x.clone(), x.clone()), axes);
    let inverse = B::unary(UnaryOp::Recip, B::unary(UnaryOp::Sqrt, add_scalar::<B>(square, epsilon)));
    (mul::<B>(x, inverse.clone()), inverse)
}

/// The gradient of the input of a standardization, from that of its result.
fn through<B: Backend>(gradient: T<B>, result: T<B>, inverse: T<B>, axes: &[usize]) -> T<B> {
    let slope = mean::<B>(mul::<B>(gradient.clone(), result.clone()), axes);
    let gradient = sub::<B>(gradient.clone(), mean::<B>(gradient, axes));
    let operands = [gradient, result, slope, inverse];
    let [input] = trace::run::<B, 4, 1>(operands, |[g, y, slope, inverse]| [(g - y * slope) * inverse]);
    input
}

/// A sum over axes that are then dropped.
fn summed<B: Backend>(x: T<B>, axes: &[usize], dims: &[usize]) -> T<B> {
    let x = if axes.is_empty() { x } else { B::reduce(ReduceOp::Sum, x, axes) };
    reshape::<B>(x, dims)
}

/// What a normalization over the last dims found of each row.
#[derive(Clone, Debug)]
pub struct RowStatistics<P> {
    /// The mean, where it was taken away.
    pub center: Option<P>,
    /// The inverse of what was divided by.
    pub inverse: P,
}

/// The gradient of the weight of a normalization over the last dims, all of which it covers.
pub fn norm_weight_gradient<B: Backend>(
    gradient: T<B>,
    x: T<B>,
    weight: &T<B>,
    rows: RowStatistics<T<B>>,
) -> T<B> {
    let (dtype, lead) = (x.dtype(), leading::<B>(&x, weight));
    let products = norm_products::<B>(gradient, x, rows);
    to_dtype::<B>(summed::<B>(products, &lead, weight.dims()), dtype)
}

/// The gradients of the weight and the bias of a normalization over the last dims, with what yields [`sums_of_both`].
pub fn norm_parameter_gradients_with<B: Backend>(
    gradient: T<B>,
    x: T<B>,
    weight: &T<B>,
    rows: RowStatistics<T<B>>,
    sums_of_both: impl FnOnce([T<B>; 2], &[usize]) -> [T<B>; 2],
) -> [T<B>; 2] {
    let (dtype, lead) = (x.dtype(), leading::<B>(&x, weight));
    let both = [norm_products::<B>(gradient.clone(), x, rows), gradient];
    let sums = if lead.is_empty() { both } else { sums_of_both(both, &lead) };
    sums.map(|sum| to_dtype::<B>(reshape::<B>(sum, weight.dims()), dtype))
}

/// What the gradient of a normalization's weight is the sum of.
fn norm_products<B: Backend>(gradient: T<B>, x: T<B>, rows: RowStatistics<T<B>>) -> T<B> {
    let wide = wide(x.dtype());
    let [products] = match rows.center {
        Some(center) => {
            trace::run::<B, 4, 1>([gradient, x, center, rows.inverse], |[g, x, center, inverse]| {
                [g.cast(wide) * ((x.cast(wide) - center) * inverse)]
            })
        }
        None => trace::run::<B, 3, 1>([gradient, x, rows.inverse], |[g, x, inverse]| {
            [g.cast(wide) * (x.cast(wide) * inverse)]
        }),
    };
    products
}

/// The dims of `x` before those that a weight covers.
fn leading<B: Backend>(x: &T<B>, weight: &T<B>) -> Vec<usize> {
    (0..x.dims().len() - weight.dims().len()).collect()
}

/// The gradient of the input of a normalization over the last dims, which the weight covers, and what was found of its rows.
fn last_dims<B: Backend>(
    gradient: T<B>,
    x: T<B>,
    weight: &T<B>,
    centered: bool,
    epsilon: f64,
) -> (T<B>, RowStatistics<T<B>>) {
    let (dtype, wide, rank) = (x.dtype(), wide(x.dtype()), x.dims().len());
    let covered: Vec<usize> = (rank - weight.dims().len()..rank).collect();
    let nothing = || scalar_like::<B>(&x, Scalar::Float(0.0), wide, rank);
    let weight = lead_to_rank::<B>(to_dtype::<B>(weight.clone(), wide), rank);
    // What is as large as the input is read by the means and by the last program, and nothing of it is written but the result.
    let center = if centered { mean::<B>(to_dtype::<B>(x.clone(), wide), &covered) } else { nothing() };
    let [square] = trace::run::<B, 2, 1>([x.clone(), center.clone()], |[x, center]| {
        let x = x.cast(wide) - center;
        [x.clone() * x]
    });
    let variance = add_scalar::<B>(mean::<B>(square, &covered), epsilon);
    let inverse = B::unary(UnaryOp::Recip, B::unary(UnaryOp::Sqrt, variance));
    let operands = [gradient.clone(), x.clone(), center.clone(), inverse.clone(), weight.clone()];
    let [products] = trace::run::<B, 5, 1>(operands, |[g, x, center, inverse, weight]| {
        [g.cast(wide) * weight * ((x.cast(wide) - center) * inverse)]
    });
    let slope = mean::<B>(products, &covered);
    let level = if centered {
        let operands = [gradient.clone(), weight.clone()];
        let [scaled] = trace::run::<B, 2, 1>(operands, |[g, weight]| [g.cast(wide) * weight]);
        mean::<B>(scaled, &covered)
    } else {
        nothing()
    };
    let operands = [gradient, x, center.clone(), inverse.clone(), weight, slope, level];
    let [input] = trace::run::<B, 7, 1>(operands, |[g, x, center, inverse, weight, slope, level]| {
        let y = (x.cast(wide) - center) * inverse.clone();
        [((g.cast(wide) * weight - level - y * slope) * inverse).cast(dtype)]
    });
    (input, RowStatistics { center: centered.then_some(center), inverse })
}

/// Default of [`Backend::layer_norm_gradient`].
pub fn layer_norm_gradient<B: Backend>(
    gradient: T<B>,
    x: T<B>,
    weight: T<B>,
    epsilon: f64,
) -> NormGradients<T<B>> {
    let (input, rows) = last_dims::<B>(gradient.clone(), x.clone(), &weight, true, epsilon);
    let [weight, bias] = norm_parameter_gradients_with::<B>(gradient, x, &weight, rows, sums_of_both::<B>);
    NormGradients { input, weight, bias }
}

/// Default of [`Backend::rms_norm_gradient`].
pub fn rms_norm_gradient<B: Backend>(gradient: T<B>, x: T<B>, weight: T<B>, epsilon: f64) -> (T<B>, T<B>) {
    let (input, rows) = last_dims::<B>(gradient.clone(), x.clone(), &weight, false, epsilon);
    (input, norm_weight_gradient::<B>(gradient, x, &weight, rows))
}

/// All axes but the channels'.
fn around_channels(rank: usize) -> Vec<usize> {
    (0..rank).filter(|&axis| axis != 1).collect()
}

/// Default of [`Backend::group_norm_gradient`].
pub fn group_norm_gradient<B: Backend>(
    gradient: T<B>,
    x: T<B>,
    weight: Option<T<B>>,
    groups: usize,
    epsilon: f64,
) -> NormGradients<T<B>> {
    let (dtype, shape) = (x.dtype(), x.shape());
    let [gradient, x] = [gradient, x].map(|t| to_dtype::<B>(t, wide(dtype)));
    let per_group = [shape[0], groups, shape.num_elements() / (shape[0] * groups).max(1)];
    let (y, inverse) = standardized::<B>(reshape::<B>(x, &per_group), &[2], epsilon);
    let scaled = match weight {
        Some(weight) => {
            let weight = along::<B>(to_dtype::<B>(weight, wide(dtype)), 1, shape.rank());
            mul::<B>(gradient.clone(), weight)
        }
        None => gradient.clone(),
    };
    let axes = around_channels(shape.rank());
    let whole = reshape::<B>(y.clone(), &shape.dims);
    let input = through::<B>(reshape::<B>(scaled, &per_group), y, inverse, &[2]);
    NormGradients {
        weight: summed::<B>(mul::<B>(gradient.clone(), whole), &axes, &shape[1..2]),
        bias: summed::<B>(gradient, &axes, &shape[1..2]),
        input: reshape::<B>(input, &shape.dims),
    }
    .map(|gradient| to_dtype::<B>(gradient, dtype))
}

/// What batch normalization yields in training; statistics of floats of 16 bits are in f32.
#[derive(Clone, Debug)]
pub struct BatchNormTrained<P> {
    /// The normalized batch.
    pub output: P,
    /// The mean of each channel.
    pub mean: P,
    /// The variance of each channel over the batch as a whole population: divided by the number of elements.
    pub variance: P,
}

/// Default of [`Backend::batch_norm_train`].
pub fn batch_norm_train<B: Backend>(
    x: T<B>,
    weight: T<B>,
    bias: T<B>,
    epsilon: f64,
) -> BatchNormTrained<T<B>> {
    let (wide, shape) = (wide(x.dtype()), x.shape());
    let axes = around_channels(shape.rank());
    let center = mean::<B>(to_dtype::<B>(x.clone(), wide), &axes);
    let [square] = trace::run::<B, 2, 1>([x.clone(), center.clone()], |[x, center]| {
        let centered = x.cast(wide) - center;
        [centered.clone() * centered]
    });
    let square = mean::<B>(square, &axes);
    let [mean, variance] = [center, square].map(|t| reshape::<B>(t, &shape[1..2]));
    let output = B::batch_norm(x, weight, bias, mean.clone(), variance.clone(), epsilon);
    BatchNormTrained { output, mean, variance }
}

/// Default of [`Backend::batch_norm_gradient`].
pub fn batch_norm_gradient<B: Backend>(
    gradient: T<B>,
    x: T<B>,
    weight: T<B>,
    mean: T<B>,
    variance: T<B>,
    epsilon: f64,
) -> NormGradients<T<B>> {
    let statistics = [mean, variance];
    batch_norm_gradient_with::<B>(gradient, x, weight, statistics, epsilon, sums_of_both::<B>)
}

/// The sums of two tensors along the same axes, in the dtype of the first.
pub fn sums_of_both<B: Backend>(both: [T<B>; 2], axes: &[usize]) -> [T<B>; 2] {
    let dtype = both[0].dtype();
    // One after the other: what was just asked for may be computed where it is summed.
    both.map(|tensor| B::reduce(ReduceOp::Sum, to_dtype::<B>(tensor, dtype), axes))
}

/// [`batch_norm_gradient`] of a mean and a variance, with what yields [`sums_of_both`] of what lies alike.
pub fn batch_norm_gradient_with<B: Backend>(
    gradient: T<B>,
    x: T<B>,
    weight: T<B>,
    [mean, variance]: [T<B>; 2],
    epsilon: f64,
    sums_of_both: impl FnOnce([T<B>; 2], &[usize]) -> [T<B>; 2],
) -> NormGradients<T<B>> {
    let (dtype, shape) = (x.dtype(), x.shape());
    let (axes, wide) = (around_channels(shape.rank()), wide(dtype));
    let [mean, inverse] = trace::run::<B, 2, 2>([mean, variance], |[mean, variance]| {
        [mean.cast(wide), (variance.cast(wide) + Traced::parameter(epsilon)).sqrt().recip()]
    });
    let [weight, mean, inverse] = [weight, mean, inverse].map(|t| along::<B>(t, 1, shape.rank()));
    // With y = (x - mean) · inverse, over the n elements of a channel: weight · inverse · (g - (Σ g + y Σ g·y) / n). What is as large as the batch
    // is read by the sums and by this, and nothing of it is written but the result.
    let operands = [gradient.clone(), x.clone(), mean.clone(), inverse.clone()];
    let [products] = trace::run::<B, 4, 1>(operands, |[g, x, mean, inverse]| {
        [g.cast(wide) * ((x.cast(wide) - mean) * inverse)]
    });
    let [slope, sum] = sums_of_both([products, gradient.clone()], &axes);
    let share = 1.0 / (shape.num_elements() / shape[1].max(1)).max(1) as f64;
    let operands = [gradient, x, mean, inverse, weight, sum.clone(), slope.clone()];
    let [input] = trace::run::<B, 7, 1>(operands, |[g, x, mean, inverse, weight, sum, slope]| {
        let y = (x.cast(wide) - mean) * inverse.clone();
        let level = (y * slope + sum) * Traced::parameter(share);
        [((g.cast(wide) - level) * (inverse * weight.cast(wide))).cast(dtype)]
    });
    let sums = [slope, sum].map(|sum| reshape::<B>(sum, &shape[1..2]));
    let [weight, bias] = if dtype == wide {
        sums
    } else {
        trace::run::<B, 2, 2>(sums, |sums| sums.map(|sum| sum.cast(dtype)))
    };
    NormGradients { input, weight, bias }
}
