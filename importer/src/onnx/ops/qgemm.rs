//! `QGemm`: `alpha · A · B + C` of matrices of integers that stand for numbers.

use super::gemm::oriented;
use super::matmul_integer::{integer_product, requantized};
use super::prelude::*;
use super::quantization::single;

pub(super) struct QGemm {
    alpha: f64,
    transpose: [bool; 2],
}

impl QGemm {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let transpose = [node.int("transA", 0)? != 0, node.int("transB", 0)? != 0];
        Ok(Self { alpha: node.float("alpha", 1.0)?, transpose })
    }
}

impl<'m> Operator<'m> for QGemm {
    const FORMS: Forms<'m, Self> = &[Spec::microsoft(
        "QGemm",
        &["A", "a_scale", "a_zero_point", "B", "b_scale", "b_zero_point", "C?", "y_scale?", "y_zero_point?"],
    )
    .reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let [transpose_a, transpose_b] = self.transpose;
        let a = oriented(to, "A", args.value("A")?, transpose_a)?;
        let b = oriented(to, "B", args.value("B")?, transpose_b)?;
        let a_zero = single(to, "a_zero_point", args.value("a_zero_point")?)?;
        let b_zero = columns(to, "b_zero_point", args.value("b_zero_point")?)?;
        let mut sum = integer_product(to, a, b, Some(a_zero), Some(b_zero))?;
        if let Some(c) = args.optional("C")? {
            sum = to.binary(BinaryOp::Add, sum, c)?;
        }
        let a_scale = single(to, "a_scale", args.value("a_scale")?)?;
        let b_scale = columns(to, "b_scale", args.value("b_scale")?)?;
        let step = to.formula(|f| {
            let [a_scale, b_scale] = f.values([a_scale, b_scale]).map(|scale| scale.cast(DType::F32));
            let a_scale = if self.alpha == 1.0 { a_scale } else { a_scale * self.alpha };
            a_scale * b_scale
        })?;
        let result = match (args.optional("y_scale")?, args.optional("y_zero_point")?) {
            (None, None) => to.formula(|f| f.value(sum).cast(DType::F32) * f.value(step))?,
            (Some(scale), Some(zero)) => requantized(to, sum, step, scale, zero)?,
            (None, Some(_)) => return Err(RuleError::MissingInput { input: "y_scale".to_owned() }),
            (Some(_), None) => return Err(RuleError::MissingInput { input: "y_zero_point".to_owned() }),
        };
        Ok(result.into())
    }
}

/// One number, or one for each column of `B`.
fn columns(to: &mut Lowering<'_, '_>, name: &str, value: ValueId) -> RuleResult<ValueId> {
    match to.rank(value) {
        0 | 1 => Ok(value),
        actual => {
            let expected = "expected at most 1".to_owned();
            Err(RuleError::Rank { input: name.to_owned(), actual, expected })
        }
    }
}
