//! Arithmetic on f32 and f64.

use super::Compute;
use kiln_tensor::{BinaryOp, UnaryOp};
use num_traits::Float;

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
                    // Of numbers far below 1 libm, which is asked without the standard library, makes some other number.
                    Op::Acosh => |x| if x < 1.0 { Self::NAN } else { Float::acosh(x) },
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
                    Op::And
                    | Op::Or
                    | Op::Xor
                    | Op::BitwiseAnd
                    | Op::BitwiseOr
                    | Op::BitwiseXor
                    | Op::ShiftLeft
                    | Op::ShiftRight => return None,
                })
            }
        }
    };
}

float_compute!(f32);
float_compute!(f64);
