//! `DynamicQuantizeLSTM`: an LSTM whose weights are integers under scales, as ONNX Runtime's dynamic quantization writes it.
//!
//! ONNX Runtime rounds the input and the state of each step to 8 bits for its products of integers, the state by a scale
//! that depends on how it has shared the batch out to threads. What is computed here is what that approximates: the layer
//! whose weights are the floats that the integers stand for.

use super::prelude::*;
use super::rnn::Rnn;

pub(super) struct DynamicQuantizeLstm(Rnn);

impl<'m> Operator<'m> for DynamicQuantizeLstm {
    const FORMS: Forms<'m, Self> = &[Spec::microsoft(
        "DynamicQuantizeLSTM",
        &[
            "X",
            "W",
            "R",
            "B?",
            "sequence_lens?",
            "initial_h?",
            "initial_c?",
            "P?",
            "W_scale",
            "W_zero_point",
            "R_scale",
            "R_zero_point",
        ],
    )
    .reads(|node| Rnn::read_lstm(node).map(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let weights = [weight(args, to, "W")?, weight(args, to, "R")?];
        self.0.with_weights(args, to, weights)
    }
}

/// The floats of a weight, `[directions, gates, inputs]`. Its integers lie the other way round, and have a scale and a zero
/// point for each direction, or for each of its gates' rows.
fn weight(args: &Args, to: &mut Lowering<'_, '_>, name: &str) -> RuleResult<ValueId> {
    let [scale_name, zero_name] = [format!("{name}_scale"), format!("{name}_zero_point")];
    let q = args.value(name)?;
    let [directions, _, gates] = <[Dim; 3]>::try_from(to.dims(q)).map_err(|dims| RuleError::Rank {
        input: name.to_owned(),
        actual: dims.len(),
        expected: "expected 3".to_owned(),
    })?;
    let mut parameter = |name: &str| {
        let value = args.value(name)?;
        match to.rank(value) {
            0 | 1 => to.reshape(value, vec![directions.clone(), Dim::constant(1), Dim::constant(1)]),
            _ => to.reshape(value, vec![directions.clone(), Dim::constant(1), gates.clone()]),
        }
    };
    let (scale, zero) = (parameter(&scale_name)?, parameter(&zero_name)?);
    let numbers = to.formula(|f| {
        let [q, zero] = f.values([q, zero]).map(|integers| integers.cast(DType::F32));
        (q - zero) * f.value(scale)
    })?;
    to.permute(numbers, vec![0, 2, 1])
}
