//! Layers of integers from products and convolutions whose sums are scaled, and sums of what integers stand for.

use crate::ir::{Cast, LayerOperands, Op, Provenance, QuantizedConv, QuantizedLinear, Reshape, ValueId};
use crate::passes::movement::constant_as;
use crate::passes::{Rewrite, Rule};
use kiln_types::{Activation, BinaryOp, DType, TensorData};
use std::sync::Arc;

pub(in crate::passes) const RULE: Rule = Rule { apply };

/// What sums are multiplied by: a constant, and perhaps a number that the input's scale is.
struct Factor {
    constant: ValueId,
    number: Option<ValueId>,
}

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    match cx.op() {
        Op::Binary(BinaryOp::Mul) => layer(cx),
        Op::Binary(BinaryOp::Add) => bias(cx),
        Op::QuantizedLinear(_) | Op::QuantizedConv(_) => of_floats(cx),
        Op::Dequantize => fake_quantized(cx),
        Op::Quantize => requantized(cx).or_else(|| sum_of_integers(cx)),
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
    Some("layer that quantizes its input")
}

/// A layer whose floats alone are quantized yields the integers itself: its scale and its bias are in steps of these.
fn requantized(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let (y, step, zero) = (cx.input(0)?, cx.input(1), cx.input(2)?);
    // An activation becomes a part of the layer only later.
    let (y, relu) = match cx.activated(y) {
        Some((Activation::Relu, x)) if cx.used_once(y) => (x, Some(Activation::Relu)),
        Some(_) | None => (y, None),
    };
    let layer = cx.producer(y).filter(|_| cx.used_once(y))?.clone();
    let (op, activation) = match layer.op {
        Op::QuantizedLinear(QuantizedLinear { activation }) => {
            let activation = activation.or(relu);
            (Op::QuantizedLinear(QuantizedLinear { activation }), activation)
        }
        Op::QuantizedConv(QuantizedConv { options, activation }) => {
            let activation = activation.or(relu);
            (Op::QuantizedConv(QuantizedConv { options, activation }), activation)
        }
        _ => return None,
    };
    let mut operands = layer.inputs.clone();
    operands.resize(LayerOperands::OUTPUT_ZERO + 1, None);
    let absent = [LayerOperands::RESIDUAL, LayerOperands::X_SCALE, LayerOperands::OUTPUT_ZERO];
    let taken = absent.into_iter().any(|n| operands.get(n).is_none_or(Option::is_some));
    // Another activation's steps are not those of what it yields.
    if taken || activation.is_some_and(|activation| activation != Activation::Relu) {
        return None;
    }
    let held = [LayerOperands::SCALE, LayerOperands::BIAS].map(|n| operands.get(n).copied().flatten());
    let [Some(scale), bias] = held else { return None };
    if cx.constant(zero).is_none() || cx.ty(scale).dtype != DType::F32 {
        return None;
    }
    let step = match step {
        Some(step) => numbers(cx, step)?.first().copied()?,
        None => 1.0,
    };
    let scales = numbers(cx, scale)?;
    let biases = match bias {
        Some(bias) => Some(numbers(cx, bias)?),
        None => None,
    };
    let of_channel = |channel: usize| scales.get(channel % scales.len().max(1)).copied();
    // A bias that was quantized under the sums' scale is one of these again.
    let whole = biases.as_ref().and_then(|biases| {
        let whole = |(channel, &bias): (usize, &f32)| whole_number(bias, of_channel(channel)?);
        biases.iter().enumerate().map(whole).collect::<Option<Vec<i32>>>()
    });
    if whole.is_some() && operands.get(LayerOperands::INTEGER_BIAS)?.is_some() {
        return None;
    }
    let stepped = |numbers: &[f32]| numbers.iter().map(|number| number / step).collect::<Vec<f32>>();
    if step != 1.0 {
        *operands.get_mut(LayerOperands::SCALE)? = Some(remade(cx, scale, floats(stepped(&scales)))?);
    }
    match (bias, whole, biases) {
        (Some(bias), Some(whole), _) => {
            let count = whole.len();
            let whole = remade(cx, bias, TensorData::new(whole, [count]))?;
            *operands.get_mut(LayerOperands::BIAS)? = None;
            *operands.get_mut(LayerOperands::INTEGER_BIAS)? = Some(whole);
        }
        (Some(bias), None, Some(biases)) if step != 1.0 => {
            let biases = remade(cx, bias, floats(stepped(&biases)))?;
            *operands.get_mut(LayerOperands::BIAS)? = Some(biases);
        }
        _ => {}
    }
    *operands.get_mut(LayerOperands::OUTPUT_ZERO)? = Some(zero);
    cx.replace_as(op, operands, Some(layer.origin))?;
    Some("layer that yields integers")
}

/// `dequantize(quantize(x))`, by the same numbers.
fn fake_quantized(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let (q, scale, zero) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let node = cx.producer(q).filter(|node| node.op == Op::Quantize && cx.used_once(q))?;
    let &[Some(x), Some(own_scale), Some(own_zero)] = node.inputs.as_slice() else { return None };
    if cx.ty(x).dtype != cx.ty(scale).dtype {
        return None;
    }
    let same = |a: ValueId, b: ValueId| {
        let (a, b) = (&cx.constant(a)?.data, &cx.constant(b)?.data);
        (a.dtype == b.dtype && a.bytes == b.bytes).then_some(())
    };
    same(scale, own_scale)?;
    same(zero, own_zero)?;
    cx.replace(Op::FakeQuantize, vec![Some(x), Some(scale), Some(zero)])?;
    Some("integers that only stand for numbers")
}

/// How many steps of a scale a number is, if that is whole but for what rounding to f32 leaves.
fn whole_number(number: f32, scale: f32) -> Option<i32> {
    let (number, scale) = (f64::from(number), f64::from(scale));
    let whole = (number / scale).round();
    let fits = whole.is_finite() && whole.abs() <= f64::from(i32::MAX);
    (fits && (whole * scale - number).abs() <= number.abs() * 4.0 * f64::from(f32::EPSILON))
        .then_some(whole as i32)
}

/// Numbers of a constant in f32.
fn numbers(cx: &Rewrite<'_>, id: ValueId) -> Option<Vec<f32>> {
    let data = &cx.constant(id)?.data;
    cx.look(data.num_elements())?;
    data.to_vec().ok()
}

fn floats(numbers: Vec<f32>) -> TensorData {
    let count = numbers.len();
    TensorData::new(numbers, [count])
}

/// What a quantizer's numbers were made into, in place of one of them.
fn remade(cx: &mut Rewrite<'_>, of: ValueId, data: TensorData) -> Option<ValueId> {
    cx.remake(&data)?;
    let name = cx.constant(of)?.name.clone();
    let made = Provenance::Exporter { name: name.clone().unwrap_or_default(), keys: Vec::new() };
    Some(cx.add_derived(name, data, Some(Arc::new(made))))
}

/// `quantize(dequantize(a) + dequantize(b))`, of integers of one dtype.
fn sum_of_integers(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let (y, scale, zero) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (a, b) = cx.binary(y, BinaryOp::Add).filter(|_| cx.used_once(y))?;
    let origin = cx.producer(y)?.origin.clone();
    let side = |id: ValueId| {
        let node = cx.producer(id).filter(|node| node.op == Op::Dequantize)?;
        let &[Some(q), Some(scale), Some(zero)] = node.inputs.as_slice() else { return None };
        let number = |id: ValueId| f32_number(&cx.constant(id)?.data);
        Some((q, number(scale)?, number(zero)?))
    };
    let ((a, a_scale, a_zero), (b, b_scale, b_zero)) = (side(a)?, side(b)?);
    let dtype = cx.ty(cx.output()?).dtype;
    if cx.ty(a).dtype != dtype || cx.ty(b).dtype != dtype {
        return None;
    }
    let [y_scale, y_zero] = [scale, zero].map(|id| f32_number(&cx.constant(id)?.data));
    let (y_scale, y_zero) = (y_scale?, y_zero?);
    let steps = [a_scale / y_scale, b_scale / y_scale];
    let offset = y_zero - (steps[0] * a_zero + steps[1] * b_zero);
    let mut operands = vec![Some(a), Some(b)];
    for number in [steps[0], steps[1], offset] {
        operands.push(Some(remade(cx, scale, floats(vec![number]))?));
    }
    cx.replace_as(Op::QuantizedAdd, operands, Some(origin))?;
    Some("sum of integers")
}

/// The number that a constant is.
fn f32_number(data: &TensorData) -> Option<f32> {
    let numbers = data.clone().convert_dtype(DType::F32).to_vec::<f32>().ok()?;
    <[f32; 1]>::try_from(numbers).ok().map(|[number]| number)
}

/// `layer(x) + bias`, of a convolution of integers.
fn bias(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let constant = |id: ValueId| cx.constant(id).is_some();
    let (bias, y) = cx.commutative(cx.output()?, BinaryOp::Add, constant)?;
    let conv = cx
        .producer(y)
        .filter(|node| matches!(node.op, Op::QuantizedConv(QuantizedConv { activation: None, .. })))?;
    let mut operands = conv.inputs.clone();
    if operands.iter().skip(LayerOperands::BIAS).take(2).any(Option::is_some) || !cx.used_once(y) {
        return None;
    }
    let yields_integers = operands.get(LayerOperands::OUTPUT_ZERO).copied().flatten().is_some();
    let channels = along_channels(cx, bias, y)?;
    if yields_integers || cx.ty(cx.output()?).dims != cx.ty(y).dims {
        return None;
    }
    let op = conv.op.clone();
    let bias = constant_as(cx, bias, vec![channels])?;
    operands.resize(operands.len().max(LayerOperands::BIAS + 1), None);
    *operands.get_mut(LayerOperands::BIAS)? = Some(bias);
    cx.replace(op, operands)?;
    Some("bias of a convolution of integers")
}

/// How many channels an image has for each of which a constant has one number.
fn along_channels(cx: &Rewrite<'_>, constant: ValueId, image: ValueId) -> Option<usize> {
    let (shape, dims) = (&cx.constant(constant)?.data.shape, &cx.ty(image).dims);
    let channels = dims.get(1)?.as_size()?;
    let behind = shape.len().checked_sub(dims.len().checked_sub(1)?)?;
    let (lead, rest) = shape.split_at_checked(behind)?;
    let (&first, rest) = rest.split_first()?;
    let ones = lead.iter().chain(rest).all(|&size| size == 1);
    (ones && first == channels).then_some(channels)
}

/// What a sum is of: a product or a convolution.
struct SumOf {
    op: Op,
    operands: Vec<Option<ValueId>>,
    integer_bias: Option<ValueId>,
}

/// `float(sums) · scale`, where the weight of a product is one matrix for all leading axes.
fn layer(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let is_sum = |id: ValueId| sum(cx, id).is_some();
    let (sums, scale) = cx.commutative(cx.output()?, BinaryOp::Mul, is_sum)?;
    let SumOf { op, operands, integer_bias } = sum(cx, sums)?;
    let [Some(x), Some(weight), x_zero, weight_zero] = operands[..] else { return None };
    let shape = cx.constant(weight)?.data.shape.clone();
    let is_conv = matches!(op, Op::ConvInteger(_));
    let (outputs, shape) = match *shape.as_slice() {
        [outputs, ..] if is_conv => (outputs, shape),
        [ref lead @ .., inputs, outputs] if !is_conv && lead.iter().all(|&size| size == 1) => {
            (outputs, vec![inputs, outputs])
        }
        _ => return None,
    };
    let is_number = |id: ValueId| cx.ty(id).num_elements().is(1);
    let same = cx.ty(cx.output()?).dims == cx.ty(sums).dims;
    if cx.constant(x).is_some() || x_zero.is_some_and(|zero| !is_number(zero)) || !same {
        return None;
    }
    let Factor { constant, number } = factor(cx, scale)?;
    // Scales of the outputs' axis, or one for all.
    let scales = cx.constant(constant)?.data.num_elements();
    let along = |id: ValueId| match is_conv {
        true => cx.ty(id).dims.get(1).or(cx.ty(id).dims.first()).is_none_or(|dim| dim.is(scales as i64)),
        false => cx.ty(id).dims.last().is_none_or(|last| last.is(scales as i64)),
    };
    let fits = match is_conv {
        true => along_channels(cx, constant, sums) == Some(outputs),
        false => scales == outputs && along(scale) && along(constant),
    };
    if scales != 1 && !fits {
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
    let integer_bias = match integer_bias {
        None => None,
        Some(bias) => Some(constant_as(cx, bias, vec![outputs])?),
    };
    let weight = constant_as(cx, weight, shape)?;
    let scale = constant_as(cx, constant, vec![scales])?;
    let plain = |cx: &mut Rewrite<'_>, id: ValueId| -> Option<ValueId> {
        if cx.constant(id).is_some() {
            return constant_as(cx, id, vec![1]);
        }
        if cx.ty(id).rank() == 0 {
            return Some(id);
        }
        cx.insert(Op::Reshape(Reshape { dims: Vec::new() }), &[id])
    };
    let x_zero = match x_zero {
        Some(zero) => Some(plain(cx, zero)?),
        None => None,
    };
    let number = match number {
        Some(number) => Some(plain(cx, number)?),
        None => None,
    };
    let mut operands = vec![Some(x), x_zero, number, Some(weight), weight_zero, Some(scale)];
    if integer_bias.is_some() {
        operands.resize(LayerOperands::INTEGER_BIAS, None);
        operands.push(integer_bias);
    }
    let (op, what) = match op {
        Op::ConvInteger(conv) => {
            let conv = QuantizedConv { options: conv.options, activation: None };
            (Op::QuantizedConv(conv), "convolution of integers")
        }
        _ => (Op::QuantizedLinear(QuantizedLinear { activation: None }), "linear layer of integers"),
    };
    cx.replace(op, operands)?;
    Some(what)
}

/// What the sums, as floats, are of that a value is; nobody else needs them.
fn sum(cx: &Rewrite<'_>, id: ValueId) -> Option<SumOf> {
    let floats = cx.producer(id).filter(|node| node.op == Op::Cast(Cast { to: DType::F32 }))?;
    let sums = floats.inputs.first().copied().flatten()?;
    if !cx.used_once(id) || !cx.used_once(sums) {
        return None;
    }
    let constant = |id: ValueId| cx.constant(id).is_some();
    let (product, integer_bias) = match cx.commutative(sums, BinaryOp::Add, constant) {
        Some((bias, product)) if cx.used_once(product) && cx.ty(product).dims == cx.ty(sums).dims => {
            (product, Some(bias))
        }
        _ => (sums, None),
    };
    let node = cx.producer(product)?;
    let is_conv = match node.op {
        Op::MatMulInteger => false,
        Op::ConvInteger(_) => true,
        _ => return None,
    };
    if let Some(bias) = integer_bias {
        let outputs = match is_conv {
            true => along_channels(cx, bias, product),
            false => {
                let (last, lead) = cx.constant(bias)?.data.shape.split_last()?;
                let fits = lead.iter().all(|&size| size == 1) && cx.ty(product).dims.last()?.is(*last as i64);
                fits.then_some(*last)
            }
        };
        outputs?;
    }
    // Those that are absent are at the end.
    let operands = node.inputs.iter().copied().chain([None, None]).take(4).collect();
    Some(SumOf { op: node.op.clone(), operands, integer_bias })
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
    use crate::ir::{
        Builder, Cast, ConvInteger, Graph, LayerOperands, Op, Origin, QuantizedConv, QuantizedLinear,
        Reshape, ScopeEntry, ValueId,
    };
    use crate::passes::testing::{checked, constant, graph, kinds, single};
    use kiln_types::{Activation, BinaryOp, ConvOptions, DType, TensorData};

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
        let sums = b.add_one(Op::MatMulInteger, operands.to_vec()).unwrap();
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
                b.add_one(Op::MatMulInteger, vec![Some(q[0]), Some(weight), Some(q[2]), None]).unwrap();
            let floats = b.add(Op::Cast(Cast { to: DType::F32 }), &[sums]).unwrap();
            let scale = constant(b, None, &[1, 3], &[0.25, 0.5, 2.0]);
            vec![b.add(Op::Binary(BinaryOp::Mul), &[floats, scale]).unwrap(), sums]
        });
        assert!(!kinds(&checked(g, &[("n", 2)])).iter().any(|kind| kind == "QuantizedLinear"));
    }

    /// `float(sums) · scale` of a convolution with two channels in and three out, as ONNX Runtime's quantizer writes it.
    fn convolution(b: &mut Builder<'_>, x: ValueId, integer_bias: bool) -> ValueId {
        let weight = integers(b, "conv.weight_quantized", &[3, 2, 3, 3], DType::I8);
        let zero = integers(b, "x_zero", &[], DType::U8);
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        let operands = vec![Some(x), Some(weight), Some(zero), None];
        let mut sums = b.add_one(Op::ConvInteger(ConvInteger { options }), operands).unwrap();
        if integer_bias {
            let bias = integers(b, "conv.bias_quantized", &[1, 3, 1, 1], DType::I32);
            sums = b.add(Op::Binary(BinaryOp::Add), &[sums, bias]).unwrap();
        }
        let sums = b.add(Op::Cast(Cast { to: DType::F32 }), &[sums]).unwrap();
        let scale = constant(b, Some("scale"), &[1, 3, 1, 1], &[0.25, 0.5, 2.0]);
        b.add(Op::Binary(BinaryOp::Mul), &[sums, scale]).unwrap()
    }

    fn numbers(b: &mut Builder<'_>, scale: f32, zero: u8) -> [ValueId; 2] {
        let scale = constant(b, Some("scale"), &[1], &[scale]);
        [scale, b.graph.add_constant(None, TensorData::new(vec![zero], [1]))]
    }

    const IMAGE: &[&str] = &["u8[n, 2, 5, 4]", "f32[n, 3, 5, 4]"];

    #[test]
    fn a_convolution_with_bias_residual_and_activation_is_one_layer() {
        let g = graph(IMAGE, |b, x| {
            let y = convolution(b, x[0], false);
            let bias = constant(b, Some("conv.bias"), &[1, 3, 1, 1], &[0.5, -20.0, 0.25]);
            let y = b.add(Op::Binary(BinaryOp::Add), &[y, bias]).unwrap();
            let y = b.add(Op::Binary(BinaryOp::Add), &[y, x[1]]).unwrap();
            vec![b.add(Op::Activation(Activation::Relu), &[y]).unwrap()]
        });
        let g = checked(g, &[("n", 2)]);
        let node = single(&g);
        assert!(matches!(
            node.op,
            Op::QuantizedConv(QuantizedConv { activation: Some(Activation::Relu), .. })
        ));
        assert!(node.inputs[LayerOperands::BIAS].is_some());
        assert_eq!(node.inputs[LayerOperands::RESIDUAL], Some(g.inputs[1]));
    }

    #[test]
    fn a_layer_whose_result_alone_is_quantized_yields_the_integers() {
        for relu in [false, true] {
            let g = graph(IMAGE, |b, x| {
                let mut y = convolution(b, x[0], true);
                if relu {
                    y = b.add(Op::Activation(Activation::Relu), &[y]).unwrap();
                }
                let [scale, zero] = numbers(b, 4.0, 7);
                vec![b.add(Op::Quantize, &[y, scale, zero]).unwrap()]
            });
            let g = checked(g, &[("n", 2)]);
            let node = single(&g);
            assert!(matches!(&node.op, Op::QuantizedConv(conv) if conv.activation.is_some() == relu));
            let scale = g.constant(node.inputs[LayerOperands::SCALE].unwrap()).unwrap();
            assert_eq!(scale.data.to_vec::<f32>().unwrap(), [0.0625, 0.125, 0.5]);
            assert!(node.inputs[LayerOperands::INTEGER_BIAS].is_some());
        }
        // Others need the numbers, or what becomes of them is not in proportion to the steps.
        let kinds_of = |others: bool| {
            let g = graph(IMAGE, |b, x| {
                let mut y = convolution(b, x[0], true);
                if !others {
                    y = b.add(Op::Activation(Activation::Sigmoid), &[y]).unwrap();
                }
                let [scale, zero] = numbers(b, 4.0, 7);
                let q = b.add(Op::Quantize, &[y, scale, zero]).unwrap();
                if others { vec![q, y] } else { vec![q] }
            });
            kinds(&checked(g, &[("n", 2)]))
        };
        for others in [false, true] {
            let kinds = kinds_of(others);
            assert!(kinds.contains(&"Quantize".to_owned()), "{kinds:?}");
        }
    }

    #[test]
    fn a_bias_that_was_quantized_is_integers_again() {
        for (bias, whole) in [([0.75f32, -20.0, 6.0], true), ([0.7, -20.0, 6.0], false)] {
            let g = graph(IMAGE, |b, x| {
                let y = convolution(b, x[0], false);
                let bias = constant(b, Some("conv.bias"), &[1, 3, 1, 1], &bias);
                let y = b.add(Op::Binary(BinaryOp::Add), &[y, bias]).unwrap();
                let [scale, zero] = numbers(b, 4.0, 7);
                vec![b.add(Op::Quantize, &[y, scale, zero]).unwrap()]
            });
            let g = checked(g, &[("n", 2)]);
            let node = single(&g);
            let integers = node.inputs[LayerOperands::INTEGER_BIAS].and_then(|id| g.constant(id));
            let integers = integers.map(|bias| bias.data.to_vec::<i32>().unwrap());
            assert_eq!(integers, whole.then(|| vec![3, -40, 3]));
            assert_eq!(node.inputs[LayerOperands::BIAS].is_some(), !whole);
        }
    }

    #[test]
    fn a_sum_of_what_integers_stand_for_is_one_of_integers() {
        let sum = |other: &str| {
            let g = graph(&["u8[n, 3]", other], |b, x| {
                let sides = [0, 1].map(|n| {
                    let scale = constant(b, Some("scale"), &[1], &[0.5 + n as f32]);
                    let dtype = b.graph.ty(x[n]).dtype;
                    let zero = TensorData::new(vec![3i64], [1]).convert_dtype(dtype);
                    let zero = b.graph.add_constant(None, zero);
                    b.add(Op::Dequantize, &[x[n], scale, zero]).unwrap()
                });
                let y = b.add(Op::Binary(BinaryOp::Add), &sides).unwrap();
                // Halves go to even integers, of which an odd zero point would make odd ones.
                let [scale, zero] = numbers(b, 2.0, 8);
                vec![b.add(Op::Quantize, &[y, scale, zero]).unwrap()]
            });
            checked(g, &[("n", 2)])
        };
        let g = sum("u8[n, 3]");
        let node = single(&g);
        assert_eq!(node.op, Op::QuantizedAdd);
        let number = |n: usize| g.constant(node.inputs[n].unwrap()).unwrap().data.to_vec::<f32>().unwrap()[0];
        assert_eq!([number(2), number(3), number(4)], [0.25, 0.75, 8.0 - 3.0]);
        assert!(!kinds(&sum("i8[n, 3]")).contains(&"QuantizedAdd".to_owned()), "they are of one dtype");
    }

    #[test]
    fn integers_that_only_stand_for_numbers_are_none() {
        let around = |other: f32| {
            let g = graph(&["f32[n, 3]"], |b, x| {
                let [scale, zero] = numbers(b, 0.5, 3);
                let q = b.add(Op::Quantize, &[x[0], scale, zero]).unwrap();
                let [scale, zero] = numbers(b, other, 3);
                vec![b.add(Op::Dequantize, &[q, scale, zero]).unwrap()]
            });
            kinds(&checked(g, &[("n", 2)]))
        };
        assert_eq!(around(0.5), ["FakeQuantize"]);
        assert_eq!(around(0.25), ["Quantize", "Dequantize"]);
    }
}
