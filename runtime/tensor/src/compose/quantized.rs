//! Products of quantized integers.

use super::calc::{T, sub, wide};
use crate::backend::{Backend, Primitive, held};
use crate::check;
use crate::trace::run_all;
use crate::{Activation, BinaryOp, ConvOptions, DType, InlineVec, Scalar, Traced};

/// Quantized integers: they stand for numbers in proportion to `values - zero`.
#[derive(Clone, Debug)]
pub struct Quantized<T> {
    /// The integers, of any dtype.
    pub values: T,
    /// What stands for 0.
    pub zero: ZeroPoint<T>,
}

/// The integer that stands for 0.
#[derive(Clone, Debug)]
pub enum ZeroPoint<T> {
    /// The same for all, known to the host.
    Number(i32),
    /// Integers of any dtype, of the rank of the values: one of them, or for a product of matrices one a row of the left side or a
    /// column of the right one, for a convolution one for each of the weight's first dim.
    Tensor(T),
}

impl<T> Quantized<T> {
    /// With other tensors.
    pub fn map<U>(self, with: impl Fn(T) -> U) -> Quantized<U> {
        let zero = match self.zero {
            ZeroPoint::Number(zero) => ZeroPoint::Number(zero),
            ZeroPoint::Tensor(zero) => ZeroPoint::Tensor(with(zero)),
        };
        Quantized { values: with(self.values), zero }
    }

    /// Its tensors.
    pub fn tensors(&self) -> impl Iterator<Item = &T> {
        let zero = match &self.zero {
            ZeroPoint::Number(_) => None,
            ZeroPoint::Tensor(zero) => Some(zero),
        };
        [&self.values].into_iter().chain(zero)
    }
}

/// `values - zero` in 32 bits.
fn centered<B: Backend>(x: Quantized<T<B>>) -> T<B> {
    let dtype = held::<B>(DType::I32, &B::device(&x.values));
    let wide = |x: T<B>| if x.dtype() == dtype { x } else { B::cast(x, dtype) };
    let values = wide(x.values);
    match x.zero {
        ZeroPoint::Number(0) => values,
        ZeroPoint::Number(zero) => B::binary_scalar(BinaryOp::Sub, values, Scalar::Int(zero.into())),
        ZeroPoint::Tensor(zero) => sub::<B>(values, wide(zero)),
    }
}

/// Default of [`Backend::matmul_integer`].
pub fn matmul_integer<B: Backend>(lhs: Quantized<T<B>>, rhs: Quantized<T<B>>) -> T<B> {
    B::matmul(centered::<B>(lhs), centered::<B>(rhs))
}

/// Default of [`Backend::conv_integer`].
pub fn conv_integer<B: Backend>(x: Quantized<T<B>>, weight: Quantized<T<B>>, options: &ConvOptions) -> T<B> {
    B::conv(centered::<B>(x), centered::<B>(weight), None, options)
}

/// What becomes of the sums of quantized integers: the numbers `activation((sum + integer_bias) · scale · input_scale + bias + residual)`, or integers
/// again. Every tensor has the rank of the sums, to which it broadcasts.
#[derive(Clone, Debug)]
pub struct Rescale<T> {
    /// Floats, whose dtype is that of the numbers.
    pub scale: T,
    /// Another factor, of one element.
    pub input_scale: Option<T>,
    /// Integers.
    pub integer_bias: Option<T>,
    /// Floats.
    pub bias: Option<T>,
    /// Floats.
    pub residual: Option<T>,
    /// Applied last to the numbers.
    pub activation: Option<Activation>,
    /// The integers that stand for the numbers, which are in steps: `round(number) + zero`, as far as the dtype has them.
    pub integers: Option<(T, DType)>,
}

/// Default of [`Backend::matmul_integer_rescaled`] and [`Backend::conv_integer_rescaled`]: one elementwise program.
pub fn rescale<B: Backend>(sums: T<B>, rescale: Rescale<T<B>>) -> T<B> {
    let Rescale { scale, input_scale, integer_bias, bias, residual, activation, integers: to } = rescale;
    let dtype = scale.dtype();
    let (zero, to) = to.unzip();
    // Sums may be greater than numbers of 16 bits.
    let wide = wide(dtype);
    let mut operands: InlineVec<T<B>> = [sums, scale].into_iter().collect();
    let mut place = |operand: Option<T<B>>| {
        operand.map(|operand| {
            operands.push(operand);
            operands.len() - 1
        })
    };
    let integer_bias = place(integer_bias);
    let input_scale = place(input_scale);
    let bias = place(bias);
    let residual = place(residual);
    let zero = place(zero);
    run_all::<B>(operands, |operands| {
        let number = |n: usize| operands[n].clone().cast(wide);
        let sums = match integer_bias {
            Some(n) => operands[0].clone() + operands[n].clone().cast(DType::I32),
            None => operands[0].clone(),
        };
        let scale = match input_scale {
            Some(n) => number(1) * number(n),
            None => number(1),
        };
        let mut y = sums.cast(wide) * scale;
        for n in [bias, residual].into_iter().flatten() {
            y = y + number(n);
        }
        if let Some(activation) = activation {
            y = y.activation(activation);
        }
        match (zero, to) {
            (Some(n), Some(to)) => integers("requantized", y, operands[n].clone(), to),
            _ => y.cast(dtype),
        }
    })
}

/// `round(steps) + zero`, as far as a dtype has it.
#[track_caller]
pub(crate) fn integers(op: &str, steps: Traced, zero: Traced, dtype: DType) -> Traced {
    let zero = match steps.dtype() {
        Some(wide) => zero.cast(wide),
        None => zero,
    };
    whole(op, steps.round() + zero, dtype)
}

/// Whole numbers as integers of a dtype, as far as it has them.
#[track_caller]
pub(crate) fn whole(op: &str, numbers: Traced, dtype: DType) -> Traced {
    bounded(op, numbers, dtype).cast(dtype)
}

/// Numbers as far as a dtype of integers has them.
#[track_caller]
pub(crate) fn bounded(op: &str, numbers: Traced, dtype: DType) -> Traced {
    match dtype.integers() {
        Some((min, max)) => numbers.activation(Activation::Clamp { min: min as f64, max: max as f64 }),
        None => check::fail(op, format_args!("{dtype} is no dtype of integers")),
    }
}
