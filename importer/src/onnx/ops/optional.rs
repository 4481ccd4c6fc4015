//! Optionals: whether there is a value is known while the model is compiled.

use super::prelude::*;

const INPUT: &[&str] = &["input?"];

pub(super) struct Optional {
    has: bool,
}

impl Optional {
    fn read(node: &mut SourceNode<'_>, has: bool) -> RuleResult<Self> {
        node.ignore(&["type"]);
        Ok(Self { has })
    }
}

impl<'m> Operator<'m> for Optional {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Optional", 15, INPUT).reads(|node| Self::read(node, false)),
        Spec::onnx("OptionalGetElement", 15, INPUT).reads(|node| Self::read(node, false)),
        Spec::onnx("OptionalHasElement", 15, INPUT).reads(|node| Self::read(node, true)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        if self.has {
            return Ok(to.scalar(args.first().is_some(), DType::Bool).into());
        }
        let operand = args.first().cloned();
        operand
            .map(|operand| Outputs(vec![operand]))
            .ok_or_else(|| RuleError::Unsupported { what: "an optional without a value".to_owned() })
    }
}
