//! Optionals: whether there is a value is known while the model is compiled.

use super::prelude::*;

const INPUT: &[&str] = &["input?"];

pub(super) enum Optional {
    Make,
    Element,
    HasElement,
}

impl Optional {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // What an optional without a value could hold.
        node.ignore(&["type"]);
        Ok(Self::Make)
    }
}

impl<'m> Operator<'m> for Optional {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Optional", 15, INPUT).reads(Self::read),
        Spec::onnx("OptionalGetElement", 15, INPUT).reads(|_| Ok(Self::Element)),
        Spec::onnx("OptionalHasElement", 15, INPUT).reads(|_| Ok(Self::HasElement)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let operand = args.first().cloned();
        Ok(match (self, operand) {
            (Self::HasElement, operand) => to.scalar(operand.is_some(), DType::Bool).into(),
            (Self::Make | Self::Element, Some(operand)) => Outputs(vec![operand]),
            (Self::Make, None) => Outputs(vec![Operand::Absent]),
            (Self::Element, None) => {
                let what = "the element of an optional without a value".to_owned();
                return Err(RuleError::Unsupported { what });
            }
        })
    }
}
