//! `BatchNormalization` with given statistics.

use super::super::lowering::Lowering;
use super::super::node::{SourceNode, invalid};
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::{Op, RuleError, RuleResult};

pub(super) struct BatchNormalization {
    epsilon: f64,
}

impl Operator<'_> for BatchNormalization {
    const SPECS: &'static [Spec] =
        &[Spec::onnx("BatchNormalization", 7, &["X", "scale", "B", "input_mean", "input_var"])];

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // How running statistics move; they do not here.
        node.ignore(&["momentum"]);
        if node.flag("training_mode", false)? {
            let what = "BatchNormalization in training mode; export the model in evaluation mode".to_owned();
            return Err(RuleError::Unsupported { what });
        }
        if node.opset < 9 && !node.flag("spatial", true)? {
            return Err(invalid("spatial", "is 0, statistics for each position are not supported"));
        }
        Ok(Self { epsilon: node.float("epsilon", 1e-5)? })
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let dtype = to.dtype(x);
        let mut inputs = vec![x];
        for name in ["scale", "B", "input_mean", "input_var"] {
            // Half-precision models may keep their statistics in single precision.
            let value = args.value(name)?;
            inputs.push(to.cast(value, dtype)?);
        }
        Ok(to.add(Op::BatchNorm { epsilon: self.epsilon }, &inputs)?.into())
    }
}
