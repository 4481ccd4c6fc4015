//! `NonZero`: positions of what is not zero, a column each.

use super::prelude::*;

pub(super) struct NonZero;

impl<'m> Operator<'m> for NonZero {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("NonZero", 9, &["X"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        // The position of a scalar is one in a row of its own.
        let x = if to.rank(x) == 0 { to.reshape(x, vec![Dim::constant(1)])? } else { x };
        let rows = positions(to, x)?;
        Ok(to.permute(rows, vec![1, 0])?.into())
    }
}

/// Positions of what is not zero, a row each: `[n, rank]`. How many there are, only the run tells.
pub(super) fn positions(to: &mut Lowering<'_, '_>, x: ValueId) -> RuleResult<ValueId> {
    let mask = if to.dtype(x).is_bool() {
        x
    } else {
        let zero = to.number_like(x, 0);
        to.compare(CompareOp::NotEqual, x, zero)?
    };
    let count = to.fresh("nonzero");
    let ty = TensorType { dtype: DType::I64, dims: vec![count, Dim::from(to.rank(x))] };
    let rows = to.call_reading(Call::new("argwhere", [Arg::Operand(0)]), &[mask], ty)?;
    to.declare(rows, 0);
    to.positions.insert(rows);
    Ok(rows)
}
