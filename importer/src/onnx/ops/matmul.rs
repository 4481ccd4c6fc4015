//! `MatMul`: numpy's, for vectors too.

use super::prelude::*;

pub(super) struct MatMul;

impl<'m> Operator<'m> for MatMul {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("MatMul", 1, &["A", "B"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        Ok(product(to, args.value("A")?, args.value("B")?)?.into())
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
