//! `MatMul`: numpy's, for vectors too; ONNX Runtime's `FusedMatMul` transposes and scales as well.

use super::prelude::*;

pub(super) struct MatMul {
    alpha: f64,
    /// Whether the last two axes of each operand change places.
    transposed: [bool; 2],
}

impl MatMul {
    fn read_fused(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        for name in ["transBatchA", "transBatchB"] {
            if node.flag(name, false)? {
                return Err(RuleError::Unsupported { what: format!("`{name}`") });
            }
        }
        let transposed = [node.flag("transA", false)?, node.flag("transB", false)?];
        Ok(Self { alpha: node.float("alpha", 1.0)?, transposed })
    }
}

impl<'m> Operator<'m> for MatMul {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("MatMul", 1, &["A", "B"]).reads(|_| Ok(Self { alpha: 1.0, transposed: [false; 2] })),
        Spec::microsoft("FusedMatMul", &["A", "B"]).reads(Self::read_fused),
        // What it was called at first.
        Spec::microsoft("TransposeMatMul", &["A", "B"]).reads(Self::read_fused),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let mut operand = |name: &str, transposed: bool| {
            let x = args.value(name)?;
            // A vector has nothing to transpose.
            let rank = to.rank(x);
            if !transposed || rank < 2 {
                return Ok(x);
            }
            let mut axes: Vec<usize> = (0..rank).collect();
            axes.swap(rank - 2, rank - 1);
            to.permute(x, axes)
        };
        let (a, b) = (operand("A", self.transposed[0])?, operand("B", self.transposed[1])?);
        let result = product(to, a, b)?;
        if self.alpha == 1.0 {
            return Ok(result.into());
        }
        let alpha = to.number_like(result, self.alpha);
        Ok(to.binary(BinaryOp::Mul, result, alpha)?.into())
    }
}

/// A matrix product of any ranks: a vector is a row on the left, a column on the right.
pub(super) fn product(to: &mut Lowering<'_, '_>, a: ValueId, b: ValueId) -> RuleResult<ValueId> {
    matrices(to, a, b, |to, a, b| to.add(Op::MatMul, &[a, b]))
}

/// What `multiply` makes of operands of any ranks as it takes them, of equal rank of at least 2.
pub(super) fn matrices<'g, 'm>(
    to: &mut Lowering<'g, 'm>,
    a: ValueId,
    b: ValueId,
    multiply: impl FnOnce(&mut Lowering<'g, 'm>, ValueId, ValueId) -> RuleResult<ValueId>,
) -> RuleResult<ValueId> {
    to.need_rank("A", a, 1)?;
    to.need_rank("B", b, 1)?;
    let (row, column) = (to.rank(a) == 1, to.rank(b) == 1);
    let a = if row { to.unsqueeze(a, &[0])? } else { a };
    let b = if column { to.unsqueeze(b, &[1])? } else { b };
    let rank = to.rank(a).max(to.rank(b));
    let (a, b) = (to.with_rank(a, rank)?, to.with_rank(b, rank)?);
    let result = multiply(to, a, b)?;
    let mut dropped = Vec::new();
    if row {
        dropped.push(rank - 2);
    }
    if column {
        dropped.push(rank - 1);
    }
    to.squeeze(result, &dropped)
}
