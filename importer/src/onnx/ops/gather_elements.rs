//! `GatherElements`: `out[i][j] = data[indices[i][j]][j]`.

use super::gather::may_be_negative;
use super::prelude::*;
use crate::ir::op;

pub(super) struct GatherElements {
    axis: i64,
}

impl GatherElements {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { axis: node.int("axis", 0)? })
    }
}

impl<'m> Operator<'m> for GatherElements {
    const FORMS: Forms<'m, Self> =
        &[Spec::onnx("GatherElements", 11, &["data", "indices"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, indices) = (args.value("data")?, args.value("indices")?);
        let axis = axis_of(self.axis, to.rank(x))?;
        let indices = from_start(to, indices, x, axis)?;
        Ok(to.add(Op::Gather(op::Gather { axis }), &[x, indices])?.into())
    }
}

/// Indices that count from the start: negative ones count from the end of `x`'s axis.
pub(super) fn from_start(
    to: &mut Lowering<'_, '_>,
    indices: ValueId,
    x: ValueId,
    axis: usize,
) -> RuleResult<ValueId> {
    if !may_be_negative(to, indices) {
        return Ok(indices);
    }
    let graph = &*to.builder.graph;
    let spread =
        graph.producer(indices).map(|node| graph.node(node)).filter(|node| matches!(node.op, Op::Expand(_)));
    if let Some(few) = spread.and_then(|node| node.inputs.first().copied().flatten()) {
        // They are spread out afterwards, so that passes see it.
        let dims = to.dims(indices);
        let few = from_start(to, few, x, axis)?;
        return to.expand(few, dims);
    }
    let size = to.dims(x)[axis].clone();
    let dtype = to.dtype(indices);
    let size = match size.as_constant() {
        Some(size) => to.scalar(size, dtype),
        None => {
            let size = to.builder.host_tensor(vec![size], Vec::new())?;
            to.cast(size, dtype)?
        }
    };
    let zero = to.scalar(0, dtype);
    let negative = to.compare(CompareOp::Lower, indices, zero)?;
    let moved = to.binary(BinaryOp::Add, indices, size)?;
    to.select(negative, moved, indices)
}
