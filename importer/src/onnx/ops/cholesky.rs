//! `Cholesky`, of Kiln's own domain: lower triangular factors of symmetric positive definite matrices.

use super::det::expect_square;
use super::prelude::*;

pub(super) struct Cholesky;

impl<'m> Operator<'m> for Cholesky {
    const FORMS: Forms<'m, Self> = &[Spec::kiln("Cholesky", &["X"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        expect_square(to, x)?;
        let ty = to.ty(x).clone();
        Ok(to.call(Call::new("tensor::linalg::cholesky", [Arg::Operand(0)]), &[x], ty)?.into())
    }
}
