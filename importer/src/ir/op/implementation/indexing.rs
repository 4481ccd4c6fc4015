//! Operations with index tensors.

use super::Cx;
use crate::ir::{Arg, Config, Dim, Implementation, Layer, LayerField, Op};

pub(super) fn call(op: &Op, cx: &Cx<'_>) -> Implementation {
    match op {
        Op::Take { axis, wrapped } => take(*axis, *wrapped, cx),
        Op::Gather { axis } => {
            Implementation::Call(Arg::Operand(0).then("gather", [Arg::axis(*axis), Arg::Operand(1)]))
        }
        Op::Scatter { axis, op } => {
            let args = [Arg::axis(*axis), Arg::Operand(1), Arg::Operand(2), Arg::options(op)];
            Implementation::Call(Arg::Operand(0).then("scatter", args))
        }
        _ => Implementation::Call(Arg::Operand(0)),
    }
}

fn take(axis: usize, wrapped: bool, cx: &Cx<'_>) -> Implementation {
    let indices = Arg::Operand(1);
    if let Some(table) = embedding(axis, cx) {
        return Implementation::Layer(table);
    }
    if let Some(one) = one_index(axis, cx) {
        return Implementation::Call(one);
    }
    if cx.rank(1) == 1 && !wrapped {
        return Implementation::Call(Arg::Operand(0).then("select", [Arg::axis(axis), indices]));
    }
    let name = if wrapped { "take_wrapped" } else { "take" };
    let ranks = [Arg::Rank(cx.rank(1)), Arg::Rank(cx.output().map_or(0, |ty| ty.rank()))];
    let [of_indices, of_result] = ranks;
    Implementation::Call(Arg::Operand(0).then(name, [of_indices, of_result, Arg::axis(axis), indices]))
}

/// One known position: a slice whose axis goes away.
fn one_index(axis: usize, cx: &Cx<'_>) -> Option<Arg> {
    let Arg::Scalar(index, _) = cx.scalar(1, 0)? else { return None };
    let index = Dim::constant(index.to_i64());
    let size = cx.ty(0)?.dims.get(axis)?;
    let start = if index.as_size().is_some() { index } else { size + &index };
    let end = &start + &Dim::constant(1);
    let range = Arg::range(Arg::Size(start), Arg::Size(end));
    let sliced = Arg::Operand(0).then("slice_dim", [Arg::axis(axis), range]);
    Some(sliced.then("squeeze_dim", [Arg::Rank(cx.rank(0).checked_sub(1)?), Arg::axis(axis)]))
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
        config: Config::new(
            "nn::EmbeddingConfig::new",
            [Arg::named("n_embedding", rows), Arg::named("d_model", size)],
        ),
        fields: vec![("weight", LayerField::Parameter(weight))],
        method: "forward",
        args: vec![Arg::Operand(1)],
        function: Arg::call("tensor::module::embedding", [Arg::Operand(0), Arg::Operand(1)]),
    })
}
