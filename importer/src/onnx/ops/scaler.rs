//! `Scaler`: each feature less its offset, times its scale.

use super::prelude::*;
use super::scores::samples;

pub(super) struct Scaler {
    offset: Vec<f64>,
    scale: Vec<f64>,
}

impl Scaler {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let mut numbers = |name: &str| node.floats(name).map(Option::unwrap_or_default);
        Ok(Self { offset: numbers("offset")?, scale: numbers("scale")? })
    }
}

impl<'m> Operator<'m> for Scaler {
    const FORMS: Forms<'m, Self> = &[Spec::ml("Scaler", 1, &["X"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let is_line = to.rank(x) == 1;
        let mut y = samples(to, "X", x, DType::F32)?;
        for (name, op, numbers) in
            [("offset", BinaryOp::Sub, &self.offset), ("scale", BinaryOp::Mul, &self.scale)]
        {
            if let Some(numbers) = of_features(to, name, y, numbers)? {
                y = to.binary(op, y, numbers)?;
            }
        }
        Ok(if is_line { to.squeeze(y, &[0])? } else { y }.into())
    }
}

/// A number for each feature, or one for all of them; `None` if there are none.
pub(super) fn of_features(
    to: &mut Lowering<'_, '_>,
    name: &str,
    samples: ValueId,
    numbers: &[f64],
) -> RuleResult<Option<ValueId>> {
    match *numbers {
        [] => Ok(None),
        [number] => Ok(Some(to.number_like(samples, number))),
        _ => {
            fits(to, name, samples, numbers.len())?;
            Ok(Some(to.parameter(name, numbers, &[numbers.len()])?))
        }
    }
}

/// An error unless there are as many numbers as features, as far as their number is known.
pub(super) fn fits(to: &Lowering<'_, '_>, name: &str, samples: ValueId, count: usize) -> RuleResult<()> {
    match to.dims(samples).last().and_then(Dim::as_size) {
        Some(features) if features != count => {
            Err(misfit(name, format!("has {count} numbers for {features} features")))
        }
        _ => Ok(()),
    }
}
