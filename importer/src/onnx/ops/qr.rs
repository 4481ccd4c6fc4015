//! `QR`, of Kiln's own domain: orthonormal columns and an upper triangle of which matrices are the product.

use super::matrices::{columns, expect_matrices, smaller_size};
use super::prelude::*;

pub(super) struct Qr {
    complete: bool,
}

impl<'m> Operator<'m> for Qr {
    const FORMS: Forms<'m, Self> =
        &[Spec::kiln("QR", &["X"]).reads(|node| Ok(Self { complete: node.flag("complete", false)? }))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let rank = expect_matrices(to, "X", x)?;
        let ty = to.ty(x).clone();
        let [rows, width] = [rank - 2, rank - 1].map(|axis| ty.dims[axis].clone());
        let height = if self.complete { rows.clone() } else { smaller_size(&rows, &width)? };
        let (mut q, mut r) = (ty.dims.clone(), ty.dims.clone());
        q[rank - 1] = height.clone();
        r[rank - 2] = height;
        let call = Call::new("tensor::linalg::qr", [Arg::Operand(0), columns(self.complete)]);
        Ok(to.call_all(call, &[x], vec![ty.with_dims(q), ty.with_dims(r)])?.into())
    }
}
