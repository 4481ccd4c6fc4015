//! Roots of sums of squares.

use super::elementwise::elementwise_loops;
use super::prelude::*;
use super::unary::unary;
use kiln_types::{Step, UnaryOp};

/// A square root whose derivative at 0 counts as 0. A pass makes it late: what raises patterns or folds looks for plain roots.
pub struct RootOfSquares;

impl Operation for RootOfSquares {
    facts!(operands: ["x"], effect: Pure, folding: PerElement(1), result: Computed);
    none!(host);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = cx.ty(0)?;
        need_float("x", x)?;
        Ok(vec![x.clone()])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        Some(vec![unary(UnaryOp::Sqrt, operands.get(0)?)?])
    }

    fn derivation(&self, of: &Sources<'_>) -> Result<Derivation, String> {
        Ok(Derivation::Unary(UnaryOp::Sqrt, of.boxed(0)?))
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        elementwise_loops(cx, Step::Unary(UnaryOp::Sqrt, 0), 1)
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Call(Arg::call("tensor::linalg::root_of_squares", [Arg::Operand(0)]))
    }
}
