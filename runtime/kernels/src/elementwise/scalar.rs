//! One element at a time: the definition that the vector code is tested against, and the way for rare functions.

use kiln_types::{Activation, BinaryOp, UnaryOp};
use num_traits::Float;

/// One unary operation on one number.
///
/// # Panics
/// For `Not`, `BitwiseNot`, `IsNan`, `IsInf`, which do not map f32 to f32.
pub fn unary_of(op: UnaryOp, x: f32) -> f32 {
    match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => Float::abs(x),
        UnaryOp::Sign => {
            if x > 0.0 {
                1.0
            } else if x < 0.0 {
                -1.0
            } else {
                x
            }
        }
        UnaryOp::Exp => Float::exp(x),
        UnaryOp::Log => Float::ln(x),
        UnaryOp::Log1p => Float::ln_1p(x),
        UnaryOp::Sqrt => Float::sqrt(x),
        UnaryOp::Recip => 1.0 / x,
        UnaryOp::Sin => Float::sin(x),
        UnaryOp::Cos => Float::cos(x),
        UnaryOp::Tan => Float::tan(x),
        UnaryOp::Asin => Float::asin(x),
        UnaryOp::Acos => Float::acos(x),
        UnaryOp::Atan => Float::atan(x),
        UnaryOp::Sinh => Float::sinh(x),
        UnaryOp::Cosh => Float::cosh(x),
        UnaryOp::Tanh => Float::tanh(x),
        UnaryOp::Asinh => libm::asinhf(x),
        // Of numbers far below 1 libm makes some other number.
        UnaryOp::Acosh if x < 1.0 => f32::NAN,
        UnaryOp::Acosh => libm::acoshf(x),
        UnaryOp::Atanh => libm::atanhf(x),
        UnaryOp::Erf => libm::erff(x),
        UnaryOp::Floor => Float::floor(x),
        UnaryOp::Ceil => Float::ceil(x),
        UnaryOp::Round => libm::rintf(x),
        UnaryOp::Trunc => Float::trunc(x),
        UnaryOp::Not | UnaryOp::BitwiseNot | UnaryOp::IsNan | UnaryOp::IsInf => {
            panic!("`{}` does not map f32 to f32", op.name())
        }
    }
}

/// One binary operation on two numbers.
///
/// # Panics
/// For the operations of bool and integer tensors.
pub fn binary_of(op: BinaryOp, a: f32, b: f32) -> f32 {
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Pow => Float::powf(a, b),
        BinaryOp::Remainder => {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
        }
        BinaryOp::Fmod => a % b,
        BinaryOp::Max => {
            if a > b || a.is_nan() {
                a
            } else {
                b
            }
        }
        BinaryOp::Min => {
            if a < b || a.is_nan() {
                a
            } else {
                b
            }
        }
        BinaryOp::Atan2 => Float::atan2(a, b),
        BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::BitwiseAnd
        | BinaryOp::BitwiseOr
        | BinaryOp::BitwiseXor
        | BinaryOp::ShiftLeft
        | BinaryOp::ShiftRight => panic!("`{}` is not an operation of f32", op.name()),
    }
}

/// One activation of one number.
pub fn activation_of(activation: Activation, x: f32) -> f32 {
    match activation {
        Activation::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Activation::LeakyRelu { slope } => {
            if x < 0.0 {
                x * slope as f32
            } else {
                x
            }
        }
        Activation::Gelu => 0.5 * x * (1.0 + libm::erff(x * core::f32::consts::FRAC_1_SQRT_2)),
        Activation::GeluTanh => {
            let inner = 0.797_884_6 * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + Float::tanh(inner))
        }
        Activation::Sigmoid => sigmoid(x),
        Activation::Tanh => Float::tanh(x),
        Activation::Silu => x * sigmoid(x),
        Activation::Mish => x * Float::tanh(softplus(x)),
        Activation::Softplus => softplus(x),
        Activation::HardSigmoid { alpha, beta } => clamp(alpha as f32 * x + beta as f32, 0.0, 1.0),
        Activation::HardSwish => x * clamp(x / 6.0 + 0.5, 0.0, 1.0),
        Activation::Elu { alpha } => {
            if x > 0.0 {
                x
            } else {
                alpha as f32 * Float::exp_m1(x)
            }
        }
        Activation::Clamp { min, max } => clamp(x, min as f32, max as f32),
        Activation::Affine { alpha, beta } => alpha as f32 * x + beta as f32,
        Activation::ScaledTanh { alpha, beta } => alpha as f32 * Float::tanh(beta as f32 * x),
        Activation::Softsign => x / (1.0 + x.abs()),
        Activation::ThresholdedRelu { alpha } => {
            if x > alpha as f32 {
                x
            } else {
                0.0
            }
        }
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + Float::exp(-x))
}

fn softplus(x: f32) -> f32 {
    Float::ln_1p(Float::exp(-Float::abs(x))) + if x < 0.0 { 0.0 } else { x }
}

fn clamp(x: f32, min: f32, max: f32) -> f32 {
    let x = if x < min { min } else { x };
    if x > max { max } else { x }
}
