//! The elementwise methods and operators of tensors, for values of a program.

use super::Traced;
use crate::{BinaryOp, CompareOp, DType, Step, UnaryOp};
use core::ops::{Add, Div, Mul, Neg, Not, Rem, Sub};

macro_rules! traced_unary {
    ($($name:ident $op:ident $dtype:expr, $what:literal;)*) => {
        impl Traced {
            $(
                #[doc = $what]
                #[allow(clippy::should_implement_trait, reason = "named like the tensor's method; the trait is there too")]
                pub fn $name(self) -> Self {
                    self.of_one($dtype, |x| Step::Unary(UnaryOp::$op, x))
                }
            )*
        }
    };
}

traced_unary! {
    neg Neg None, "`-x`.";
    abs Abs None, "The absolute value.";
    sign Sign None, "-1, 0 or 1.";
    exp Exp None, "`e^x`.";
    log Log None, "The natural logarithm.";
    log1p Log1p None, "`ln(1 + x)`.";
    sqrt Sqrt None, "The square root.";
    recip Recip None, "`1 / x`.";
    sin Sin None, "The sine.";
    cos Cos None, "The cosine.";
    tan Tan None, "The tangent.";
    asin Asin None, "The inverse sine.";
    acos Acos None, "The inverse cosine.";
    atan Atan None, "The inverse tangent.";
    sinh Sinh None, "The hyperbolic sine.";
    cosh Cosh None, "The hyperbolic cosine.";
    tanh Tanh None, "The hyperbolic tangent.";
    asinh Asinh None, "The inverse hyperbolic sine.";
    acosh Acosh None, "The inverse hyperbolic cosine.";
    atanh Atanh None, "The inverse hyperbolic tangent.";
    erf Erf None, "The Gauss error function.";
    floor Floor None, "Rounded down.";
    ceil Ceil None, "Rounded up.";
    round Round None, "Rounded; halves to even.";
    trunc Trunc None, "Rounded towards zero.";
    bool_not Not None, "Logical not.";
    bitwise_not BitwiseNot None, "Bitwise not.";
    is_nan IsNan Some(DType::Bool), "Whether it is NaN.";
    is_inf IsInf Some(DType::Bool), "Whether it is infinite.";
}

macro_rules! traced_binary {
    ($($name:ident $($scalar:ident)? => $op:ident $what:literal;)*) => {
        impl Traced {
            $(
                #[doc = $what]
                #[allow(clippy::should_implement_trait, reason = "named like the tensor's method; the trait is there too")]
                pub fn $name(self, other: impl Into<Self>) -> Self {
                    self.binary(BinaryOp::$op, other.into())
                }

                $(
                    #[doc = $what]
                    pub fn $scalar(self, other: impl Into<Self>) -> Self {
                        self.binary(BinaryOp::$op, other.into())
                    }
                )?
            )*
        }
    };
}

traced_binary! {
    add add_scalar => Add "`a + b`.";
    sub sub_scalar => Sub "`a - b`.";
    mul mul_scalar => Mul "`a * b`.";
    div div_scalar => Div "`a / b`.";
    powf powf_scalar => Pow "`a` to the power of `b`.";
    powi powi_scalar => Pow "`a` to the power of `b`.";
    remainder remainder_scalar => Remainder "The remainder with the divisor's sign.";
    fmod fmod_scalar => Fmod "The remainder with the dividend's sign.";
    max_pair clamp_min => Max "The larger.";
    min_pair clamp_max => Min "The smaller.";
    atan2 => Atan2 "The angle of the point `(b, a)`.";
    bool_and => And "Logical and.";
    bool_or => Or "Logical or.";
    bool_xor => Xor "Logical exclusive or.";
    bitwise_and bitwise_and_scalar => BitwiseAnd "Bitwise and.";
    bitwise_or bitwise_or_scalar => BitwiseOr "Bitwise or.";
    bitwise_xor bitwise_xor_scalar => BitwiseXor "Bitwise exclusive or.";
    bitwise_left_shift bitwise_left_shift_scalar => ShiftLeft "Shifted towards the high bits.";
    bitwise_right_shift bitwise_right_shift_scalar => ShiftRight "Shifted towards the low bits.";
}

macro_rules! traced_compare {
    ($($name:ident $elem:ident => $op:ident $what:literal;)*) => {
        impl Traced {
            $(
                #[doc = $what]
                pub fn $name(self, other: impl Into<Self>) -> Self {
                    self.compare(CompareOp::$op, other.into())
                }

                #[doc = $what]
                pub fn $elem(self, other: impl Into<Self>) -> Self {
                    self.compare(CompareOp::$op, other.into())
                }
            )*
        }
    };
}

traced_compare! {
    equal equal_elem => Equal "`a == b`.";
    not_equal not_equal_elem => NotEqual "`a != b`.";
    greater greater_elem => Greater "`a > b`.";
    greater_equal greater_equal_elem => GreaterEqual "`a >= b`.";
    lower lower_elem => Lower "`a < b`.";
    lower_equal lower_equal_elem => LowerEqual "`a <= b`.";
}

macro_rules! traced_operators {
    ($($trait:ident $method:ident $op:ident;)*) => {
        $(
            impl<T: Into<Traced>> $trait<T> for Traced {
                type Output = Traced;

                fn $method(self, other: T) -> Traced {
                    self.binary(BinaryOp::$op, other.into())
                }
            }

            traced_operators!(@left $trait $method $op: f32 f64 i32 i64 u64);
        )*
    };
    (@left $trait:ident $method:ident $op:ident: $($ty:ty)*) => {
        $(
            impl $trait<Traced> for $ty {
                type Output = Traced;

                fn $method(self, other: Traced) -> Traced {
                    Traced::from(self).binary(BinaryOp::$op, other)
                }
            }
        )*
    };
}

traced_operators! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
    Rem rem Remainder;
}

impl Neg for Traced {
    type Output = Self;

    fn neg(self) -> Self {
        Traced::neg(self)
    }
}

impl Not for Traced {
    type Output = Self;

    fn not(self) -> Self {
        self.bool_not()
    }
}
