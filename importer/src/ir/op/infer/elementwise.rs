//! Elementwise operations.

use super::broadcast::broadcast;
use super::{attribute, need, need_bool, need_float, need_int, same_dtype};
use crate::ir::{Infer, RuleResult, TensorType};
use kiln_types::{BinaryOp, DType, Expression, Step, StepId, UnaryOp};

pub(super) fn unary(cx: &mut Infer<'_>, op: UnaryOp) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    Ok(x.with_dtype(unary_dtype(op, x)?))
}

/// Dtype of a unary operation's result.
fn unary_dtype(op: UnaryOp, x: &TensorType) -> RuleResult<DType> {
    match op {
        UnaryOp::Not => need_bool("x", x)?,
        UnaryOp::BitwiseNot => need_int("x", x)?,
        UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign => {
            need("x", x, !x.dtype.is_bool(), "expected a number")?;
        }
        UnaryOp::IsNan | UnaryOp::IsInf => {
            need_float("x", x)?;
            return Ok(DType::Bool);
        }
        _ => need_float("x", x)?,
    }
    Ok(x.dtype)
}

pub(super) fn binary(cx: &mut Infer<'_>, op: BinaryOp) -> RuleResult<TensorType> {
    let (a, b) = (cx.ty(0)?, cx.ty(1)?);
    let dtype = binary_dtype(op, a, b)?;
    Ok(TensorType { dtype, dims: broadcast(cx, &[0, 1])? })
}

/// Dtype of a binary operation's result.
fn binary_dtype(op: BinaryOp, a: &TensorType, b: &TensorType) -> RuleResult<DType> {
    same_dtype("a", a, "b", b)?;
    match op {
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => need_bool("a", a)?,
        BinaryOp::BitwiseAnd
        | BinaryOp::BitwiseOr
        | BinaryOp::BitwiseXor
        | BinaryOp::ShiftLeft
        | BinaryOp::ShiftRight => need_int("a", a)?,
        BinaryOp::Atan2 => need_float("a", a)?,
        _ => need("a", a, !a.dtype.is_bool(), "expected a number")?,
    }
    Ok(a.dtype)
}

pub(super) fn compare(cx: &mut Infer<'_>) -> RuleResult<TensorType> {
    same_dtype("a", cx.ty(0)?, "b", cx.ty(1)?)?;
    Ok(TensorType { dtype: DType::Bool, dims: broadcast(cx, &[0, 1])? })
}

pub(super) fn select(cx: &mut Infer<'_>) -> RuleResult<TensorType> {
    need_bool("condition", cx.ty(0)?)?;
    same_dtype("a", cx.ty(1)?, "b", cx.ty(2)?)?;
    Ok(TensorType { dtype: cx.ty(1)?.dtype, dims: broadcast(cx, &[0, 1, 2])? })
}

pub(super) fn activation(cx: &mut Infer<'_>) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    need_float("x", x)?;
    Ok(x.clone())
}

pub(super) fn clamp(cx: &mut Infer<'_>) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    need("x", x, !x.dtype.is_bool(), "expected a number")?;
    Ok(x.clone())
}

pub(super) fn expression(cx: &mut Infer<'_>, expression: &Expression) -> RuleResult<TensorType> {
    let operands: Vec<usize> = (0..cx.len()).collect();
    let dims = broadcast(cx, &operands)?;
    let mut steps: Vec<TensorType> = Vec::with_capacity(expression.steps.len());
    for step in &expression.steps {
        let dtype = step_dtype(cx, &steps, step)?;
        steps.push(TensorType { dtype, dims: Vec::new() });
    }
    if !expression.outputs.is_empty() {
        return Err(attribute("expression", "has several results, a node's value is one"));
    }
    let last = steps.last().ok_or_else(|| attribute("expression", "has no steps"))?;
    Ok(TensorType { dtype: last.dtype, dims })
}

/// Dtype of one step, given those before it.
fn step_dtype(cx: &Infer<'_>, steps: &[TensorType], step: &Step) -> RuleResult<DType> {
    let at = |id: StepId| -> RuleResult<&TensorType> {
        steps.get(usize::from(id)).ok_or_else(|| attribute("expression", "uses a step before it is computed"))
    };
    match *step {
        Step::Input(n) => Ok(cx.ty(usize::from(n))?.dtype),
        Step::Constant(_, dtype) | Step::Cast(dtype, _) => {
            if let Step::Cast(_, x) = *step {
                at(x)?;
            }
            Ok(dtype)
        }
        Step::Parameter(..) | Step::Iota(..) => {
            Err(attribute("expression", "reads what no operand of the node holds"))
        }
        Step::Unary(op, x) => unary_dtype(op, at(x)?),
        Step::Binary(op, a, b) => binary_dtype(op, at(a)?, at(b)?),
        Step::Compare(_, a, b) => {
            same_dtype("a", at(a)?, "b", at(b)?)?;
            Ok(DType::Bool)
        }
        Step::Activation(_, x) => {
            need_float("x", at(x)?)?;
            Ok(at(x)?.dtype)
        }
        Step::Where(condition, a, b) => {
            need_bool("condition", at(condition)?)?;
            same_dtype("a", at(a)?, "b", at(b)?)?;
            Ok(at(a)?.dtype)
        }
    }
}
