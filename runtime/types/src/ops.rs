//! The operations that come in families: one enum a family, one backend method an enum.
//!
//! The `name` of each is the name of the `Tensor` method (or `activation` function) that performs it, so that code
//! generation needs no second table.

use serde::{Deserialize, Serialize};

/// Declares a field-less operation enum with its docs and its method names.
macro_rules! op_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $method:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// Every member, in declaration order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The name of the `Tensor` method that performs it.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $method,)*
                }
            }
        }
    };
}

op_enum! {
    /// One tensor in, one of the same shape out.
    UnaryOp {
        /// `-x`; floats and signed integers.
        Neg = "neg",
        /// `|x|`.
        Abs = "abs",
        /// -1, 0 or 1.
        Sign = "sign",
        /// `e^x`.
        Exp = "exp",
        /// Natural logarithm.
        Log = "log",
        /// `ln(1 + x)`, accurate near 0.
        Log1p = "log1p",
        /// Square root.
        Sqrt = "sqrt",
        /// `1 / x`.
        Recip = "recip",
        /// Sine (radians).
        Sin = "sin",
        /// Cosine (radians).
        Cos = "cos",
        /// Tangent (radians).
        Tan = "tan",
        /// Inverse sine.
        Asin = "asin",
        /// Inverse cosine.
        Acos = "acos",
        /// Inverse tangent.
        Atan = "atan",
        /// Hyperbolic sine.
        Sinh = "sinh",
        /// Hyperbolic cosine.
        Cosh = "cosh",
        /// Hyperbolic tangent.
        Tanh = "tanh",
        /// Inverse hyperbolic sine.
        Asinh = "asinh",
        /// Inverse hyperbolic cosine.
        Acosh = "acosh",
        /// Inverse hyperbolic tangent.
        Atanh = "atanh",
        /// Gauss error function.
        Erf = "erf",
        /// Largest integer not above.
        Floor = "floor",
        /// Smallest integer not below.
        Ceil = "ceil",
        /// Nearest integer, halves to even (ONNX `Round`, IEEE 754 roundTiesToEven).
        Round = "round",
        /// Towards zero.
        Trunc = "trunc",
        /// Logical not of a bool tensor.
        Not = "bool_not",
        /// Bitwise not of an integer tensor.
        BitwiseNot = "bitwise_not",
        /// Float in, bool out: is it NaN.
        IsNan = "is_nan",
        /// Float in, bool out: is it +∞ or -∞.
        IsInf = "is_inf",
    }
}

op_enum! {
    /// Two tensors of one dtype in, their broadcast shape out, same dtype.
    BinaryOp {
        /// `a + b`.
        Add = "add",
        /// `a - b`.
        Sub = "sub",
        /// `a * b`.
        Mul = "mul",
        /// `a / b`; integers truncate towards zero.
        Div = "div",
        /// `a ^ b`.
        Pow = "powf",
        /// Remainder with the sign of the divisor (Python's `%`, ONNX `Mod` with `fmod = 0`).
        Remainder = "remainder",
        /// Remainder with the sign of the dividend (C's `fmod`, ONNX `Mod` with `fmod = 1`).
        Fmod = "fmod",
        /// The larger; NaN if either is.
        Max = "max_pair",
        /// The smaller; NaN if either is.
        Min = "min_pair",
        /// `atan2(a, b)`.
        Atan2 = "atan2",
        /// Logical and; bool.
        And = "bool_and",
        /// Logical or; bool.
        Or = "bool_or",
        /// Logical exclusive or; bool.
        Xor = "bool_xor",
        /// Bitwise and; integers.
        BitwiseAnd = "bitwise_and",
        /// Bitwise or; integers.
        BitwiseOr = "bitwise_or",
        /// Bitwise exclusive or; integers.
        BitwiseXor = "bitwise_xor",
        /// Shift towards the high bits; integers.
        ShiftLeft = "bitwise_left_shift",
        /// Shift towards the low bits; arithmetic for signed integers.
        ShiftRight = "bitwise_right_shift",
    }
}

op_enum! {
    /// Two tensors of one dtype in, a bool tensor of their broadcast shape out.
    CompareOp {
        /// `a == b`.
        Equal = "equal",
        /// `a != b`.
        NotEqual = "not_equal",
        /// `a > b`.
        Greater = "greater",
        /// `a >= b`.
        GreaterEqual = "greater_equal",
        /// `a < b`.
        Lower = "lower",
        /// `a <= b`.
        LowerEqual = "lower_equal",
    }
}

impl CompareOp {
    /// Whether it holds. NaN is unequal to everything, and neither less nor greater.
    #[inline(always)]
    pub fn holds<T: PartialOrd>(self, a: T, b: T) -> bool {
        match self {
            CompareOp::Equal => a == b,
            CompareOp::NotEqual => a != b,
            CompareOp::Greater => a > b,
            CompareOp::GreaterEqual => a >= b,
            CompareOp::Lower => a < b,
            CompareOp::LowerEqual => a <= b,
        }
    }

    /// What holds of two integers where this does not. Of floats too, but for NaN, of which neither `<` nor `>=` holds.
    pub fn opposite(self) -> Self {
        match self {
            CompareOp::Equal => CompareOp::NotEqual,
            CompareOp::NotEqual => CompareOp::Equal,
            CompareOp::Greater => CompareOp::LowerEqual,
            CompareOp::GreaterEqual => CompareOp::Lower,
            CompareOp::Lower => CompareOp::GreaterEqual,
            CompareOp::LowerEqual => CompareOp::Greater,
        }
    }
}

op_enum! {
    /// Reduces dims; the reduced dims stay with size 1.
    ReduceOp {
        /// Sum; 0 for nothing.
        Sum = "sum",
        /// Product; 1 for nothing.
        Prod = "prod",
        /// Arithmetic mean; NaN for nothing.
        Mean = "mean",
        /// Largest; NaN if any is, -∞ (or the dtype's least) for nothing.
        Max = "max",
        /// Smallest; NaN if any is, +∞ (or the dtype's greatest) for nothing.
        Min = "min",
        /// Bool in, bool out: any true.
        Any = "any",
        /// Bool in, bool out: all true.
        All = "all",
    }
}

op_enum! {
    /// The index of an extreme along one dim, as an integer of the backend; the dim stays with size 1.
    ArgReduceOp {
        /// Index of the largest.
        Max = "argmax",
        /// Index of the smallest.
        Min = "argmin",
    }
}

op_enum! {
    /// Scans along one dim.
    CumulativeOp {
        /// Running sum.
        Sum = "cumsum",
        /// Running product.
        Prod = "cumprod",
        /// Running maximum.
        Max = "cummax",
        /// Running minimum.
        Min = "cummin",
    }
}

op_enum! {
    /// How a scattered value meets the one already there.
    ScatterOp {
        /// The new value replaces the old, the last one among duplicates all others.
        Assign = "assign",
        /// Sum.
        Add = "add",
        /// Product.
        Mul = "mul",
        /// Larger of both.
        Max = "max",
        /// Smaller of both.
        Min = "min",
    }
}

/// A float activation with its parameters; the ones a matrix multiplication or convolution can apply on its way out.
///
/// Equality is that of the parameters' bits.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `x` if positive, else `slope · x`.
    LeakyRelu {
        /// Slope of the negative side.
        slope: f64,
    },
    /// `x Φ(x)` with the exact error function.
    Gelu,
    /// GELU's tanh approximation (Hendrycks & Gimpel 2016, eq. 2).
    GeluTanh,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `x · sigmoid(x)` (swish).
    Silu,
    /// `x · tanh(softplus(x))`.
    Mish,
    /// `ln(1 + e^x)`, computed without overflow.
    Softplus,
    /// `clamp(alpha · x + beta, 0, 1)`.
    HardSigmoid {
        /// Slope.
        alpha: f64,
        /// Offset.
        beta: f64,
    },
    /// `x · clamp(x / 6 + 1/2, 0, 1)`.
    HardSwish,
    /// `x` if positive, else `alpha · (e^x - 1)`.
    Elu {
        /// Scale of the negative side.
        alpha: f64,
    },
    /// `clamp(x, min, max)`; ReLU6 is `0, 6`.
    Clamp {
        /// Lower bound.
        min: f64,
        /// Upper bound.
        max: f64,
    },
    /// `alpha · x + beta`.
    Affine {
        /// Slope.
        alpha: f64,
        /// Offset.
        beta: f64,
    },
    /// `alpha · tanh(beta · x)`.
    ScaledTanh {
        /// Scale of the result.
        alpha: f64,
        /// Scale of the argument.
        beta: f64,
    },
    /// `x / (1 + |x|)`.
    Softsign,
    /// `x` above `alpha`, else 0.
    ThresholdedRelu {
        /// Up to which the result is 0.
        alpha: f64,
    },
}

impl PartialEq for Activation {
    fn eq(&self, other: &Self) -> bool {
        core::mem::discriminant(self) == core::mem::discriminant(other)
            && self.parameters().map(f64::to_bits) == other.parameters().map(f64::to_bits)
    }
}

impl Eq for Activation {}

impl core::hash::Hash for Activation {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        core::mem::discriminant(self).hash(state);
        self.parameters().map(f64::to_bits).hash(state);
    }
}

impl Activation {
    /// Its parameters; 0 stands for those that it has not.
    fn parameters(self) -> [f64; 2] {
        match self {
            Self::LeakyRelu { slope } => [slope, 0.0],
            Self::HardSigmoid { alpha, beta }
            | Self::Affine { alpha, beta }
            | Self::ScaledTanh { alpha, beta } => [alpha, beta],
            Self::Elu { alpha } | Self::ThresholdedRelu { alpha } => [alpha, 0.0],
            Self::Clamp { min, max } => [min, max],
            Self::Relu
            | Self::Gelu
            | Self::GeluTanh
            | Self::Sigmoid
            | Self::Tanh
            | Self::Silu
            | Self::Mish
            | Self::Softplus
            | Self::HardSwish
            | Self::Softsign => [0.0, 0.0],
        }
    }

    /// `clamp(x, 0, 6)`, as mobile networks have it.
    pub const RELU6: Self = Self::Clamp { min: 0.0, max: 6.0 };
    /// `clamp(x / 6 + 1/2, 0, 1)`, as PyTorch has it.
    pub const HARD_SIGMOID: Self = Self::HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 };
}

impl core::fmt::Display for Activation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(self, f)
    }
}
