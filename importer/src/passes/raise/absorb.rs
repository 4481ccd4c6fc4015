//! A normalization without weights followed by a product and a sum with constants: its weight and bias.

use super::layer_norm::trailing;
use crate::ir::op::ScaledAxes;
use crate::ir::{Dim, Node, Op, Permute, ValueId};
use crate::passes::movement::constant_as;
use crate::passes::{Rewrite, Rule};
use kiln_types::BinaryOp;

pub(in crate::passes) const RULE: Rule = Rule { apply };

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let op = match cx.op() {
        Op::Binary(op @ (BinaryOp::Mul | BinaryOp::Add)) => *op,
        _ => return None,
    };
    let constant = |id: ValueId| cx.constant(id).is_some();
    let (parameter, y) = cx.commutative(cx.output()?, op, constant)?;
    let norm = cx.producer(y).filter(|_| cx.used_once(y))?.clone();
    if let Op::Permute(Permute { axes }) = norm.op {
        let y = norm.inputs.first().copied().flatten()?;
        let norm = cx.producer(y).filter(|_| cx.used_once(y))?.clone();
        return match norm.op.scaled_axes()? {
            ScaledAxes::Trailing => under_transpose(cx, norm, op, parameter, axes),
            ScaledAxes::Channels => None,
        };
    }
    match norm.op.scaled_axes()? {
        ScaledAxes::Trailing => over_trailing(cx, norm, op, parameter),
        ScaledAxes::Channels => over_channels(cx, norm, op, parameter),
    }
}

/// Whether an operand is absent or the same number everywhere.
fn is_only(cx: &Rewrite<'_>, operand: Option<ValueId>, number: f64) -> bool {
    operand.is_none_or(|id| cx.uniform(id) == Some(number))
}

fn operand(node: &Node, n: usize) -> Option<ValueId> {
    node.inputs.get(n).copied().flatten()
}

fn over_trailing(cx: &mut Rewrite<'_>, norm: Node, op: BinaryOp, parameter: ValueId) -> Option<&'static str> {
    let sizes = cx.ty(operand(&norm, 1)?).shape()?;
    let parameter = trailing(cx, parameter, &sizes)?;
    let inputs = with_parameter(cx, &norm, op, parameter)?;
    cx.replace(norm.op, inputs.into_iter().map(Some).collect())?;
    Some("parameter into its normalization")
}

/// The same where the normalized axis was moved to the end and back.
fn under_transpose(
    cx: &mut Rewrite<'_>,
    norm: Node,
    op: BinaryOp,
    parameter: ValueId,
    axes: Vec<usize>,
) -> Option<&'static str> {
    let sizes = cx.ty(operand(&norm, 1)?).shape()?;
    // One axis: then its elements stand in order wherever it is.
    let (&[size], last) = (sizes.as_slice(), axes.len().checked_sub(1)?) else {
        return None;
    };
    let shape = cx.ty(parameter).shape()?;
    let wanted = axes.iter().map(|&axis| if axis == last { size } else { 1 });
    if !shape.into_iter().eq(wanted) {
        return None;
    }
    let parameter = constant_as(cx, parameter, sizes)?;
    let inputs = with_parameter(cx, &norm, op, parameter)?;
    let y = cx.insert_as(norm.op, &inputs, norm.origin)?;
    cx.replace(Op::Permute(Permute { axes }), vec![Some(y)])?;
    Some("parameter into its normalization")
}

/// The operands of a normalization over trailing axes that takes a factor or a summand in.
fn with_parameter(cx: &Rewrite<'_>, norm: &Node, op: BinaryOp, parameter: ValueId) -> Option<Vec<ValueId>> {
    let (x, weight) = (operand(norm, 0)?, operand(norm, 1)?);
    let no_bias = is_only(cx, operand(norm, 2), 0.0);
    match op {
        BinaryOp::Mul if is_only(cx, Some(weight), 1.0) && no_bias => Some(vec![x, parameter]),
        BinaryOp::Add if no_bias && norm.op.operands().contains(&"bias?") => Some(vec![x, weight, parameter]),
        _ => None,
    }
}

fn over_channels(cx: &mut Rewrite<'_>, norm: Node, op: BinaryOp, parameter: ValueId) -> Option<&'static str> {
    let channels = cx.ty(norm.inputs.first().copied().flatten()?).dims.get(1).and_then(Dim::as_size)?;
    let dims = &cx.ty(parameter).dims;
    let per_channel =
        dims.iter().enumerate().all(|(i, dim)| if i == 1 { *dim == channels.into() } else { dim.is(1) });
    if !per_channel || dims.len() < 2 {
        return None;
    }
    let (weight, bias) = (operand(&norm, 1), operand(&norm, 2));
    let no_bias = is_only(cx, bias, 0.0);
    let parameter = constant_as(cx, parameter, vec![channels])?;
    let inputs = match op {
        BinaryOp::Mul if is_only(cx, weight, 1.0) && no_bias => vec![norm.inputs[0], Some(parameter)],
        BinaryOp::Add if no_bias => vec![norm.inputs[0], weight, Some(parameter)],
        _ => return None,
    };
    cx.replace(norm.op, inputs)?;
    Some("parameter into its normalization")
}
