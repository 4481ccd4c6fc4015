//! `ScatterElements`, and `Scatter`, its first name.

use super::gather_elements::from_start;
use super::prelude::*;
use crate::ir::op;
use kiln_types::ScatterOp;

const INPUTS: &[&str] = &["data", "indices", "updates"];

/// How updates meet what is there.
pub(super) const REDUCTIONS: &[(&str, ScatterOp)] = &[
    ("none", ScatterOp::Assign),
    ("add", ScatterOp::Add),
    ("mul", ScatterOp::Mul),
    ("max", ScatterOp::Max),
    ("min", ScatterOp::Min),
];

pub(super) struct ScatterElements {
    axis: i64,
    op: ScatterOp,
}

impl ScatterElements {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { axis: node.int("axis", 0)?, op: node.choice("reduction", "none", REDUCTIONS)? })
    }
}

impl<'m> Operator<'m> for ScatterElements {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Scatter", 9, INPUTS).until(10).reads(Self::read),
        Spec::onnx("ScatterElements", 11, INPUTS).reads(Self::read),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, updates) = (args.value("data")?, args.value("updates")?);
        let axis = axis_of(self.axis, to.rank(x))?;
        let indices = from_start(to, args.value("indices")?, x, axis)?;
        Ok(to.add(Op::Scatter(op::Scatter { axis, op: self.op }), &[x, indices, updates])?.into())
    }
}
