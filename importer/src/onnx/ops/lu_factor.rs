//! `LUFactor`, of Kiln's own domain: triangles of which matrices with exchanged rows are the product; and `PivotedOrder`, which says where those rows came from.

use super::matrices::{expect_matrices, smaller_size};
use super::prelude::*;

pub(super) struct LuFactor;

impl<'m> Operator<'m> for LuFactor {
    const FORMS: Forms<'m, Self> = &[Spec::kiln("LUFactor", &["X"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let rank = expect_matrices(to, "X", x)?;
        let lu = to.ty(x).clone();
        let mut dims = lu.dims.clone();
        let steps = smaller_size(&dims[rank - 2], &dims[rank - 1])?;
        (dims[rank - 2], dims[rank - 1]) = (Dim::constant(1), steps);
        let pivots = lu.with_dims(dims).with_dtype(DType::I64);
        let call = Call::new("tensor::linalg::lu_factor", [Arg::Operand(0)]);
        let mut found = to.call_all(call, &[x], vec![lu, pivots])?;
        to.positions.insert(found[1]);
        found[1] = to.squeeze(found[1], &[rank - 2])?;
        Ok(found.into())
    }
}

pub(super) struct PivotedOrder;

impl<'m> Operator<'m> for PivotedOrder {
    const FORMS: Forms<'m, Self> = &[Spec::kiln("PivotedOrder", &["pivots", "rows"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let pivots = args.value("pivots")?;
        let rows = to.host_integer(args.value("rows")?, "rows")?;
        let rank = to.need_rank("pivots", pivots, 1)?;
        let ty = to.ty(pivots);
        if !ty.dtype.is_int() {
            return Err(misfit("pivots", format!("is {ty}, must be integers")));
        }
        let mut dims = ty.dims.clone();
        dims[rank - 1] = rows.clone();
        let ty = ty.with_dims(dims);
        let call = Call::new("tensor::linalg::pivoted_order", [Arg::Operand(0), Arg::Size(rows)]);
        Ok(to.call(call, &[pivots], ty)?.into())
    }
}
