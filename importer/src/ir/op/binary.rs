//! Two numbers into one.

use super::broadcast::broadcast;
use super::elementwise::{between, broadcast_data, elementwise_loops, is_nan, scalar_first, with_scalar};
use super::host::{exact, fits};
use super::prelude::*;
use kiln_types::{BinaryOp, CompareOp, DType, Step};

impl Operation for BinaryOp {
    facts!(operands: ["a", "b"], effect: Pure, folding: PerElement(1), result: Computed);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let dtype = binary_dtype(*self, cx.ty(0)?, cx.ty(1)?)?;
        Ok(vec![TensorType { dtype, dims: broadcast(cx, &[0, 1])? }])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        let dtype = cx.operand(0)?.dtype;
        cx.elementwise(&[0, 1], |v| host_binary(cx, *self, v[0], v[1]).filter(|value| fits(dtype, value)))
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        Some(vec![binary(*self, operands.get(0)?, operands.get(1)?)?])
    }

    fn derivation(&self, of: &Sources<'_>) -> Result<Derivation, String> {
        // A number that the other operand spreads anyway stays one.
        let operand = |n: usize, other: usize| match (of.shape(n), of.shape(other)) {
            (Some(shape), Some(wanted)) if is_spread_to(&shape, &wanted) => of.bare(n),
            _ => of.of(n),
        };
        Ok(Derivation::binary(*self, operand(0, 1)?, operand(1, 0)?))
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        elementwise_loops(cx, Step::Binary(*self, 0, 1), 2)
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        Implementation::Call(call(*self, cx))
    }
}

/// Whether a shape broadcasts to another.
fn is_spread_to(shape: &[usize], wanted: &[usize]) -> bool {
    let fits = |(size, wanted): (&usize, &usize)| *size == 1 || size == wanted;
    shape.len() <= wanted.len() && shape.iter().rev().zip(wanted.iter().rev()).all(fits)
}

/// Dtype of a binary operation's result.
pub(super) fn binary_dtype(op: BinaryOp, a: &TensorType, b: &TensorType) -> RuleResult<DType> {
    same_dtype("a", a, "b", b)?;
    match op {
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => need_bool("a", a)?,
        BinaryOp::BitwiseAnd
        | BinaryOp::BitwiseOr
        | BinaryOp::BitwiseXor
        | BinaryOp::ShiftLeft
        | BinaryOp::ShiftRight => need_int("a", a)?,
        BinaryOp::Atan2 => need_float("a", a)?,
        BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Mul
        | BinaryOp::Div
        | BinaryOp::Pow
        | BinaryOp::Remainder
        | BinaryOp::Fmod
        | BinaryOp::Max
        | BinaryOp::Min => need("a", a, !a.dtype.is_bool(), "expected a number")?,
    }
    Ok(a.dtype)
}

fn host_binary(cx: &Host<'_>, op: BinaryOp, a: &Dim, b: &Dim) -> Option<Dim> {
    let known = a.as_constant().zip(b.as_constant());
    let integer = |f: fn(i64, i64) -> Option<i64>| known.and_then(|(a, b)| f(a, b)).map(Dim::constant);
    let not_negative = |dim: &Dim| cx.graph.least(dim, 1).is_some_and(|least| least >= 0);
    let positive = |dim: &Dim| cx.graph.least(dim, 1).is_some_and(|least| least > 0);
    match op {
        BinaryOp::Add => exact(a + b),
        BinaryOp::Sub => exact(a - b),
        BinaryOp::Mul | BinaryOp::And => exact(a * b),
        BinaryOp::Div if known.is_some() => integer(i64::checked_div),
        BinaryOp::Div if a.modulo(b).is(0) && !b.is(0) => Some(a.floor_div(b)),
        // Truncation is a floor where nothing is negative. Sizes count as at least 1 here: of an empty tensor,
        // `(size - 1) / 2` is asked in vain anyway.
        BinaryOp::Div if not_negative(a) && positive(b) => Some(a.floor_div(b)),
        // Of what may be less than nothing, as where the middle of an image begins that is `(size - 6) / 2`.
        BinaryOp::Div if positive(b) => exact(a.trunc_div(b)),
        BinaryOp::Remainder if known.is_some() && !b.is(0) => Some(a.modulo(b)),
        // At run time, dims are taken modulo sizes.
        BinaryOp::Remainder if positive(b) => Some(a.modulo(b)),
        BinaryOp::Fmod if known.is_some() => integer(i64::checked_rem),
        BinaryOp::Fmod if not_negative(a) && positive(b) => Some(a.modulo(b)),
        BinaryOp::Pow => power(a, b),
        BinaryOp::Max | BinaryOp::Or => Some(cx.graph.maximum(a, b)),
        BinaryOp::Min => Some(cx.graph.minimum(a, b)),
        BinaryOp::Xor => Some(cx.graph.compare(CompareOp::NotEqual, a, b)),
        BinaryOp::BitwiseAnd => integer(|a, b| Some(a & b)),
        BinaryOp::BitwiseOr => integer(|a, b| Some(a | b)),
        BinaryOp::BitwiseXor => integer(|a, b| Some(a ^ b)),
        _ => None,
    }
}

/// `a` to a small known power.
fn power(a: &Dim, b: &Dim) -> Option<Dim> {
    let exponent = b.as_constant().filter(|e| (0..=8).contains(e))?;
    (0..exponent).try_fold(Dim::constant(1), |product, _| exact(&product * a))
}

pub(super) fn binary(op: BinaryOp, a: &TensorData, b: &TensorData) -> Option<TensorData> {
    let (shape, elements) = broadcast_data(&[a, b])?;
    let result = match elements.as_slice() {
        [Elements::Float(x), Elements::Float(y)] => {
            Elements::Float(x.iter().zip(y).map(|(&x, &y)| binary_float(op, x, y)).collect())
        }
        [Elements::Int(x), Elements::Int(y)] => Elements::Int(
            x.iter().zip(y).map(|(&x, &y)| binary_int(op, x, y, a.dtype)).collect::<Option<_>>()?,
        ),
        _ => return None,
    };
    Some(result.store(a.dtype, shape))
}

fn binary_float(op: BinaryOp, a: f64, b: f64) -> f64 {
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Pow => a.powf(b),
        BinaryOp::Remainder => {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
        }
        BinaryOp::Fmod => a % b,
        BinaryOp::Max if a.is_nan() || b.is_nan() => f64::NAN,
        BinaryOp::Min if a.is_nan() || b.is_nan() => f64::NAN,
        BinaryOp::Max => a.max(b),
        BinaryOp::Min => a.min(b),
        BinaryOp::Atan2 => a.atan2(b),
        // Inference lets no floats in.
        BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::BitwiseAnd
        | BinaryOp::BitwiseOr
        | BinaryOp::BitwiseXor
        | BinaryOp::ShiftLeft
        | BinaryOp::ShiftRight => f64::NAN,
    }
}

fn binary_int(op: BinaryOp, a: i128, b: i128, dtype: DType) -> Option<i128> {
    let bits = dtype.size() as u32 * 8;
    Some(match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div => a.checked_div(b)?,
        BinaryOp::Pow => {
            // The low bits are what a wrapping product keeps.
            a.wrapping_pow(u32::try_from(b).ok()?)
        }
        BinaryOp::Remainder => {
            let rest = a.checked_rem(b)?;
            if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
        }
        BinaryOp::Fmod => a.checked_rem(b)?,
        BinaryOp::Max => a.max(b),
        BinaryOp::Min => a.min(b),
        BinaryOp::And | BinaryOp::BitwiseAnd => a & b,
        BinaryOp::Or | BinaryOp::BitwiseOr => a | b,
        BinaryOp::Xor | BinaryOp::BitwiseXor => a ^ b,
        BinaryOp::ShiftLeft => u32::try_from(b).ok().filter(|&b| b < bits).map_or(0, |b| a << b),
        BinaryOp::ShiftRight => {
            u32::try_from(b).ok().filter(|&b| b < bits).map_or(if a < 0 { -1 } else { 0 }, |b| a >> b)
        }
        BinaryOp::Atan2 => return None,
    })
}

fn is_commutative(op: BinaryOp) -> bool {
    matches!(
        op,
        BinaryOp::Add
            | BinaryOp::Mul
            | BinaryOp::Max
            | BinaryOp::Min
            | BinaryOp::BitwiseAnd
            | BinaryOp::BitwiseOr
            | BinaryOp::BitwiseXor
    )
}

/// The larger or smaller of a tensor and a number that is no bound: where both are equal, they share the gradient.
fn extreme(op: BinaryOp, left: &Option<Arg>, right: &Option<Arg>, dtype: DType) -> Option<Arg> {
    let method = match op {
        BinaryOp::Max => "max_pair_scalar",
        BinaryOp::Min => "min_pair_scalar",
        _ => return None,
    };
    let (x, number) = match (left, right) {
        (None, Some(number)) => (0, number),
        (Some(number), None) => (1, number),
        _ => return None,
    };
    let applies = dtype.is_float() && !is_nan(number);
    applies.then(|| Arg::Operand(x).then(method, [number.clone()]))
}

fn call(op: BinaryOp, cx: &Site<'_>) -> Arg {
    let dtype = cx.dtype(0);
    let (left, right) = (cx.scalar(0, cx.rank(1)), cx.scalar(1, cx.rank(0)));
    if let Some(expr) = extreme(op, &left, &right, dtype) {
        return expr;
    }
    if let Some(number) = right
        && let Some(expr) = with_scalar(op, Arg::Operand(0), number, dtype)
    {
        return expr;
    }
    if let Some(number) = left {
        if is_commutative(op)
            && let Some(expr) = with_scalar(op, Arg::Operand(1), number.clone(), dtype)
        {
            return expr;
        }
        return scalar_first(op, number, Arg::Operand(1));
    }
    between(op, Arg::Operand(0), Arg::Operand(1), dtype)
}
