//! Operations that fold axes or run along one.

use super::Cx;
use crate::ir::{Arg, Op};
use kiln_types::{CumulativeOp, ReduceOp};

pub(super) fn call(op: &Op, cx: &Cx<'_>) -> Arg {
    match op {
        Op::Reduce { op, axes, keep_dims } => reduce(*op, axes, *keep_dims, cx),
        Op::ArgReduce { op, axis, keep_dims, select_last } => {
            let folded = match (op, select_last) {
                (op, false) => Arg::Operand(0).then(op.name(), [Arg::axis(*axis)]),
                (op, true) => {
                    Arg::Operand(0).then("arg_reduce", [Arg::options(op), Arg::axis(*axis), Arg::Bool(true)])
                }
            };
            squeezed(folded, &[*axis], *keep_dims, cx)
        }
        Op::Cumulative { op, axis, exclusive, reverse } => cumulative(*op, *axis, *exclusive, *reverse),
        Op::Trilu { upper, k } => Arg::Operand(0).then(if *upper { "triu" } else { "tril" }, [Arg::Int(*k)]),
        _ => Arg::Operand(0),
    }
}

fn reduce(op: ReduceOp, axes: &[usize], keep_dims: bool, cx: &Cx<'_>) -> Arg {
    let one = match op {
        ReduceOp::Sum => "sum_dim",
        ReduceOp::Prod => "prod_dim",
        ReduceOp::Mean => "mean_dim",
        ReduceOp::Max => "max_dim",
        ReduceOp::Min => "min_dim",
        ReduceOp::Any => "any_dim",
        ReduceOp::All => "all_dim",
    };
    let many = match op {
        ReduceOp::Sum => Some("sum_dims"),
        ReduceOp::Mean => Some("mean_dims"),
        ReduceOp::Max => Some("max_dims"),
        ReduceOp::Min => Some("min_dims"),
        _ => None,
    };
    let reduced = match (axes, many) {
        (&[axis], _) => Arg::Operand(0).then(one, [Arg::axis(axis)]),
        (axes, Some(many)) => Arg::Operand(0).then(many, [Arg::List(Arg::ints(axes))]),
        (axes, None) => axes.iter().fold(Arg::Operand(0), |x, &axis| x.then(one, [Arg::axis(axis)])),
    };
    squeezed(reduced, axes, keep_dims, cx)
}

/// Drops axes of size 1 after a fold.
fn squeezed(x: Arg, axes: &[usize], keep_dims: bool, cx: &Cx<'_>) -> Arg {
    let rank = cx.rank(0).saturating_sub(axes.len());
    match axes {
        _ if keep_dims => x,
        &[axis] => x.then("squeeze_dim", [Arg::Rank(rank), Arg::axis(axis)]),
        axes => x.then("squeeze_dims", [Arg::Rank(rank), Arg::List(Arg::ints(axes))]),
    }
}

fn cumulative(op: CumulativeOp, axis: usize, exclusive: bool, reverse: bool) -> Arg {
    if exclusive || reverse {
        let args = [Arg::options(&op), Arg::axis(axis), Arg::Bool(exclusive), Arg::Bool(reverse)];
        return Arg::Operand(0).then("cumulative", args);
    }
    Arg::Operand(0).then(op.name(), [Arg::axis(axis)])
}
