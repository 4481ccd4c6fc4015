//! `RNN`, `GRU` and `LSTM`.

use super::prelude::*;
use kiln_types::{Activation, RnnDirection, RnnKind, RnnOptions};

pub(super) struct Rnn {
    kind: RnnKind,
    direction: RnnDirection,
    hidden_size: Option<usize>,
    /// Each direction's.
    activations: Vec<Activation>,
    clip: Option<f64>,
    batch_first: bool,
}

const RNN: &[&str] = &["X", "W", "R", "B?", "sequence_lens?", "initial_h?"];
const LSTM: &[&str] = &["X", "W", "R", "B?", "sequence_lens?", "initial_h?", "initial_c?", "P?"];

impl Rnn {
    fn read(node: &mut SourceNode<'_>, kind: RnnKind) -> RuleResult<Self> {
        let directions = [
            ("forward", RnnDirection::Forward),
            ("reverse", RnnDirection::Reverse),
            ("bidirectional", RnnDirection::Bidirectional),
        ];
        if node.opset < 7 {
            // Whether all states are an output; names of outputs say that, too.
            node.ignore(&["output_sequence"]);
        }
        let direction = node.choice("direction", "forward", &directions)?;
        let hidden_size = node.size("hidden_size", 0)?;
        let clip = node.optional_float("clip")?.filter(|&clip| clip > 0.0);
        Ok(Self {
            kind,
            direction,
            hidden_size: (hidden_size > 0).then_some(hidden_size),
            activations: activations(node, kind, direction)?,
            clip,
            batch_first: node.flag("layout", false)?,
        })
    }

    fn read_gru(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let linear_before_reset = node.flag("linear_before_reset", false)?;
        Self::read(node, RnnKind::Gru { linear_before_reset })
    }

    pub(super) fn read_lstm(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let input_forget = node.flag("input_forget", false)?;
        Self::read(node, RnnKind::Lstm { input_forget })
    }
}

impl<'m> Operator<'m> for Rnn {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("GRU", 1, RNN).reads(Self::read_gru),
        Spec::onnx("LSTM", 1, LSTM).reads(Self::read_lstm),
        Spec::onnx("RNN", 1, RNN).reads(|node| Self::read(node, RnnKind::Rnn)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        self.with_weights(args, to, [args.value("W")?, args.value("R")?])
    }
}

impl Rnn {
    /// The layer with these as `W` and `R`, and its other operands as they are given.
    pub(super) fn with_weights(
        &self,
        args: &Args,
        to: &mut Lowering<'_, '_>,
        [weight, recurrent]: [ValueId; 2],
    ) -> RuleResult<Outputs> {
        let of_weight = to.ty(recurrent).dims.get(2).and_then(Dim::as_size);
        let hidden_size = self.hidden_size.or(of_weight);
        let hidden_size = hidden_size.filter(|&size| size <= i32::MAX as usize);
        let hidden_size = hidden_size.ok_or_else(|| invalid("hidden_size", "is missing or too large"))?;
        let options = RnnOptions {
            kind: self.kind,
            direction: self.direction,
            hidden_size,
            activations: self.activations.clone().into(),
            clip: self.clip,
            state_clip: None,
            batch_first: self.batch_first,
        };
        let mut inputs = Vec::with_capacity(LSTM.len());
        for name in LSTM {
            inputs.push(match *name {
                "W" => Some(weight),
                "R" => Some(recurrent),
                name => args.optional(name.trim_end_matches('?'))?,
            });
        }
        Ok(to.builder.add_all(Op::Rnn(options), inputs)?.into())
    }
}

/// The activations of each direction's cell, with their parameters, which are listed apart from the names.
fn activations(
    node: &mut SourceNode<'_>,
    kind: RnnKind,
    direction: RnnDirection,
) -> RuleResult<Vec<Activation>> {
    let defaults = kind.activations().repeat(direction.count());
    let mut alphas = node.floats("activation_alpha")?.unwrap_or_default().into_iter();
    let mut betas = node.floats("activation_beta")?.unwrap_or_default().into_iter();
    let Some(names) = node.strings("activations")? else {
        return Ok(defaults);
    };
    if names.len() != defaults.len() {
        let wanted = defaults.len();
        return Err(invalid("activations", format!("has {} entries, must have {wanted}", names.len())));
    }
    let mut alpha = |default: f64| alphas.next().unwrap_or(default);
    let mut beta = |default: f64| betas.next().unwrap_or(default);
    names
        .iter()
        .map(|name| {
            Ok(match name.to_ascii_lowercase().as_str() {
                "relu" => Activation::Relu,
                "tanh" => Activation::Tanh,
                "sigmoid" => Activation::Sigmoid,
                "softplus" => Activation::Softplus,
                "leakyrelu" => Activation::LeakyRelu { slope: alpha(0.01) },
                "elu" => Activation::Elu { alpha: alpha(1.0) },
                "hardsigmoid" => Activation::HardSigmoid { alpha: alpha(0.2), beta: beta(0.5) },
                "affine" => Activation::Affine { alpha: alpha(1.0), beta: beta(0.0) },
                "scaledtanh" => Activation::ScaledTanh { alpha: alpha(1.0), beta: beta(1.0) },
                "softsign" => Activation::Softsign,
                "thresholdedrelu" => Activation::ThresholdedRelu { alpha: alpha(1.0) },
                _ => {
                    let what = format!("the cell function {}", kiln_types::quoted(name));
                    return Err(RuleError::Unsupported { what });
                }
            })
        })
        .collect()
}
