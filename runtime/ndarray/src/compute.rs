//! The element types that arithmetic is compiled for.

mod float;
mod int;

use crate::ops::cast;
use crate::tensor::NdArrayTensor;
use bytemuck::Pod;
use kiln_kernels::gemm::Number;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{BinaryOp, DType, Element, Scalar, UnaryOp, bf16, f16};

/// The dtype in which arithmetic on `dtype` is done.
pub(crate) fn compute_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::I8 | DType::I16 | DType::U16 | DType::I4 | DType::U4 => DType::I32,
        DType::U32 => DType::I64,
        other => other,
    }
}

/// The dtype in which operations work that are compiled for few types only: f32, f64, u64 or i64.
pub(crate) fn wide_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 => DType::F32,
        DType::F64 | DType::U64 => dtype,
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::I4
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::U4
        | DType::Bool => DType::I64,
    }
}

/// Runs `f` on the tensor in its compute dtype, and narrows the result back.
pub(crate) fn widened(
    tensor: NdArrayTensor,
    f: impl FnOnce(NdArrayTensor) -> NdArrayTensor,
) -> NdArrayTensor {
    let dtype = tensor.dtype();
    let wide = compute_dtype(dtype);
    if wide == dtype { f(tensor) } else { cast::cast(f(cast::cast(tensor, wide)), dtype) }
}

/// Like [`widened`] for two operands.
#[inline]
pub(crate) fn widened2(
    lhs: NdArrayTensor,
    rhs: NdArrayTensor,
    f: impl FnOnce(NdArrayTensor, NdArrayTensor) -> NdArrayTensor,
) -> NdArrayTensor {
    let dtype = lhs.dtype();
    let wide = compute_dtype(dtype);
    if wide == dtype {
        return f(lhs, rhs);
    }
    cast::cast(f(cast::cast(lhs, wide), cast::cast(rhs, wide)), dtype)
}

/// The number as an element of `dtype` holds it.
pub(crate) fn rounded(scalar: Scalar, dtype: DType) -> Scalar {
    match dtype {
        DType::F64 => Scalar::Float(scalar.to_f64()),
        DType::F32 => f32::from_scalar(scalar).into(),
        DType::F16 => f16::from_scalar(scalar).into(),
        DType::BF16 => bf16::from_scalar(scalar).into(),
        DType::I64 => i64::from_scalar(scalar).into(),
        DType::I32 => i32::from_scalar(scalar).into(),
        DType::I16 => i16::from_scalar(scalar).into(),
        // The backend does not support integers of four bits; in memory they are those of eight.
        DType::I8 | DType::I4 => i8::from_scalar(scalar).into(),
        DType::U64 => u64::from_scalar(scalar).into(),
        DType::U32 => u32::from_scalar(scalar).into(),
        DType::U16 => u16::from_scalar(scalar).into(),
        DType::U8 | DType::U4 => u8::from_scalar(scalar).into(),
        DType::Bool => Scalar::Int(i64::from(scalar.to_bool())),
    }
}

/// The bits of the number as an element of `dtype`, in the low bytes.
pub(crate) fn bits(scalar: Scalar, dtype: DType) -> u64 {
    match dtype {
        DType::F64 => scalar.to_f64().to_bits(),
        DType::F32 => u64::from(f32::from_scalar(scalar).to_bits()),
        DType::F16 => u64::from(f16::from_scalar(scalar).to_bits()),
        DType::BF16 => u64::from(bf16::from_scalar(scalar).to_bits()),
        DType::Bool => u64::from(scalar.to_bool()),
        _ => match rounded(scalar, dtype) {
            Scalar::UInt(x) => x,
            x => x.to_i64() as u64,
        },
    }
}

/// Arithmetic on one element type. Integers wrap; `max` and `min` yield NaN when either operand is.
pub(crate) trait Compute: Pod + Element + Number {
    const ONE: Self;
    /// What no element is below (-∞ for floats).
    const LEAST: Self;

    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    fn is_nan(self) -> bool;
    /// The mean of `count` elements with this sum; integers truncate, and yield 0 for nothing.
    fn mean_of(self, count: usize) -> Self;
    /// `|x|^(1/p)`-style power, through floats for integers.
    fn power(self, exponent: f64) -> Self;
    fn unary(op: UnaryOp) -> Option<fn(Self) -> Self>;
    fn binary(op: BinaryOp) -> Option<fn(Self, Self) -> Self>;
}
