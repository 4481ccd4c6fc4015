//! Activations that a convolution or linear layer applies on its way out.

use super::{Rewrite, Rule};
use crate::ir::{Conv, LayerOperands, Linear, Op, QuantizedConv, QuantizedLinear, ValueId};

pub(super) const RULE: Rule = Rule { apply };

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let (activation, x) = cx.activated(cx.output()?)?;
    let layer = cx.producer(x).filter(|_| cx.used_once(x))?.clone();
    let op = match layer.op {
        Op::Conv(Conv { options, activation: None }) => {
            Op::Conv(Conv { options, activation: Some(activation) })
        }
        Op::Linear(Linear { activation: None }) => Op::Linear(Linear { activation: Some(activation) }),
        Op::QuantizedLinear(QuantizedLinear { activation: None }) if yields_floats(&layer.inputs) => {
            Op::QuantizedLinear(QuantizedLinear { activation: Some(activation) })
        }
        Op::QuantizedConv(QuantizedConv { options, activation: None }) if yields_floats(&layer.inputs) => {
            Op::QuantizedConv(QuantizedConv { options, activation: Some(activation) })
        }
        _ => return None,
    };
    cx.replace_as(op, layer.inputs, Some(layer.origin))?;
    Some("activation into its layer")
}

/// Whether a layer of integers yields what they stand for.
fn yields_floats(operands: &[Option<ValueId>]) -> bool {
    operands.get(LayerOperands::OUTPUT_ZERO).copied().flatten().is_none()
}
