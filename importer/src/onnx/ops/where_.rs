//! `Where`: elements of one tensor or another.

use super::prelude::*;

pub(super) struct Where;

impl<'m> Operator<'m> for Where {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("Where", 9, &["condition", "X", "Y"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        Ok(to.select(args.value("condition")?, args.value("X")?, args.value("Y")?)?.into())
    }
}
