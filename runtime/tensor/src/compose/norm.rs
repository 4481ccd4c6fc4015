//! Softmax and the normalizations.

use super::calc::{
    T, add, add_scalar, along, div, lead_to_rank, mean, mul, reshape, sub, to_dtype, wide, widened,
};
use crate::backend::{Backend, Primitive};
use crate::trace::{self, Traced};
use crate::{DType, Dims, ReduceOp, UnaryOp};

/// Default of [`Backend::softmax`].
pub fn softmax<B: Backend>(tensor: T<B>, dim: usize) -> T<B> {
    widened::<B>(tensor, |x| {
        let exp = B::unary(UnaryOp::Exp, shifted::<B>(x, dim));
        div::<B>(exp.clone(), B::reduce(ReduceOp::Sum, exp, &[dim]))
    })
}

/// Default of [`Backend::log_softmax`].
pub fn log_softmax<B: Backend>(tensor: T<B>, dim: usize) -> T<B> {
    widened::<B>(tensor, |x| {
        let x = shifted::<B>(x, dim);
        let sum = B::reduce(ReduceOp::Sum, B::unary(UnaryOp::Exp, x.clone()), &[dim]);
        sub::<B>(x, B::unary(UnaryOp::Log, sum))
    })
}

/// Subtracts the largest along `dim`, so that exponentials stay at or below 1. The results do not depend on what is
/// subtracted, so no gradient needs to flow through it.
fn shifted<B: Backend>(x: T<B>, dim: usize) -> T<B> {
    let largest = B::reduce(ReduceOp::Max, B::detach(x.clone()), &[dim]);
    sub::<B>(x, largest)
}

/// `x / √(mean square + epsilon)` over `axes`.
fn scaled_to_unit<B: Backend>(x: T<B>, axes: &[usize], epsilon: f64) -> T<B> {
    let square = mean::<B>(mul::<B>(x.clone(), x.clone()), axes);
    let factor = B::unary(UnaryOp::Recip, B::unary(UnaryOp::Sqrt, add_scalar::<B>(square, epsilon)));
    mul::<B>(x, factor)
}

/// What numbers over `axes` are standardized by, in the [wide] dtype: y = (x - center - rest) · inverse.
pub(super) struct Standard<P> {
    /// The mean, rounded.
    pub center: P,
    /// What the mean's sum lost.
    pub rest: P,
    /// The inverse of the deviation.
    pub inverse: P,
}

impl<P> Standard<P> {
    /// That of `x`.
    pub fn of<B: Backend<Primitive = P>>(x: T<B>, axes: &[usize], epsilon: f64) -> Self
    where
        P: Primitive,
    {
        let wide = wide(x.dtype());
        let share = 1.0 / axes.iter().map(|&axis| x.dims()[axis]).product::<usize>() as f64;
        let center = mean::<B>(to_dtype::<B>(x.clone(), wide), axes);
        // Where elements have much in common their sum is rounded by more than they differ: what it lost is their sum around it.
        let sums = |[x, center]: [Traced; 2]| {
            let apart = x.cast(wide) - center;
            [apart.clone(), apart.clone() * apart]
        };
        let operands = [x, center.clone()];
        let [rest, inverse] =
            trace::of_sums::<B, 2, 2, 0, 2>(operands, axes, sums, [], |[rest, squares], []| {
                let rest = rest * Traced::parameter(share);
                let variance = squares * Traced::parameter(share) - rest.clone() * rest.clone();
                [rest, (variance.max_pair(0.0) + Traced::parameter(epsilon)).sqrt().recip()]
            });
        Self { center, rest, inverse }
    }
}

/// Mean 0 and variance 1 over `axes`, of numbers in a [wide] dtype; and the inverse of what was divided by.
pub(super) fn standardized<B: Backend>(x: T<B>, axes: &[usize], epsilon: f64) -> (T<B>, T<B>) {
    let Standard { center, rest, inverse } = Standard::of::<B>(x.clone(), axes, epsilon);
    let operands = [x, center, rest, inverse.clone()];
    let [y] = trace::run::<B, 4, 1>(operands, |[x, center, rest, inverse]| [(x - center - rest) * inverse]);
    (y, inverse)
}

/// The last axes of `x` that a weight covers.
fn covered<B: Backend>(x: &T<B>, weight: &T<B>) -> Dims {
    let rank = x.shape().rank();
    (rank - weight.shape().rank()..rank).collect()
}

/// Default of [`Backend::layer_norm`].
pub fn layer_norm<B: Backend>(x: T<B>, weight: T<B>, bias: Option<T<B>>, epsilon: f64) -> T<B> {
    let axes = covered::<B>(&x, &weight);
    widened::<B>(x, |x| {
        let (rank, dtype) = (x.shape().rank(), x.dtype());
        let fit = |parameter| lead_to_rank::<B>(to_dtype::<B>(parameter, dtype), rank);
        let y = mul::<B>(standardized::<B>(x, &axes, epsilon).0, fit(weight));
        match bias {
            Some(bias) => add::<B>(y, fit(bias)),
            None => y,
        }
    })
}

/// Default of [`Backend::rms_norm`].
pub fn rms_norm<B: Backend>(x: T<B>, weight: T<B>, epsilon: f64) -> T<B> {
    let axes = covered::<B>(&x, &weight);
    widened::<B>(x, |x| {
        let weight = lead_to_rank::<B>(to_dtype::<B>(weight, x.dtype()), x.shape().rank());
        mul::<B>(scaled_to_unit::<B>(x, &axes, epsilon), weight)
    })
}

/// Default of [`Backend::group_norm`].
pub fn group_norm<B: Backend>(
    x: T<B>,
    weight: Option<T<B>>,
    bias: Option<T<B>>,
    groups: usize,
    epsilon: f64,
) -> T<B> {
    widened::<B>(x, |x| {
        let (shape, dtype) = (x.shape(), x.dtype());
        let fit = |parameter| along::<B>(to_dtype::<B>(parameter, dtype), 1, shape.rank());
        let batch = shape[0];
        let grouped = reshape::<B>(x, &[batch, groups, shape.num_elements() / (batch * groups).max(1)]);
        let mut y = reshape::<B>(standardized::<B>(grouped, &[2], epsilon).0, &shape.dims);
        if let Some(weight) = weight {
            y = mul::<B>(y, fit(weight));
        }
        match bias {
            Some(bias) => add::<B>(y, fit(bias)),
            None => y,
        }
    })
}

/// Default of [`Backend::batch_norm`]; one multiplication and one addition per element.
pub fn batch_norm<B: Backend>(
    x: T<B>,
    weight: T<B>,
    bias: T<B>,
    mean: T<B>,
    variance: T<B>,
    epsilon: f64,
) -> T<B> {
    let (rank, dtype, wide) = (x.shape().rank(), x.dtype(), wide(x.dtype()));
    let [scale, shift] =
        trace::run::<B, 4, 2>([weight, bias, mean, variance], |[weight, bias, mean, variance]| {
            scale_and_shift([weight, bias], mean.cast(wide), deviation(variance, wide, epsilon), wide)
        });
    let [scale, shift] = [scale, shift].map(|vector| along::<B>(vector, 1, rank));
    // What is as large as the batch is read and written once.
    let [output] = trace::run::<B, 3, 1>([x, scale, shift], |[x, scale, shift]| {
        [scaled_and_shifted(x.cast(wide), scale, shift, dtype)]
    });
    output
}

/// What a channel of a variance is divided by, in the [wide] dtype.
pub(crate) fn deviation(variance: Traced, wide: DType, epsilon: f64) -> Traced {
    (variance.cast(wide) + Traced::parameter(epsilon)).sqrt()
}

/// What a channel is multiplied by and what is added then, so that it is normalized; mean and deviation are in the [wide] dtype.
pub(crate) fn scale_and_shift(
    [weight, bias]: [Traced; 2],
    mean: Traced,
    deviation: Traced,
    wide: DType,
) -> [Traced; 2] {
    let scale = weight.cast(wide) / deviation;
    [scale.clone(), bias.cast(wide) - mean * scale]
}

/// A normalized element, as a dtype holds it.
pub(crate) fn scaled_and_shifted(x: Traced, scale: Traced, shift: Traced, dtype: DType) -> Traced {
    (x * scale + shift).cast(dtype)
}
