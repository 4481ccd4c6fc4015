//! `ArgMax` and `ArgMin`.

use super::prelude::*;
use crate::ir::op;
use kiln_types::ArgReduceOp;

pub(super) struct ArgReduce {
    op: ArgReduceOp,
    axis: i64,
    keep_dims: bool,
    select_last: bool,
}

impl ArgReduce {
    fn read(node: &mut SourceNode<'_>, op: ArgReduceOp) -> RuleResult<Self> {
        Ok(Self {
            op,
            axis: node.int("axis", 0)?,
            keep_dims: node.flag("keepdims", true)?,
            select_last: node.flag("select_last_index", false)?,
        })
    }
}

impl<'m> Operator<'m> for ArgReduce {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("ArgMax", 1, &["data"]).reads(|node| Self::read(node, ArgReduceOp::Max)),
        Spec::onnx("ArgMin", 1, &["data"]).reads(|node| Self::read(node, ArgReduceOp::Min)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("data")?;
        let axis = axis_of(self.axis, to.rank(x))?;
        let op = Op::ArgReduce(op::ArgReduce {
            op: self.op,
            axis,
            keep_dims: self.keep_dims,
            select_last: self.select_last,
        });
        Ok(to.add(op, &[x])?.into())
    }
}
