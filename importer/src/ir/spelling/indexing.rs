//! Operations with index tensors.

use super::shape::axis_expr;
use super::{Cx, Expr, Layer, LayerField, Spelling};
use crate::ir::{Dim, Op};
use kiln_types::ScatterOp;

pub(super) fn spell(op: &Op, cx: &Cx<'_>) -> Spelling {
    match op {
        Op::Take { axis, wrapped } => take(*axis, *wrapped, cx),
        Op::Gather { axis } => {
            Spelling::Expr(Expr::method(0, "gather", vec![axis_expr(*axis), Expr::Operand(1)]))
        }
        Op::Scatter { axis, op } => {
            let op = match op {
                ScatterOp::Assign => "tensor::ScatterOp::Assign",
                ScatterOp::Add => "tensor::ScatterOp::Add",
                ScatterOp::Mul => "tensor::ScatterOp::Mul",
                ScatterOp::Max => "tensor::ScatterOp::Max",
                ScatterOp::Min => "tensor::ScatterOp::Min",
            };
            let args = vec![axis_expr(*axis), Expr::Operand(1), Expr::Operand(2), Expr::Path(op)];
            Spelling::Expr(Expr::method(0, "scatter", args))
        }
        _ => Spelling::Expr(Expr::Operand(0)),
    }
}

fn take(axis: usize, wrapped: bool, cx: &Cx<'_>) -> Spelling {
    let indices = Expr::Operand(1);
    if let Some(table) = embedding(axis, cx) {
        return Spelling::Layer(table);
    }
    if let Some(one) = one_index(axis, cx) {
        return Spelling::Expr(one);
    }
    if cx.rank(1) == 1 && !wrapped {
        return Spelling::Expr(Expr::method(0, "select", vec![axis_expr(axis), indices]));
    }
    let name = if wrapped { "take_wrapped" } else { "take" };
    let generics = vec![cx.rank(1), cx.output().map_or(0, |ty| ty.rank())];
    Spelling::Expr(Expr::Operand(0).then_with(name, generics, vec![axis_expr(axis), indices]))
}

/// One known position: a slice whose axis goes away.
fn one_index(axis: usize, cx: &Cx<'_>) -> Option<Expr> {
    let Expr::Scalar(index, _) = cx.scalar(1, 0)? else { return None };
    let index = Dim::constant(index.to_i64());
    let size = cx.ty(0)?.dims.get(axis)?;
    let start = if index.as_size().is_some() { index } else { size + &index };
    let end = &start + &Dim::constant(1);
    let range = Expr::Range(Box::new(Expr::Size(start)), Box::new(Expr::Size(end)));
    let sliced = Expr::method(0, "slice_dim", vec![axis_expr(axis), range]);
    Some(sliced.then_with("squeeze_dim", vec![cx.rank(0).checked_sub(1)?], vec![axis_expr(axis)]))
}

/// Rows of a constant table, looked up by `[batch, seq]` indices.
fn embedding(axis: usize, cx: &Cx<'_>) -> Option<Layer> {
    let weight =
        cx.input(0).filter(|_| axis == 0 && cx.rank(0) == 2 && cx.rank(1) == 2 && cx.is_constant(0))?;
    let &[rows, size] = cx.shape(0)?.as_slice() else { return None };
    if !cx.dtype(0).is_float() {
        return None;
    }
    Some(Layer {
        ty: "nn::Embedding",
        generic: true,
        config: Expr::Call(
            "nn::EmbeddingConfig::new",
            vec![Expr::named("n_embedding", rows), Expr::named("d_model", size)],
        ),
        fields: vec![("weight", LayerField::Parameter(weight))],
        method: "forward",
        args: vec![Expr::Operand(1)],
        function: Expr::Call("tensor::module::embedding", vec![Expr::Operand(0), Expr::Operand(1)]),
    })
}
