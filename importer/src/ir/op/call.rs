//! Calls of the runtime that no pass looks into.

use super::prelude::*;
use crate::ir::RuntimeCall;
use kiln_types::{BinaryOp, Expression, Step};

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

    none!(derivation);

    fn folding(&self) -> Folding {
        Folding::Never
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let size = |n: usize| match self.call.args.get(n) {
            Some(Arg::Size(size)) => size.as_size(),
            Some(Arg::Int(value)) => usize::try_from(*value).ok(),
            _ => None,
        };
        match (self.call.function.as_ref(), self.call.args.as_slice()) {
            ("tensor::module::topk", [_, _, _, Arg::Bool(largest)]) => {
                let [outer, length, inner] = cx.around(size(2)?)?;
                let sizes =
                    KernelArg::sizes("Axis", [("outer", outer), ("length", length), ("inner", inner)]);
                let args =
                    [KernelArg::Operand(0), sizes, KernelArg::Size(size(1)?), KernelArg::Bool(*largest)];
                Some(Loops::kernel("topk", args))
            }
            ("tensor::module::rotary", _) => rotary(cx),
            _ => None,
        }
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Call(Arg::Call(self.call.clone()))
    }
}

/// Loops that turn pairs of features, which stand in both halves of the last dim: by each half of the angles, its own features times the
/// cosine, less or plus the others times the sine.
fn rotary(cx: &Site<'_>) -> Option<Loops> {
    let shape = cx.shape(0)?;
    let (last, half) = (shape.len().checked_sub(1)?, shape.last()? / 2);
    let result = Strided::new(&shape);
    let part = |view: &Strided, n: usize| view.slice(last, n * half, (n + 1) * half, 1);
    let angles = |n: usize| Strided::new(&cx.shape(n)?).expand(&shape);
    let (cos, sin) = (angles(1)?, angles(2)?);
    let pass = |n: usize| {
        let op = if n == 0 { BinaryOp::Sub } else { BinaryOp::Add };
        let products =
            [Step::Binary(BinaryOp::Mul, 0, 2), Step::Binary(BinaryOp::Mul, 1, 3), Step::Binary(op, 4, 5)];
        let expression = Expression::new((0..4).map(Step::Input).chain(products).collect());
        let operands = vec![
            (0, part(&result, n)?),
            (0, part(&result, 1 - n)?),
            (1, part(&cos, n)?),
            (2, part(&sin, n)?),
        ];
        Some(ElementLoop { result: part(&result, n)?, operands, expression })
    };
    Some(Loops::Elementwise(vec![pass(0)?, pass(1)?]))
}
