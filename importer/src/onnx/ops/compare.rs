//! Comparisons, with broadcasting.

use super::prelude::*;

const AB: &[&str] = &["A", "B"];

pub(super) struct Compare(CompareOp);

impl<'m> Operator<'m> for Compare {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Equal", 7, AB).reads(|_| Ok(Self(CompareOp::Equal))),
        Spec::onnx("Greater", 7, AB).reads(|_| Ok(Self(CompareOp::Greater))),
        Spec::onnx("GreaterOrEqual", 12, AB).reads(|_| Ok(Self(CompareOp::GreaterEqual))),
        Spec::onnx("Less", 7, AB).reads(|_| Ok(Self(CompareOp::Lower))),
        Spec::onnx("LessOrEqual", 12, AB).reads(|_| Ok(Self(CompareOp::LowerEqual))),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        Ok(to.compare(self.0, args.value("A")?, args.value("B")?)?.into())
    }
}
