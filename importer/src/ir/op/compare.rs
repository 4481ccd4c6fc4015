//! Comparisons, and the choice between two values.

use super::broadcast::broadcast;
use super::creation::full;
use super::elementwise::{broadcast_data, compare_scalar, elementwise_loops};
use super::prelude::*;
use crate::ir::{Quotient, quotients};
use kiln_types::{CompareOp, DType, DTypeKind, Step};

impl Operation for CompareOp {
    facts!(operands: ["a", "b"], effect: Pure, folding: PerElement(1), result: Computed);
    none!(derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        same_dtype("a", cx.ty(0)?, "b", cx.ty(1)?)?;
        Ok(vec![TensorType { dtype: DType::Bool, dims: broadcast(cx, &[0, 1])? }])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        cx.elementwise(&[0, 1], |v| Some(cx.graph.compare(*self, v[0], v[1]))).or_else(|| counts(*self, cx))
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        Some(vec![compare(*self, operands.get(0)?, operands.get(1)?)?])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        elementwise_loops(cx, Step::Compare(*self, 0, 1), 2)
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        Implementation::Call(compare_call(*self, cx))
    }
}

/// Two counts that became floats before they were compared, as TensorFlow's loops do it. Those of 32 bits tell all counts apart that sizes of
/// tensors or rounds of loops come near; those of 16 do not.
fn counts(op: CompareOp, cx: &Host<'_>) -> Option<Vec<Dim>> {
    let count = |n: usize| {
        let id = (*cx.inputs.get(n)?)?;
        let is_one = {
            let ty = cx.graph.ty(id);
            ty.num_elements().is(1) && matches!(ty.dtype, DType::F32 | DType::F64)
        };
        let [quotient] = is_one.then(|| quotients(cx.graph, id))??.try_into().ok()?;
        let Quotient { dividend, divisor } = quotient;
        divisor.is(1).then_some(dividend)
    };
    Some(vec![cx.graph.compare(op, &count(0)?, &count(1)?)])
}

/// `condition ? a : b`.
pub struct Where;

impl Operation for Where {
    facts!(operands: ["condition", "a", "b"], effect: Pure, folding: PerElement(1), result: Computed);
    none!(derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        need_bool("condition", cx.ty(0)?)?;
        same_dtype("a", cx.ty(1)?, "b", cx.ty(2)?)?;
        Ok(vec![TensorType { dtype: cx.ty(1)?.dtype, dims: broadcast(cx, &[0, 1, 2])? }])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        cx.elementwise(&[0, 1, 2], |v| Some(host_select(v[0], v[1], v[2])))
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        Some(vec![select(operands.get(0)?, operands.get(1)?, operands.get(2)?)?])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        elementwise_loops(cx, Step::Where(0, 1, 2), 3)
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        Implementation::Call(select_call(cx))
    }
}

pub(super) fn compare(op: CompareOp, a: &TensorData, b: &TensorData) -> Option<TensorData> {
    let (shape, elements) = broadcast_data(&[a, b])?;
    let result = match elements.as_slice() {
        [Elements::Float(x), Elements::Float(y)] => {
            x.iter().zip(y).map(|(x, y)| op.holds(x, y)).collect::<Vec<bool>>()
        }
        [Elements::Int(x), Elements::Int(y)] => x.iter().zip(y).map(|(x, y)| op.holds(x, y)).collect(),
        _ => return None,
    };
    Some(Elements::Int(result.into_iter().map(i128::from).collect()).store(DType::Bool, shape))
}

pub(super) fn select(condition: &TensorData, a: &TensorData, b: &TensorData) -> Option<TensorData> {
    let (shape, elements) = broadcast_data(&[condition, a, b])?;
    let result = match elements.as_slice() {
        [Elements::Int(c), Elements::Float(x), Elements::Float(y)] => Elements::Float(
            c.iter().zip(x.iter().zip(y)).map(|(&c, (&x, &y))| if c != 0 { x } else { y }).collect(),
        ),
        [Elements::Int(c), Elements::Int(x), Elements::Int(y)] => Elements::Int(
            c.iter().zip(x.iter().zip(y)).map(|(&c, (&x, &y))| if c != 0 { x } else { y }).collect(),
        ),
        _ => return None,
    };
    Some(result.store(a.dtype, shape))
}

/// `condition ? a : b`, where the condition is 0 or 1.
fn host_select(condition: &Dim, a: &Dim, b: &Dim) -> Dim {
    match condition.as_constant() {
        Some(0) => b.clone(),
        Some(_) => a.clone(),
        None if a == b => a.clone(),
        None => &(condition * &(a - b)) + b,
    }
}

fn compare_call(op: CompareOp, cx: &Site<'_>) -> Arg {
    // Bool tensors have no comparison with a number.
    let kind = cx.dtype(0).kind();
    if kind != DTypeKind::Bool {
        if let Some(number) = cx.scalar(1, cx.rank(0)) {
            return Arg::Operand(0).then(compare_scalar(op), [number]);
        }
        if let Some(number) = cx.scalar(0, cx.rank(1)) {
            return Arg::Operand(1).then(compare_scalar(mirrored(op)), [number]);
        }
    }
    Arg::Operand(0).then(op.name(), [Arg::Operand(1)])
}

/// The comparison with its sides changed.
fn mirrored(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Greater => CompareOp::Lower,
        CompareOp::GreaterEqual => CompareOp::LowerEqual,
        CompareOp::Lower => CompareOp::Greater,
        CompareOp::LowerEqual => CompareOp::GreaterEqual,
        op => op,
    }
}

fn select_call(cx: &Site<'_>) -> Arg {
    let (mask, yes, no) = (Arg::Operand(0), Arg::Operand(1), Arg::Operand(2));
    let output = cx.output();
    let rank = output.map_or(0, TensorType::rank);
    if let (Some(yes), Some(no), Some(ty)) = (cx.scalar(1, rank), cx.scalar(2, rank), output) {
        return full(&ty.dims, no, ty.dtype).then("mask_fill", [mask, yes]);
    }
    if let Some(number) = cx.scalar(1, rank)
        && cx.rank(2) == rank
    {
        return no.then("mask_fill", [mask, number]);
    }
    if let Some(number) = cx.scalar(2, rank)
        && cx.rank(1) == rank
    {
        return yes.then("mask_fill", [mask.then("bool_not", []), number]);
    }
    no.then("mask_where", [mask, yes])
}
