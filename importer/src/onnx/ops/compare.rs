//! Comparisons, with broadcasting.

use super::limited_broadcast::LimitedBroadcast;
use super::prelude::*;

const AB: &[&str] = &["A", "B"];

pub(super) struct Compare {
    op: CompareOp,
    /// How operands met before version 7.
    limited: Option<LimitedBroadcast>,
}

impl Compare {
    fn read(node: &mut SourceNode<'_>, op: CompareOp) -> RuleResult<Self> {
        Ok(Self { op, limited: LimitedBroadcast::read(node)? })
    }
}

impl<'m> Operator<'m> for Compare {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Equal", 1, AB).reads(|node| Self::read(node, CompareOp::Equal)),
        Spec::onnx("Greater", 1, AB).reads(|node| Self::read(node, CompareOp::Greater)),
        Spec::onnx("GreaterOrEqual", 12, AB).reads(|node| Self::read(node, CompareOp::GreaterEqual)),
        Spec::onnx("Less", 1, AB).reads(|node| Self::read(node, CompareOp::Lower)),
        Spec::onnx("LessOrEqual", 12, AB).reads(|node| Self::read(node, CompareOp::LowerEqual)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        if self.op == CompareOp::Equal && matches!(args.first(), Some(Operand::Strings(_))) {
            let (a, b) = (args.strings("A")?, args.strings("B")?);
            // All strings that the model does not know have one place: of two unknown ones nothing can be said.
            if [a, b].iter().all(|&value| to.constant(value).is_none()) {
                return Err(RuleError::Unsupported {
                    what: "a comparison of strings of which neither are constants: those that the model does not know \
                           have one place, whatever they are"
                        .to_owned(),
                });
            }
            return Ok(to.compare(self.op, a, b)?.into());
        }
        let (a, mut b) = (args.value("A")?, args.value("B")?);
        if let Some(limited) = &self.limited {
            b = limited.align(to, a, b)?;
        }
        Ok(to.compare(self.op, a, b)?.into())
    }
}
