//! The operations of [`Autodiff`](crate::Autodiff), a file a family.

pub(crate) mod elementwise;
pub(crate) mod indexing;
pub(crate) mod linear;
pub(crate) mod loss;
pub(crate) mod norm;
pub(crate) mod reduce;
pub(crate) mod sequence;
pub(crate) mod shape;
pub(crate) mod spatial;

use alloc::vec::Vec;
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{BinaryOp, DType, Scalar, Shape};

/// Shorthand for a backend's tensor.
pub(crate) type T<B> = <B as Backend>::Primitive;

pub(crate) fn mul<B: Backend>(a: T<B>, b: T<B>) -> T<B> {
    B::binary(BinaryOp::Mul, a, b)
}

pub(crate) fn div<B: Backend>(a: T<B>, b: T<B>) -> T<B> {
    B::binary(BinaryOp::Div, a, b)
}

/// A tensor of one value, on the device and with the dtype of another.
pub(crate) fn filled<B: Backend>(shape: Shape, value: f64, like: &T<B>) -> T<B> {
    B::full(shape, Scalar::Float(value), like.dtype(), &B::device(like))
}

/// Whether a tensor of this dtype has gradients.
pub(crate) fn is_differentiable(dtype: DType) -> bool {
    dtype.is_float()
}

/// Takes the operands apart.
///
/// # Panics
/// Never: an operation hands its forward function as many tensors as it has operands.
pub(crate) fn taken<P, const N: usize>(operands: Vec<P>) -> [P; N] {
    match <[P; N]>::try_from(operands) {
        Ok(operands) => operands,
        Err(_) => unreachable!("an operation computes on all its operands"),
    }
}

/// [`taken`] for the operands of a layer, of which the bias may be absent.
///
/// # Panics
/// Never, likewise.
pub(crate) fn taken_with_bias<P>(mut operands: Vec<P>) -> (P, P, Option<P>) {
    let bias = if operands.len() > 2 { operands.pop() } else { None };
    let [x, weight] = taken(operands);
    (x, weight, bias)
}
