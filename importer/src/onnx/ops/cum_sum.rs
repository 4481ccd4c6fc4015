//! `CumSum` and `CumProd`: running folds.

use super::prelude::*;
use crate::ir::op;
use kiln_types::CumulativeOp;

pub(super) struct CumSum {
    op: CumulativeOp,
    exclusive: bool,
    reverse: bool,
}

impl CumSum {
    fn read(node: &mut SourceNode<'_>, op: CumulativeOp) -> RuleResult<Self> {
        Ok(Self { op, exclusive: node.flag("exclusive", false)?, reverse: node.flag("reverse", false)? })
    }
}

impl<'m> Operator<'m> for CumSum {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("CumProd", 26, &["x", "axis"]).reads(|node| Self::read(node, CumulativeOp::Prod)),
        Spec::onnx("CumSum", 11, &["x", "axis"]).reads(|node| Self::read(node, CumulativeOp::Sum)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("x")?;
        let axis = match to.known_ints(args.value("axis")?, "axis")?.as_slice() {
            &[axis] => axis_of(axis, to.rank(x))?,
            other => return Err(invalid("axis", format!("has {} elements, must have 1", other.len()))),
        };
        let op = Op::Cumulative(op::Cumulative {
            op: self.op,
            axis,
            exclusive: self.exclusive,
            reverse: self.reverse,
        });
        Ok(to.add(op, &[x])?.into())
    }
}
