//! The element types that arithmetic is compiled for.

use crate::ops::cast;
use crate::tensor::NdArrayTensor;
use bytemuck::Pod;
use kiln_kernels::gemm::Number;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{BinaryOp, DType, Element, Scalar, UnaryOp, bf16, f16};
use num_traits::Float;

/// The dtype in which arithmetic on `dtype` is done.
pub(crate) fn compute_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::I8 | DType::I16 | DType::U16 => DType::I32,
        DType::U32 => DType::I64,
        other => other,
    }
}

/// The dtype in which operations work that are compiled for few types only: f32, f64, u64 or i64.
pub(crate) fn wide_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 => DType::F32,
        DType::F64 | DType::U64 => dtype,
        _ => DType::I64,
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
        DType::I8 => i8::from_scalar(scalar).into(),
        DType::U64 => u64::from_scalar(scalar).into(),
        DType::U32 => u32::from_scalar(scalar).into(),
        DType::U16 => u16::from_scalar(scalar).into(),
        DType::U8 => u8::from_scalar(scalar).into(),
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
    /// What no element is above.
    const GREATEST: Self;

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

/// Error function, which `num_traits` has not.
trait Erf {
    fn erf(self) -> Self;
}

impl Erf for f32 {
    fn erf(self) -> Self {
        libm::erff(self)
    }
}

impl Erf for f64 {
    fn erf(self) -> Self {
        libm::erf(self)
    }
}

/// Rounds halves to even.
fn round_even<T: Float>(x: T) -> T {
    let rounded = x.round();
    let half = T::one() / (T::one() + T::one());
    if (x - x.trunc()).abs() == half {
        // Half of an even integer is whole.
        let twice = (x * half).round() / half;
        return if x.is_sign_negative() && twice == T::zero() { -T::zero() } else { twice };
    }
    rounded
}

/// Remainder with the sign of the divisor.
fn float_remainder<T: Float>(a: T, b: T) -> T {
    let r = a % b;
    if r != T::zero() && (r < T::zero()) != (b < T::zero()) { r + b } else { r }
}

macro_rules! float_compute {
    ($ty:ty) => {
        impl Compute for $ty {
            const ONE: Self = 1.0;
            const LEAST: Self = <$ty>::NEG_INFINITY;
            const GREATEST: Self = <$ty>::INFINITY;

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self - other
            }

            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn div(self, other: Self) -> Self {
                self / other
            }

            #[inline(always)]
            #[allow(clippy::eq_op, reason = "x != x is the vectorizable test for NaN")]
            fn max(self, other: Self) -> Self {
                if self > other || self != self { self } else { other }
            }

            #[inline(always)]
            #[allow(clippy::eq_op, reason = "x != x is the vectorizable test for NaN")]
            fn min(self, other: Self) -> Self {
                if self < other || self != self { self } else { other }
            }

            #[inline(always)]
            fn is_nan(self) -> bool {
                self.is_nan()
            }

            #[inline(always)]
            fn mean_of(self, count: usize) -> Self {
                self / count as $ty
            }

            fn power(self, exponent: f64) -> Self {
                Float::powf(self, exponent as $ty)
            }

            fn unary(op: UnaryOp) -> Option<fn(Self) -> Self> {
                use UnaryOp as Op;
                Some(match op {
                    Op::Neg => |x| -x,
                    Op::Abs => |x| Float::abs(x),
                    // Zero stays zero and NaN stays NaN, unlike `signum`.
                    Op::Sign => |x| {
                        if x > 0.0 {
                            1.0
                        } else if x < 0.0 {
                            -1.0
                        } else {
                            x
                        }
                    },
                    Op::Exp => |x| Float::exp(x),
                    Op::Log => |x| Float::ln(x),
                    Op::Log1p => |x| Float::ln_1p(x),
                    Op::Sqrt => |x| Float::sqrt(x),
                    Op::Recip => |x| 1.0 / x,
                    Op::Sin => |x| Float::sin(x),
                    Op::Cos => |x| Float::cos(x),
                    Op::Tan => |x| Float::tan(x),
                    Op::Asin => |x| Float::asin(x),
                    Op::Acos => |x| Float::acos(x),
                    Op::Atan => |x| Float::atan(x),
                    Op::Sinh => |x| Float::sinh(x),
                    Op::Cosh => |x| Float::cosh(x),
                    Op::Tanh => |x| Float::tanh(x),
                    Op::Asinh => |x| Float::asinh(x),
                    Op::Acosh => |x| Float::acosh(x),
                    Op::Atanh => |x| Float::atanh(x),
                    Op::Erf => |x| Erf::erf(x),
                    Op::Floor => |x| Float::floor(x),
                    Op::Ceil => |x| Float::ceil(x),
                    Op::Round => |x| round_even(x),
                    Op::Trunc => |x| Float::trunc(x),
                    Op::Not | Op::BitwiseNot | Op::IsNan | Op::IsInf => return None,
                })
            }

            fn binary(op: BinaryOp) -> Option<fn(Self, Self) -> Self> {
                use BinaryOp as Op;
                Some(match op {
                    Op::Add => |a, b| a + b,
                    Op::Sub => |a, b| a - b,
                    Op::Mul => |a, b| a * b,
                    Op::Div => |a, b| a / b,
                    Op::Pow => |a, b| if b == 2.0 { a * a } else { Float::powf(a, b) },
                    Op::Remainder => |a, b| float_remainder(a, b),
                    Op::Fmod => |a, b| a % b,
                    Op::Max => Compute::max,
                    Op::Min => Compute::min,
                    Op::Atan2 => |a, b| Float::atan2(a, b),
                    _ => return None,
                })
            }
        }
    };
}

float_compute!(f32);
float_compute!(f64);

/// Stops an integer division by zero with the operation's name.
#[cold]
fn division_by_zero(op: BinaryOp, dtype: DType) -> ! {
    panic!("{}: integer division by zero ({dtype})", op.name())
}

macro_rules! int_compute {
    ($ty:ty, $neg:expr, $sign:expr, $abs:expr, $negative:expr) => {
        impl Compute for $ty {
            const ONE: Self = 1;
            const LEAST: Self = <$ty>::MIN;
            const GREATEST: Self = <$ty>::MAX;

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn div(self, other: Self) -> Self {
                if other == 0 {
                    division_by_zero(BinaryOp::Div, Self::DTYPE);
                }
                self.wrapping_div(other)
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                Ord::max(self, other)
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                Ord::min(self, other)
            }

            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }

            #[inline(always)]
            fn mean_of(self, count: usize) -> Self {
                if count == 0 { 0 } else { (i128::from(self) / count as i128) as $ty }
            }

            fn power(self, exponent: f64) -> Self {
                Float::powf(self as f64, exponent) as $ty
            }

            fn unary(op: UnaryOp) -> Option<fn(Self) -> Self> {
                use UnaryOp as Op;
                Some(match op {
                    Op::Neg => $neg,
                    Op::Abs => $abs,
                    Op::Sign => $sign,
                    Op::Floor | Op::Ceil | Op::Round | Op::Trunc => |x| x,
                    Op::Not => |x| <$ty>::from(x == 0),
                    Op::BitwiseNot => |x| !x,
                    _ => return None,
                })
            }

            fn binary(op: BinaryOp) -> Option<fn(Self, Self) -> Self> {
                use BinaryOp as Op;
                Some(match op {
                    Op::Add => Compute::add,
                    Op::Sub => Compute::sub,
                    Op::Mul => Compute::mul,
                    Op::Div => Compute::div,
                    Op::Pow => |a, b| int_power(a, b),
                    Op::Remainder => |a, b| {
                        if b == 0 {
                            division_by_zero(BinaryOp::Remainder, Self::DTYPE);
                        }
                        let r = a.wrapping_rem(b);
                        if r != 0 && $negative(r) != $negative(b) { r.wrapping_add(b) } else { r }
                    },
                    Op::Fmod => |a, b| {
                        if b == 0 {
                            division_by_zero(BinaryOp::Fmod, Self::DTYPE);
                        }
                        a.wrapping_rem(b)
                    },
                    Op::Max => Compute::max,
                    Op::Min => Compute::min,
                    Op::And | Op::BitwiseAnd => |a, b| a & b,
                    Op::Or | Op::BitwiseOr => |a, b| a | b,
                    Op::Xor | Op::BitwiseXor => |a, b| a ^ b,
                    Op::ShiftLeft => |a, b| u32::try_from(b).ok().and_then(|b| a.checked_shl(b)).unwrap_or(0),
                    // Too far a shift leaves the sign: 0, or -1 for a negative number.
                    Op::ShiftRight => |a, b| {
                        let shifted = u32::try_from(b).ok().and_then(|b| a.checked_shr(b));
                        shifted.unwrap_or(if $negative(a) { !0 } else { 0 })
                    },
                    Op::Atan2 => return None,
                })
            }
        }
    };
}

fn never<T>(_: T) -> bool {
    false
}

int_compute!(i64, i64::wrapping_neg, i64::signum, i64::wrapping_abs, i64::is_negative);
int_compute!(i32, i32::wrapping_neg, i32::signum, i32::wrapping_abs, i32::is_negative);
int_compute!(u64, u64::wrapping_neg, |x| u64::from(x != 0), |x| x, never);
int_compute!(u8, u8::wrapping_neg, |x| u8::from(x != 0), |x| x, never);

/// `base ^ exponent`, wrapping; a negative exponent gives the truncated fraction (0 but for bases 1 and -1).
fn int_power<T: Compute>(base: T, exponent: T) -> T {
    if exponent < T::ZERO {
        let minus_one = T::ZERO.sub(T::ONE);
        let odd = T::binary(BinaryOp::BitwiseAnd).is_some_and(|and| and(exponent, T::ONE) == T::ONE);
        return if base == T::ONE || (base == minus_one && !odd) {
            T::ONE
        } else if base == minus_one {
            minus_one
        } else {
            T::ZERO
        };
    }
    let mut rest: u64 = match exponent.into() {
        Scalar::UInt(x) => x,
        x => x.to_i64() as u64,
    };
    let (mut power, mut result) = (base, T::ONE);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.mul(power);
        }
        power = power.mul(power);
        rest >>= 1;
    }
    result
}
