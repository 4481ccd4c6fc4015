//! Linear layers from products with constant matrices.

use crate::ir::{Dim, LayerOperands, Linear, Node, Op, QuantizedLinear, ValueId};
use crate::passes::movement::constant_as;
use crate::passes::{Rewrite, Rule};
use kiln_types::BinaryOp;

pub(in crate::passes) const RULE: Rule = Rule { apply };

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    match cx.op() {
        Op::MatMul => product(cx),
        Op::Binary(BinaryOp::Add) => bias(cx).or_else(|| bias_of_parts(cx)),
        _ => None,
    }
}

/// `x · weight`, where the weight is one matrix for all leading axes, spread along those that `x` has or not.
fn product(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let (x, weight) = (cx.input(0)?, cx.input(1)?);
    let lead = |id: ValueId| cx.ty(id).dims.split_last_chunk::<2>().map(|(lead, _)| lead);
    let spread =
        cx.producer(weight).filter(|node| matches!(node.op, Op::Expand(_)) && lead(x) == lead(weight));
    let weight = match spread {
        Some(node) => {
            let few = node.inputs.first().copied().flatten()?;
            let matrix = |id: ValueId| cx.ty(id).dims.split_last_chunk::<2>().map(|(_, matrix)| matrix);
            if matrix(few)? != matrix(weight)? {
                return None;
            }
            few
        }
        None => weight,
    };
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

/// The operands of a linear layer that has room for a bias, all that stand before it.
fn without_bias(layer: &Node) -> Option<Vec<Option<ValueId>>> {
    let at = match layer.op {
        Op::Linear(Linear { activation: None }) => 2,
        Op::QuantizedLinear(QuantizedLinear { activation: None }) => LayerOperands::BIAS,
        _ => return None,
    };
    let mut operands = layer.inputs.clone();
    if operands.iter().skip(at).any(Option::is_some) {
        return None;
    }
    operands.resize(at, None);
    Some(operands)
}

/// `linear(x) + bias`.
fn bias(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let constant = |id: ValueId| cx.constant(id).is_some();
    let (bias, y) = cx.commutative(cx.output()?, BinaryOp::Add, constant)?;
    let linear = cx.producer(y).filter(|_| cx.used_once(y))?.clone();
    let mut inputs = without_bias(&linear)?;
    let out = cx.ty(y).dims.last()?.as_size()?;
    let (last, lead) = cx.constant(bias)?.data.shape.split_last()?;
    if *last != out || lead.iter().any(|&size| size != 1) {
        return None;
    }
    let bias = constant_as(cx, bias, vec![out])?;
    inputs.push(Some(bias));
    cx.replace(linear.op, inputs)?;
    Some("bias of a linear layer")
}

/// `reshape(linear(x)) + bias`, where what the layer yields is split into parts, as an attention's heads, and so is the bias.
fn bias_of_parts(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let constant = |id: ValueId| cx.constant(id).is_some();
    let (bias, y) = cx.commutative(cx.output()?, BinaryOp::Add, constant)?;
    let split = cx.producer(y).filter(|node| matches!(node.op, Op::Reshape(_)) && cx.used_once(y))?.clone();
    let x = split.inputs.first().copied().flatten()?;
    let linear = cx.producer(x).filter(|_| cx.used_once(x))?.clone();
    let mut inputs = without_bias(&linear)?;
    let out = cx.ty(x).dims.last()?.as_size()?;
    let dims = &cx.ty(y).dims;
    // The last axes that the layer's are split into.
    let parts = (1..dims.len()).find_map(|count| {
        let parts =
            dims.get(dims.len() - count..)?.iter().map(Dim::as_size).collect::<Option<Vec<usize>>>()?;
        (parts.iter().try_fold(1usize, |all, &part| all.checked_mul(part)) == Some(out)).then_some(parts)
    })?;
    let shape = &cx.constant(bias)?.data.shape;
    let ones = shape.len().checked_sub(parts.len())?;
    let per_part = shape.ends_with(&parts) && shape.iter().take(ones).all(|&size| size == 1);
    if !per_part || cx.ty(cx.output()?).dims != *dims {
        return None;
    }
    let bias = constant_as(cx, bias, vec![out])?;
    inputs.push(Some(bias));
    // A product of unknown place belongs where its bias does.
    let origin = if linear.origin.scope.is_empty() { cx.node().origin.clone() } else { linear.origin };
    let biased = cx.insert_optional_as(linear.op, inputs, origin)?;
    cx.replace(split.op, vec![Some(biased)])?;
    Some("bias of a linear layer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Expand, Origin, Reshape, ScopeEntry};
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
    fn a_weight_that_is_spread_along_the_batch_is_one_matrix() {
        let g = graph(&["f32[n, s, 2]"], |b, x| {
            let weight = constant(b, Some("w"), &[1, 2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
            let dims = vec![Dim::symbol("n"), 2.into(), 3.into()];
            let weight = b.add(Op::Expand(Expand { dims }), &[weight]).unwrap();
            vec![b.add(Op::MatMul, &[x[0], weight]).unwrap()]
        });
        let g = checked(g, &[("n", 2), ("s", 3)]);
        assert_eq!(single(&g).op, Op::Linear(Linear { activation: None }));
    }

    #[test]
    fn a_bias_behind_the_split_into_heads_is_the_layers() {
        let g = graph(&["f32[n, s, 2]"], |b, x| {
            let numbers: Vec<f32> = (0..8u8).map(|n| f32::from(n) - 3.5).collect();
            let weight = constant(b, Some("w"), &[1, 2, 4], &numbers);
            let bias = constant(b, Some("b"), &[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
            let y = b.add(Op::MatMul, &[x[0], weight]).unwrap();
            let dims = vec![Dim::symbol("n"), Dim::symbol("s"), 2.into(), 2.into()];
            let y = b.add(Op::Reshape(Reshape { dims }), &[y]).unwrap();
            vec![b.add(Op::Binary(BinaryOp::Add), &[y, bias]).unwrap()]
        });
        let g = checked(g, &[("n", 2), ("s", 3)]);
        let [layer, _] = g.root.nodes[..] else { panic!("{}", g.to_text()) };
        assert_eq!(g.node(layer).inputs.len(), 3);
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
