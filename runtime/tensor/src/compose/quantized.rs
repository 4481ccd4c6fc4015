//! Products of quantized integers.

use super::calc::{T, sub};
use crate::backend::{Backend, Primitive, held};
use crate::{BinaryOp, ConvOptions, DType, Scalar};

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

/// Default of [`Backend::quantized_matmul`].
pub fn quantized_matmul<B: Backend>(lhs: Quantized<T<B>>, rhs: Quantized<T<B>>) -> T<B> {
    B::matmul(centered::<B>(lhs), centered::<B>(rhs))
}

/// Default of [`Backend::quantized_conv`].
pub fn quantized_conv<B: Backend>(
    x: Quantized<T<B>>,
    weight: Quantized<T<B>>,
    options: &ConvOptions,
) -> T<B> {
    B::conv(centered::<B>(x), centered::<B>(weight), None, options)
}
