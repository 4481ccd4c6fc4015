//! `IsInf`, of either sign or of one.

use super::prelude::*;

pub(super) struct IsInf {
    negative: bool,
    positive: bool,
}

impl IsInf {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self {
            negative: node.flag("detect_negative", true)?,
            positive: node.flag("detect_positive", true)?,
        })
    }
}

impl<'m> Operator<'m> for IsInf {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("IsInf", 10, &["X"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let one_sign = |to: &mut Lowering<'_, '_>, infinity: f64| {
            let infinity = to.number_like(x, infinity);
            to.compare(CompareOp::Equal, x, infinity)
        };
        let result = match (self.negative, self.positive) {
            (true, true) => to.unary(UnaryOp::IsInf, x)?,
            (true, false) => one_sign(to, f64::NEG_INFINITY)?,
            (false, true) => one_sign(to, f64::INFINITY)?,
            (false, false) => {
                let dims = to.dims(x);
                to.fill(dims, false, DType::Bool)?
            }
        };
        Ok(result.into())
    }
}
