//! `Identity`: nothing at all.

use super::prelude::*;

pub(super) struct Identity;

impl<'m> Operator<'m> for Identity {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("Identity", 1, &["input"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, _: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let operand = args.first().cloned();
        operand.map(|operand| Outputs(vec![operand])).ok_or(RuleError::MissingInput { input: "input".into() })
    }
}
