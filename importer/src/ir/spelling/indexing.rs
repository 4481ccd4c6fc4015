//! Operations with index tensors.

use super::shape::axis_expr;
use super::{Cx, Expr, Layer, LayerField, Spelling};
use crate::ir::Op;
use kiln_types::{DType, Scalar, ScatterOp};

pub(super) fn spell(op: &Op, cx: &Cx<'_>) -> Spelling {
    match op {
        Op::Take { axis, wrapped } => take(*axis, *wrapped, cx),
        Op::Gather { axis } => {
            Spelling::Expr(Expr::method(0, "gather", vec![axis_expr(*axis), Expr::Operand(1)]))
        }
        Op::Scatter { axis, op } => {
            let op = match op {
                ScatterOp::Assign => "tensor::IndexingUpdateOp::Assign",
                ScatterOp::Add => "tensor::IndexingUpdateOp::Add",
                ScatterOp::Mul => "tensor::IndexingUpdateOp::Mul",
                ScatterOp::Max => "tensor::IndexingUpdateOp::Max",
                ScatterOp::Min => "tensor::IndexingUpdateOp::Min",
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
    // Python's remainder counts negative indices from the end.
    let indices = match cx.ty(0).and_then(|ty| ty.dims.get(axis)) {
        Some(size) if wrapped => match size.as_constant() {
            Some(size) => indices.then("remainder_scalar", vec![Expr::Scalar(Scalar::Int(size), DType::I64)]),
            None => indices.then("remainder_scalar", vec![Expr::Integer(size.clone())]),
        },
        _ => indices,
    };
    if cx.rank(1) == 1 {
        return Spelling::Expr(Expr::method(0, "select", vec![axis_expr(axis), indices]));
    }
    let generics = vec![cx.rank(1), cx.output().map_or(0, |ty| ty.rank())];
    Spelling::Expr(Expr::Operand(0).then_with("take", generics, vec![axis_expr(axis), indices]))
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
