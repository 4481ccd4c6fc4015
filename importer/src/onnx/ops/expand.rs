//! `Expand`: broadcasting to a shape, which may itself be broadcast.

use super::super::lowering::Lowering;
use super::super::node::SourceNode;
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::{Dim, RuleResult};

pub(super) struct Expand;

impl Operator<'_> for Expand {
    const SPECS: &'static [Spec] = &[Spec::onnx("Expand", 8, &["input", "shape"])];

    fn read(_: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self)
    }

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
            // Either may be 1, else they are equal.
            (None, None) => to.builder.graph.maximum(have, want),
        };
        let dims = dims.iter().zip(&wanted).map(meet).collect();
        Ok(to.expand(x, dims)?.into())
    }
}
