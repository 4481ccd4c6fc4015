//! `MatrixExp`, of Kiln's own domain: exponentials of square matrices.

use super::det::expect_square;
use super::prelude::*;

pub(super) struct MatrixExp;

impl<'m> Operator<'m> for MatrixExp {
    const FORMS: Forms<'m, Self> = &[Spec::kiln("MatrixExp", &["X"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        expect_square(to, x)?;
        let ty = to.ty(x).clone();
        Ok(to.call(Call::new("tensor::linalg::matrix_exp", [Arg::Operand(0)]), &[x], ty)?.into())
    }
}
