//! Optionals: whether there is a value is known while the model is compiled.

use super::super::lowering::Lowering;
use super::super::node::SourceNode;
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::{RuleError, RuleResult};
use kiln_types::DType;

const INPUT: &[&str] = &["input?"];

pub(super) struct Optional {
    has: bool,
}

impl Operator<'_> for Optional {
    const SPECS: &'static [Spec] = &[
        Spec::onnx("Optional", 15, INPUT),
        Spec::onnx("OptionalGetElement", 15, INPUT),
        Spec::onnx("OptionalHasElement", 15, INPUT),
    ];

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        node.ignore(&["type"]);
        Ok(Self { has: node.operator() == "OptionalHasElement" })
    }

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
