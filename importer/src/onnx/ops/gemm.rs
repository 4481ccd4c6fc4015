//! `Gemm`: `alpha · A · B + beta · C`.

use super::prelude::*;

pub(super) struct Gemm {
    alpha: f64,
    beta: f64,
    transpose: [bool; 2],
}

impl Gemm {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self {
            alpha: node.float("alpha", 1.0)?,
            beta: node.float("beta", 1.0)?,
            transpose: [node.int("transA", 0)? != 0, node.int("transB", 0)? != 0],
        })
    }
}

impl<'m> Operator<'m> for Gemm {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Gemm", 7, &["A", "B", "C"]).until(10).reads(Self::read),
        Spec::onnx("Gemm", 11, &["A", "B", "C?"]).reads(Self::read),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let [transpose_a, transpose_b] = self.transpose;
        let operands = [
            oriented(to, "A", args.value("A")?, transpose_a)?,
            oriented(to, "B", args.value("B")?, transpose_b)?,
        ];
        let product = to.add(Op::MatMul, &operands)?;
        let product = scaled(to, product, self.alpha)?;
        let Some(c) = args.optional("C")?.filter(|_| self.beta != 0.0) else {
            return Ok(product.into());
        };
        let c = scaled(to, c, self.beta)?;
        Ok(to.binary(BinaryOp::Add, product, c)?.into())
    }
}

/// A matrix, transposed where that is asked for.
pub(super) fn oriented(
    to: &mut Lowering<'_, '_>,
    name: &str,
    matrix: ValueId,
    transpose: bool,
) -> RuleResult<ValueId> {
    let actual = to.rank(matrix);
    if actual != 2 {
        let expected = "expected 2".to_owned();
        return Err(RuleError::Rank { input: name.to_owned(), actual, expected });
    }
    if transpose { to.permute(matrix, vec![1, 0]) } else { Ok(matrix) }
}

fn scaled(to: &mut Lowering<'_, '_>, x: ValueId, factor: f64) -> RuleResult<ValueId> {
    if factor == 1.0 {
        return Ok(x);
    }
    let factor = to.number_like(x, factor);
    to.binary(BinaryOp::Mul, x, factor)
}
