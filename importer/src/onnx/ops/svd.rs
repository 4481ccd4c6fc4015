//! `SVD`, of Kiln's own domain: singular values, and the columns and rows that belong to them.

use super::matrices::{columns, expect_matrices, smaller_size};
use super::prelude::*;

pub(super) struct Svd {
    complete: bool,
}

impl<'m> Operator<'m> for Svd {
    const FORMS: Forms<'m, Self> =
        &[Spec::kiln("SVD", &["X"]).reads(|node| Ok(Self { complete: node.flag("complete", false)? }))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let rank = expect_matrices(to, "X", x)?;
        let ty = to.ty(x).clone();
        let [rows, width] = [rank - 2, rank - 1].map(|axis| ty.dims[axis].clone());
        let count = smaller_size(&rows, &width)?;
        let of = |rows: &Dim, columns: &Dim| {
            let mut dims = ty.dims.clone();
            (dims[rank - 2], dims[rank - 1]) = (rows.clone(), columns.clone());
            ty.with_dims(dims)
        };
        let [height, depth] = if self.complete { [&rows, &width] } else { [&count, &count] };
        let outputs = vec![of(&rows, height), of(&Dim::constant(1), &count), of(depth, &width)];
        let call = Call::new("tensor::linalg::svd", [Arg::Operand(0), columns(self.complete)]);
        let mut found = to.call_all(call, &[x], outputs)?;
        found[1] = to.squeeze(found[1], &[rank - 2])?;
        Ok(found.into())
    }
}
