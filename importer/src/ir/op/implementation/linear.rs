//! Products of matrices.

use super::Cx;
use crate::ir::{Arg, Config, Implementation, Layer, LayerField, Op};
use kiln_types::{Activation, AttentionOptions};

pub(super) fn call(op: &Op, cx: &Cx<'_>) -> Implementation {
    match op {
        Op::MatMul => Implementation::Call(Arg::Operand(0).then("matmul", [Arg::Operand(1)])),
        Op::Linear { activation } => linear(*activation, cx),
        Op::Attention(options) => Implementation::Call(attention(options, cx)),
        _ => Implementation::Call(Arg::Operand(0)),
    }
}

fn linear(activation: Option<Activation>, cx: &Cx<'_>) -> Implementation {
    let mut args = vec![Arg::Operand(0), Arg::Operand(1), cx.option(2)];
    let function = match activation {
        None => Arg::call("tensor::module::linear", args),
        Some(activation) => {
            args.push(Arg::options(&activation));
            Arg::call("tensor::module::linear_activated", args)
        }
    };
    let (Some(weight), Some(shape)) = (cx.input(1), cx.shape(1)) else {
        return Implementation::Call(function);
    };
    let (&[inputs, outputs], true) = (shape.as_slice(), cx.is_constant(1)) else {
        return Implementation::Call(function);
    };
    if cx.input(2).is_some() && !cx.is_constant(2) {
        return Implementation::Call(function);
    }
    let bias = cx.input(2).is_some();
    let sizes = [Arg::named("d_input", inputs), Arg::named("d_output", outputs)];
    let config = Config::new("nn::LinearConfig::new", sizes).with("bias", Arg::Bool(bias), bias);
    let (method, args) = activated(activation);
    Implementation::Layer(Layer {
        ty: "nn::Linear",
        generic: true,
        config,
        fields: vec![("weight", LayerField::Parameter(weight)), ("bias", LayerField::Optional(cx.input(2)))],
        method,
        args,
        function,
    })
}

/// The method of a layer that can apply an activation, with its arguments.
pub(super) fn activated(activation: Option<Activation>) -> (&'static str, Vec<Arg>) {
    match activation {
        None => ("forward", vec![Arg::Operand(0)]),
        Some(activation) => ("forward_activated", vec![Arg::Operand(0), Arg::options(&activation)]),
    }
}

fn attention(options: &AttentionOptions, cx: &Cx<'_>) -> Arg {
    let named = |name: &'static str, operand| Arg::role(name, Arg::Operand(operand));
    // A bool mask keeps, a float mask is added.
    let mask = Arg::option(cx.input(3).map(|_| Arg::Operand(3).then("into", [])));
    Arg::call(
        "tensor::module::attention",
        [named("query", 0), named("key", 1), named("value", 2), mask, Arg::options(options)],
    )
}
