//! `GroupedMatMul`, of Kiln's own domain: rows of groups times the matrix of each, as experts compute their tokens.

use super::prelude::*;
use crate::ir::may_equal;

pub(super) struct GroupedMatMul;

impl<'m> Operator<'m> for GroupedMatMul {
    const FORMS: Forms<'m, Self> =
        &[Spec::kiln("GroupedMatMul", &["x", "weight", "ends"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let [x, weight, ends] = [args.value("x")?, args.value("weight")?, args.value("ends")?];
        Ok(grouped_product(to, x, weight, ends)?.into())
    }
}

/// Rows `[rows, in]` times the matrix of their group, of `[groups, in, out]`; the integers `[groups]` say where the groups' rows end.
pub(super) fn grouped_product(
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    weight: ValueId,
    ends: ValueId,
) -> RuleResult<ValueId> {
    for (input, value, rank) in [("x", x, 2), ("weight", weight, 3), ("ends", ends, 1)] {
        to.expect_rank(input, value, rank)?;
    }
    let (of_rows, of_matrices, of_ends) = (to.ty(x), to.ty(weight), to.ty(ends));
    if of_rows.dtype != of_matrices.dtype || !of_rows.dtype.is_float() {
        return Err(misfit(
            "weight",
            format!("is {of_matrices}, and the rows are {of_rows}: both must be floats of one kind"),
        ));
    }
    if !of_ends.dtype.is_int() {
        return Err(misfit("ends", format!("is {of_ends}, must be integers")));
    }
    let fits = may_equal(&of_rows.dims[1], &of_matrices.dims[1])
        && may_equal(&of_ends.dims[0], &of_matrices.dims[0]);
    if !fits {
        return Err(misfit(
            "weight",
            format!("is {of_matrices}, and does not fit rows {of_rows} and {of_ends} ends"),
        ));
    }
    let output = of_rows.with_dims(vec![of_rows.dims[0].clone(), of_matrices.dims[2].clone()]);
    let call = Call::new("tensor::module::grouped_matmul", [0, 1, 2].map(Arg::Operand));
    to.call(call, &[x, weight, ends], output)
}
