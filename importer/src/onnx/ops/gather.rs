//! `Gather`: numpy's `take` along an axis.

use super::super::lowering::holds_negative;
use super::prelude::*;
use crate::ir::{SymbolOrigin, op};

pub(super) struct Gather {
    axis: i64,
}

impl Gather {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { axis: node.int("axis", 0)? })
    }
}

impl<'m> Operator<'m> for Gather {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("Gather", 1, &["data", "indices"]).moves().reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, indices) = (args.value("data")?, args.value("indices")?);
        let axis = axis_of(self.axis, to.rank(x))?;
        if let Some(at) = place_in_loop(to, indices) {
            let end = &at + &Dim::constant(1);
            let part = to.slice(x, axis, at, end)?;
            return Ok(to.squeeze(part, &[axis])?.into());
        }
        let wrapped = may_be_negative(to, indices);
        Ok(to.add(Op::Take(op::Take { axis, wrapped }), &[x, indices])?.into())
    }
}

/// The one position that is looked up, where it follows from the number of a loop's round: no tensor is made of that.
fn place_in_loop(to: &Lowering<'_, '_>, indices: ValueId) -> Option<Dim> {
    let graph = &*to.builder.graph;
    let value = graph.value(indices);
    let [at] = value.host.as_deref().filter(|_| value.ty.rank() == 0)? else { return None };
    let counts = |symbol| matches!(graph.symbols.get(symbol), Some(SymbolOrigin::Iteration { .. }));
    let follows = at.symbols().iter().any(counts) && graph.least(at, 1).is_some_and(|least| least >= 0);
    follows.then(|| at.clone())
}

/// Whether an index tensor can hold negative numbers, as far as is known.
pub(super) fn may_be_negative(to: &Lowering<'_, '_>, indices: ValueId) -> bool {
    if let Some(data) = to.constant(indices) {
        return !to.look(data.num_elements()) || holds_negative(&data);
    }
    let graph = &*to.builder.graph;
    let counts = |dim: &Dim| graph.least(dim, 1).is_some_and(|least| least >= 0);
    if let Some(host) = &graph.value(indices).host {
        return !host.iter().all(counts);
    }
    let mut value = indices;
    for _ in 0..MAX_MOVES {
        if to.positions.contains(&value) {
            return false;
        }
        let Some(node) = graph.producer(value).map(|node| graph.node(node)) else { return true };
        match &node.op {
            Op::ArgReduce(_) | Op::MaxPoolWithIndices(_) => return false,
            Op::Arange(op::Arange { start, step, .. }) => return *step < 0 || !counts(start),
            // Positions that are moved are positions.
            Op::Reshape(_) | Op::Permute(_) | Op::Slice(_) | Op::Expand(_) => {}
            Op::Cast(op::Cast { to: DType::I32 | DType::I64 }) => {}
            _ => return true,
        }
        let Some(&Some(source)) = node.inputs.first() else { return true };
        value = source;
    }
    true
}

/// So many operations lie at most between what finds positions and their use.
const MAX_MOVES: usize = 16;
