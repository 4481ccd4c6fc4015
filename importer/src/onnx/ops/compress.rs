//! `Compress`: the entries of an axis (or of everything, flat) that a condition keeps.

use super::super::lowering::{Lowering, axis_of};
use super::super::node::SourceNode;
use super::super::operator::{Args, Operator, Outputs, Spec};
use super::non_zero::positions;
use crate::ir::{Dim, Op, RuleResult};

pub(super) struct Compress {
    axis: Option<i64>,
}

impl Operator<'_> for Compress {
    const SPECS: &'static [Spec] = &[Spec::onnx("Compress", 9, &["input", "condition"])];

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { axis: node.optional_int("axis")? })
    }

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
        Ok(to.add(Op::Take { axis, wrapped: false }, &[x, kept])?.into())
    }
}
