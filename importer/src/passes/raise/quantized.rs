//! Linear layers of integers from products whose sums are scaled.

use crate::ir::{Cast, Op, QuantizedLinear, Reshape, ValueId};
use crate::passes::movement::constant_as;
use crate::passes::{Rewrite, Rule};
use kiln_types::{BinaryOp, DType};

pub(in crate::passes) const RULE: Rule = Rule { apply };

/// What sums are multiplied by: a constant, and perhaps a number that the input's scale is.
struct Factor {
    constant: ValueId,
    number: Option<ValueId>,
}

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    match cx.op() {
        Op::Binary(BinaryOp::Mul) => layer(cx),
        Op::QuantizedLinear(_) => of_floats(cx),
        _ => None,
    }
}

/// A layer that alone needs the integers of floats quantizes these itself.
fn of_floats(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let mut operands = cx.node().inputs.clone();
    let (op, quantized) = (cx.op().clone(), operands.first().copied().flatten()?);
    let node = cx.producer(quantized).filter(|node| node.op == Op::QuantizeDynamic)?;
    let &[bytes, scale, zero] = node.outputs.as_slice() else { return None };
    let own = operands.starts_with(&[Some(bytes), Some(zero), Some(scale)]);
    if !own || ![bytes, scale, zero].into_iter().all(|id| cx.used_once(id)) {
        return None;
    }
    let x = node.inputs.first().copied().flatten()?;
    operands.get_mut(..3)?.copy_from_slice(&[Some(x), None, None]);
    cx.replace(op, operands)?;
    Some("linear layer that quantizes its input")
}

/// `float(x · weight) · scale`, where the weight is one matrix for all leading axes.
fn layer(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let is_sum = |id: ValueId| sum(cx, id).is_some();
    let (sums, scale) = cx.commutative(cx.output()?, BinaryOp::Mul, is_sum)?;
    let product = sum(cx, sums)?;
    let &[Some(x), Some(weight), x_zero, weight_zero] = padded(product).as_slice() else { return None };
    let &[ref lead @ .., inputs, outputs] = cx.constant(weight)?.data.shape.as_slice() else { return None };
    if lead.iter().any(|&size| size != 1) || cx.constant(x).is_some() {
        return None;
    }
    let is_number = |id: ValueId| cx.ty(id).num_elements().is(1);
    if x_zero.is_some_and(|zero| !is_number(zero)) || cx.ty(cx.output()?).dims != cx.ty(sums).dims {
        return None;
    }
    let Factor { constant, number } = factor(cx, scale)?;
    // Scales of the last axis, or one for all.
    let scales = cx.constant(constant)?.data.num_elements();
    let along = |id: ValueId| cx.ty(id).dims.last().is_none_or(|last| last.is(scales as i64));
    if scales != 1 && (scales != outputs || !along(scale) || !along(constant)) {
        return None;
    }
    let weight_zero = match weight_zero {
        None => None,
        Some(zero) => {
            let zeros = cx.constant(zero)?.data.num_elements();
            cx.look(zeros)?;
            let is_none = cx.constant(zero)?.data.bytes.iter().all(|&byte| byte == 0);
            if zeros != scales && !is_none {
                return None;
            }
            if is_none { None } else { Some(constant_as(cx, zero, vec![zeros])?) }
        }
    };
    let weight = constant_as(cx, weight, vec![inputs, outputs])?;
    let scale = constant_as(cx, constant, vec![scales])?;
    let plain = |cx: &mut Rewrite<'_>, id: ValueId, dims: Vec<usize>| -> Option<ValueId> {
        if cx.constant(id).is_some() {
            return constant_as(cx, id, vec![1]);
        }
        if cx.ty(id).rank() == dims.len() {
            return Some(id);
        }
        cx.insert(Op::Reshape(Reshape { dims: Vec::new() }), &[id])
    };
    let x_zero = match x_zero {
        Some(zero) => Some(plain(cx, zero, Vec::new())?),
        None => None,
    };
    let number = match number {
        Some(number) => Some(plain(cx, number, Vec::new())?),
        None => None,
    };
    let operands = vec![Some(x), x_zero, number, Some(weight), weight_zero, Some(scale)];
    cx.replace(Op::QuantizedLinear(QuantizedLinear { activation: None }), operands)?;
    Some("linear layer of integers")
}

/// The operands of the product whose sums, as floats, a value is; nobody else needs them.
fn sum<'c>(cx: &'c Rewrite<'_>, id: ValueId) -> Option<&'c [Option<ValueId>]> {
    let floats = cx.producer(id).filter(|node| node.op == Op::Cast(Cast { to: DType::F32 }))?;
    let sums = floats.inputs.first().copied().flatten()?;
    let product = cx.producer(sums).filter(|node| node.op == Op::QuantizedMatMul)?;
    (cx.used_once(id) && cx.used_once(sums)).then_some(product.inputs.as_slice())
}

/// Operands of a product with those that are absent at its end.
fn padded(operands: &[Option<ValueId>]) -> Vec<Option<ValueId>> {
    operands.iter().copied().chain([None, None]).take(4).collect()
}

/// The parts of a scale: a constant, or one times a number that is known when the model runs.
fn factor(cx: &Rewrite<'_>, scale: ValueId) -> Option<Factor> {
    if cx.constant(scale).is_some() {
        return Some(Factor { constant: scale, number: None });
    }
    let is_constant = |id: ValueId| cx.constant(id).is_some();
    let (constant, number) = cx.commutative(reshaped(cx, scale), BinaryOp::Mul, is_constant)?;
    let number = reshaped(cx, number);
    let fits = cx.ty(number).num_elements().is(1) && cx.ty(number).dtype == DType::F32;
    fits.then_some(Factor { constant, number: Some(number) })
}

/// What a value is in other dims.
fn reshaped(cx: &Rewrite<'_>, mut id: ValueId) -> ValueId {
    while let Some(Some(before)) = cx
        .producer(id)
        .filter(|node| matches!(node.op, Op::Reshape(_)))
        .map(|node| node.inputs.first().copied().flatten())
    {
        id = before;
    }
    id
}

#[cfg(test)]
mod tests {
    use crate::ir::{Builder, Cast, Graph, Op, Origin, QuantizedLinear, Reshape, ScopeEntry, ValueId};
    use crate::passes::testing::{checked, constant, graph, kinds, single};
    use kiln_types::{Activation, BinaryOp, DType, TensorData};

    fn integers(b: &mut Builder<'_>, name: &str, shape: &[usize], dtype: DType) -> ValueId {
        let count: usize = shape.iter().product();
        let values: Vec<i64> = (0..count as i64).map(|n| n * 37 % 120 + 1).collect();
        b.graph.add_constant(Some(name.to_owned()), TensorData::new(values, shape).convert_dtype(dtype))
    }

    /// What a quantizer makes of `x · weight`, where a zero point and a scale are of so many columns.
    fn product(b: &mut Builder<'_>, quantized: &[ValueId], [zeros, scales]: [usize; 2]) -> ValueId {
        let dims = |count: usize| if count == 1 { vec![] } else { vec![1, count] };
        let (weight, scale) = ([4, 3], &[0.25, 0.5, 2.0][..scales]);
        let weight = integers(b, "fc.weight_quantized", &weight, DType::I8);
        let zero = integers(b, "zero", &dims(zeros), DType::I8);
        let &[bytes, own, shift] = quantized else { panic!("{quantized:?}") };
        let operands = [bytes, weight, shift, zero].map(Some);
        let sums = b.add_one(Op::QuantizedMatMul, operands.to_vec()).unwrap();
        let sums = b.add(Op::Cast(Cast { to: DType::F32 }), &[sums]).unwrap();
        let dims = if scales == 1 { vec![] } else { vec![scales] };
        let scale = constant(b, Some("scale"), &dims, scale);
        let scale = match scales {
            1 => b.add(Op::Binary(BinaryOp::Mul), &[own, scale]).unwrap(),
            _ => {
                let own = b.add(Op::Reshape(Reshape { dims: vec![1.into()] }), &[own]).unwrap();
                b.add(Op::Binary(BinaryOp::Mul), &[own, scale]).unwrap()
            }
        };
        let dims = vec![1.into(), scales.into()];
        let scale = b.add(Op::Reshape(Reshape { dims }), &[scale]).unwrap();
        b.add(Op::Binary(BinaryOp::Mul), &[sums, scale]).unwrap()
    }

    fn quantized(b: &mut Builder<'_>, x: ValueId) -> Vec<ValueId> {
        b.add_all(Op::QuantizeDynamic, vec![Some(x)]).unwrap()
    }

    fn layer(g: &Graph) -> &crate::ir::Node {
        let mut nodes = g.root.nodes.iter().map(|&id| g.node(id));
        nodes
            .find(|node| matches!(node.op, Op::QuantizedLinear(_)))
            .unwrap_or_else(|| panic!("{}", g.to_text()))
    }

    #[test]
    fn product_scale_bias_residual_and_activation_are_one_layer() {
        for columns in [1, 3] {
            let g = graph(&["f32[n, 4]", "f32[n, 3]"], |b, x| {
                let q = quantized(b, x[0]);
                let y = product(b, &q, [columns, columns]);
                b.origin = Origin {
                    scope: vec![ScopeEntry { path: "fc".into(), class: String::new() }],
                    ..Origin::default()
                };
                let bias = constant(b, Some("fc.bias"), &[1, 3], &[0.5, -20.0, 0.25]);
                let y = b.add(Op::Binary(BinaryOp::Add), &[bias, y]).unwrap();
                let y = b.add(Op::Binary(BinaryOp::Add), &[x[1], y]).unwrap();
                vec![b.add(Op::Activation(Activation::Relu), &[y]).unwrap()]
            });
            let g = checked(g, &[("n", 2)]);
            let node = single(&g);
            assert_eq!(node.op, Op::QuantizedLinear(QuantizedLinear { activation: Some(Activation::Relu) }));
            let shape = |n: usize| node.inputs[n].map(|id| g.ty(id).shape().unwrap());
            assert_eq!(node.inputs[..3], [Some(g.inputs[0]), None, None], "it quantizes its input");
            assert_eq!([shape(4), shape(5)], [Some(vec![columns]), Some(vec![columns])]);
            assert_eq!(node.inputs[7], Some(g.inputs[1]));
            // The product has no place of its own: that of its bias is the layer's.
            assert_eq!(node.origin.scope[0].path, "fc");
        }
    }

    #[test]
    fn integers_that_two_layers_need_are_made_once() {
        let g = graph(&["f32[n, 4]"], |b, x| {
            let q = quantized(b, x[0]);
            let left = product(b, &q, [1, 1]);
            vec![left, product(b, &q, [3, 3])]
        });
        let g = checked(g, &[("n", 2)]);
        assert_eq!(kinds(&g), ["QuantizeDynamic", "QuantizedLinear", "QuantizedLinear"]);
        assert_eq!(layer(&g).inputs[..3].iter().flatten().count(), 3);
    }

    #[test]
    fn a_zero_point_of_each_column_under_one_scale_stays_beside_the_product() {
        let g = graph(&["f32[n, 4]"], |b, x| {
            let q = quantized(b, x[0]);
            vec![product(b, &q, [3, 1])]
        });
        assert!(!kinds(&checked(g, &[("n", 2)])).iter().any(|kind| kind == "QuantizedLinear"));
    }

    #[test]
    fn sums_that_others_need_too_are_no_layer() {
        let g = graph(&["f32[n, 4]"], |b, x| {
            let q = quantized(b, x[0]);
            let weight = integers(b, "w", &[4, 3], DType::I8);
            let sums =
                b.add_one(Op::QuantizedMatMul, vec![Some(q[0]), Some(weight), Some(q[2]), None]).unwrap();
            let floats = b.add(Op::Cast(Cast { to: DType::F32 }), &[sums]).unwrap();
            let scale = constant(b, None, &[1, 3], &[0.25, 0.5, 2.0]);
            vec![b.add(Op::Binary(BinaryOp::Mul), &[floats, scale]).unwrap(), sums]
        });
        assert!(!kinds(&checked(g, &[("n", 2)])).iter().any(|kind| kind == "QuantizedLinear"));
    }
}
