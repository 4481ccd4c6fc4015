//! Arithmetic on integers.

use super::Compute;
use kiln_tensor::{BinaryOp, DType, Element, Scalar, UnaryOp};
use num_traits::Float;

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
                    Op::Exp
                    | Op::Log
                    | Op::Log1p
                    | Op::Sqrt
                    | Op::Recip
                    | Op::Sin
                    | Op::Cos
                    | Op::Tan
                    | Op::Asin
                    | Op::Acos
                    | Op::Atan
                    | Op::Sinh
                    | Op::Cosh
                    | Op::Tanh
                    | Op::Asinh
                    | Op::Acosh
                    | Op::Atanh
                    | Op::Erf
                    | Op::IsNan
                    | Op::IsInf => return None,
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
                        // Most indices are in range already, and a division takes many times as long.
                        if !$negative(a) && a < b {
                            return a;
                        }
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
