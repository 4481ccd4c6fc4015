//! `Gather`: numpy's `take` along an axis.

use super::super::lowering::{Lowering, axis_of, holds_negative};
use super::super::node::SourceNode;
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::{Op, RuleResult, ValueId};

pub(super) struct Gather {
    axis: i64,
}

impl Operator<'_> for Gather {
    const SPECS: &'static [Spec] = &[Spec::onnx("Gather", 1, &["data", "indices"])];

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { axis: node.int("axis", 0)? })
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, indices) = (args.value("data")?, args.value("indices")?);
        let axis = axis_of(self.axis, to.rank(x))?;
        let wrapped = may_be_negative(to, indices);
        Ok(to.add(Op::Take { axis, wrapped }, &[x, indices])?.into())
    }
}

/// Whether an index tensor can hold negative numbers, as far as is known.
pub(super) fn may_be_negative(to: &Lowering<'_, '_>, indices: ValueId) -> bool {
    if let Some(data) = to.constant(indices) {
        return !to.look(data.num_elements()) || holds_negative(&data);
    }
    let graph = &*to.builder.graph;
    if let Some(host) = &graph.value(indices).host {
        return !host.iter().all(|dim| graph.least(dim, 1).is_some_and(|least| least >= 0));
    }
    let producer = graph.producer(indices).map(|node| &graph.node(node).op);
    !matches!(producer, Some(Op::ArgReduce { .. } | Op::Arange { .. } | Op::MaxPoolWithIndices(_)))
}
