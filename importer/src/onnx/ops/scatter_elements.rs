//! `ScatterElements`, and `Scatter`, its first name.

use super::super::lowering::{Lowering, axis_of};
use super::super::node::SourceNode;
use super::super::operator::{Args, Operator, Outputs, Spec};
use super::gather_elements::from_start;
use crate::ir::{Op, RuleResult};
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

impl Operator<'_> for ScatterElements {
    const SPECS: &'static [Spec] =
        &[Spec::onnx("Scatter", 9, INPUTS).until(10), Spec::onnx("ScatterElements", 11, INPUTS)];

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { axis: node.int("axis", 0)?, op: node.choice("reduction", "none", REDUCTIONS)? })
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, updates) = (args.value("data")?, args.value("updates")?);
        let axis = axis_of(self.axis, to.rank(x))?;
        let indices = from_start(to, args.value("indices")?, x, axis)?;
        Ok(to.add(Op::Scatter { axis, op: self.op }, &[x, indices, updates])?.into())
    }
}
