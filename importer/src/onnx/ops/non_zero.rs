//! `NonZero`: positions of what is not zero, a column each.

use super::super::lowering::Lowering;
use super::super::node::SourceNode;
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::{Arg, Call, Dim, RuleResult, TensorType, ValueId};
use kiln_types::{CompareOp, DType};

pub(super) struct NonZero;

impl Operator<'_> for NonZero {
    const SPECS: &'static [Spec] = &[Spec::onnx("NonZero", 9, &["X"])];

    fn read(_: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self)
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let rows = positions(to, args.value("X")?)?;
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
    Ok(rows)
}
