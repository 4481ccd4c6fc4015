//! `Compress`: the entries of an axis (or of everything, flat) that a condition keeps.

use super::non_zero::positions;
use super::prelude::*;
use crate::ir::op;

pub(super) struct Compress {
    axis: Option<i64>,
}

impl Compress {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { axis: node.optional_int("axis")? })
    }
}

impl<'m> Operator<'m> for Compress {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("Compress", 9, &["input", "condition"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        let (x, axis) = match self.axis {
            Some(axis) => (x, axis_of(axis, to.rank(x))?),
            None => {
                let dims = to.dims(x);
                (to.reshape(x, vec![Dim::product(&dims)])?, 0)
            }
        };
        let rows = positions(to, args.value("condition")?)?;
        let kept = to.squeeze(rows, &[1])?;
        Ok(to.add(Op::Take(op::Take { axis, wrapped: false }), &[x, kept])?.into())
    }
}
