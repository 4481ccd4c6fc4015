//! `Inverse`: inverses of square matrices.

use super::det::expect_square;
use super::prelude::*;

pub(super) struct Inverse;

impl<'m> Operator<'m> for Inverse {
    const FORMS: Forms<'m, Self> = &[Spec::microsoft("Inverse", &["X"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        expect_square(to, x)?;
        let ty = to.ty(x).clone();
        Ok(to.call(Call::new("tensor::linalg::inverse", [Arg::Operand(0)]), &[x], ty)?.into())
    }
}
