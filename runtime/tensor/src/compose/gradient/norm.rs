//! Gradients of softmax and the normalizations, and batch normalization with the statistics of its batch.

use crate::backend::{Backend, Primitive};
use crate::compose::calc::{T, add_scalar, along, lead_to_rank, mean, mul, reshape, sub, to_dtype};
use crate::{DType, ReduceOp, UnaryOp, trace};
use alloc::vec::Vec;

/// The dtype in which sums of a dtype are taken.
pub(super) fn wide(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        dtype => dtype,
    }
}

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

/// `x` with mean 0 (if it is centered) and variance 1 over `axes`, and what it was divided by, inverted.
fn standardized<B: Backend>(x: T<B>, axes: &[usize], centered: bool, epsilon: f64) -> (T<B>, T<B>) {
    let x = if centered { sub::<B>(x.clone(), mean::<B>(x, axes)) } else { x };
    let square = mean::<B>(mul::<B>(x.clone(), x.clone()), axes);
    let inverse = B::unary(UnaryOp::Recip, B::unary(UnaryOp::Sqrt, add_scalar::<B>(square, epsilon)));
    (mul::<B>(x, inverse.clone()), inverse)
}

/// The gradient of the input of a standardization, from that of its result.
fn through<B: Backend>(gradient: T<B>, result: T<B>, inverse: T<B>, axes: &[usize], centered: bool) -> T<B> {
    let slope = mean::<B>(mul::<B>(gradient.clone(), result.clone()), axes);
    let gradient = if centered { sub::<B>(gradient.clone(), mean::<B>(gradient, axes)) } else { gradient };
    let operands = [gradient, result, slope, inverse];
    let [input] = trace::run::<B, 4, 1>(operands, |[g, y, slope, inverse]| [(g - y * slope) * inverse]);
    input
}

/// A sum over axes that are then dropped.
fn summed<B: Backend>(x: T<B>, axes: &[usize], dims: &[usize]) -> T<B> {
    let x = if axes.is_empty() { x } else { B::reduce(ReduceOp::Sum, x, axes) };
    reshape::<B>(x, dims)
}

/// Gradients of a normalization over the last dims, which the weight covers.
fn last_dims<B: Backend>(
    gradient: T<B>,
    x: T<B>,
    weight: T<B>,
    centered: bool,
    epsilon: f64,
) -> NormGradients<T<B>> {
    let dtype = x.dtype();
    let [gradient, x, weight] = [gradient, x, weight].map(|t| to_dtype::<B>(t, wide(dtype)));
    let (rank, shape) = (x.shape().rank(), weight.shape());
    let lead: Vec<usize> = (0..rank - shape.rank()).collect();
    let covered: Vec<usize> = (rank - shape.rank()..rank).collect();
    let (y, inverse) = standardized::<B>(x, &covered, centered, epsilon);
    let scaled = mul::<B>(gradient.clone(), lead_to_rank::<B>(weight, rank));
    NormGradients {
        weight: summed::<B>(mul::<B>(gradient.clone(), y.clone()), &lead, &shape.dims),
        bias: summed::<B>(gradient, &lead, &shape.dims),
        input: through::<B>(scaled, y, inverse, &covered, centered),
    }
    .map(|gradient| to_dtype::<B>(gradient, dtype))
}

/// Default of [`Backend::layer_norm_gradient`].
pub fn layer_norm_gradient<B: Backend>(
    gradient: T<B>,
    x: T<B>,
    weight: T<B>,
    epsilon: f64,
) -> NormGradients<T<B>> {
    last_dims::<B>(gradient, x, weight, true, epsilon)
}

/// Default of [`Backend::rms_norm_gradient`].
pub fn rms_norm_gradient<B: Backend>(gradient: T<B>, x: T<B>, weight: T<B>, epsilon: f64) -> (T<B>, T<B>) {
    let NormGradients { input, weight, .. } = last_dims::<B>(gradient, x, weight, false, epsilon);
    (input, weight)
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
    let (y, inverse) = standardized::<B>(reshape::<B>(x, &per_group), &[2], true, epsilon);
    let scaled = match weight {
        Some(weight) => {
            let weight = along::<B>(to_dtype::<B>(weight, wide(dtype)), 1, shape.rank());
            mul::<B>(gradient.clone(), weight)
        }
        None => gradient.clone(),
    };
    let axes = around_channels(shape.rank());
    let whole = reshape::<B>(y.clone(), &shape.dims);
    let input = through::<B>(reshape::<B>(scaled, &per_group), y, inverse, &[2], true);
    NormGradients {
        weight: summed::<B>(mul::<B>(gradient.clone(), whole), &axes, &shape[1..2]),
        bias: summed::<B>(gradient, &axes, &shape[1..2]),
        input: reshape::<B>(input, &shape.dims),
    }
    .map(|gradient| to_dtype::<B>(gradient, dtype))
}

/// What batch normalization yields in training.
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
    let (dtype, shape) = (x.dtype(), x.shape());
    let axes = around_channels(shape.rank());
    let wider = to_dtype::<B>(x.clone(), wide(dtype));
    let center = mean::<B>(wider.clone(), &axes);
    let centered = sub::<B>(wider, center.clone());
    let square = mean::<B>(mul::<B>(centered.clone(), centered), &axes);
    let [mean, variance] = [center, square].map(|t| to_dtype::<B>(reshape::<B>(t, &shape[1..2]), dtype));
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
    let (dtype, shape) = (x.dtype(), x.shape());
    let axes = around_channels(shape.rank());
    let [gradient, x] = [gradient, x].map(|t| to_dtype::<B>(t, wide(dtype)));
    let [weight, mean, variance] =
        [weight, mean, variance].map(|t| along::<B>(to_dtype::<B>(t, wide(dtype)), 1, shape.rank()));
    let inverse = B::unary(UnaryOp::Recip, B::unary(UnaryOp::Sqrt, add_scalar::<B>(variance, epsilon)));
    let y = mul::<B>(sub::<B>(x, mean), inverse.clone());
    let scaled = mul::<B>(gradient.clone(), weight);
    NormGradients {
        weight: summed::<B>(mul::<B>(gradient.clone(), y.clone()), &axes, &shape[1..2]),
        bias: summed::<B>(gradient, &axes, &shape[1..2]),
        input: through::<B>(scaled, y, inverse, &axes, true),
    }
    .map(|gradient| to_dtype::<B>(gradient, dtype))
}
