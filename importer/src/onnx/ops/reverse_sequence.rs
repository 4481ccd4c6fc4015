//! `ReverseSequence`: the first so many steps of each row, backwards.

use super::prelude::*;
use super::softmax::positions;
use crate::ir::op;

pub(super) struct ReverseSequence {
    batch_axis: i64,
    time_axis: i64,
}

impl ReverseSequence {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { batch_axis: node.int("batch_axis", 1)?, time_axis: node.int("time_axis", 0)? })
    }
}

impl<'m> Operator<'m> for ReverseSequence {
    const FORMS: Forms<'m, Self> =
        &[Spec::onnx("ReverseSequence", 10, &["input", "sequence_lens"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        let dims = to.dims(x);
        let batch = axis_of(self.batch_axis, dims.len())?;
        let time = axis_of(self.time_axis, dims.len())?;
        if batch == time {
            return Err(invalid("time_axis", "is the batch axis"));
        }
        let lengths = to.cast(args.value("sequence_lens")?, DType::I64)?;
        let mut shape = vec![Dim::constant(1); dims.len()];
        shape[batch] = dims[batch].clone();
        let lengths = to.reshape(lengths, shape)?;
        let steps = positions(to, x, time)?;
        let one = to.scalar(1, DType::I64);
        let last = to.binary(BinaryOp::Sub, lengths, one)?;
        let mirrored = to.binary(BinaryOp::Sub, last, steps)?;
        let inside = to.compare(CompareOp::Lower, steps, lengths)?;
        let source = to.select(inside, mirrored, steps)?;
        let source = to.expand(source, dims)?;
        Ok(to.add(Op::Gather(op::Gather { axis: time }), &[x, source])?.into())
    }
}
