//! `Where`: elements of one tensor or another, numbers or strings.

use super::prelude::*;

pub(super) struct Where;

impl<'m> Operator<'m> for Where {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("Where", 9, &["condition", "X", "Y"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let condition = args.value("condition")?;
        let operands = args.operands("X")?;
        if operands.iter().any(|operand| matches!(operand, Operand::Strings(_))) {
            let places = to.select(condition, args.strings("X")?, args.strings("Y")?)?;
            return Ok(Outputs(vec![Operand::Strings(places)]));
        }
        Ok(to.select(condition, args.value("X")?, args.value("Y")?)?.into())
    }
}
