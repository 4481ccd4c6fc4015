//! `BatchNormalization`, with given statistics or with the batch's own.

use super::prelude::*;
use crate::ir::op;
use std::cmp::Ordering;

pub(super) struct BatchNormalization {
    epsilon: f64,
    /// Weight of the running statistics when those of a batch are added.
    momentum: f64,
    /// Whether the node normalizes by the batch's statistics and moves the running ones.
    training: bool,
    /// Whether statistics are those of a position of a channel, as versions before 9 could have it.
    by_position: bool,
}

impl BatchNormalization {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let momentum = node.float("momentum", 0.9)?;
        // Until version 14, asking for the statistics meant training.
        let asked = node.opset < 14 && (1..node.output_count()).any(|n| node.names_output(n));
        let test = node.opset < 7 && node.flag("is_test", false)?;
        let training = node.flag("training_mode", false)? || (asked && !test);
        let by_position = node.opset < 9 && !node.flag("spatial", true)?;
        if by_position && training {
            return Err(invalid("spatial", "is 0, and moving statistics of each position are not supported"));
        }
        Ok(Self { epsilon: node.float("epsilon", 1e-5)?, momentum, training, by_position })
    }
}

impl<'m> Operator<'m> for BatchNormalization {
    const FORMS: Forms<'m, Self> =
        &[Spec::onnx("BatchNormalization", 1, &["X", "scale", "B", "input_mean", "input_var"])
            .reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let names = ["X", "scale", "B", "input_mean", "input_var"];
        let given = names.iter().map(|name| args.value(name)).collect::<RuleResult<Vec<_>>>()?;
        let (x, dtype) = (given[0], to.dtype(given[0]));
        if !dtype.is_float() {
            let expected = "expected a float".to_owned();
            return Err(RuleError::DType { input: "X".to_owned(), actual: dtype, expected });
        }
        let kept = to.dtype(given[3]);
        // Half-precision models may keep their statistics in single precision, where there may be larger ones than a half
        // has room for.
        let wide = given.iter().fold(dtype, |wide, &value| wider(wide, to.dtype(value)));
        // Those of a batch are computed in single precision at least, and used so.
        let wide = if self.training { wider(wide, DType::F32) } else { wide };
        let inputs = given.iter().map(|&value| to.cast(value, wide)).collect::<RuleResult<Vec<_>>>()?;
        if self.by_position {
            let y = to.formula(|f| {
                let [x, scale, bias, mean, variance] = [0, 1, 2, 3, 4].map(|n| f.value(inputs[n]));
                (x - mean) / (variance + self.epsilon).sqrt() * scale + bias
            })?;
            return Ok(to.cast(y, dtype)?.into());
        }
        // A model that is to be trained has a layer, which decides by itself whether it trains.
        let of_batch = to.trainable.then_some(1.0 - self.momentum);
        let op = Op::BatchNorm(op::BatchNorm { epsilon: self.epsilon, momentum: of_batch });
        if !self.training {
            let y = to.add(op, &inputs)?;
            return Ok(to.cast(y, dtype)?.into());
        }
        let momentum = self.momentum;
        let [mean, variance] = statistics(to, x, wide)?;
        let running = to.formulas(|f| {
            let pairs = [[inputs[3], mean], [inputs[4], variance]];
            pairs.map(|[running, current]| moved(f.value(running), f.value(current), momentum))
        })?;
        let y = if to.trainable {
            to.add(op, &inputs)?
        } else {
            to.add(op, &[inputs[0], inputs[1], inputs[2], mean, variance])?
        };
        let mut outputs = vec![to.cast(y, dtype)?];
        for value in [running[0], running[1], mean, variance] {
            outputs.push(to.cast(value, kept)?);
        }
        Ok(outputs.into())
    }
}

/// The dtype that holds numbers of both.
fn wider(a: DType, b: DType) -> DType {
    match (a == b, a.size().cmp(&b.size())) {
        (true, _) => a,
        (false, Ordering::Less) => b,
        (false, Ordering::Greater) => a,
        (false, Ordering::Equal) => DType::F32,
    }
}

/// Mean and variance of each channel, computed at least in single precision: squares of halves may be larger than any half.
fn statistics(to: &mut Lowering<'_, '_>, x: ValueId, dtype: DType) -> RuleResult<[ValueId; 2]> {
    let rank = to.need_rank("X", x, 2)?;
    let x = to.cast(x, wider(dtype, DType::F32))?;
    let axes: Vec<usize> = (0..rank).filter(|&axis| axis != 1).collect();
    let [mean, variance] = to.formulas(|f| {
        let x = f.value(x);
        let mean = x.mean(&axes);
        [mean, (x - mean).square().reduce_squeezed(ReduceOp::Mean, &axes)]
    })?;
    let mean = to.squeeze(mean, &axes)?;
    Ok([to.cast(mean, dtype)?, to.cast(variance, dtype)?])
}

/// `running · momentum + current · (1 - momentum)`.
fn moved<'f>(running: Value<'f>, current: Value<'f>, momentum: f64) -> Value<'f> {
    running * momentum + current * (1.0 - momentum)
}
