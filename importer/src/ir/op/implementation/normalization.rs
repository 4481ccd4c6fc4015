//! Softmax and the normalizing layers.

use super::Cx;
use crate::ir::{Arg, Config, Implementation, Layer, LayerField, Op};

pub(super) fn call(op: &Op, cx: &Cx<'_>) -> Implementation {
    let along = |path: &'static str, axis: usize| {
        Implementation::Call(Arg::call(path, vec![Arg::Operand(0), Arg::axis(axis)]))
    };
    match op {
        Op::Softmax { axis } => along("tensor::activation::softmax", *axis),
        Op::LogSoftmax { axis } => along("tensor::activation::log_softmax", *axis),
        Op::LayerNorm { epsilon } => layer_norm(*epsilon, cx),
        Op::RmsNorm { epsilon } => rms_norm(*epsilon, cx),
        Op::GroupNorm { groups, epsilon } => group_norm(*groups, *epsilon, cx),
        Op::BatchNorm { epsilon } => batch_norm(*epsilon, cx),
        Op::Dropout { ratio } => Implementation::Call(
            Arg::call("nn::DropoutConfig::new", [Arg::Float(*ratio)])
                .then("init", [])
                .then("forward", [Arg::Operand(0)]),
        ),
        _ => Implementation::Call(Arg::Operand(0)),
    }
}

/// The size of a constant vector at `n`, the operand of a layer's parameter.
fn vector(n: usize, cx: &Cx<'_>) -> Option<usize> {
    match cx.shape(n)?.as_slice() {
        &[size] if cx.is_constant(n) => Some(size),
        _ => None,
    }
}

/// Whether an optional operand is absent or a constant.
fn settled(n: usize, cx: &Cx<'_>) -> bool {
    cx.input(n).is_none() || cx.is_constant(n)
}

/// A config with an epsilon; 1e-5 is what the layers have.
fn with_epsilon(config: Config, epsilon: f64) -> Config {
    let epsilon = shortest(epsilon);
    config.with("epsilon", Arg::Float(epsilon), epsilon == 1e-5)
}

/// Epsilons come as f32: `9.999999747378752e-6` is meant to be `1e-5`.
fn shortest(value: f64) -> f64 {
    let narrow = value as f32;
    match narrow.to_string().parse::<f64>() {
        Ok(short) if f64::from(narrow) == value || (short - value).abs() <= value.abs() * 1e-7 => short,
        _ => value,
    }
}

fn layer_norm(epsilon: f64, cx: &Cx<'_>) -> Implementation {
    let args = vec![Arg::Operand(0), Arg::Operand(1), cx.option(2), Arg::Float(shortest(epsilon))];
    let function = Arg::call("tensor::module::layer_norm", args);
    let (Some(size), Some(weight), true) = (vector(1, cx), cx.input(1), settled(2, cx)) else {
        return Implementation::Call(function);
    };
    let config = Config::new("nn::LayerNormConfig::new", [Arg::named("d_model", size)]);
    let bias = cx.input(2).is_some();
    let config = with_epsilon(config, epsilon).with("bias", Arg::Bool(bias), bias);
    Implementation::Layer(Layer {
        ty: "nn::LayerNorm",
        generic: true,
        config,
        fields: vec![
            ("gamma", LayerField::Parameter(weight)),
            ("beta", LayerField::Optional(cx.input(2))),
            ("epsilon", LayerField::Constant),
        ],
        method: "forward",
        args: vec![Arg::Operand(0)],
        function,
    })
}

fn rms_norm(epsilon: f64, cx: &Cx<'_>) -> Implementation {
    let args = vec![Arg::Operand(0), Arg::Operand(1), Arg::Float(shortest(epsilon))];
    let function = Arg::call("tensor::module::rms_norm", args);
    let (Some(size), Some(weight)) = (vector(1, cx), cx.input(1)) else {
        return Implementation::Call(function);
    };
    Implementation::Layer(Layer {
        ty: "nn::RmsNorm",
        generic: true,
        config: with_epsilon(Config::new("nn::RmsNormConfig::new", [Arg::named("d_model", size)]), epsilon),
        fields: vec![("gamma", LayerField::Parameter(weight)), ("epsilon", LayerField::Constant)],
        method: "forward",
        args: vec![Arg::Operand(0)],
        function,
    })
}

fn group_norm(groups: usize, epsilon: f64, cx: &Cx<'_>) -> Implementation {
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
    let parameters =
        [("gamma", LayerField::Optional(cx.input(1))), ("beta", LayerField::Optional(cx.input(2)))];
    let constants = |names: &[&'static str]| -> Vec<(&'static str, LayerField)> {
        names.iter().map(|&name| (name, LayerField::Constant)).collect()
    };
    let channels_expr = Arg::named("num_channels", channels);
    let (ty, config, rest) = if groups == channels {
        let config = Config::new("nn::InstanceNormConfig::new", [channels_expr]);
        ("nn::InstanceNorm", config, constants(&["num_channels", "epsilon", "affine"]))
    } else {
        let config =
            Config::new("nn::GroupNormConfig::new", [Arg::named("num_groups", groups), channels_expr]);
        ("nn::GroupNorm", config, constants(&["num_groups", "num_channels", "epsilon", "affine"]))
    };
    Implementation::Layer(Layer {
        ty,
        generic: true,
        config: with_epsilon(config, epsilon),
        fields: parameters.into_iter().chain(rest).collect(),
        method: "forward",
        args: vec![Arg::Operand(0)],
        function,
    })
}

fn batch_norm(epsilon: f64, cx: &Cx<'_>) -> Implementation {
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
    let config = Config::new("nn::BatchNormConfig::new", [Arg::named("num_features", size)]);
    Implementation::Layer(Layer {
        ty: "nn::BatchNorm",
        generic: true,
        config: with_epsilon(config, epsilon),
        fields: vec![
            ("gamma", LayerField::Parameter(gamma)),
            ("beta", LayerField::Parameter(beta)),
            ("running_mean", LayerField::Parameter(mean)),
            ("running_var", LayerField::Parameter(variance)),
            ("momentum", LayerField::Constant),
            ("epsilon", LayerField::Constant),
        ],
        method: "forward",
        args: vec![Arg::Operand(0)],
        function,
    })
}
