//! `CDist`: distances between the rows of two matrices.

use super::prelude::*;

pub(super) struct CDist {
    /// The square roots of what is summed.
    rooted: bool,
}

impl CDist {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // The specification names more, which ONNX Runtime does not compute either.
        let metrics = [("sqeuclidean", false), ("euclidean", true)];
        Ok(Self { rooted: node.choice("metric", "sqeuclidean", &metrics)? })
    }
}

impl<'m> Operator<'m> for CDist {
    const FORMS: Forms<'m, Self> = &[Spec::microsoft("CDist", &["A", "B"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (a, b) = (args.value("A")?, args.value("B")?);
        to.expect_rank("A", a, 2)?;
        to.expect_rank("B", b, 2)?;
        let distances = to.add(Op::SquaredDistances, &[a, b])?;
        Ok(if self.rooted { to.unary(UnaryOp::Sqrt, distances)? } else { distances }.into())
    }
}
