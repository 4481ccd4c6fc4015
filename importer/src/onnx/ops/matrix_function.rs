//! Functions of square matrices that yield as many of the same size: `Inverse`, and of Kiln's own domain `Cholesky` and `MatrixExp`.

use super::matrices::expect_square;
use super::prelude::*;

pub(super) struct MatrixFunction(&'static str);

impl<'m> Operator<'m> for MatrixFunction {
    const FORMS: Forms<'m, Self> = &[
        Spec::kiln("Cholesky", &["X"]).reads(|_| Ok(Self("tensor::linalg::cholesky"))),
        Spec::microsoft("Inverse", &["X"]).reads(|_| Ok(Self("tensor::linalg::inverse"))),
        Spec::kiln("MatrixExp", &["X"]).reads(|_| Ok(Self("tensor::linalg::matrix_exp"))),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        expect_square(to, x)?;
        let ty = to.ty(x).clone();
        Ok(to.call(Call::new(self.0, [Arg::Operand(0)]), &[x], ty)?.into())
    }
}
