//! Unary operations.

use crate::compute::{Compute, bits, widened};
use crate::tensor::NdArrayTensor;
use bytemuck::Pod;
use kiln_kernels::elementwise;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{DType, Scalar, UnaryOp};

/// Applies a function to every element, in place where possible.
pub(crate) fn map<T: Pod>(mut tensor: NdArrayTensor, f: impl Fn(T) -> T) -> NdArrayTensor {
    if tensor.is_writable() {
        return tensor.edit(|elements: &mut [T]| elements.iter_mut().for_each(|x| *x = f(*x)));
    }
    let tensor = tensor.into_contiguous();
    map_to(tensor, None, f)
}

/// Applies a function to every element of a contiguous tensor; the result's dtype is the tensor's unless given.
pub(crate) fn map_to<T: Pod, R: Pod>(
    tensor: NdArrayTensor,
    dtype: Option<DType>,
    f: impl Fn(T) -> R,
) -> NdArrayTensor {
    NdArrayTensor::build(tensor.shape(), dtype.unwrap_or(tensor.dtype()), |out: &mut [R]| {
        out.iter_mut().zip(tensor.slice::<T>()).for_each(|(out, &x)| *out = f(x));
    })
}

/// See [`UnaryOp`].
pub(crate) fn unary(op: UnaryOp, tensor: NdArrayTensor) -> NdArrayTensor {
    if matches!(op, UnaryOp::IsNan | UnaryOp::IsInf) {
        return classify(op, tensor);
    }
    widened(
        tensor,
        |tensor| by_compute!(tensor.dtype(), F32 => single(op, tensor), T => typed::<T>(op, tensor)),
    )
}

/// f32 by the kernels.
fn single(op: UnaryOp, tensor: NdArrayTensor) -> NdArrayTensor {
    if matches!(op, UnaryOp::Not | UnaryOp::BitwiseNot) {
        panic!("{}: not defined for f32", op.name());
    }
    tensor.transform_each(|data| elementwise::unary(op, data))
}

fn typed<T: Compute>(op: UnaryOp, tensor: NdArrayTensor) -> NdArrayTensor {
    match T::unary(op) {
        Some(f) => map::<T>(tensor, f),
        None => panic!("{}: not defined for {}", op.name(), tensor.dtype()),
    }
}

/// `IsNan` and `IsInf`, by the bits, so that every float dtype takes one path; other dtypes are never either.
fn classify(op: UnaryOp, tensor: NdArrayTensor) -> NdArrayTensor {
    let infinity = bits(Scalar::Float(f64::INFINITY), tensor.dtype());
    let tensor = tensor.into_contiguous();
    by_size!(tensor.dtype(), T => {
        let (infinity, magnitude) = (infinity as T, T::MAX >> 1);
        let infinity = if tensor.dtype().is_float() { infinity } else { T::MAX };
        if op == UnaryOp::IsNan {
            map_to::<T, u8>(tensor, Some(DType::Bool), |x| u8::from(x & magnitude > infinity))
        } else {
            map_to::<T, u8>(tensor, Some(DType::Bool), |x| u8::from(x & magnitude == infinity))
        }
    })
}
