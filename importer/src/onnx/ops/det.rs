//! `Det`: determinants of square matrices.

use super::matrices::expect_square;
use super::prelude::*;

pub(super) struct Det;

impl<'m> Operator<'m> for Det {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("Det", 11, &["X"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let rank = expect_square(to, x)?;
        let matrix = [rank - 2, rank - 1];
        let mut dims = to.dims(x);
        (dims[rank - 2], dims[rank - 1]) = (Dim::constant(1), Dim::constant(1));
        let ty = to.ty(x).with_dims(dims);
        let det = to.call(Call::new("tensor::linalg::det", [Arg::Operand(0)]), &[x], ty)?;
        Ok(to.squeeze(det, &matrix)?.into())
    }
}
