//! `MatMul`: numpy's, for vectors too.

use super::super::lowering::Lowering;
use super::super::node::SourceNode;
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::{Op, RuleResult, ValueId};

pub(super) struct MatMul;

impl Operator<'_> for MatMul {
    const SPECS: &'static [Spec] = &[Spec::onnx("MatMul", 1, &["A", "B"])];

    fn read(_: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self)
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        Ok(product(to, args.value("A")?, args.value("B")?)?.into())
    }
}

/// A matrix product of any ranks: a vector is a row on the left, a column on the right.
pub(super) fn product(to: &mut Lowering<'_, '_>, a: ValueId, b: ValueId) -> RuleResult<ValueId> {
    to.need_rank("A", a, 1)?;
    to.need_rank("B", b, 1)?;
    let (row, column) = (to.rank(a) == 1, to.rank(b) == 1);
    let a = if row { to.unsqueeze(a, &[0])? } else { a };
    let b = if column { to.unsqueeze(b, &[1])? } else { b };
    let rank = to.rank(a).max(to.rank(b));
    let (a, b) = (to.with_rank(a, rank)?, to.with_rank(b, rank)?);
    let result = to.add(Op::MatMul, &[a, b])?;
    let mut dropped = Vec::new();
    if row {
        dropped.push(rank - 2);
    }
    if column {
        dropped.push(rank - 1);
    }
    to.squeeze(result, &dropped)
}
