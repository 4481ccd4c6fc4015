//! `MatMul`: numpy's, for vectors too; ONNX Runtime's `FusedMatMul` transposes and scales as well.

use super::prelude::*;

pub(super) struct MatMul {
    alpha: f64,
    operands: [Spelling; 2],
}

/// How an operand lies.
#[derive(Clone, Copy, Default)]
struct Spelling {
    /// The last two axes change places.
    transposed: bool,
    /// The rows come before the batch, as in `[rows, batch, columns]`.
    rows_first: bool,
}

impl Spelling {
    /// The operand as a product takes it.
    fn undone(self, to: &mut Lowering<'_, '_>, x: ValueId) -> RuleResult<ValueId> {
        let rank = to.rank(x);
        let mut axes: Vec<usize> = (0..rank).collect();
        // A vector has nothing to move.
        let Some((batch, [_, _])) = axes.split_last_chunk_mut() else { return Ok(x) };
        let rows = batch.len();
        if self.rows_first {
            axes[..=rows].rotate_left(1);
        }
        if self.transposed {
            axes.swap(rows, rows + 1);
        }
        to.permute(x, axes)
    }
}

impl MatMul {
    fn read_fused(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let mut spelling = |transposed: &str, rows_first: &str| {
            Ok(Spelling {
                transposed: node.flag(transposed, false)?,
                rows_first: node.flag(rows_first, false)?,
            })
        };
        let operands = [spelling("transA", "transBatchA")?, spelling("transB", "transBatchB")?];
        Ok(Self { alpha: node.float("alpha", 1.0)?, operands })
    }
}

impl<'m> Operator<'m> for MatMul {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("MatMul", 1, &["A", "B"]).reads(|_| Ok(Self { alpha: 1.0, operands: Default::default() })),
        Spec::microsoft("FusedMatMul", &["A", "B"]).reads(Self::read_fused),
        // What it was called at first.
        Spec::microsoft("TransposeMatMul", &["A", "B"]).reads(Self::read_fused),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (a, b) = (args.value("A")?, args.value("B")?);
        let [of_a, of_b] = self.operands;
        let (a, b) = (of_a.undone(to, a)?, of_b.undone(to, b)?);
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
