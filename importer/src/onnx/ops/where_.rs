//! `Where`: elements of one tensor or another.

use super::super::lowering::Lowering;
use super::super::node::SourceNode;
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::RuleResult;

pub(super) struct Where;

impl Operator<'_> for Where {
    const SPECS: &'static [Spec] = &[Spec::onnx("Where", 9, &["condition", "X", "Y"])];

    fn read(_: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self)
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        Ok(to.select(args.value("condition")?, args.value("X")?, args.value("Y")?)?.into())
    }
}
