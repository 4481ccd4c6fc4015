//! Derivatives of elementwise operations, as formulas; those of activations are in `kiln_tensor::compose`.
//!
//! Each function yields what one operand's gradient is, from the operands, the result `y` and the result's gradient `g`;
//! nothing where the derivative is 0 everywhere it exists. At ties and edges the values are PyTorch's: equal operands of a
//! maximum share the gradient, a number takes all of it (as `clamp`'s bounds do since PyTorch 2.15), and a power of 0 has slope 0.

use core::f64::consts::FRAC_2_SQRT_PI;
use kiln_tensor::{BinaryOp, Traced, UnaryOp};

/// The gradient of a unary operation's operand `x`.
pub(crate) fn unary(op: UnaryOp, x: Traced, y: Traced, g: Traced) -> Option<Traced> {
    Some(match op {
        UnaryOp::Neg => -g,
        UnaryOp::Abs => g * x.sign(),
        UnaryOp::Exp => g * y,
        UnaryOp::Log => g / x,
        UnaryOp::Log1p => g / (x + 1.0),
        UnaryOp::Sqrt => g / (y * 2.0),
        UnaryOp::Recip => -g * square(y),
        UnaryOp::Sin => g * x.cos(),
        UnaryOp::Cos => -g * x.sin(),
        UnaryOp::Tan => g * (square(y) + 1.0),
        UnaryOp::Asin => g / one_minus(square(x)).sqrt(),
        UnaryOp::Acos => -g / one_minus(square(x)).sqrt(),
        UnaryOp::Atan => g / (square(x) + 1.0),
        UnaryOp::Sinh => g * x.cosh(),
        UnaryOp::Cosh => g * x.sinh(),
        UnaryOp::Tanh => g * one_minus(square(y)),
        UnaryOp::Asinh => g / (square(x) + 1.0).sqrt(),
        UnaryOp::Acosh => g / (square(x) - 1.0).sqrt(),
        UnaryOp::Atanh => g / one_minus(square(x)),
        UnaryOp::Erf => g * (-square(x)).exp() * FRAC_2_SQRT_PI,
        // Steps: the derivative is 0 wherever there is one.
        UnaryOp::Sign | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc => return None,
        // No floats on one side.
        UnaryOp::Not | UnaryOp::BitwiseNot | UnaryOp::IsNan | UnaryOp::IsInf => return None,
    })
}

/// Which operand of a binary operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// An operand of a binary operation: in a formula, whether it is a number, and which one if kernels are made for it.
#[derive(Clone)]
pub(crate) struct Operand {
    pub value: Traced,
    pub is_number: bool,
    pub number: Option<f64>,
}

/// The gradient of one operand of a binary operation.
pub(crate) fn binary(
    op: BinaryOp,
    side: Side,
    left: Operand,
    right: Operand,
    y: Traced,
    g: Traced,
) -> Option<Traced> {
    use Side::{Left, Right};
    let (a, b) = (left.value, right.value);
    Some(match (op, side) {
        (BinaryOp::Add, _) | (BinaryOp::Sub | BinaryOp::Remainder | BinaryOp::Fmod, Left) => g,
        (BinaryOp::Sub, Right) => -g,
        (BinaryOp::Mul, Left) => g * b,
        (BinaryOp::Mul, Right) => g * a,
        (BinaryOp::Div, Left) => g / b,
        (BinaryOp::Div, Right) => -g * y / b,
        (BinaryOp::Pow, Left) => return power_of_base(a, b, right.number, g),
        (BinaryOp::Pow, Right) => {
            // 0 to the power of b stays 0 while b does not become negative.
            let flat = a.clone().equal(0.0).bool_and(b.greater_equal(0.0));
            (g * y * a.log()).mask_fill(flat, 0.0)
        }
        (BinaryOp::Remainder, Right) => -g * (a / b).floor(),
        (BinaryOp::Fmod, Right) => -g * (a / b).trunc(),
        (BinaryOp::Max, Left) => chosen(a, b, right.is_number, Traced::greater, g),
        (BinaryOp::Max, Right) => chosen(b, a, left.is_number, Traced::greater, g),
        (BinaryOp::Min, Left) => chosen(a, b, right.is_number, Traced::lower, g),
        (BinaryOp::Min, Right) => chosen(b, a, left.is_number, Traced::lower, g),
        (BinaryOp::Atan2, Left) => g * angle(b.clone(), square(a) + square(b)),
        (BinaryOp::Atan2, Right) => -g * angle(a.clone(), square(a) + square(b)),
        (
            BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::BitwiseAnd
            | BinaryOp::BitwiseOr
            | BinaryOp::BitwiseXor
            | BinaryOp::ShiftLeft
            | BinaryOp::ShiftRight,
            _,
        ) => return None,
    })
}

/// `b a^(b-1)`, which is 0 for `b = 0` even where `a^-1` is infinite.
fn power_of_base(a: Traced, b: Traced, number: Option<f64>, g: Traced) -> Option<Traced> {
    Some(match number {
        Some(0.0) => return None,
        Some(1.0) => g,
        Some(2.0) => g * a * 2.0,
        Some(exponent) => g * (a.powf(exponent - 1.0) * exponent),
        None => {
            let slope = a.powf(b.clone() - 1.0) * b.clone();
            (g * slope).mask_fill(b.equal(0.0), 0.0)
        }
    })
}

/// The gradient of the operand `a` of a maximum or minimum; equal operands share it, unless the other one is a bound.
fn chosen(a: Traced, b: Traced, bound: bool, wins: fn(Traced, Traced) -> Traced, g: Traced) -> Traced {
    if bound {
        return Traced::from(0.0).mask_where(wins(a, b), g);
    }
    let at_tie = g.clone() * 0.5;
    // Where an operand is NaN so is the result, and the gradient goes to it.
    let to_a = wins(a.clone(), b.clone()).bool_or(a.clone().is_nan());
    Traced::from(0.0).mask_where(a.equal(b), at_tie).mask_where(to_a, g)
}

/// `numerator / squares`, and 0 at the origin, where the angle has no derivative.
fn angle(numerator: Traced, squares: Traced) -> Traced {
    (numerator / squares.clone()).mask_fill(squares.equal(0.0), 0.0)
}

fn one_minus(x: Traced) -> Traced {
    Traced::from(1.0) - x
}

fn square(x: Traced) -> Traced {
    x.clone() * x
}
