//! `TensorScatter`: writes into a cache, at a place for each batch entry.

use super::prelude::*;
use super::softmax::positions;
use crate::ir::op;
use kiln_types::ScatterOp;

pub(super) struct TensorScatter {
    axis: i64,
    circular: bool,
}

impl TensorScatter {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let circular = node.choice("mode", "linear", &[("linear", false), ("circular", true)])?;
        Ok(Self { axis: node.int("axis", -2)?, circular })
    }
}

impl<'m> Operator<'m> for TensorScatter {
    const FORMS: Forms<'m, Self> =
        &[Spec::onnx("TensorScatter", 24, &["past_cache", "update", "write_indices?"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (cache, update) = (args.value("past_cache")?, args.value("update")?);
        let rank = to.rank(cache);
        let axis = axis_of(self.axis, rank)?;
        if axis == 0 || to.rank(update) != rank {
            return Err(misfit("axis", "is the batch's, or the ranks differ"));
        }
        // Where all entries of the batch have the same places, or there is one, these are rows.
        let start = args.optional("write_indices")?;
        let are_rows = start.is_none() || to.dims(cache)[0].is(1);
        let mut places = positions(to, update, axis)?;
        if are_rows {
            let count = to.dims(update)[axis].clone();
            places = to.reshape(places, vec![count])?;
        }
        if let Some(start) = start {
            let start = to.cast(start, DType::I64)?;
            let mut shape = vec![Dim::constant(1); if are_rows { 1 } else { rank }];
            shape[0] = to.dims(cache)[0].clone();
            let start = to.reshape(start, shape)?;
            places = to.binary(BinaryOp::Add, places, start)?;
        }
        if self.circular {
            let size = to.dims(cache)[axis].clone();
            let size = to.builder.host_tensor(vec![size], Vec::new())?;
            places = to.binary(BinaryOp::Remainder, places, size)?;
        }
        if are_rows {
            let assign = op::SelectAssign { axis, op: ScatterOp::Assign };
            return Ok(to.add(Op::SelectAssign(assign), &[cache, places, update])?.into());
        }
        let dims = to.dims(update);
        let places = to.expand(places, dims)?;
        Ok(to.add(Op::Scatter(op::Scatter { axis, op: ScatterOp::Assign }), &[cache, places, update])?.into())
    }
}
