//! Operations that move elements and compute nothing.

use super::Cx;
use crate::ir::{Arg, AxisRange, Dim, Op};

pub(super) fn call(op: &Op, cx: &Cx<'_>) -> Arg {
    match op {
        Op::Reshape { dims } => reshape(dims, cx),
        Op::Permute { axes } => permute(axes),
        Op::Expand { dims } => Arg::Operand(0).then("expand", [Arg::Array(Arg::sizes(dims))]),
        Op::Slice { ranges } => slice(ranges, cx),
        Op::Concat { axis } => {
            let operands = (0..cx.node.inputs.len()).map(Arg::Operand).collect();
            Arg::call("tensor::Tensor::cat", [Arg::List(operands), Arg::axis(*axis)])
        }
        Op::Pad { padding, mode, value } => {
            // An amount that turns out negative cuts.
            let is_size = |pad: &Dim| cx.graph.least(pad, 0).is_some_and(|least| least >= 0);
            let (name, amount): (_, fn(Dim) -> Arg) =
                match padding.iter().all(|(before, after)| is_size(before) && is_size(after)) {
                    true => ("pad_with", Arg::Size),
                    false => ("pad_or_crop", Arg::Integer),
                };
            let pairs = padding
                .iter()
                .map(|(before, after)| Arg::Tuple(vec![amount(before.clone()), amount(after.clone())]));
            let value = Arg::Scalar(*value, cx.dtype(0));
            Arg::Operand(0).then(name, [Arg::List(pairs.collect()), Arg::options(mode), value])
        }
        Op::Repeat { times } => {
            let repeated: Vec<usize> = (0..times.len()).filter(|&axis| !times[axis].is(1)).collect();
            match repeated.as_slice() {
                &[axis] => {
                    Arg::Operand(0).then("repeat_dim", [Arg::axis(axis), Arg::Size(times[axis].clone())])
                }
                _ => Arg::Operand(0).then("repeat", [Arg::List(Arg::sizes(times))]),
            }
        }
        _ => Arg::Operand(0),
    }
}

/// `squeeze_dim`, `unsqueeze_dim`, `flatten` or `reshape`, whichever says most and needs the fewest sizes.
fn reshape(dims: &[Dim], cx: &Cx<'_>) -> Arg {
    let from = cx.ty(0).map(|ty| ty.dims.as_slice()).unwrap_or_default();
    if let Some(axis) = inserted_axis(from, dims) {
        return Arg::Operand(0).then("unsqueeze_dim", [Arg::Rank(dims.len()), Arg::axis(axis)]);
    }
    if let Some(axis) = inserted_axis(dims, from) {
        return Arg::Operand(0).then("squeeze_dim", [Arg::Rank(dims.len()), Arg::axis(axis)]);
    }
    if let Some(axes) = dropped_axes(from, dims) {
        return Arg::Operand(0).then("squeeze_dims", [Arg::Rank(dims.len()), Arg::List(Arg::ints(&axes))]);
    }
    if let Some((start, end)) = flattened_axes(from, dims) {
        let args = [Arg::Rank(dims.len()), Arg::axis(start), Arg::axis(end)];
        return Arg::Operand(0).then("flatten", args);
    }
    if dims.is_empty() {
        // An empty array says no type.
        return Arg::Operand(0).then("squeeze", [Arg::Rank(0)]);
    }
    let name = if has_literal_zero(dims) { "reshape_exact" } else { "reshape" };
    Arg::Operand(0).then(name, [target(dims)])
}

/// Whether all dims are numbers and one is 0, which `reshape` would take for "as it is".
fn has_literal_zero(dims: &[Dim]) -> bool {
    dims.iter().all(|dim| dim.as_constant().is_some()) && dims.iter().any(|dim| dim.is(0))
}

/// New dims; a single one that the other sizes determine is `-1`, so that its symbol need not be known.
fn target(dims: &[Dim]) -> Arg {
    let unknown: Vec<usize> = (0..dims.len()).filter(|&i| dims[i].as_constant().is_none()).collect();
    let others_positive = dims.iter().all(|dim| dim.as_constant().is_none_or(|size| size > 0));
    match unknown.as_slice() {
        [at] if others_positive && dims[*at].as_symbol().is_none() => Arg::Array(
            (0..dims.len())
                .map(|i| if i == *at { Arg::Int(-1) } else { Arg::Int(dims[i].as_constant().unwrap_or(1)) })
                .collect(),
        ),
        _ => Arg::Array(Arg::sizes(dims)),
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

fn permute(axes: &[usize]) -> Arg {
    let moved: Vec<usize> = (0..axes.len()).filter(|&i| axes[i] != i).collect();
    match moved.as_slice() {
        [] => Arg::Operand(0),
        &[0, 1] if axes.len() == 2 => Arg::Operand(0).then("transpose", []),
        &[a, b] => Arg::Operand(0).then("swap_dims", [Arg::axis(a), Arg::axis(b)]),
        _ => Arg::Operand(0).then("permute", [Arg::Array(Arg::ints(axes))]),
    }
}

/// One `slice_dim` for each axis that is cut.
fn slice(ranges: &[AxisRange], cx: &Cx<'_>) -> Arg {
    let dims = cx.ty(0).map(|ty| ty.dims.as_slice()).unwrap_or_default();
    let mut expr = Arg::Operand(0);
    for (axis, range) in ranges.iter().enumerate() {
        let all = range.start.is(0) && range.step == 1 && dims.get(axis) == Some(&range.end);
        if all {
            continue;
        }
        let bounds = Arg::range(Arg::Size(range.start.clone()), Arg::Size(range.end.clone()));
        let range = match range.step {
            1 => bounds,
            step => Arg::call("tensor::Slice::from_range_stepped", [bounds, Arg::Int(step)]),
        };
        expr = expr.then("slice_dim", [Arg::axis(axis), range]);
    }
    expr
}
