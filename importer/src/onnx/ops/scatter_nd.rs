//! `ScatterND`: slices named by index tuples are replaced, or combined.

use super::super::lowering::Lowering;
use super::super::node::{SourceNode, invalid};
use super::super::operator::{Args, Operator, Outputs, Spec};
use super::scatter_elements::REDUCTIONS;
use crate::ir::RuleResult;
use crate::ir::spelling::Expr;
use kiln_types::ScatterOp;

pub(super) struct ScatterNd {
    op: ScatterOp,
}

impl Operator<'_> for ScatterNd {
    const SPECS: &'static [Spec] = &[Spec::onnx("ScatterND", 11, &["data", "indices", "updates"])];

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { op: node.choice("reduction", "none", REDUCTIONS)? })
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, indices) = (args.value("data")?, args.value("indices")?);
        let updates = args.value("updates")?;
        let rank = to.need_rank("data", x, 1)?;
        let index_rank = to.need_rank("indices", indices, 1)?;
        let depth = to.dims(indices)[index_rank - 1].as_size();
        if depth.is_some_and(|depth| depth > rank || index_rank - 1 + rank - depth != to.rank(updates)) {
            return Err(invalid("updates", format!("have rank {}", to.rank(updates))));
        }
        if to.dims(updates).iter().any(|dim| dim.is(0)) || to.dims(indices).iter().any(|dim| dim.is(0)) {
            return Ok(x.into());
        }
        let reduction = match self.op {
            ScatterOp::Assign => "tensor::IndexingUpdateOp::Assign",
            ScatterOp::Add => "tensor::IndexingUpdateOp::Add",
            ScatterOp::Mul => "tensor::IndexingUpdateOp::Mul",
            ScatterOp::Max => "tensor::IndexingUpdateOp::Max",
            ScatterOp::Min => "tensor::IndexingUpdateOp::Min",
        };
        let arguments = vec![Expr::Operand(1), Expr::Operand(2), Expr::Path(reduction)];
        let ty = to.ty(x).clone();
        Ok(to.call(Expr::method(0, "scatter_nd", arguments), &[x, indices, updates], ty)?.into())
    }
}
