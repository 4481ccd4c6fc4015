//! Comparisons, with broadcasting.

use super::super::lowering::Lowering;
use super::super::node::SourceNode;
use super::super::operator::{Args, Operator, Outputs, Spec, family};
use crate::ir::RuleResult;
use kiln_types::CompareOp;

family!(CompareOp, &["A", "B"], {
    "Equal" since 7 => CompareOp::Equal,
    "Greater" since 7 => CompareOp::Greater,
    "GreaterOrEqual" since 12 => CompareOp::GreaterEqual,
    "Less" since 7 => CompareOp::Lower,
    "LessOrEqual" since 12 => CompareOp::LowerEqual,
});

pub(super) struct Compare(CompareOp);

impl Operator<'_> for Compare {
    const SPECS: &'static [Spec] = FAMILY;

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        member(node.operator()).map(Self)
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        Ok(to.compare(self.0, args.value("A")?, args.value("B")?)?.into())
    }
}
