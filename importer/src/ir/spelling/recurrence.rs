//! Recurrent layers.

use super::{Cx, Expr, Layer, LayerField, Spelling, elementwise};
use kiln_types::{RnnDirection, RnnKind, RnnOptions};

pub(super) fn spell(options: &RnnOptions, cx: &Cx<'_>) -> Spelling {
    layer(options, cx).map_or_else(|| Spelling::Expr(function(options, cx)), Spelling::Layer)
}

/// The layer, where weights are constants and the cell is the usual one.
fn layer(options: &RnnOptions, cx: &Cx<'_>) -> Option<Layer> {
    let constant = |n: usize| cx.input(n).filter(|_| cx.is_constant(n));
    let (weight, recurrent) = (constant(1)?, constant(2)?);
    let usual = options.kind.activations().repeat(options.direction.count());
    let plain = options.clip.is_none() && cx.input(7).is_none() && options.activations == usual;
    if !plain || cx.input(3).is_some() && constant(3).is_none() {
        return None;
    }
    let &[_, _, d_input] = cx.shape(1)?.as_slice() else { return None };
    let sizes = vec![Expr::named("d_input", d_input), Expr::named("d_hidden", options.hidden_size)];
    let mut config = match options.kind {
        RnnKind::Rnn => Expr::Call("nn::RecurrentConfig::rnn", sizes),
        RnnKind::Gru { linear_before_reset: true } => Expr::Call("nn::RecurrentConfig::gru", sizes),
        RnnKind::Lstm { input_forget: false } => Expr::Call("nn::RecurrentConfig::lstm", sizes),
        kind => {
            let all = sizes.into_iter().chain([kind_expr(kind)]).collect();
            Expr::Call("nn::RecurrentConfig::new", all)
        }
    };
    if options.direction != RnnDirection::Forward {
        config = config.then("with_direction", vec![direction_expr(options.direction)]);
    }
    if cx.input(3).is_none() {
        config = config.then("with_bias", vec![Expr::Bool(false)]);
    }
    if options.batch_first {
        config = config.then("with_batch_first", vec![Expr::Bool(true)]);
    }
    let from_nothing = (4..7).all(|n| cx.input(n).is_none());
    let lstm = matches!(options.kind, RnnKind::Lstm { .. });
    let (method, mut args) = match (lstm, from_nothing) {
        (false, true) => ("forward", Vec::new()),
        (true, true) => ("forward_lstm", Vec::new()),
        (false, false) => ("forward_from", vec![cx.option(5), cx.option(4)]),
        (true, false) => ("forward_lstm_from", vec![cx.option(5), cx.option(6), cx.option(4)]),
    };
    args.insert(0, Expr::Operand(0));
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

fn kind_expr(kind: RnnKind) -> Expr {
    match kind {
        RnnKind::Rnn => Expr::Path("tensor::RnnKind::Rnn"),
        RnnKind::Gru { linear_before_reset } => Expr::Struct(
            "tensor::RnnKind::Gru",
            vec![("linear_before_reset", Expr::Bool(linear_before_reset))],
        ),
        RnnKind::Lstm { input_forget } => {
            Expr::Struct("tensor::RnnKind::Lstm", vec![("input_forget", Expr::Bool(input_forget))])
        }
    }
}

fn direction_expr(direction: RnnDirection) -> Expr {
    Expr::Path(match direction {
        RnnDirection::Forward => "tensor::RnnDirection::Forward",
        RnnDirection::Reverse => "tensor::RnnDirection::Reverse",
        RnnDirection::Bidirectional => "tensor::RnnDirection::Bidirectional",
    })
}

/// The same as a call with everything spelt out.
fn function(options: &RnnOptions, cx: &Cx<'_>) -> Expr {
    let activations = options.activations.iter().copied().map(elementwise::value).collect();
    let options_expr = Expr::Struct(
        "tensor::RnnOptions",
        vec![
            ("kind", kind_expr(options.kind)),
            ("direction", direction_expr(options.direction)),
            ("hidden_size", Expr::Int(options.hidden_size as i64)),
            ("activations", Expr::Vec(activations)),
            ("clip", Expr::option(options.clip.map(Expr::Float))),
            ("batch_first", Expr::Bool(options.batch_first)),
        ],
    );
    let operands = Expr::Struct(
        "tensor::module::RnnInputs",
        vec![
            ("input", Expr::Operand(0)),
            ("weight", Expr::Operand(1)),
            ("recurrent", Expr::Operand(2)),
            ("bias", cx.option(3)),
            ("sequence_lengths", cx.option(4)),
            ("initial_hidden", cx.option(5)),
            ("initial_cell", cx.option(6)),
            ("peepholes", cx.option(7)),
        ],
    );
    let function = match options.kind {
        RnnKind::Lstm { .. } => "tensor::module::lstm",
        _ => "tensor::module::rnn",
    };
    Expr::Call(function, vec![operands, options_expr])
}
