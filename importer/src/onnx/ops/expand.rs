//! `Expand`: broadcasting to a shape, which may itself be broadcast.

use super::prelude::*;
use crate::ir::Graph;

pub(super) struct Expand;

impl<'m> Operator<'m> for Expand {
    const FORMS: Forms<'m, Self> =
        &[Spec::onnx("Expand", 8, &["input", "shape"]).moves().reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        let mut wanted = to.host(args.value("shape")?, "shape")?;
        let rank = wanted.len().max(to.rank(x));
        let x = to.with_rank(x, rank)?;
        wanted.splice(..0, std::iter::repeat_n(Dim::constant(1), rank - wanted.len()));
        let dims = to.dims(x);
        let meet = |(have, want): (&Dim, &Dim)| match (have.as_constant(), want.as_constant()) {
            (Some(1), _) => want.clone(),
            (_, Some(1)) | (Some(_), None) => have.clone(),
            (_, Some(_)) => want.clone(),
            (None, None) => met(to.builder.graph, have, want),
        };
        let dims = dims.iter().zip(&wanted).map(meet).collect();
        Ok(to.expand(x, dims)?.into())
    }
}

/// The size of two that are equal, or of which one is 1: the larger, unless the other is 0.
fn met(graph: &Graph, have: &Dim, want: &Dim) -> Dim {
    if let Some(size) = have.met(want) {
        return size;
    }
    let never_empty = |dim: &Dim| graph.least(dim, 0).is_some_and(|least| least > 0);
    if never_empty(have) && never_empty(want) {
        return graph.maximum(have, want);
    }
    let stretches = graph.compare(CompareOp::Equal, have, &Dim::constant(1));
    have + &(&stretches * &(want - have))
}
