//! Operations that move elements and compute nothing.

use super::{Cx, Expr};
use crate::ir::{AxisRange, Dim, Op};
use kiln_types::PadMode;

pub(super) fn spell(op: &Op, cx: &Cx<'_>) -> Expr {
    match op {
        Op::Reshape { dims } => reshape(dims, cx),
        Op::Permute { axes } => permute(axes),
        Op::Expand { dims } => Expr::method(0, "expand", vec![Expr::sizes(dims)]),
        Op::Slice { ranges } => slice(ranges, cx),
        Op::Concat { axis } => {
            let operands = (0..cx.node.inputs.len()).map(Expr::Operand).collect();
            Expr::Call("tensor::Tensor::cat", vec![Expr::Vec(operands), axis_expr(*axis)])
        }
        Op::Pad { padding, mode, value } => {
            let pairs = padding.iter().map(|(before, after)| {
                Expr::Tuple(vec![Expr::Size(before.clone()), Expr::Size(after.clone())])
            });
            let mode = Expr::Path(match mode {
                PadMode::Constant => "tensor::PadMode::Constant",
                PadMode::Reflect => "tensor::PadMode::Reflect",
                PadMode::Edge => "tensor::PadMode::Edge",
                PadMode::Wrap => "tensor::PadMode::Wrap",
            });
            let value = Expr::Scalar(*value, cx.dtype(0));
            Expr::method(0, "pad_with", vec![Expr::Array(pairs.collect()).reference(), mode, value])
        }
        Op::Repeat { times } => {
            let repeated: Vec<usize> = (0..times.len()).filter(|&axis| !times[axis].is(1)).collect();
            match repeated.as_slice() {
                &[axis] => {
                    Expr::method(0, "repeat_dim", vec![axis_expr(axis), Expr::Size(times[axis].clone())])
                }
                _ => Expr::method(0, "repeat", vec![Expr::sizes(times).reference()]),
            }
        }
        _ => Expr::Operand(0),
    }
}

/// An axis as a literal.
pub(super) fn axis_expr(axis: usize) -> Expr {
    Expr::Int(axis as i64)
}

/// `squeeze_dim`, `unsqueeze_dim`, `flatten` or `reshape`, whichever says most and needs the fewest sizes.
fn reshape(dims: &[Dim], cx: &Cx<'_>) -> Expr {
    let from = cx.ty(0).map(|ty| ty.dims.as_slice()).unwrap_or_default();
    if let Some(axis) = inserted_axis(from, dims) {
        return Expr::Operand(0).then_with("unsqueeze_dim", vec![dims.len()], vec![axis_expr(axis)]);
    }
    if let Some(axis) = inserted_axis(dims, from) {
        return Expr::Operand(0).then_with("squeeze_dim", vec![dims.len()], vec![axis_expr(axis)]);
    }
    if let Some(axes) = dropped_axes(from, dims) {
        return Expr::Operand(0).then_with(
            "squeeze_dims",
            vec![dims.len()],
            vec![Expr::ints(&axes).reference()],
        );
    }
    if let Some((start, end)) = flattened_axes(from, dims) {
        let axes = vec![axis_expr(start), axis_expr(end)];
        return Expr::Operand(0).then_with("flatten", vec![dims.len()], axes);
    }
    if dims.is_empty() {
        // An empty array says no type.
        return Expr::Operand(0).then_with("squeeze", vec![0], Vec::new());
    }
    Expr::method(0, "reshape", vec![target(dims)])
}

/// New dims; a single one that the other sizes determine is `-1`, so that its symbol need not be known.
fn target(dims: &[Dim]) -> Expr {
    let unknown: Vec<usize> = (0..dims.len()).filter(|&i| dims[i].as_constant().is_none()).collect();
    let others_positive = dims.iter().all(|dim| dim.as_constant().is_none_or(|size| size > 0));
    match unknown.as_slice() {
        [at] if others_positive && dims[*at].as_symbol().is_none() => Expr::Array(
            (0..dims.len())
                .map(|i| if i == *at { Expr::Int(-1) } else { Expr::Int(dims[i].as_constant().unwrap_or(1)) })
                .collect(),
        ),
        _ => Expr::sizes(dims),
    }
}

/// The axis of size 1 that `long` has and `short` has not, all others being equal.
fn inserted_axis(short: &[Dim], long: &[Dim]) -> Option<usize> {
    if long.len() != short.len() + 1 {
        return None;
    }
    (0..long.len())
        .find(|&axis| long[axis].is(1) && long[..axis] == short[..axis] && long[axis + 1..] == short[axis..])
}

/// Axes of size 1 that are left out, when nothing else happens and they are not at the end, where it is a flattening.
fn dropped_axes(from: &[Dim], to: &[Dim]) -> Option<Vec<usize>> {
    let mut rest = to.iter().peekable();
    let mut dropped = Vec::new();
    for (axis, dim) in from.iter().enumerate() {
        if rest.peek() == Some(&dim) && !(dim.is(1) && from.len() - axis > rest.len()) {
            rest.next();
        } else if dim.is(1) {
            dropped.push(axis);
        } else {
            return None;
        }
    }
    let flattens = dropped.last().is_some_and(|&axis| axis + 1 == from.len()) && !to.is_empty();
    (rest.next().is_none() && !dropped.is_empty() && !flattens).then_some(dropped)
}

/// The first and last axis that a flattening joins.
fn flattened_axes(from: &[Dim], to: &[Dim]) -> Option<(usize, usize)> {
    let joined = from.len().checked_sub(to.len())?;
    if joined == 0 || to.is_empty() {
        return None;
    }
    (0..to.len()).map(|start| (start, start + joined)).find(|&(start, end)| {
        from[..start] == to[..start]
            && from[end + 1..] == to[start + 1..]
            && Dim::product(&from[start..=end]) == to[start]
    })
}

fn permute(axes: &[usize]) -> Expr {
    let moved: Vec<usize> = (0..axes.len()).filter(|&i| axes[i] != i).collect();
    match moved.as_slice() {
        [] => Expr::Operand(0),
        &[0, 1] if axes.len() == 2 => Expr::method(0, "transpose", Vec::new()),
        &[a, b] => Expr::method(0, "swap_dims", vec![axis_expr(a), axis_expr(b)]),
        _ => Expr::method(0, "permute", vec![Expr::ints(axes)]),
    }
}

/// One `slice_dim` for each axis that is cut.
fn slice(ranges: &[AxisRange], cx: &Cx<'_>) -> Expr {
    let dims = cx.ty(0).map(|ty| ty.dims.as_slice()).unwrap_or_default();
    let mut expr = Expr::Operand(0);
    for (axis, range) in ranges.iter().enumerate() {
        let all = range.start.is(0) && range.step == 1 && dims.get(axis) == Some(&range.end);
        if all {
            continue;
        }
        let bounds = (Expr::Size(range.start.clone()), Expr::Size(range.end.clone()));
        let range = if range.step == 1 {
            Expr::Range(Box::new(bounds.0), Box::new(bounds.1))
        } else {
            let bounds = Expr::Range(Box::new(bounds.0), Box::new(bounds.1));
            Expr::Call("tensor::Slice::from_range_stepped", vec![bounds, Expr::Int(range.step)])
        };
        expr = expr.then("slice_dim", vec![axis_expr(axis), range]);
    }
    expr
}
