//! `Concat`.

use super::super::lowering::{Lowering, axis_of};
use super::super::node::{SourceNode, invalid};
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::{RuleError, RuleResult};

pub(super) struct Concat {
    axis: i64,
}

impl Operator<'_> for Concat {
    const SPECS: &'static [Spec] = &[Spec::onnx("Concat", 4, &["inputs*"])];

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { axis: node.optional_int("axis")?.ok_or_else(|| invalid("axis", "is missing"))? })
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let values = args.all("inputs")?;
        let first = values.first().ok_or_else(|| RuleError::MissingInput { input: "inputs".into() })?;
        let axis = axis_of(self.axis, to.rank(*first))?;
        Ok(to.concat(&values, axis)?.into())
    }
}
