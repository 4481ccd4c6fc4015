//! `SolveTriangular`, of Kiln's own domain: what a triangular matrix makes of the result is the right side.

use super::matrices::{expect_matrices, expect_square, triangle};
use super::prelude::*;
use crate::ir::may_equal;

pub(super) struct SolveTriangular {
    upper: bool,
    unit: bool,
}

impl<'m> Operator<'m> for SolveTriangular {
    const FORMS: Forms<'m, Self> = &[Spec::kiln("SolveTriangular", &["X", "B"])
        .reads(|node| Ok(Self { upper: node.flag("upper", false)?, unit: node.flag("unit", false)? }))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let [x, b] = [args.value("X")?, args.value("B")?];
        let rank = expect_square(to, x)?;
        expect_matrices(to, "B", b)?;
        let (of_x, of_b) = (to.ty(x), to.ty(b));
        let fits = of_b.rank() == rank
            && of_x.dtype == of_b.dtype
            && (0..rank - 1).all(|axis| may_equal(&of_x.dims[axis], &of_b.dims[axis]));
        if !fits {
            return Err(misfit("B", format!("is {of_b}, and does not fit the matrices {of_x}")));
        }
        let ty = of_b.clone();
        let diagonal = if self.unit { "Unit" } else { "Given" };
        let diagonal = Arg::Variant(format!("tensor::linalg::Diagonal::{diagonal}").into(), Vec::new());
        let arguments = [Arg::Operand(0), Arg::Operand(1), triangle(self.upper), diagonal];
        Ok(to.call(Call::new("tensor::linalg::solve_triangular", arguments), &[x, b], ty)?.into())
    }
}
