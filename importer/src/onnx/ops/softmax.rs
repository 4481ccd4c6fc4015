//! `Softmax`, `LogSoftmax` and `Hardmax`: before version 13 over all axes from `axis` on, since then over one.

use super::prelude::*;
use crate::ir::op;
use kiln_types::ArgReduceOp;

const INPUT: &[&str] = &["input"];

#[derive(Clone, Copy)]
enum Kind {
    Soft,
    Log,
    Hard,
}

pub(super) struct Softmax {
    kind: Kind,
    axis: i64,
    flatten: bool,
}

impl Softmax {
    fn read(node: &mut SourceNode<'_>, kind: Kind) -> RuleResult<Self> {
        let flatten = node.opset < 13;
        Ok(Self { kind, axis: node.int("axis", if flatten { 1 } else { -1 })?, flatten })
    }
}

impl<'m> Operator<'m> for Softmax {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Hardmax", 1, INPUT).reads(|node| Self::read(node, Kind::Hard)),
        Spec::onnx("LogSoftmax", 1, INPUT).reads(|node| Self::read(node, Kind::Log)),
        Spec::onnx("Softmax", 1, INPUT).reads(|node| Self::read(node, Kind::Soft)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        Ok(over(to, x, self.axis, self.flatten, |to, x, axis| self.along(to, x, axis))?.into())
    }
}

/// A softmax along an axis, or over all axes from it on.
pub(super) fn softmax(
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    axis: i64,
    flatten: bool,
) -> RuleResult<ValueId> {
    over(to, x, axis, flatten, |to, x, axis| to.add(Op::Softmax(op::Softmax { axis }), &[x]))
}

/// What `along` makes of `x` along an axis, or of the axes from it on as if they were one.
fn over<'g, 'm>(
    to: &mut Lowering<'g, 'm>,
    x: ValueId,
    axis: i64,
    flatten: bool,
    along: impl FnOnce(&mut Lowering<'g, 'm>, ValueId, usize) -> RuleResult<ValueId>,
) -> RuleResult<ValueId> {
    let dims = to.dims(x);
    let axis = axis_of(axis, dims.len())?;
    if !flatten || axis + 1 == dims.len() {
        return along(to, x, axis);
    }
    let (before, after) = dims.split_at(axis);
    let matrix = to.reshape(x, vec![Dim::product(before), Dim::product(after)])?;
    let result = along(to, matrix, 1)?;
    to.reshape(result, dims)
}

impl Softmax {
    fn along(&self, to: &mut Lowering<'_, '_>, x: ValueId, axis: usize) -> RuleResult<ValueId> {
        match self.kind {
            Kind::Soft => to.add(Op::Softmax(op::Softmax { axis }), &[x]),
            Kind::Log => to.add(Op::LogSoftmax(op::LogSoftmax { axis }), &[x]),
            Kind::Hard => {
                let op = Op::ArgReduce(op::ArgReduce {
                    op: ArgReduceOp::Max,
                    axis,
                    keep_dims: true,
                    select_last: false,
                });
                let best = to.add(op, &[x])?;
                let positions = positions(to, x, axis)?;
                let hit = to.compare(CompareOp::Equal, positions, best)?;
                let dtype = to.dtype(x);
                to.cast(hit, dtype)
            }
        }
    }
}

/// `0, 1, …` along one axis of `x`, 1 along the others.
pub(super) fn positions(to: &mut Lowering<'_, '_>, x: ValueId, axis: usize) -> RuleResult<ValueId> {
    let dims = to.dims(x);
    to.range_along([Dim::constant(0), dims[axis].clone()], axis, dims.len())
}
