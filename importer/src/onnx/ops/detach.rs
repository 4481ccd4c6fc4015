//! `Detach`, of Kiln's own domain: the same values, through which no gradient flows.

use super::prelude::*;

pub(super) struct Detach;

impl<'m> Operator<'m> for Detach {
    const FORMS: Forms<'m, Self> = &[Spec::kiln("Detach", &["x"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        Ok(detached(to, args.value("x")?)?.into())
    }
}

/// A value through which no gradient flows, in a model that is to be trained.
pub(super) fn detached(to: &mut Lowering<'_, '_>, x: ValueId) -> RuleResult<ValueId> {
    let graph = &to.builder.graph;
    // What is no parameter has no gradient.
    let is_number = graph.constant(x).is_some() && graph.provenance(x).is_none();
    if !to.trainable || !to.dtype(x).is_float() || is_number {
        return Ok(x);
    }
    to.add(Op::Detach, &[x])
}
