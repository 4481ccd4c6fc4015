//! Batch normalization, and products and sums with one number a channel, into the layer before them.

use super::movement::constant_as;
use super::{Rewrite, Rule};
use crate::fold::{Elements, Strided, elements};
use crate::ir::{Node, Op, ValueId};
use kiln_types::{BinaryOp, TensorData};

pub(super) const RULE: Rule = Rule { apply };

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    match cx.op().clone() {
        Op::BatchNorm { epsilon } if !cx.options.trainable => batch_norm(cx, epsilon),
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
    weight: TensorData,
    weight_name: Option<String>,
    bias: Option<TensorData>,
    bias_name: Option<String>,
}

/// The layer that computes a value nobody else uses.
fn layer(cx: &Rewrite<'_>, id: ValueId) -> Option<Layer> {
    let node = cx.producer(id).filter(|_| cx.used_once(id))?;
    let weight_id = node.inputs.get(1).copied().flatten()?;
    let bias_id = node.inputs.get(2).copied().flatten();
    let weight = cx.constant(weight_id)?;
    let shape = &weight.data.shape;
    let (channels, axis) = match &node.op {
        Op::Conv(options) if options.activation.is_none() => (*shape.first()?, 1),
        Op::ConvTranspose(options) => (shape.get(1)?.checked_mul(options.groups)?, 1),
        Op::Linear { activation: None } => (*shape.get(1)?, cx.ty(id).rank().checked_sub(1)?),
        _ => return None,
    };
    let bias = match bias_id {
        Some(bias) => Some(cx.constant(bias)?.clone()),
        None => None,
    };
    // A name that another layer uses as well must not stand for two contents.
    let name = |id: ValueId, name: &Option<String>| name.clone().filter(|_| cx.used_once(id));
    let weight_name = name(weight_id, &weight.name);
    let bias_name = match (bias_id, &bias) {
        (Some(id), Some(bias)) => name(id, &bias.name),
        _ => weight_name.as_deref().and_then(|name| Some(format!("{}.bias", name.strip_suffix(".weight")?))),
    };
    Some(Layer {
        node: node.clone(),
        channels,
        axis,
        weight: weight.data.clone(),
        weight_name,
        bias: bias.map(|bias| bias.data),
        bias_name,
    })
}

impl Layer {
    /// The weight with each output channel's part multiplied.
    fn scaled_weight(&self, scale: &[f64]) -> Option<TensorData> {
        let shape = &self.weight.shape;
        let mut values = Elements::load(&self.weight).floats();
        let inner = |from: usize| shape.get(from..).map(|dims| elements(dims).max(1));
        let channel: Box<dyn Fn(usize) -> usize> = match &self.node.op {
            Op::Conv(_) => {
                let run = inner(1)?;
                Box::new(move |i| i / run)
            }
            Op::ConvTranspose(options) => {
                // `[in, out / groups, …]`: an input channel belongs to one group of output channels.
                let (run, out) = (inner(2)?, *shape.get(1)?);
                let in_group = shape.first()?.checked_div(options.groups)?.max(1);
                Box::new(move |i| i / (run * out) / in_group * out + i / run % out)
            }
            _ => {
                let out = *shape.get(1)?;
                Box::new(move |i| i % out)
            }
        };
        for (i, value) in values.iter_mut().enumerate() {
            *value *= scale.get(channel(i))?;
        }
        Some(Elements::Float(values).store(self.weight.dtype, shape.clone()))
    }

    /// The current node becomes this layer, with `y` replaced by `y * scale + shift`.
    fn absorb(self, cx: &mut Rewrite<'_>, scale: Option<&[f64]>, shift: Option<&[f64]>) -> Option<()> {
        let mut bias = self.bias.as_ref().map(|bias| Elements::load(bias).floats());
        if let (Some(bias), Some(scale)) = (&mut bias, scale) {
            bias.iter_mut().zip(scale).for_each(|(b, s)| *b *= s);
        }
        if let Some(shift) = shift {
            let bias = bias.get_or_insert_with(|| vec![0.0; self.channels]);
            bias.iter_mut().zip(shift).for_each(|(b, s)| *b += s);
        }
        let mut inputs = vec![self.node.inputs[0], self.node.inputs[1]];
        if let Some(scale) = scale {
            let weight = self.scaled_weight(scale)?;
            inputs[1] = Some(cx.add_constant(self.weight_name.clone(), weight));
        }
        if let Some(bias) = bias {
            let data = Elements::Float(bias).store(self.weight.dtype, vec![self.channels]);
            inputs.push(Some(cx.add_constant(self.bias_name, data)));
        }
        cx.replace_as(self.node.op, inputs, Some(self.node.origin))
    }
}

fn batch_norm(cx: &mut Rewrite<'_>, epsilon: f64) -> Option<&'static str> {
    let layer = layer(cx, cx.input(0)?)?;
    // The normalized axis is the second.
    if layer.axis != 1 {
        return None;
    }
    let mut parameters = Vec::with_capacity(4);
    for n in 1..=4 {
        let values = Elements::load(&cx.data(cx.input(n)?)?).floats();
        if values.len() != layer.channels {
            return None;
        }
        parameters.push(values);
    }
    let [gamma, beta, mean, variance] = parameters.as_slice() else {
        return None;
    };
    let scale: Vec<f64> = gamma.iter().zip(variance).map(|(g, v)| g / (v + epsilon).sqrt()).collect();
    let shift: Vec<f64> = beta.iter().zip(mean).zip(&scale).map(|((b, m), s)| b - m * s).collect();
    layer.absorb(cx, Some(&scale), Some(&shift))?;
    Some("batch normalization into its layer")
}

/// `layer(x) * c` and `layer(x) ± c`, where `c` has one number a channel.
fn channel_constant(cx: &mut Rewrite<'_>, op: BinaryOp) -> Option<&'static str> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let (y, c) = match (cx.constant(a).is_some(), cx.constant(b).is_some()) {
        (false, true) => (a, b),
        (true, false) if op != BinaryOp::Sub => (b, a),
        _ => return None,
    };
    if op == BinaryOp::Mul && cx.options.trainable {
        return None;
    }
    let layer = layer(cx, y)?;
    let same_result = cx.ty(cx.output()?).dims == cx.ty(y).dims;
    let per_channel = cx.ty(c).dims.iter().enumerate().all(|(i, dim)| i == layer.axis || dim.is(1));
    if !same_result || !per_channel {
        return None;
    }
    // A bias of one number a channel that the layer has not: it is the layer's, name and all.
    let fresh_bias = op == BinaryOp::Add && layer.bias.is_none();
    if fresh_bias && cx.ty(c).num_elements().is(i64::try_from(layer.channels).ok()?) {
        let bias = constant_as(cx, c, vec![layer.channels])?;
        let inputs = vec![layer.node.inputs[0], layer.node.inputs[1], Some(bias)];
        cx.replace_as(layer.node.op, inputs, Some(layer.node.origin))?;
        return Some("bias into its layer");
    }
    let values = Elements::load(&cx.constant(c)?.data).floats();
    let mut values = Strided::new(&[values.len()]).expand(&[layer.channels])?.gather(&values);
    if op == BinaryOp::Mul {
        layer.absorb(cx, Some(&values), None)?;
        return Some("scale into its layer");
    }
    if op == BinaryOp::Sub {
        values.iter_mut().for_each(|value| *value = -*value);
    }
    layer.absorb(cx, None, Some(&values))?;
    Some("sum into its layer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Builder;
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
        b.add(Op::BatchNorm { epsilon: 1e-3 }, &[y, weight, bias, mean, variance]).unwrap()
    }

    fn conv_bn_relu(b: &mut Builder<'_>, x: &[ValueId]) -> Vec<ValueId> {
        let options = ConvOptions {
            stride: vec![1, 2],
            padding: vec![(1, 1), (0, 1)],
            dilation: vec![1; 2],
            groups: 2,
            activation: None,
        };
        let weight = constant(b, Some("conv.weight"), &[6, 2, 3, 3], &ramp(108));
        let y = b.add(Op::Conv(options), &[x[0], weight]).unwrap();
        let y = batch_norm(b, y, 6);
        vec![b.add(Op::Activation(Activation::Relu), &[y]).unwrap()]
    }

    #[test]
    fn convolution_takes_normalization_and_activation() {
        let g = checked(graph(&["f32[n, 4, 5, 5]"], conv_bn_relu), &[("n", 2)]);
        let node = single(&g);
        let name = |n: usize| g.constant(node.inputs[n].unwrap()).unwrap().name.clone();
        assert_eq!((name(1).as_deref(), name(2).as_deref()), (Some("conv.weight"), Some("conv.bias")));
        assert!(matches!(&node.op, Op::Conv(options) if options.activation == Some(Activation::Relu)));
    }

    #[test]
    fn what_is_to_be_trained_stays() {
        let mut g = graph(&["f32[n, 4, 5, 5]"], |b, x| {
            let y = conv_bn_relu(b, x);
            vec![b.add(Op::Dropout { ratio: 0.1 }, &y).unwrap()]
        });
        optimize(&mut g, &Options { trainable: true });
        assert_eq!(kinds(&g), ["Conv", "BatchNorm", "Activation", "Dropout"]);
    }

    #[test]
    fn transposed_convolution_with_groups_takes_normalization() {
        let g = graph(&["f32[n, 4, 3, 3]"], |b, x| {
            let options = ConvTransposeOptions {
                stride: vec![2, 1],
                padding: vec![(1, 0), (0, 0)],
                output_padding: vec![1, 0],
                dilation: vec![1; 2],
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
