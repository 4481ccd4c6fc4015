//! Softmax and the normalizing layers.

use super::shape::axis_expr;
use super::{Cx, Expr, Layer, LayerField, Spelling};
use crate::ir::Op;

pub(super) fn spell(op: &Op, cx: &Cx<'_>) -> Spelling {
    let along = |path: &'static str, axis: usize| {
        Spelling::Expr(Expr::Call(path, vec![Expr::Operand(0), axis_expr(axis)]))
    };
    match op {
        Op::Softmax { axis } => along("tensor::activation::softmax", *axis),
        Op::LogSoftmax { axis } => along("tensor::activation::log_softmax", *axis),
        Op::LayerNorm { epsilon } => layer_norm(*epsilon, cx),
        Op::RmsNorm { epsilon } => rms_norm(*epsilon, cx),
        Op::GroupNorm { groups, epsilon } => group_norm(*groups, *epsilon, cx),
        Op::BatchNorm { epsilon } => batch_norm(*epsilon, cx),
        Op::Dropout { ratio } => Spelling::Expr(
            Expr::Call("nn::DropoutConfig::new", vec![Expr::Float(*ratio)])
                .then("init", Vec::new())
                .then("forward", vec![Expr::Operand(0)]),
        ),
        _ => Spelling::Expr(Expr::Operand(0)),
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

/// `config.with_epsilon(e)`; 1e-5 is what the layers have.
fn with_epsilon(config: Expr, epsilon: f64) -> Expr {
    let epsilon = shortest(epsilon);
    if epsilon == 1e-5 { config } else { config.then("with_epsilon", vec![Expr::Float(epsilon)]) }
}

/// Epsilons come as f32: `9.999999747378752e-6` is meant to be `1e-5`.
fn shortest(value: f64) -> f64 {
    let narrow = value as f32;
    match narrow.to_string().parse::<f64>() {
        Ok(short) if f64::from(narrow) == value || (short - value).abs() <= value.abs() * 1e-7 => short,
        _ => value,
    }
}

fn layer_norm(epsilon: f64, cx: &Cx<'_>) -> Spelling {
    let args = vec![Expr::Operand(0), Expr::Operand(1), cx.option(2), Expr::Float(shortest(epsilon))];
    let function = Expr::Call("tensor::module::layer_norm", args);
    let (Some(size), Some(weight), true) = (vector(1, cx), cx.input(1), settled(2, cx)) else {
        return Spelling::Expr(function);
    };
    let mut config =
        with_epsilon(Expr::Call("nn::LayerNormConfig::new", vec![Expr::named("d_model", size)]), epsilon);
    if cx.input(2).is_none() {
        config = config.then("with_bias", vec![Expr::Bool(false)]);
    }
    Spelling::Layer(Layer {
        ty: "nn::LayerNorm",
        generic: true,
        config,
        fields: vec![
            ("gamma", LayerField::Parameter(weight)),
            ("beta", LayerField::Optional(cx.input(2))),
            ("epsilon", LayerField::Constant),
        ],
        method: "forward",
        args: vec![Expr::Operand(0)],
        function,
    })
}

fn rms_norm(epsilon: f64, cx: &Cx<'_>) -> Spelling {
    let args = vec![Expr::Operand(0), Expr::Operand(1), Expr::Float(shortest(epsilon))];
    let function = Expr::Call("tensor::module::rms_norm", args);
    let (Some(size), Some(weight)) = (vector(1, cx), cx.input(1)) else { return Spelling::Expr(function) };
    Spelling::Layer(Layer {
        ty: "nn::RmsNorm",
        generic: true,
        config: with_epsilon(
            Expr::Call("nn::RmsNormConfig::new", vec![Expr::named("d_model", size)]),
            epsilon,
        ),
        fields: vec![("gamma", LayerField::Parameter(weight)), ("epsilon", LayerField::Constant)],
        method: "forward",
        args: vec![Expr::Operand(0)],
        function,
    })
}

fn group_norm(groups: usize, epsilon: f64, cx: &Cx<'_>) -> Spelling {
    let args = vec![
        Expr::Operand(0),
        cx.option(1),
        cx.option(2),
        Expr::Int(groups as i64),
        Expr::Float(shortest(epsilon)),
    ];
    let function = Expr::Call("tensor::module::group_norm", args);
    let (Some(channels), Some(_), Some(_)) = (vector(1, cx), vector(2, cx), cx.input(1)) else {
        return Spelling::Expr(function);
    };
    let parameters =
        [("gamma", LayerField::Optional(cx.input(1))), ("beta", LayerField::Optional(cx.input(2)))];
    let constants = |names: &[&'static str]| -> Vec<(&'static str, LayerField)> {
        names.iter().map(|&name| (name, LayerField::Constant)).collect()
    };
    let channels_expr = Expr::named("num_channels", channels);
    let (ty, config, rest) = if groups == channels {
        let config = Expr::Call("nn::InstanceNormConfig::new", vec![channels_expr]);
        ("nn::InstanceNorm", config, constants(&["num_channels", "epsilon", "affine"]))
    } else {
        let config =
            Expr::Call("nn::GroupNormConfig::new", vec![Expr::named("num_groups", groups), channels_expr]);
        ("nn::GroupNorm", config, constants(&["num_groups", "num_channels", "epsilon", "affine"]))
    };
    Spelling::Layer(Layer {
        ty,
        generic: true,
        config: with_epsilon(config, epsilon),
        fields: parameters.into_iter().chain(rest).collect(),
        method: "forward",
        args: vec![Expr::Operand(0)],
        function,
    })
}

fn batch_norm(epsilon: f64, cx: &Cx<'_>) -> Spelling {
    let mut args: Vec<Expr> = (0..5).map(Expr::Operand).collect();
    args.push(Expr::Float(shortest(epsilon)));
    let function = Expr::Call("tensor::module::batch_norm", args);
    let sizes: Option<Vec<usize>> = (1..5).map(|n| vector(n, cx)).collect();
    let inputs: Option<Vec<_>> = (1..5).map(|n| cx.input(n)).collect();
    let (Some(&size), Some(&[gamma, beta, mean, variance])) =
        (sizes.as_ref().and_then(|sizes| sizes.first()), inputs.as_deref())
    else {
        return Spelling::Expr(function);
    };
    let config = Expr::Call("nn::BatchNormConfig::new", vec![Expr::named("num_features", size)]);
    Spelling::Layer(Layer {
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
        args: vec![Expr::Operand(0)],
        function,
    })
}
