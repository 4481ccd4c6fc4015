//! `ArgMax` and `ArgMin`.

use super::super::lowering::{Lowering, axis_of};
use super::super::node::SourceNode;
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::{Op, RuleResult};
use kiln_types::ArgReduceOp;

pub(super) struct ArgReduce {
    op: ArgReduceOp,
    axis: i64,
    keep_dims: bool,
    select_last: bool,
}

impl Operator<'_> for ArgReduce {
    const SPECS: &'static [Spec] = &[Spec::onnx("ArgMax", 1, &["data"]), Spec::onnx("ArgMin", 1, &["data"])];

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self {
            op: if node.operator() == "ArgMax" { ArgReduceOp::Max } else { ArgReduceOp::Min },
            axis: node.int("axis", 0)?,
            keep_dims: node.flag("keepdims", true)?,
            select_last: node.flag("select_last_index", false)?,
        })
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("data")?;
        let axis = axis_of(self.axis, to.rank(x))?;
        let op =
            Op::ArgReduce { op: self.op, axis, keep_dims: self.keep_dims, select_last: self.select_last };
        Ok(to.add(op, &[x])?.into())
    }
}
