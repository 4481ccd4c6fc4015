//! The normalizing layers, and dropout, which stands beside them in networks.

use super::broadcast::broadcasts_to;
use super::prelude::*;
use crate::data::shortest;
use crate::ir::Op;

/// Along which axes a normalization without statistics of its own has a weight and, if it has such an operand, a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScaledAxes {
    /// The last ones.
    Trailing,
    /// The second.
    Channels,
}

impl Op {
    /// Where the weight of a normalization counts; nothing for other operations.
    pub(crate) fn scaled_axes(&self) -> Option<ScaledAxes> {
        match self {
            Op::LayerNorm(_) | Op::RmsNorm(_) => Some(ScaledAxes::Trailing),
            Op::GroupNorm(_) => Some(ScaledAxes::Channels),
            _ => None,
        }
    }
}

attributes! {
    /// Normalized over the last `weight.rank()` axes.
    pub struct LayerNorm {
        /// Added to the variance.
        pub epsilon: f64,
    }
}

impl Operation for LayerNorm {
    facts!(operands: ["x", "weight", "bias?"], parameters: [1, 2], effect: Pure, folding: PerElement(1), result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        Ok(vec![trailing(cx, 2)?])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (x, weight, bias, epsilon) = (operands.get(0)?, operands.get(1)?, operands.get(2), self.epsilon);
        let mut values = Elements::load(x).floats();
        standardize(&mut values, weight.num_elements(), epsilon);
        affine(&mut values, &x.shape, Some(weight), bias)?;
        Some(vec![Elements::Float(values).store(x.dtype, x.shape.clone())])
    }

    fn loops(&self, _: &Site<'_>) -> Option<Loops> {
        let epsilon = KernelArg::Float(shortest(self.epsilon));
        let operands = [KernelArg::Operand(0), KernelArg::Operand(1), KernelArg::Optional(2)];
        let [x, weight, bias] = operands;
        Some(Loops::kernel("layer_norm", [x, weight, bias, epsilon]))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let epsilon = self.epsilon;
        let args = vec![Arg::Operand(0), Arg::Operand(1), cx.option(2), Arg::Float(shortest(epsilon))];
        let function = Arg::call("tensor::module::layer_norm", args);
        let (Some(size), Some(weight), true) = (vector(1, cx), cx.input(1), settled(2, cx)) else {
            return Implementation::Call(function);
        };
        let config = Config::new(&layers::LAYER_NORM, [Arg::named("d_model", size)]);
        let bias = cx.input(2).is_some();
        let config = with_epsilon(config, epsilon).with("bias", Arg::Bool(bias), bias);
        Implementation::Layer(Layer::new(config, [Some(weight), cx.input(2)], function))
    }
}

attributes! {
    /// Scaled by the root of the mean square over the last `weight.rank()` axes.
    pub struct RmsNorm {
        /// Added to the mean square.
        pub epsilon: f64,
    }
}

impl Operation for RmsNorm {
    facts!(operands: ["x", "weight"], parameters: [1], effect: Pure, folding: PerElement(1), result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        Ok(vec![trailing(cx, 1)?])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (x, weight, epsilon) = (operands.get(0)?, operands.get(1)?, self.epsilon);
        let mut values = Elements::load(x).floats();
        for row in values.chunks_mut(weight.num_elements().max(1)) {
            let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
            let scale = 1.0 / (mean + epsilon).sqrt();
            row.iter_mut().for_each(|x| *x *= scale);
        }
        affine(&mut values, &x.shape, Some(weight), None)?;
        Some(vec![Elements::Float(values).store(x.dtype, x.shape.clone())])
    }

    fn loops(&self, _: &Site<'_>) -> Option<Loops> {
        let epsilon = KernelArg::Float(shortest(self.epsilon));
        Some(Loops::kernel("rms_norm", [KernelArg::Operand(0), KernelArg::Operand(1), epsilon]))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let epsilon = self.epsilon;
        let args = vec![Arg::Operand(0), Arg::Operand(1), Arg::Float(shortest(epsilon))];
        let function = Arg::call("tensor::module::rms_norm", args);
        let (Some(size), Some(weight)) = (vector(1, cx), cx.input(1)) else {
            return Implementation::Call(function);
        };
        let config = Config::new(&layers::RMS_NORM, [Arg::named("d_model", size)]);
        Implementation::Layer(Layer::new(with_epsilon(config, epsilon), [Some(weight)], function))
    }
}

attributes! {
    /// Normalized over groups of channels, `[batch, channels, …]`.
    pub struct GroupNorm {
        /// Number of groups; instance normalization has as many as channels.
        pub groups: usize,
        /// Added to the variance.
        pub epsilon: f64,
    }
}

impl Operation for GroupNorm {
    facts!(operands: ["x", "weight?", "bias?"], parameters: [1, 2], effect: Pure, folding: PerElement(1), result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let groups = self.groups;
        let x = at_least_rank(cx, 0, "x", 2)?;
        need_float("x", x)?;
        let divides = x.dims[1].as_size().is_none_or(|channels| channels.checked_rem(groups) == Some(0));
        if groups == 0 || !divides {
            return Err(misfit("num_groups", format!("is {groups} for {} channels", x.dims[1])));
        }
        check_channels(cx, x, &[1, 2])?;
        Ok(vec![x.clone()])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (x, weight, bias, groups, epsilon) =
            (operands.get(0)?, operands.get(1), operands.get(2), self.groups, self.epsilon);
        let mut values = Elements::load(x).floats();
        let rows = x.shape.first()?.checked_mul(groups)?;
        standardize(&mut values, x.num_elements().checked_div(rows)?, epsilon);
        let channel = |data: Option<&TensorData>| data.map(|data| per_channel(data, x.shape.len()));
        let (weight, bias) = (channel(weight).flatten(), channel(bias).flatten());
        affine(&mut values, &x.shape, weight.as_ref(), bias.as_ref())?;
        Some(vec![Elements::Float(values).store(x.dtype, x.shape.clone())])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let shape = cx.shape(0)?;
        let (channels, inner) = (*shape.get(1)?, elements(shape.get(2..)?));
        let sizes =
            KernelArg::sizes("Groups", [("groups", self.groups), ("channels", channels), ("inner", inner)]);
        let epsilon = KernelArg::Float(shortest(self.epsilon));
        let operands = [KernelArg::Operand(0), KernelArg::Optional(1), KernelArg::Optional(2)];
        let [x, weight, bias] = operands;
        Some(Loops::kernel("group_norm", [x, weight, bias, sizes, epsilon]))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let (groups, epsilon) = (self.groups, self.epsilon);
        let args = vec![
            Arg::Operand(0),
            cx.option(1),
            cx.option(2),
            Arg::Int(groups as i64),
            Arg::Float(shortest(epsilon)),
        ];
        let function = Arg::call("tensor::module::group_norm", args);
        let (Some(channels), Some(_), Some(_)) = (vector(1, cx), vector(2, cx), cx.input(1)) else {
            return Implementation::Call(function);
        };
        let channels_arg = Arg::named("num_channels", channels);
        let config = if groups == channels {
            Config::new(&layers::INSTANCE_NORM, [channels_arg])
        } else {
            Config::new(&layers::GROUP_NORM, [Arg::named("num_groups", groups), channels_arg])
        };
        let parameters = [cx.input(1), cx.input(2)];
        Implementation::Layer(Layer::new(with_epsilon(config, epsilon), parameters, function))
    }
}

attributes! {
    /// Normalized by the given statistics, `[batch, channels, …]`.
    pub struct BatchNorm {
        /// Added to the variance.
        pub epsilon: f64,
        /// When the model is to be trained, the weight of a new batch in the running statistics.
        pub momentum: Option<f64>,
    }
}

impl Operation for BatchNorm {
    facts!(operands: ["x", "weight", "bias", "mean", "variance"], parameters: [1, 2, 3, 4], effect: Pure, folding: PerElement(1), result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = at_least_rank(cx, 0, "x", 2)?;
        need_float("x", x)?;
        for n in 1..=4 {
            cx.ty(n)?;
        }
        check_channels(cx, x, &[1, 2, 3, 4])?;
        Ok(vec![x.clone()])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let [x, weight, bias] = [operands.get(0)?, operands.get(1)?, operands.get(2)?];
        let statistics = [weight, bias, operands.get(3)?, operands.get(4)?];
        // Parameters: weight, bias, mean, variance.
        let (parameters, epsilon) = (statistics, self.epsilon);
        let [weight, bias, mean, variance] = parameters.map(|data| Elements::load(data).floats());
        let channels = *x.shape.get(1)?;
        let inner: usize = elements(&x.shape[2..]);
        let mut values = Elements::load(x).floats();
        for (i, value) in values.iter_mut().enumerate() {
            let c = (i / inner.max(1)) % channels.max(1);
            *value = (*value - mean.get(c)?) / (variance.get(c)? + epsilon).sqrt() * weight.get(c)?
                + bias.get(c)?;
        }
        Some(vec![Elements::Float(values).store(x.dtype, x.shape.clone())])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let shape = cx.shape(0)?;
        let inner = KernelArg::Size(elements(shape.get(2..)?));
        let mut args: Vec<KernelArg> = (0..5).map(KernelArg::Operand).collect();
        args.extend([inner, KernelArg::Float(shortest(self.epsilon))]);
        Some(Loops::kernel("batch_norm", args))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        let epsilon = self.epsilon;
        let mut args: Vec<Arg> = (0..5).map(Arg::Operand).collect();
        args.push(Arg::Float(shortest(epsilon)));
        let function = Arg::call("tensor::module::batch_norm", args);
        let sizes: Option<Vec<usize>> = (1..5).map(|n| vector(n, cx)).collect();
        let inputs: Option<Vec<_>> = (1..5).map(|n| cx.input(n)).collect();
        let (Some(&size), Some(&[gamma, beta, mean, variance])) =
            (sizes.as_ref().and_then(|sizes| sizes.first()), inputs.as_deref())
        else {
            return Implementation::Call(function);
        };
        let config = Config::new(&layers::BATCH_NORM, [Arg::named("num_features", size)]);
        let config = with_epsilon(config, epsilon);
        // 0.1 is what the layer has; a model that only infers says nothing.
        let momentum = self.momentum.map_or(0.1, shortest);
        let config = config.with("momentum", Arg::Float(momentum), momentum == 0.1);
        let parameters = [gamma, beta, mean, variance].map(Some);
        Implementation::Layer(Layer::new(config, parameters, function))
    }
}

attributes! {
    /// Identity in inference; kept when the model is to be trained.
    pub struct Dropout {
        /// Probability of zeroing.
        pub ratio: f64,
    }
}

impl Operation for Dropout {
    facts!(operands: ["x"], effect: Random, folding: PerElement(1), result: Computed);
    none!(derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        Ok(vec![cx.ty(0)?.clone()])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        Some(cx.operand(0)?.values.to_vec())
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        Some(vec![operands.get(0)?.clone()])
    }

    fn loops(&self, _: &Site<'_>) -> Option<Loops> {
        Some(Loops::Same)
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        let config = Arg::call("nn::DropoutConfig::new", [Arg::Float(self.ratio)]);
        Implementation::Call(config.then("init", []).then("forward", [Arg::Operand(0)]))
    }
}

/// Layer and RMS norm: up to `parameters` operands whose dims are the last of `x`.
fn trailing(cx: &mut Infer<'_>, parameters: usize) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    need_float("x", x)?;
    let weight = at_least_rank(cx, 1, "weight", 1)?;
    for n in 1..=parameters {
        if let Some(parameter) = cx.optional(n) {
            of_rank(cx, n, "bias", weight.rank())?;
            same_dtype("x", x, "weight", parameter)?;
            broadcasts_to(parameter, &x.dims)?;
        }
    }
    Ok(x.clone())
}

/// Checks operands of one number a channel.
fn check_channels(cx: &Infer<'_>, x: &TensorType, operands: &[usize]) -> RuleResult<()> {
    for &n in operands {
        if let Some(parameter) = cx.optional(n) {
            of_rank(cx, n, "channel parameter", 1)?;
            same_dtype("x", x, "channel parameter", parameter)?;
            need_equal("channels", &x.dims[1], x, &parameter.dims[0], parameter)?;
        }
    }
    Ok(())
}

/// Rows of `run` elements normalized to mean 0 and variance 1.
fn standardize(values: &mut [f64], run: usize, epsilon: f64) {
    for row in values.chunks_mut(run.max(1)) {
        let n = row.len() as f64;
        let mean = row.iter().sum::<f64>() / n;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        let scale = 1.0 / (variance + epsilon).sqrt();
        row.iter_mut().for_each(|x| *x = (*x - mean) * scale);
    }
}

/// Weights and biases broadcast to the shape of `x`, applied.
fn affine(
    values: &mut [f64],
    shape: &[usize],
    weight: Option<&TensorData>,
    bias: Option<&TensorData>,
) -> Option<()> {
    let spread = |data: &TensorData| {
        Some(Strided::new(&data.shape).expand(shape)?.gather(&Elements::load(data).floats()))
    };
    if let Some(weight) = weight {
        values.iter_mut().zip(spread(weight)?).for_each(|(x, w)| *x *= w);
    }
    if let Some(bias) = bias {
        values.iter_mut().zip(spread(bias)?).for_each(|(x, b)| *x += b);
    }
    Some(())
}

/// A parameter of one number a channel, shaped to broadcast.
fn per_channel(data: &TensorData, rank: usize) -> Option<TensorData> {
    let mut shape = vec![1; rank];
    *shape.get_mut(1)? = data.num_elements();
    TensorData::from_bytes(data.bytes.clone(), shape, data.dtype).ok()
}

/// The size of a constant vector at `n`, the operand of a layer's parameter.
fn vector(n: usize, cx: &Site<'_>) -> Option<usize> {
    match cx.shape(n)?.as_slice() {
        &[size] if cx.is_constant(n) => Some(size),
        _ => None,
    }
}

/// Whether an optional operand is absent or a constant.
fn settled(n: usize, cx: &Site<'_>) -> bool {
    cx.input(n).is_none() || cx.is_constant(n)
}

/// A config with an epsilon; 1e-5 is what the layers have.
fn with_epsilon(config: Config, epsilon: f64) -> Config {
    let epsilon = shortest(epsilon);
    config.with("epsilon", Arg::Float(epsilon), epsilon == 1e-5)
}
