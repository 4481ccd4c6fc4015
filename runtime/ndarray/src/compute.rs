//! The element types that arithmetic is compiled for.

mod float;
mod int;

use crate::ops::cast;
use crate::tensor::NdArrayTensor;
use bytemuck::Pod;
use kiln_kernels::gemm::Number;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{BinaryOp, DType, Element, Scalar, UnaryOp, bf16, f16};

/// The types in which arithmetic is done ([`by_compute!`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComputeType {
    F64,
    F32,
    I64,
    I32,
    U64,
    U8,
}

impl ComputeType {
    /// The one that holds what there is of `dtype`, and its sums and products before they wrap or round.
    pub(crate) fn of(dtype: DType) -> Self {
        match dtype {
            DType::F64 => Self::F64,
            DType::F32 | DType::F16 | DType::BF16 => Self::F32,
            DType::I64 | DType::U32 => Self::I64,
            DType::I32 | DType::I16 | DType::U16 | DType::I8 | DType::I4 | DType::U4 => Self::I32,
            DType::U64 => Self::U64,
            DType::U8 | DType::Bool => Self::U8,
        }
    }
}

/// The dtype in which arithmetic on `dtype` is done.
pub(crate) fn compute_dtype(dtype: DType) -> DType {
    match ComputeType::of(dtype) {
        ComputeType::F64 => DType::F64,
        ComputeType::F32 => DType::F32,
        ComputeType::I64 => DType::I64,
        ComputeType::I32 => DType::I32,
        ComputeType::U64 => DType::U64,
        // A bool is a `u8`, and stays one of 0 or 1 by what it is asked for.
        ComputeType::U8 => dtype,
    }
}

/// The types in which operations work that are compiled for few ([`by_wide!`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WideType {
    F64,
    F32,
    I64,
    U64,
}

impl WideType {
    /// The one that holds what there is of `dtype`.
    pub(crate) fn of(dtype: DType) -> Self {
        match ComputeType::of(dtype) {
            ComputeType::F64 => Self::F64,
            ComputeType::F32 => Self::F32,
            ComputeType::I64 | ComputeType::I32 | ComputeType::U8 => Self::I64,
            ComputeType::U64 => Self::U64,
        }
    }

    /// Its own dtype.
    pub(crate) fn dtype(self) -> DType {
        match self {
            Self::F64 => DType::F64,
            Self::F32 => DType::F32,
            Self::I64 => DType::I64,
            Self::U64 => DType::U64,
        }
    }
}

/// The dtype of [`WideType`].
pub(crate) fn wide_dtype(dtype: DType) -> DType {
    WideType::of(dtype).dtype()
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
