//! Batch normalization, and products and sums with one number a channel, into the layer before them.

use super::movement::constant_as;
use super::{Rewrite, Rule};
use crate::data::{Elements, Strided};
use crate::ir::{
    BatchNorm, Channels, Constant, Conv, Expand, Linear, Node, Norm, Op, Provenance, Reshape, ValueId,
};
use kiln_types::{BinaryOp, DType, TensorData};
use std::sync::Arc;

pub(super) const RULE: Rule = Rule { apply };

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    match cx.op().clone() {
        Op::BatchNorm(BatchNorm { epsilon, .. }) if !cx.options.trainable => {
            let (node, y) = (cx.node().clone(), cx.input(0)?);
            batch_norm(cx, &node, y, epsilon)
        }
        Op::Cast(_) if !cx.options.trainable => wide_batch_norm(cx),
        Op::Binary(op @ (BinaryOp::Mul | BinaryOp::Add | BinaryOp::Sub)) => channel_constant(cx, op),
        _ => None,
    }
}

/// A layer that computes sums of products over its input: `y = w x + b`.
struct Layer {
    node: Node,
    /// Number of channels it yields.
    channels: usize,
    /// Axis of the channels in its result.
    axis: usize,
    /// Where the channels are in its weight.
    places: Channels,
    weight: Constant,
    bias: Option<Constant>,
    bias_name: Option<String>,
}

/// One number a channel, known while the model is compiled.
#[derive(Clone)]
pub(super) struct Numbers {
    values: Vec<f64>,
    /// How they are made of parameters; of a literal where they are not.
    provenance: Arc<Provenance>,
    /// Whether they are made of parameters at all.
    derived: bool,
}

/// The layer that computes a value nobody else uses.
fn layer(cx: &Rewrite<'_>, id: ValueId) -> Option<Layer> {
    let node = cx.producer(id).filter(|_| cx.used_once(id))?;
    let weight_id = node.inputs.get(1).copied().flatten()?;
    let bias_id = node.inputs.get(2).copied().flatten();
    let weight = cx.constant(weight_id).filter(|weight| weight.data.dtype.is_float())?;
    let shape = &weight.data.shape;
    let (channels, axis, places) = match &node.op {
        // What is added to a convolution's result would be scaled with it.
        Op::Conv(Conv { activation: None, .. }) if node.inputs.len() <= 3 => {
            (*shape.first()?, 1, Channels::First)
        }
        Op::ConvTranspose(options) => {
            (shape.get(1)?.checked_mul(options.groups)?, 1, Channels::Grouped(options.groups))
        }
        Op::Linear(Linear { activation: None }) => {
            (*shape.get(1)?, cx.ty(id).rank().checked_sub(1)?, Channels::Second)
        }
        _ => return None,
    };
    let bias = match bias_id {
        Some(bias) => Some(cx.constant(bias)?.clone()),
        None => None,
    };
    // A name that another layer uses as well must not stand for two contents.
    let name = |id: ValueId, name: &Option<String>| name.clone().filter(|_| cx.used_once(id));
    let weight = Constant { name: name(weight_id, &weight.name), ..weight.clone() };
    let bias_name = match (bias_id, &bias) {
        (Some(id), Some(bias)) => name(id, &bias.name),
        _ => weight.name.as_deref().and_then(|name| Some(format!("{}.bias", name.strip_suffix(".weight")?))),
    };
    Some(Layer { node: node.clone(), channels, axis, places, weight, bias, bias_name })
}

impl Layer {
    /// The current node becomes this layer, with `y` replaced by `y * scale + shift`; not if no checkpoint could be taken
    /// then.
    fn absorb(self, cx: &mut Rewrite<'_>, scale: Option<&Numbers>, shift: Option<&Numbers>) -> Option<()> {
        let weight = match scale {
            Some(scale) => {
                cx.remake(&self.weight.data)?;
                let data = self.places.scaled(&self.weight.data, &scale.values)?;
                if !self.has_range_for(&data, &scale.values)? {
                    return None;
                }
                Some(Constant { name: self.weight.name.clone(), data, provenance: self.scaled_by(scale) })
            }
            None => None,
        };
        let mut bias = self.bias.as_ref().map(Numbers::of);
        if let (Some(bias), Some(scale)) = (&mut bias, scale) {
            bias.multiply(scale);
        }
        match (&mut bias, shift) {
            (Some(bias), Some(shift)) => bias.add(shift),
            (None, Some(shift)) => bias = Some(shift.clone()),
            _ => {}
        }
        let bias = bias.map(|bias| bias.constant(self.bias_name.clone(), self.weight.data.dtype));
        if scale.is_some() && bias.as_ref().is_some_and(|bias| !is_finite(&bias.data)) {
            return None;
        }
        if weight.iter().chain(&bias).any(is_loss) {
            return None;
        }
        let mut inputs = vec![self.node.inputs[0], self.node.inputs[1]];
        if let Some(weight) = weight {
            inputs[1] = Some(cx.add_derived(weight.name, weight.data, weight.provenance));
        }
        if let Some(bias) = bias {
            inputs.push(Some(cx.add_derived(bias.name, bias.data, bias.provenance)));
        }
        cx.replace_as(self.node.op, inputs, Some(self.node.origin))
    }

    /// Whether the weight's dtype holds its scaled channels as well as the weight: halves have so small a range that one might
    /// overflow, or lose its digits where numbers are subnormal.
    fn has_range_for(&self, scaled: &TensorData, scale: &[f64]) -> Option<bool> {
        /// The least normal half.
        const LEAST_NORMAL: f64 = 1.0 / 16384.0;
        if scaled.dtype != DType::F16 {
            return Some(true);
        }
        if !is_finite(scaled) {
            return Some(false);
        }
        let channel = self.places.of_elements(&scaled.shape)?;
        let mut largest = vec![(0.0_f64, 0.0_f64); scale.len()];
        let pairs =
            Elements::load(&self.weight.data).floats().into_iter().zip(Elements::load(scaled).floats());
        for (i, (before, after)) in pairs.enumerate() {
            let largest = largest.get_mut(channel(i))?;
            *largest = (largest.0.max(before.abs()), largest.1.max(after.abs()));
        }
        let is_precise = |(&(before, after), &scale): (&(f64, f64), &f64)| {
            after >= LEAST_NORMAL || before == 0.0 || scale == 0.0 || scale.abs() >= 1.0
        };
        Some(largest.iter().zip(scale).all(is_precise))
    }

    /// How the weight is made when its channels are scaled.
    fn scaled_by(&self, scale: &Numbers) -> Option<Arc<Provenance>> {
        let derived = scale.derived || self.weight.provenance.is_some();
        derived.then(|| Provenance::scaled(self.places, history(&self.weight), scale.provenance.clone()))
    }
}

/// Whether no number is infinite or none.
fn is_finite(data: &TensorData) -> bool {
    Elements::load(data).floats().iter().all(|x| x.is_finite())
}

/// Whether no checkpoint could be taken any more if the model had this constant.
pub(super) fn is_loss(constant: &Constant) -> bool {
    constant.provenance.as_ref().is_some_and(|made| made.is_loss())
}

/// How a constant was made, a literal if it was not.
fn history(constant: &Constant) -> Arc<Provenance> {
    constant.provenance.clone().unwrap_or_else(|| Arc::new(Provenance::Literal(constant.data.clone())))
}

impl Numbers {
    fn of(constant: &Constant) -> Self {
        Self {
            values: Elements::load(&constant.data).floats(),
            provenance: history(constant),
            derived: constant.provenance.is_some(),
        }
    }

    /// A parameter of one axis that holds them.
    pub(super) fn constant(self, name: Option<String>, dtype: DType) -> Constant {
        let shape = vec![self.values.len()];
        let data = Elements::Float(self.values).store(dtype, shape);
        Constant { name, data, provenance: self.derived.then_some(self.provenance) }
    }

    fn multiply(&mut self, other: &Self) {
        self.combine(BinaryOp::Mul, |a, b| a * b, other);
    }

    fn add(&mut self, other: &Self) {
        self.combine(BinaryOp::Add, |a, b| a + b, other);
    }

    fn combine(&mut self, op: BinaryOp, apply: fn(f64, f64) -> f64, other: &Self) {
        for (value, &other) in self.values.iter_mut().zip(&other.values) {
            *value = apply(*value, other);
        }
        self.derived |= other.derived;
        self.provenance = Provenance::binary(op, self.provenance.clone(), other.provenance.clone());
    }
}

/// A batch normalization in a wider dtype between two casts, as layers of halves have it whose statistics are in single
/// precision: the layer's parameters are computed in f64 and rounded once.
fn wide_batch_norm(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let normalized = cx.input(0)?;
    let node = cx.producer(normalized).filter(|_| cx.used_once(normalized))?.clone();
    let Op::BatchNorm(BatchNorm { epsilon, .. }) = node.op else {
        return None;
    };
    let widened = node.inputs.first().copied().flatten()?;
    let cast = cx.producer(widened).filter(|cast| matches!(cast.op, Op::Cast(_)) && cx.used_once(widened))?;
    let y = cast.inputs.first().copied().flatten()?;
    let (narrow, wide) = (cx.ty(y).dtype, cx.ty(widened).dtype);
    if cx.ty(cx.output()?).dtype != narrow || !narrow.is_float() || narrow.size() >= wide.size() {
        return None;
    }
    batch_norm(cx, &node, y, epsilon)
}

/// The current node, which yields what the normalization of a layer's result `y` does, becomes that layer.
fn batch_norm(cx: &mut Rewrite<'_>, node: &Node, y: ValueId, epsilon: f64) -> Option<&'static str> {
    let layer = layer(cx, y)?;
    // The normalized axis is the second.
    if layer.axis != 1 {
        return None;
    }
    let (scale, shift) = norm(cx, node, layer.channels, epsilon)?;
    layer.absorb(cx, Some(&scale), Some(&shift))?;
    Some("batch normalization into its layer")
}

/// What a batch normalization of so many channels multiplies by, and what it adds then.
pub(super) fn norm(
    cx: &Rewrite<'_>,
    node: &Node,
    channels: usize,
    epsilon: f64,
) -> Option<(Numbers, Numbers)> {
    let mut parameters = Vec::with_capacity(4);
    for n in 1..=4 {
        let id = node.inputs.get(n).copied().flatten()?;
        let numbers = match cx.constant(id) {
            Some(constant) => {
                cx.look(constant.data.num_elements())?;
                Numbers::of(constant)
            }
            None => Numbers::of(&Constant { name: None, data: cx.data(id)?, provenance: None }),
        };
        if numbers.values.len() != channels {
            return None;
        }
        parameters.push(numbers);
    }
    let [gamma, beta, mean, variance] = parameters.as_slice() else {
        return None;
    };
    let derived = parameters.iter().any(|numbers| numbers.derived);
    let values = gamma.values.iter().zip(&variance.values);
    let scale: Vec<f64> = values.map(|(g, v)| g / (v + epsilon).sqrt()).collect();
    let values = beta.values.iter().zip(&mean.values).zip(&scale);
    let shift: Vec<f64> = values.map(|((b, m), s)| b - m * s).collect();
    let (of_scale, of_shift) = Provenance::of_norm(Norm {
        gamma: gamma.provenance.clone(),
        beta: beta.provenance.clone(),
        mean: mean.provenance.clone(),
        variance: variance.provenance.clone(),
        epsilon,
    });
    let scale = Numbers { values: scale, provenance: of_scale, derived };
    let shift = Numbers { values: shift, provenance: of_shift, derived };
    Some((scale, shift))
}

/// `layer(x) * c` and `layer(x) ± c`, where `c` has one number a channel.
fn channel_constant(cx: &mut Rewrite<'_>, op: BinaryOp) -> Option<&'static str> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let (y, c) = match (cx.constant(a).is_some(), cx.constant(b).is_some()) {
        (false, true) => (a, b),
        (true, false) if op != BinaryOp::Sub => (b, a),
        _ => return None,
    };
    let layer = layer(cx, y)?;
    let same_result = cx.ty(cx.output()?).dims == cx.ty(y).dims;
    let per_channel = cx.ty(c).dims.iter().enumerate().all(|(i, dim)| i == layer.axis || dim.is(1));
    if !same_result || !per_channel {
        return None;
    }
    // A bias of one number a channel that the layer has not: it is the layer's, name and all.
    let fresh_bias = op == BinaryOp::Add && layer.bias.is_none();
    let each = cx.ty(c).num_elements().is(i64::try_from(layer.channels).ok()?);
    if fresh_bias && each {
        let bias = constant_as(cx, c, vec![layer.channels])?;
        let inputs = vec![layer.node.inputs[0], layer.node.inputs[1], Some(bias)];
        cx.replace_as(layer.node.op, inputs, Some(layer.node.origin))?;
        return Some("bias into its layer");
    }
    // What is trained stays apart: a sum of two parameters would be one that learns as neither does.
    if cx.options.trainable {
        return None;
    }
    cx.look(layer.channels)?;
    let mut numbers = if each {
        let flat = constant_as(cx, c, vec![layer.channels])?;
        Numbers::of(cx.constant(flat)?)
    } else {
        spread(cx.constant(c)?, layer.channels)?
    };
    if op == BinaryOp::Mul {
        layer.absorb(cx, Some(&numbers), None)?;
        return Some("scale into its layer");
    }
    if op == BinaryOp::Sub {
        numbers.values.iter_mut().for_each(|value| *value = -*value);
        numbers.provenance = Provenance::negated(numbers.provenance);
    }
    layer.absorb(cx, None, Some(&numbers))?;
    Some("sum into its layer")
}

/// One number for all channels.
fn spread(constant: &Constant, channels: usize) -> Option<Numbers> {
    let values = Elements::load(&constant.data).floats();
    let values = Strided::new(&[values.len()]).expand(&[channels])?.gather(&values);
    let one = Op::Reshape(Reshape { dims: vec![1.into()] });
    let all = Op::Expand(Expand { dims: vec![channels.into()] });
    let narrow = Provenance::of_operation(&one, &[(constant.provenance.clone(), &constant.data)]);
    let wide = Provenance::of_operation(&all, &[(narrow, &constant.data)]);
    let derived = wide.is_some();
    let literal = || {
        let data = Elements::Float(values.clone()).store(constant.data.dtype, vec![channels]);
        Arc::new(Provenance::Literal(data))
    };
    let provenance = wide.unwrap_or_else(literal);
    Some(Numbers { values, provenance, derived })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{BatchNorm, Builder, Conv, Dropout};
    use crate::passes::testing::{checked, constant, graph, kinds, single};
    use crate::passes::{Options, optimize};
    use kiln_types::{Activation, ConvOptions, ConvTransposeOptions};

    fn ramp(count: usize) -> Vec<f32> {
        (0..count).map(|i| (i % 7) as f32 * 0.3 - 0.8).collect()
    }

    fn batch_norm(b: &mut Builder<'_>, y: ValueId, channels: usize) -> ValueId {
        let weight = constant(b, Some("bn.weight"), &[channels], &ramp(channels));
        let bias = constant(b, Some("bn.bias"), &[channels], &ramp(channels));
        let mean = constant(b, Some("bn.running_mean"), &[channels], &ramp(channels));
        let variance = constant(b, Some("bn.running_var"), &[channels], &vec![0.7; channels]);
        b.add(Op::BatchNorm(BatchNorm { epsilon: 1e-3, momentum: None }), &[y, weight, bias, mean, variance])
            .unwrap()
    }

    fn conv_bn_relu(b: &mut Builder<'_>, x: &[ValueId]) -> Vec<ValueId> {
        let options = ConvOptions {
            stride: [1, 2].into(),
            padding: [(1, 1), (0, 1)].into(),
            dilation: [1; 2].into(),
            groups: 2,
        };
        let weight = constant(b, Some("conv.weight"), &[6, 2, 3, 3], &ramp(108));
        let y = b.add(Op::Conv(Conv { options, activation: None }), &[x[0], weight]).unwrap();
        let y = batch_norm(b, y, 6);
        vec![b.add(Op::Activation(Activation::Relu), &[y]).unwrap()]
    }

    #[test]
    fn convolution_takes_normalization_and_activation() {
        let g = checked(graph(&["f32[n, 4, 5, 5]"], conv_bn_relu), &[("n", 2)]);
        let node = single(&g);
        let name = |n: usize| g.constant(node.inputs[n].unwrap()).unwrap().name.clone();
        assert_eq!((name(1).as_deref(), name(2).as_deref()), (Some("conv.weight"), Some("conv.bias")));
        assert!(matches!(&node.op, Op::Conv(Conv { activation: Some(Activation::Relu), .. })));
    }

    /// A layer of halves before a normalization in single precision; scales beyond the range of halves stay in that.
    #[test]
    fn halves_take_a_normalization_in_single_precision() {
        for (gamma, folded) in [(1.5, true), (1e5, false), (1e-6, false), (0.0, true)] {
            let g = graph(&["f16[n, 4, 5, 5]"], |b, x| {
                let half = |b: &mut Builder<'_>, shape: &[usize]| {
                    let values = TensorData::new(ramp(shape.iter().product()), shape);
                    b.graph.add_constant(None, values.convert_dtype(DType::F16))
                };
                let (weight, bias) = (half(b, &[3, 4, 3, 3]), half(b, &[3]));
                let conv = Conv { activation: None, options: ConvOptions::new([1, 1], [1, 1], [1, 1], 1) };
                let y = b.add(Op::Conv(conv), &[x[0], weight, bias]).unwrap();
                let y = b.add(Op::Cast(crate::ir::Cast { to: DType::F32 }), &[y]).unwrap();
                let mut inputs = vec![y];
                for values in [[gamma; 3], [0.5, -1.0, 2.0], [0.1, 0.2, 0.3], [0.7; 3]] {
                    inputs.push(constant(b, None, &[3], &values));
                }
                let y = b.add(Op::BatchNorm(BatchNorm { epsilon: 1e-3, momentum: None }), &inputs).unwrap();
                vec![b.add(Op::Cast(crate::ir::Cast { to: DType::F16 }), &[y]).unwrap()]
            });
            let g = crate::passes::testing::optimized(g);
            assert_eq!(kinds(&g).len() == 1, folded, "{gamma}\n{g}");
        }
    }

    #[test]
    fn what_is_to_be_trained_stays() {
        let mut g = graph(&["f32[n, 4, 5, 5]"], |b, x| {
            let y = conv_bn_relu(b, x);
            vec![b.add(Op::Dropout(Dropout { ratio: 0.1 }), &y).unwrap()]
        });
        optimize(&mut g, &Options { trainable: true, ..Options::default() });
        assert_eq!(kinds(&g), ["Conv", "BatchNorm", "Activation", "Dropout"]);
    }

    #[test]
    fn transposed_convolution_with_groups_takes_normalization() {
        let g = graph(&["f32[n, 4, 3, 3]"], |b, x| {
            let options = ConvTransposeOptions {
                stride: [2, 1].into(),
                padding: [(1, 0), (0, 0)].into(),
                output_padding: [1, 0].into(),
                dilation: [1; 2].into(),
                groups: 2,
            };
            let weight = constant(b, Some("up.weight"), &[4, 3, 2, 2], &ramp(48));
            let bias = constant(b, Some("up.bias"), &[6], &ramp(6));
            let y = b.add(Op::ConvTranspose(options), &[x[0], weight, bias]).unwrap();
            vec![batch_norm(b, y, 6)]
        });
        single(&checked(g, &[("n", 2)]));
    }

    #[test]
    fn linear_takes_normalization_and_scale() {
        let g = graph(&["f32[n, 4]"], |b, x| {
            let weight = constant(b, Some("fc.weight"), &[4, 3], &ramp(12));
            let y = b.add(Op::MatMul, &[x[0], weight]).unwrap();
            let y = batch_norm(b, y, 3);
            let scale = constant(b, None, &[1, 3], &[0.5, 2.0, -1.0]);
            vec![b.add(Op::Binary(BinaryOp::Mul), &[y, scale]).unwrap()]
        });
        single(&checked(g, &[("n", 2)]));
    }
}
