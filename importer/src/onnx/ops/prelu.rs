//! `PRelu`: a leaky rectifier with a slope for each channel or element.

use super::prelude::*;

pub(super) struct PRelu;

impl<'m> Operator<'m> for PRelu {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("PRelu", 7, &["X", "slope"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, slope) = (args.value("X")?, args.value("slope")?);
        let zero = to.number_like(x, 0);
        let negative = to.compare(CompareOp::Lower, x, zero)?;
        let scaled = to.binary(BinaryOp::Mul, x, slope)?;
        Ok(to.select(negative, scaled, x)?.into())
    }
}
