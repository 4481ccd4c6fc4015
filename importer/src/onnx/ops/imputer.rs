//! `Imputer`: numbers in the place of missing ones.

use super::prelude::*;
use super::scaler::fits;
use kiln_types::TensorData;

pub(super) struct Imputer {
    floats: Replacement<f64>,
    integers: Replacement<i64>,
}

/// What stands for a missing number, and what replaces it in each feature.
struct Replacement<T> {
    missing: T,
    imputed: Vec<T>,
}

impl Imputer {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self {
            floats: Replacement {
                missing: node.float("replaced_value_float", 0.0)?,
                imputed: node.floats("imputed_value_floats")?.unwrap_or_default(),
            },
            integers: Replacement {
                missing: node.int("replaced_value_int64", 0)?,
                imputed: node.ints("imputed_value_int64s")?.unwrap_or_default(),
            },
        })
    }
}

impl<'m> Operator<'m> for Imputer {
    const FORMS: Forms<'m, Self> = &[Spec::ml("Imputer", 1, &["X"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        to.need_rank("X", x, 1)?;
        let (missing, imputed) = if to.dtype(x).is_float() {
            let Replacement { missing, imputed } = &self.floats;
            let is_missing =
                if missing.is_nan() { to.unary(UnaryOp::IsNan, x)? } else { equal(to, x, *missing)? };
            let imputed = match *imputed.as_slice() {
                [] => return Err(invalid("imputed_value_floats", "is missing")),
                [one] => to.number_like(x, one),
                _ => {
                    fits(to, "imputed_value_floats", x, imputed.len())?;
                    let numbers = to.parameter("imputed", imputed, &[imputed.len()])?;
                    let dtype = to.dtype(x);
                    to.cast(numbers, dtype)?
                }
            };
            (is_missing, imputed)
        } else {
            let Replacement { missing, imputed } = &self.integers;
            let is_missing = equal(to, x, *missing)?;
            let imputed = match *imputed.as_slice() {
                [] => return Err(invalid("imputed_value_int64s", "is missing")),
                [one] => to.number_like(x, one),
                _ => {
                    fits(to, "imputed_value_int64s", x, imputed.len())?;
                    let numbers = to.fixed("imputed", TensorData::new(imputed.clone(), [imputed.len()]))?;
                    let dtype = to.dtype(x);
                    to.cast(numbers, dtype)?
                }
            };
            (is_missing, imputed)
        };
        Ok(to.select(missing, imputed, x)?.into())
    }
}

fn equal(to: &mut Lowering<'_, '_>, x: ValueId, number: impl Into<Scalar>) -> RuleResult<ValueId> {
    let number = to.number_like(x, number);
    to.compare(CompareOp::Equal, x, number)
}
