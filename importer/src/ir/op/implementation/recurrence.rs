//! Recurrent layers.

use super::Cx;
use crate::ir::{Arg, Config, Implementation, Layer, LayerField};
use kiln_types::{RnnDirection, RnnKind, RnnOptions};

pub(super) fn call(options: &RnnOptions, cx: &Cx<'_>) -> Implementation {
    layer(options, cx).map_or_else(|| Implementation::Call(function(options, cx)), Implementation::Layer)
}

/// The layer, where weights are constants and the cell is the usual one.
fn layer(options: &RnnOptions, cx: &Cx<'_>) -> Option<Layer> {
    let constant = |n: usize| cx.input(n).filter(|_| cx.is_constant(n));
    let (weight, recurrent) = (constant(1)?, constant(2)?);
    let usual = options.kind.activations().repeat(options.direction.count());
    let plain = options.clip.is_none()
        && options.state_clip.is_none()
        && cx.input(7).is_none()
        && options.activations == usual;
    if !plain || cx.input(3).is_some() && constant(3).is_none() {
        return None;
    }
    let &[_, _, d_input] = cx.shape(1)?.as_slice() else { return None };
    let mut sizes = vec![Arg::named("d_input", d_input), Arg::named("d_hidden", options.hidden_size)];
    let constructor = match options.kind {
        RnnKind::Rnn => "nn::RecurrentConfig::rnn",
        RnnKind::Gru { linear_before_reset: true } => "nn::RecurrentConfig::gru",
        RnnKind::Lstm { input_forget: false } => "nn::RecurrentConfig::lstm",
        kind => {
            sizes.push(Arg::options(&kind));
            "nn::RecurrentConfig::new"
        }
    };
    let forward = options.direction == RnnDirection::Forward;
    let bias = cx.input(3).is_some();
    let config = Config::new(constructor, sizes)
        .with("direction", Arg::options(&options.direction), forward)
        .with("bias", Arg::Bool(bias), bias)
        .with("batch_first", Arg::Bool(options.batch_first), !options.batch_first);
    let from_nothing = (4..7).all(|n| cx.input(n).is_none());
    let lstm = matches!(options.kind, RnnKind::Lstm { .. });
    let (method, mut args) = match (lstm, from_nothing) {
        (false, true) => ("forward", Vec::new()),
        (true, true) => ("forward_lstm", Vec::new()),
        (false, false) => ("forward_from", vec![cx.option(5), cx.option(4)]),
        (true, false) => ("forward_lstm_from", vec![cx.option(5), cx.option(6), cx.option(4)]),
    };
    args.insert(0, Arg::Operand(0));
    Some(Layer {
        ty: "nn::Recurrent",
        generic: true,
        config,
        fields: vec![
            ("weight", LayerField::Parameter(weight)),
            ("recurrent", LayerField::Parameter(recurrent)),
            ("bias", LayerField::Optional(cx.input(3))),
            ("kind", LayerField::Constant),
            ("direction", LayerField::Constant),
            ("batch_first", LayerField::Constant),
        ],
        method,
        args,
        function: function(options, cx),
    })
}

/// The same as a call with everything spelt out.
fn function(options: &RnnOptions, cx: &Cx<'_>) -> Arg {
    const OPTIONAL: [&str; 5] = ["bias", "sequence_lengths", "initial_hidden", "initial_cell", "peepholes"];
    let required = ["input", "weight", "recurrent"];
    let required = required.into_iter().enumerate().map(|(n, name)| (name, Arg::Operand(n)));
    let optional = OPTIONAL.into_iter().enumerate().map(|(n, name)| (name, cx.option(n + 3)));
    let operands = required.chain(optional).map(|(name, operand)| (name.into(), operand)).collect();
    let function = match options.kind {
        RnnKind::Lstm { .. } => "tensor::module::lstm",
        _ => "tensor::module::rnn",
    };
    let operands = Arg::Struct("tensor::module::RnnInputs".into(), operands);
    Arg::call(function, [operands, Arg::options(options)])
}
