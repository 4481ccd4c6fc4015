//! Sums that a convolution, or a layer of integers, adds its result to on its way out.

use super::{Rewrite, Rule};
use crate::ir::{Conv, LayerOperands, Node, Op, QuantizedConv, QuantizedLinear, ValueId};
use kiln_types::BinaryOp;

pub(super) const RULE: Rule = Rule { apply };

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let (a, b) = cx.binary(cx.output()?, BinaryOp::Add)?;
    if cx.ty(a).dims != cx.ty(b).dims || !cx.ty(a).dtype.is_float() || a == b {
        return None;
    }
    // Of two layers the later one: what it adds to is there by then.
    let (layer, residual) = match (layer(cx, a), layer(cx, b)) {
        (Some(of_a), Some(of_b)) if of_a.outputs > of_b.outputs => (of_a, b),
        (_, Some(of_b)) => (of_b, a),
        (Some(of_a), None) => (of_a, b),
        (None, None) => return None,
    };
    let (layer, mut inputs) = (layer.clone(), layer.inputs.clone());
    let place = place(&layer.op)?;
    inputs.resize(inputs.len().max(place + 1), None);
    *inputs.get_mut(place)? = Some(residual);
    cx.replace_as(layer.op, inputs, Some(layer.origin))?;
    Some("residual into its layer")
}

/// The layer that computes a value nobody else uses, if it can add to it.
fn layer<'c>(cx: &'c Rewrite<'_>, id: ValueId) -> Option<&'c Node> {
    let node = cx.producer(id).filter(|_| cx.used_once(id))?;
    let has = |n: usize| node.inputs.get(n).copied().flatten().is_some();
    let is_of_integers = matches!(node.op, Op::QuantizedLinear(_) | Op::QuantizedConv(_));
    let yields_integers = is_of_integers && has(LayerOperands::OUTPUT_ZERO);
    (!has(place(&node.op)?) && !yields_integers).then_some(node)
}

/// Where a residual stands among the operands of a layer.
fn place(op: &Op) -> Option<usize> {
    match op {
        Op::Conv(Conv { activation: None, .. }) => Some(3),
        Op::QuantizedLinear(QuantizedLinear { activation: None })
        | Op::QuantizedConv(QuantizedConv { activation: None, .. }) => Some(LayerOperands::RESIDUAL),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Builder;
    use crate::passes::testing::{checked, constant, graph, kinds};
    use kiln_types::{Activation, ConvOptions};

    fn conv(b: &mut Builder<'_>, x: ValueId, name: &str) -> ValueId {
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        let weight = constant(b, Some(name), &[4, 4, 3, 3], &[0.1; 144]);
        b.add(Op::Conv(Conv { options, activation: None }), &[x, weight]).unwrap()
    }

    fn sum(b: &mut Builder<'_>, lhs: ValueId, rhs: ValueId) -> ValueId {
        let y = b.add(Op::Binary(BinaryOp::Add), &[lhs, rhs]).unwrap();
        b.add(Op::Activation(Activation::Relu), &[y]).unwrap()
    }

    #[test]
    fn a_block_is_its_convolutions() {
        for swapped in [false, true] {
            let g = graph(&["f32[n, 4, 5, 5]"], |b, x| {
                let y = conv(b, x[0], "weight");
                vec![if swapped { sum(b, x[0], y) } else { sum(b, y, x[0]) }]
            });
            let g = checked(g, &[("n", 2)]);
            assert_eq!(kinds(&g), ["Conv"]);
            let node = g.node(g.root.nodes[0]);
            assert_eq!(node.inputs[3], node.inputs[0]);
            assert!(matches!(node.op, Op::Conv(Conv { activation: Some(Activation::Relu), .. })));
        }
    }

    #[test]
    fn of_two_convolutions_the_later_one_adds() {
        let g = graph(&["f32[n, 4, 5, 5]", "f32[n, 4, 5, 5]"], |b, x| {
            let (first, second) = (conv(b, x[0], "first"), conv(b, x[1], "second"));
            vec![sum(b, second, first)]
        });
        let g = checked(g, &[("n", 2)]);
        assert_eq!(kinds(&g), ["Conv", "Conv"]);
        let last = g.node(g.root.nodes[1]);
        let name = last.inputs[1].and_then(|weight| g.constant(weight)?.name.clone());
        assert_eq!(name.as_deref(), Some("second"));
    }

    #[test]
    fn what_broadcasts_or_is_needed_elsewhere_stays() {
        let g = graph(&["f32[n, 4, 5, 5]", "f32[n, 4, 1, 1]"], |b, x| {
            let y = conv(b, x[0], "weight");
            vec![sum(b, y, x[1])]
        });
        assert_eq!(kinds(&checked(g, &[("n", 2)])), ["Conv", "Binary(Add)", "Activation"]);
        let g = graph(&["f32[n, 4, 5, 5]"], |b, x| {
            let y = conv(b, x[0], "weight");
            vec![sum(b, y, x[0]), y]
        });
        assert_eq!(kinds(&checked(g, &[("n", 2)])), ["Conv", "Binary(Add)", "Activation"]);
    }
}
