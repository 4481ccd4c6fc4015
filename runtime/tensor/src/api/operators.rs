//! Rust's operators between tensors, and with numbers on either side.

use super::base::Tensor;
use super::kind::{Bool, Numeric};
use crate::backend::{Backend, Primitive};
use crate::compose::calc::scalar_like;
use crate::{BinaryOp, Scalar, UnaryOp};
use core::ops::{Add, Div, Mul, Neg, Not, Rem, Sub};

macro_rules! operators {
    ($($trait:ident $method:ident $named:ident $named_scalar:ident;)*) => {
        $(
            impl<B: Backend, const D: usize, K: Numeric<B>> $trait for Tensor<B, D, K> {
                type Output = Self;

                fn $method(self, rhs: Self) -> Self {
                    Tensor::$named(self, rhs)
                }
            }

            impl<E: Into<Scalar>, B: Backend, const D: usize, K: Numeric<B>> $trait<E> for Tensor<B, D, K> {
                type Output = Self;

                fn $method(self, rhs: E) -> Self {
                    Tensor::$named_scalar(self, rhs)
                }
            }
        )*
    };
}

operators! {
    Add add add add_scalar;
    Sub sub sub sub_scalar;
    Mul mul mul mul_scalar;
    Div div div div_scalar;
    Rem rem remainder remainder_scalar;
}

impl<B: Backend, const D: usize, K: Numeric<B>> Neg for Tensor<B, D, K> {
    type Output = Self;

    fn neg(self) -> Self {
        Tensor::neg(self)
    }
}

impl<B: Backend, const D: usize> Not for Tensor<B, D, Bool> {
    type Output = Self;

    fn not(self) -> Self {
        self.bool_not()
    }
}

/// `scalar op tensor`, where the operation does not commute.
fn reversed<B: Backend>(op: BinaryOp, scalar: Scalar, tensor: B::Primitive) -> B::Primitive {
    let (dtype, rank) = (tensor.dtype(), tensor.shape().rank());
    B::binary(op, scalar_like::<B>(&tensor, scalar, dtype, rank), tensor)
}

/// `scalar - tensor`.
fn subtracted_from<B: Backend>(scalar: Scalar, tensor: B::Primitive) -> B::Primitive {
    if !tensor.dtype().is_float() {
        return reversed::<B>(BinaryOp::Sub, scalar, tensor);
    }
    // Negation is exact, and both operations work in place.
    B::binary_scalar(BinaryOp::Add, B::unary(UnaryOp::Neg, tensor), scalar)
}

/// `scalar / tensor`.
fn divided<B: Backend>(scalar: Scalar, tensor: B::Primitive) -> B::Primitive {
    if tensor.dtype().is_float() && scalar.to_f64() == 1.0 {
        return B::unary(UnaryOp::Recip, tensor);
    }
    reversed::<B>(BinaryOp::Div, scalar, tensor)
}

macro_rules! scalar_on_the_left {
    ($($ty:ty),*) => {
        $(
            impl<B: Backend, const D: usize, K: Numeric<B>> Add<Tensor<B, D, K>> for $ty {
                type Output = Tensor<B, D, K>;

                fn add(self, rhs: Tensor<B, D, K>) -> Tensor<B, D, K> {
                    rhs.add_scalar(self)
                }
            }

            impl<B: Backend, const D: usize, K: Numeric<B>> Mul<Tensor<B, D, K>> for $ty {
                type Output = Tensor<B, D, K>;

                fn mul(self, rhs: Tensor<B, D, K>) -> Tensor<B, D, K> {
                    rhs.mul_scalar(self)
                }
            }

            impl<B: Backend, const D: usize, K: Numeric<B>> Sub<Tensor<B, D, K>> for $ty {
                type Output = Tensor<B, D, K>;

                fn sub(self, rhs: Tensor<B, D, K>) -> Tensor<B, D, K> {
                    Tensor::wrap(subtracted_from::<B>(self.into(), rhs.into_backend()))
                }
            }

            impl<B: Backend, const D: usize, K: Numeric<B>> Div<Tensor<B, D, K>> for $ty {
                type Output = Tensor<B, D, K>;

                fn div(self, rhs: Tensor<B, D, K>) -> Tensor<B, D, K> {
                    Tensor::wrap(divided::<B>(self.into(), rhs.into_backend()))
                }
            }
        )*
    };
}

scalar_on_the_left!(f32, f64, i32, i64, u32, u64, usize);
