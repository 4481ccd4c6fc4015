//! `Eigh`, of Kiln's own domain: eigenvalues and eigenvectors of symmetric matrices.

use super::matrices::{expect_square, triangle};
use super::prelude::*;

pub(super) struct Eigh {
    upper: bool,
}

impl<'m> Operator<'m> for Eigh {
    const FORMS: Forms<'m, Self> =
        &[Spec::kiln("Eigh", &["X"]).reads(|node| Ok(Self { upper: node.flag("upper", false)? }))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let rank = expect_square(to, x)?;
        let vectors = to.ty(x).clone();
        let mut dims = vectors.dims.clone();
        dims[rank - 2] = Dim::constant(1);
        let values = vectors.with_dims(dims);
        let call = Call::new("tensor::linalg::eigh", [Arg::Operand(0), triangle(self.upper)]);
        let mut found = to.call_all(call, &[x], vec![values, vectors])?;
        found[0] = to.squeeze(found[0], &[rank - 2])?;
        Ok(found.into())
    }
}
