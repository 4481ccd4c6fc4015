//! `GatherND`: slices named by index tuples.

use super::super::lowering::Lowering;
use super::super::node::{SourceNode, invalid};
use super::super::operator::{Args, Operator, Outputs, Spec};
use super::gather::may_be_negative;
use crate::ir::spelling::Expr;
use crate::ir::{Op, RuleError, RuleResult};

pub(super) struct GatherNd {
    batch_dims: usize,
}

impl Operator<'_> for GatherNd {
    const SPECS: &'static [Spec] = &[Spec::onnx("GatherND", 11, &["data", "indices"])];

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { batch_dims: node.size("batch_dims", 0)? })
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, indices) = (args.value("data")?, args.value("indices")?);
        let batch = self.batch_dims;
        let rank = to.need_rank("data", x, batch + 1)?;
        let index_rank = to.need_rank("indices", indices, batch + 1)?;
        let (data, index) = (to.dims(x), to.dims(indices));
        let Some(depth) = index[index_rank - 1].as_size() else {
            return Err(RuleError::NotConstant { input: "the last dim of indices".to_owned() });
        };
        if depth + batch > rank {
            return Err(invalid("indices", format!("name {depth} axes of {}", rank - batch)));
        }
        let mut dims = index[..index_rank - 1].to_vec();
        if depth == 1 && batch == 0 {
            let flat = to.reshape(indices, dims)?;
            let wrapped = may_be_negative(to, flat);
            return Ok(to.add(Op::Take { axis: 0, wrapped }, &[x, flat])?.into());
        }
        dims.extend_from_slice(&data[batch + depth..]);
        let ty = to.ty(x).with_dims(dims);
        let generics = vec![index_rank, ty.rank()];
        let expr = Expr::Method(
            Box::new(Expr::Operand(0)),
            "gather_nd",
            generics,
            vec![Expr::Operand(1), Expr::Int(batch as i64)],
        );
        Ok(to.call(expr, &[x, indices], ty)?.into())
    }
}
