//! Gradients of softmax and the normalizations, and batch normalization with the statistics of its batch.

use super::activation::activation_derivative;
use crate::backend::{Backend, Primitive};
use crate::compose::calc::{
    T, add_scalar, along, lead_to_rank, mean, mul, reshape, scalar_like, sub, to_dtype, wide,
};
use crate::compose::norm::{Standard, deviation, scale_and_shift, scaled_and_shifted, standardized};
use crate::trace::{self, Traced};
use crate::{Activation, DType, ReduceOp, Scalar, Shape, UnaryOp};
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
    let [of_weight] = norm_parameter_gradients::<B, 1>(gradient, x, weight, rows, |g, y| [g * y]);
    of_weight
}

/// The gradients of the weight and the bias of a normalization over the last dims.
pub fn norm_weight_and_bias_gradients<B: Backend>(
    gradient: T<B>,
    x: T<B>,
    weight: &T<B>,
    rows: RowStatistics<T<B>>,
) -> [T<B>; 2] {
    norm_parameter_gradients::<B, 2>(gradient, x, weight, rows, summed_products)
}

/// Sums over all rows, like `weight`, of what is made of the gradient and of what was normalized.
fn norm_parameter_gradients<B: Backend, const M: usize>(
    gradient: T<B>,
    x: T<B>,
    weight: &T<B>,
    rows: RowStatistics<T<B>>,
    summed: impl FnOnce(Traced, Traced) -> [Traced; M],
) -> [T<B>; M] {
    let (dtype, wide, lead) = (x.dtype(), wide(x.dtype()), leading::<B>(&x, weight));
    let sums = match rows.center {
        Some(center) => {
            let operands = [gradient, x, center, rows.inverse];
            narrowed_sums::<B, 4, M>(operands, &lead, dtype, |[g, x, center, inverse]| {
                summed(g.cast(wide), (x.cast(wide) - center) * inverse)
            })
        }
        None => narrowed_sums::<B, 3, M>([gradient, x, rows.inverse], &lead, dtype, |[g, x, inverse]| {
            summed(g.cast(wide), x.cast(wide) * inverse)
        }),
    };
    sums.map(|sum| reshape::<B>(sum, weight.dims()))
}

/// Sums of [wide] numbers as a dtype holds them.
fn narrowed_sums<B: Backend, const N: usize, const M: usize>(
    operands: [T<B>; N],
    axes: &[usize],
    dtype: DType,
    f: impl FnOnce([Traced; N]) -> [Traced; M],
) -> [T<B>; M] {
    if dtype == wide(dtype) {
        return trace::sums::<B, N, M>(operands, axes, f);
    }
    trace::of_sums::<B, N, M, 0, M>(operands, axes, f, [], |sums, []| sums.map(|sum| sum.cast(dtype)))
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
    let Standard { center, rest, inverse } = if centered {
        Standard::of::<B>(x.clone(), &covered, epsilon)
    } else {
        let [square] = trace::run::<B, 1, 1>([x.clone()], |[x]| [x.clone().cast(wide) * x.cast(wide)]);
        let variance = add_scalar::<B>(mean::<B>(square, &covered), epsilon);
        let inverse = B::unary(UnaryOp::Recip, B::unary(UnaryOp::Sqrt, variance));
        Standard { center: nothing(), rest: nothing(), inverse }
    };
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
    // Of each row, so that no program of all elements reads it: y is (x - center) · inverse less what the rest makes of it.
    let operands = [slope, level, center.clone(), rest, inverse.clone()];
    let [slope, level, mean] = trace::run::<B, 5, 3>(operands, |[products, level, center, rest, inverse]| {
        let behind = rest.clone() * inverse;
        let slope = products - behind.clone() * level.clone();
        [slope.clone(), level - behind * slope, center + rest]
    });
    let operands = [gradient, x, center, inverse.clone(), weight, slope, level];
    let [input] = trace::run::<B, 7, 1>(operands, |[g, x, center, inverse, weight, slope, level]| {
        let y = (x.cast(wide) - center) * inverse.clone();
        [((g.cast(wide) * weight - level - y * slope) * inverse).cast(dtype)]
    });
    (input, RowStatistics { center: centered.then_some(mean), inverse })
}

/// Default of [`Backend::layer_norm_gradient`].
pub fn layer_norm_gradient<B: Backend>(
    gradient: T<B>,
    x: T<B>,
    weight: T<B>,
    epsilon: f64,
) -> NormGradients<T<B>> {
    let (input, rows) = last_dims::<B>(gradient.clone(), x.clone(), &weight, true, epsilon);
    let [weight, bias] = norm_weight_and_bias_gradients::<B>(gradient, x, &weight, rows);
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
    let (dtype, wide, shape) = (x.dtype(), wide(x.dtype()), x.shape());
    let parameters = [weight, bias].map(|parameter| along::<B>(parameter, 1, shape.rank()));
    let axes = around_channels(shape.rank());
    let [mean, variance, scale, shift] =
        trace::of_moments::<B, 2, 4>(x.clone(), &axes, parameters, |[mean, variance], parameters| {
            let deviation = deviation(variance.clone(), wide, epsilon);
            let [scale, shift] = scale_and_shift(parameters, mean.clone(), deviation, wide);
            [mean, variance, scale, shift]
        });
    let [output] = trace::run::<B, 3, 1>([x, scale, shift], |[x, scale, shift]| {
        [scaled_and_shifted(x.cast(wide), scale, shift, dtype)]
    });
    let [mean, variance] = [mean, variance].map(|t| reshape::<B>(t, &shape[1..2]));
    BatchNormTrained { output, mean, variance }
}

/// What a batch normalization in training was computed of, and the statistics of the batch.
#[derive(Clone, Debug)]
pub struct NormalizedBatch<P> {
    /// The batch.
    pub x: P,
    /// The weight of each channel.
    pub weight: P,
    /// The bias of each channel.
    pub bias: P,
    /// The mean of each channel.
    pub mean: P,
    /// The variance of each channel, as in [`BatchNormTrained`].
    pub variance: P,
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
    let (dtype, wide, shape) = (x.dtype(), wide(x.dtype()), x.shape());
    let rank = shape.rank();
    let channels = trace::run::<B, 3, 3>([weight, mean, variance], |[weight, mean, variance]| {
        let deviation = deviation(variance, wide, epsilon);
        [mean.cast(wide), deviation.clone().recip(), weight.cast(wide) / deviation]
    });
    let [mean, inverse, scale] = channels.map(|of_channel| along::<B>(of_channel, 1, rank));
    let operands = [gradient.clone(), x.clone(), mean.clone(), inverse.clone()];
    let found = trace::of_sums::<B, 4, 2, 2, 4>(
        operands,
        &around_channels(rank),
        |[g, x, mean, inverse]| summed_products(g.cast(wide), (x.cast(wide) - mean) * inverse),
        [inverse, scale.clone()],
        batch_norm_parameters(dtype, per_channel(&shape)),
    );
    let [weight, bias, slope, level] = found;
    let operands = [gradient, x, mean, scale, slope, level];
    let [input] = trace::run::<B, 6, 1>(operands, |[g, x, mean, scale, slope, level]| {
        [(g.cast(wide) * scale - (x.cast(wide) - mean) * slope - level).cast(dtype)]
    });
    let [weight, bias] = [weight, bias].map(|parameter| reshape::<B>(parameter, &shape[1..2]));
    NormGradients { input, weight, bias }
}

/// Default of [`Backend::batch_norm_activation_gradient`].
pub fn batch_norm_activation_gradient<B: Backend>(
    activation: Activation,
    gradient: T<B>,
    normalized: NormalizedBatch<T<B>>,
    epsilon: f64,
) -> NormGradients<T<B>> {
    let NormalizedBatch { x, weight, bias, mean, variance } = normalized;
    let (dtype, wide, shape) = (x.dtype(), wide(x.dtype()), x.shape());
    let rank = shape.rank();
    let operands = [weight, bias, mean, variance];
    let channels = trace::run::<B, 4, 4>(operands, |[weight, bias, mean, variance]| {
        let (mean, deviation) = (mean.cast(wide), deviation(variance, wide, epsilon));
        let [scale, shift] = scale_and_shift([weight, bias], mean.clone(), deviation.clone(), wide);
        [mean, deviation.recip(), scale, shift]
    });
    let [mean, inverse, scale, shift] = channels.map(|of_channel| along::<B>(of_channel, 1, rank));
    // What was normalized is computed again as `batch_norm` does: there the activation is differentiated.
    let before = |g: Traced, x: Traced, scale: Traced, shift: Traced| {
        let y = scaled_and_shifted(x, scale, shift, dtype).cast(wide);
        activation_derivative(activation, g.cast(wide), y.clone(), || y.clone().activation(activation))
    };
    let operands = [gradient.clone(), x.clone(), mean.clone(), inverse.clone(), scale.clone(), shift.clone()];
    let found = trace::of_sums::<B, 6, 2, 2, 4>(
        operands,
        &around_channels(rank),
        |[g, x, mean, inverse, scale, shift]| {
            let x = x.cast(wide);
            summed_products(before(g, x.clone(), scale, shift), (x - mean) * inverse)
        },
        [inverse, scale.clone()],
        batch_norm_parameters(dtype, per_channel(&shape)),
    );
    let [weight, bias, slope, level] = found;
    let operands = [gradient, x, mean, scale, shift, slope, level];
    let [input] = trace::run::<B, 7, 1>(operands, |[g, x, mean, scale, shift, slope, level]| {
        let x = x.cast(wide);
        let g = before(g, x.clone(), scale.clone(), shift);
        [(g * scale - (x - mean) * slope - level).cast(dtype)]
    });
    let [weight, bias] = [weight, bias].map(|parameter| reshape::<B>(parameter, &shape[1..2]));
    NormGradients { input, weight, bias }
}

/// What the gradients of a normalization's weight and bias are the sums of.
fn summed_products(gradient: Traced, normalized: Traced) -> [Traced; 2] {
    [gradient.clone() * normalized, gradient]
}

/// The number of elements of each channel.
fn per_channel(shape: &Shape) -> usize {
    shape.num_elements() / shape[1].max(1)
}

/// What is made of the [sums](summed_products) over the `n` elements of a channel, of the inverse of its deviation and of its scale: the gradients of weight
/// and bias, which the sums are, and the two numbers that the input's needs. With y = (x - mean) · inverse that is
/// scale · (g - (Σ g + y Σ g·y) / n), hence g · scale - (x - mean) · slope - level.
fn batch_norm_parameters(dtype: DType, n: usize) -> impl FnOnce([Traced; 2], [Traced; 2]) -> [Traced; 4] {
    let share = 1.0 / n.max(1) as f64;
    move |[products, sum], [inverse, scale]| {
        let scale = scale * Traced::parameter(share);
        let (slope, level) = (products.clone() * inverse * scale.clone(), sum.clone() * scale);
        [products.cast(dtype), sum.cast(dtype), slope, level]
    }
}
