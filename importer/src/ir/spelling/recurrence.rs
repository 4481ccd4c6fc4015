//! Recurrent layers.

use super::{Cx, Expr, Spelling, elementwise};
use kiln_types::{RnnDirection, RnnKind, RnnOptions};

pub(super) fn spell(options: &RnnOptions, cx: &Cx<'_>) -> Spelling {
    let kind = match options.kind {
        RnnKind::Rnn => Expr::Path("tensor::RnnKind::Rnn"),
        RnnKind::Gru { linear_before_reset } => Expr::Struct(
            "tensor::RnnKind::Gru",
            vec![("linear_before_reset", Expr::Bool(linear_before_reset))],
        ),
        RnnKind::Lstm { input_forget } => {
            Expr::Struct("tensor::RnnKind::Lstm", vec![("input_forget", Expr::Bool(input_forget))])
        }
    };
    let direction = Expr::Path(match options.direction {
        RnnDirection::Forward => "tensor::RnnDirection::Forward",
        RnnDirection::Reverse => "tensor::RnnDirection::Reverse",
        RnnDirection::Bidirectional => "tensor::RnnDirection::Bidirectional",
    });
    let activations = options.activations.iter().copied().map(elementwise::value).collect();
    let options_expr = Expr::Struct(
        "tensor::RnnOptions",
        vec![
            ("kind", kind),
            ("direction", direction),
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
    Spelling::Expr(Expr::Call(function, vec![operands, options_expr]))
}
