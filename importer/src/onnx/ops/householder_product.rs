//! `HouseholderProduct`, of Kiln's own domain: columns of a product of reflections.

use super::matrices::expect_matrices;
use super::prelude::*;

pub(super) struct HouseholderProduct;

impl<'m> Operator<'m> for HouseholderProduct {
    const FORMS: Forms<'m, Self> = &[Spec::kiln("HouseholderProduct", &["X", "factors"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let [x, factors] = [args.value("X")?, args.value("factors")?];
        let rank = expect_matrices(to, "X", x)?;
        to.expect_rank("factors", factors, rank - 1)?;
        let (of_x, of_factors) = (to.ty(x).clone(), to.ty(factors));
        if of_factors.dtype != of_x.dtype {
            return Err(misfit("factors", format!("is {of_factors}, and the reflections are {of_x}")));
        }
        let call = Call::new("tensor::linalg::householder_product", [0, 1].map(Arg::Operand));
        Ok(to.call(call, &[x, factors], of_x)?.into())
    }
}
