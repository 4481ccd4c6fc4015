//! Linear layers from products with constant matrices.

use crate::ir::{Linear, Op, ValueId};
use crate::passes::movement::constant_as;
use crate::passes::{Rewrite, Rule};
use kiln_types::BinaryOp;

pub(in crate::passes) const RULE: Rule = Rule { apply };

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    match cx.op() {
        Op::MatMul => product(cx),
        Op::Binary(BinaryOp::Add) => bias(cx),
        _ => None,
    }
}

/// `x · weight`, where the weight is one matrix for all leading axes.
fn product(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let (x, weight) = (cx.input(0)?, cx.input(1)?);
    let shape = &cx.constant(weight)?.data.shape;
    let (lead, matrix) = shape.split_last_chunk::<2>()?;
    if lead.iter().any(|&size| size != 1) || cx.constant(x).is_some() {
        return None;
    }
    let matrix = matrix.to_vec();
    let weight = constant_as(cx, weight, matrix)?;
    cx.replace(Op::Linear(Linear { activation: None }), vec![Some(x), Some(weight)])?;
    Some("linear")
}

/// `linear(x) + bias`.
fn bias(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let constant = |id: ValueId| cx.constant(id).is_some();
    let (bias, y) = cx.commutative(cx.output()?, BinaryOp::Add, constant)?;
    let linear = cx.producer(y).filter(|_| cx.used_once(y))?.clone();
    if linear.op != (Op::Linear(Linear { activation: None }))
        || linear.inputs.get(2).copied().flatten().is_some()
    {
        return None;
    }
    let out = cx.ty(y).dims.last()?.as_size()?;
    let (last, lead) = cx.constant(bias)?.data.shape.split_last()?;
    if *last != out || lead.iter().any(|&size| size != 1) {
        return None;
    }
    let bias = constant_as(cx, bias, vec![out])?;
    let mut inputs = linear.inputs;
    inputs.truncate(2);
    inputs.push(Some(bias));
    cx.replace(Op::Linear(Linear { activation: None }), inputs)?;
    Some("bias of a linear layer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Dim, Linear, Origin, Reshape, ScopeEntry};
    use crate::passes::testing::{checked, constant, graph, single};
    use kiln_types::Activation;

    fn scope(paths: &[&str]) -> Origin {
        let scope = paths.iter().map(|p| ScopeEntry { path: (*p).into(), class: String::new() }).collect();
        Origin { scope, ..Origin::default() }
    }

    #[test]
    fn product_sum_and_activation_are_one_layer_in_its_scope() {
        let g = graph(&["f32[n, s, 2]"], |b, x| {
            b.origin = scope(&["", "mlp", "mlp.fc"]);
            let weight = constant(b, Some("mlp.fc.weight"), &[1, 2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
            let bias = constant(b, Some("mlp.fc.bias"), &[1, 1, 3], &[0.5, -20.0, 0.25]);
            let y = b.add(Op::MatMul, &[x[0], weight]).unwrap();
            let y = b.add(Op::Binary(BinaryOp::Add), &[bias, y]).unwrap();
            b.origin = scope(&["", "mlp"]);
            vec![b.add(Op::Activation(Activation::Relu), &[y]).unwrap()]
        });
        let g = checked(g, &[("n", 2), ("s", 3)]);
        let node = single(&g);
        assert_eq!(node.op, Op::Linear(Linear { activation: Some(Activation::Relu) }));
        assert_eq!(node.origin.scope.last().unwrap().path, "mlp.fc");
        let bias = g.constant(node.inputs[2].unwrap()).unwrap();
        assert_eq!((bias.name.as_deref(), &bias.data.shape[..]), (Some("mlp.fc.bias"), &[3][..]));
    }

    #[test]
    fn reshapes_around_a_layer_go() {
        let g = graph(&["f32[n, s, 2]"], |b, x| {
            let weight = constant(b, Some("w"), &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
            let rows = &Dim::symbol("n") * &Dim::symbol("s");
            let flat = b.add(Op::Reshape(Reshape { dims: vec![rows, 2.into()] }), &[x[0]]).unwrap();
            let y = b.add(Op::MatMul, &[flat, weight]).unwrap();
            let dims = vec![Dim::symbol("n"), Dim::symbol("s"), 3.into()];
            vec![b.add(Op::Reshape(Reshape { dims }), &[y]).unwrap()]
        });
        assert!(matches!(single(&checked(g, &[("n", 2), ("s", 3)])).op, Op::Linear(_)));
    }
}
