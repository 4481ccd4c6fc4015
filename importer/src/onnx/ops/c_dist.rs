//! `CDist`: distances between the rows of two matrices.

use super::matmul::product;
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
        let columns = to.permute(b, vec![1, 0])?;
        let products = product(to, a, columns)?;
        // `|a - b|²` as `|a|² + |b|² - 2 a·b`, which needs no tensor of all differences; it may come out below 0.
        let y = to.formula(|f| {
            let squares = f.value(a).square().sum(&[1]) + f.value(columns).square().sum(&[0]);
            let distances = (squares - f.value(products) * 2.0).max(0.0);
            if self.rooted { distances.sqrt() } else { distances }
        })?;
        Ok(y.into())
    }
}
