//! Operations that fold axes or run along one.

use super::shape::axis_expr;
use super::{Cx, Expr};
use crate::ir::Op;
use kiln_types::{ArgReduceOp, CumulativeOp, ReduceOp};

pub(super) fn spell(op: &Op, cx: &Cx<'_>) -> Expr {
    match op {
        Op::Reduce { op, axes, keep_dims } => reduce(*op, axes, *keep_dims, cx),
        Op::ArgReduce { op, axis, keep_dims, select_last } => {
            let folded = match (op, select_last) {
                (op, false) => Expr::method(0, op.name(), vec![axis_expr(*axis)]),
                (op, true) => {
                    let op = match op {
                        ArgReduceOp::Max => "tensor::ArgReduceOp::Max",
                        ArgReduceOp::Min => "tensor::ArgReduceOp::Min",
                    };
                    Expr::method(0, "arg_reduce", vec![Expr::Path(op), axis_expr(*axis), Expr::Bool(true)])
                }
            };
            squeezed(folded, &[*axis], *keep_dims, cx)
        }
        Op::Cumulative { op, axis, exclusive, reverse } => cumulative(*op, *axis, *exclusive, *reverse),
        Op::Trilu { upper, k } => Expr::method(0, if *upper { "triu" } else { "tril" }, vec![Expr::Int(*k)]),
        _ => Expr::Operand(0),
    }
}

fn reduce(op: ReduceOp, axes: &[usize], keep_dims: bool, cx: &Cx<'_>) -> Expr {
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
        (&[axis], _) => Expr::method(0, one, vec![axis_expr(axis)]),
        (axes, Some(many)) => Expr::method(0, many, vec![Expr::ints(axes).reference()]),
        (axes, None) => axes.iter().fold(Expr::Operand(0), |x, &axis| x.then(one, vec![axis_expr(axis)])),
    };
    squeezed(reduced, axes, keep_dims, cx)
}

/// Drops axes of size 1 after a fold.
fn squeezed(x: Expr, axes: &[usize], keep_dims: bool, cx: &Cx<'_>) -> Expr {
    let rank = cx.rank(0).saturating_sub(axes.len());
    match axes {
        _ if keep_dims => x,
        &[axis] => x.then_with("squeeze_dim", vec![rank], vec![axis_expr(axis)]),
        axes => x.then_with("squeeze_dims", vec![rank], vec![Expr::ints(axes).reference()]),
    }
}

fn cumulative(op: CumulativeOp, axis: usize, exclusive: bool, reverse: bool) -> Expr {
    if exclusive || reverse {
        let path = match op {
            CumulativeOp::Sum => "tensor::CumulativeOp::Sum",
            CumulativeOp::Prod => "tensor::CumulativeOp::Prod",
            CumulativeOp::Max => "tensor::CumulativeOp::Max",
            CumulativeOp::Min => "tensor::CumulativeOp::Min",
        };
        let args = vec![Expr::Path(path), axis_expr(axis), Expr::Bool(exclusive), Expr::Bool(reverse)];
        return Expr::method(0, "cumulative", args);
    }
    Expr::method(0, op.name(), vec![axis_expr(axis)])
}
