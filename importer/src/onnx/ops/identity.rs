//! `Identity`: nothing at all.

use super::super::lowering::Lowering;
use super::super::node::SourceNode;
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::{RuleError, RuleResult};

pub(super) struct Identity;

impl Operator<'_> for Identity {
    const SPECS: &'static [Spec] = &[Spec::onnx("Identity", 1, &["input"])];

    fn read(_: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self)
    }

    fn lower(&self, args: &Args, _: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let operand = args.first().cloned();
        operand.map(|operand| Outputs(vec![operand])).ok_or(RuleError::MissingInput { input: "input".into() })
    }
}
