//! Calls of the runtime that no pass looks into.

use super::prelude::*;
use crate::ir::RuntimeCall;

impl Operation for RuntimeCall {
    const OPERANDS: &'static [&'static str] = &["operands*"];
    const PARAMETERS: &'static [usize] = &[];

    fn effect(&self) -> Effect {
        self.effect
    }

    fn infer(&self, _: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        Ok(self.outputs.clone())
    }

    fn host(&self, _: &Host<'_>) -> Option<Vec<Dim>> {
        None
    }

    fn evaluate(&self, _: &Known<'_>) -> Option<Vec<TensorData>> {
        None
    }

    fn result(&self) -> Outcome {
        Outcome::Unknown
    }

    none!(derivation, loops);

    fn folding(&self) -> Folding {
        Folding::Never
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Call(Arg::Call(self.call.clone()))
    }
}
