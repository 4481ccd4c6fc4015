//! Where gradients stop.

use super::prelude::*;

/// The same values, through which no gradient flows. It is there in models that are to be trained alone.
pub struct Detach;

impl Operation for Detach {
    // Not folded: what was a parameter would be a number of the graph.
    facts!(operands: ["x"], effect: Pure, folding: Never, result: Computed);
    none!(derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = cx.ty(0)?;
        need_float("x", x)?;
        Ok(vec![x.clone()])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        Some(cx.operand(0)?.values.to_vec())
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        Some(vec![operands.get(0)?.clone()])
    }

    fn loops(&self, _: &Site<'_>) -> Option<Loops> {
        Some(Loops::Same)
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Call(Arg::Operand(0).then("detach", []))
    }
}
