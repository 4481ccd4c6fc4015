//! Products of matrices.

use super::{Cx, Expr, Layer, LayerField, Spelling, elementwise};
use crate::ir::Op;
use kiln_types::{Activation, AttentionOptions};

pub(super) fn spell(op: &Op, cx: &Cx<'_>) -> Spelling {
    match op {
        Op::MatMul => Spelling::Expr(Expr::method(0, "matmul", vec![Expr::Operand(1)])),
        Op::Linear { activation } => linear(*activation, cx),
        Op::Attention(options) => Spelling::Expr(attention(options, cx)),
        _ => Spelling::Expr(Expr::Operand(0)),
    }
}

fn linear(activation: Option<Activation>, cx: &Cx<'_>) -> Spelling {
    let mut args = vec![Expr::Operand(0), Expr::Operand(1), cx.option(2)];
    let function = match activation {
        None => Expr::Call("tensor::module::linear", args),
        Some(activation) => {
            args.push(elementwise::value(activation));
            Expr::Call("tensor::module::linear_activated", args)
        }
    };
    let (Some(weight), Some(shape)) = (cx.input(1), cx.shape(1)) else { return Spelling::Expr(function) };
    let (&[inputs, outputs], true) = (shape.as_slice(), cx.is_constant(1)) else {
        return Spelling::Expr(function);
    };
    if cx.input(2).is_some() && !cx.is_constant(2) {
        return Spelling::Expr(function);
    }
    let mut config = Expr::Call(
        "nn::LinearConfig::new",
        vec![Expr::named("d_input", inputs), Expr::named("d_output", outputs)],
    );
    let bias = cx.input(2).is_some();
    config = config.setting("with_bias", vec![Expr::Bool(bias)], bias);
    let (method, args) = activated(activation);
    Spelling::Layer(Layer {
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
pub(super) fn activated(activation: Option<Activation>) -> (&'static str, Vec<Expr>) {
    match activation {
        None => ("forward", vec![Expr::Operand(0)]),
        Some(activation) => ("forward_activated", vec![Expr::Operand(0), elementwise::value(activation)]),
    }
}

fn attention(options: &AttentionOptions, cx: &Cx<'_>) -> Expr {
    let number = |value: Option<f64>| Expr::option(value.map(Expr::Float));
    let options = if *options == AttentionOptions::default() {
        Expr::Call("tensor::AttentionOptions::default", Vec::new())
    } else {
        Expr::Struct(
            "tensor::AttentionOptions",
            vec![
                ("scale", number(options.scale)),
                ("is_causal", Expr::Bool(options.is_causal)),
                ("softcap", number(options.softcap)),
            ],
        )
    };
    Expr::Call(
        "tensor::module::attention",
        vec![named("query", 0), named("key", 1), named("value", 2), mask(cx), options],
    )
}

/// An operand that should have a variable of this name.
fn named(name: &'static str, operand: usize) -> Expr {
    Expr::Named(name, Box::new(Expr::Operand(operand)))
}

/// The mask, which may be of any kind: a bool mask keeps, a float mask is added.
fn mask(cx: &Cx<'_>) -> Expr {
    match cx.input(3) {
        None => Expr::Path("None"),
        Some(_) => Expr::option(Some(Expr::method(3, "into", Vec::new()))),
    }
}
