//! `Gather`: numpy's `take` along an axis.

use super::super::lowering::{holds_negative, numbers};
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
        Ok(take(to, x, axis, indices, wrapped)?.into())
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
    let source = unmoved(to, indices);
    let made = graph.producer(source).map(|node| &graph.node(node).op);
    let found = match made {
        Some(Op::ArgReduce(_) | Op::MaxPoolWithIndices(_)) => true,
        Some(Op::Arange(op::Arange { start, step, .. })) => *step > 0 && counts(start),
        _ => to.positions.contains(&source),
    };
    !found
}

/// The value whose elements another has, all or some of them, at other places or in another dtype: positions that are moved are
/// positions.
fn unmoved(to: &Lowering<'_, '_>, moved: ValueId) -> ValueId {
    let graph = &*to.builder.graph;
    let mut value = moved;
    for _ in 0..MAX_MOVES {
        let Some(node) = graph.producer(value).map(|node| graph.node(node)) else { return value };
        let moves = matches!(
            node.op,
            Op::Reshape(_)
                | Op::Permute(_)
                | Op::Slice(_)
                | Op::Expand(_)
                | Op::Repeat(_)
                | Op::Cast(op::Cast { to: DType::I32 | DType::I64 })
        );
        match node.inputs.first() {
            Some(&Some(source)) if moves => value = source,
            _ => return value,
        }
    }
    value
}

/// So many operations lie at most between what finds positions and their use.
const MAX_MOVES: usize = 16;

/// A part of an axis by its indices; of a table of all positions, as one of classes `0, 1, …`, a position itself.
pub(super) fn take(
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    axis: usize,
    indices: ValueId,
    wrapped: bool,
) -> RuleResult<ValueId> {
    if !is_own_position(to, x, axis, indices) {
        return to.add(Op::Take(op::Take { axis, wrapped }), &[x, indices]);
    }
    let mut dims = to.dims(x);
    dims.splice(axis..=axis, to.dims(indices));
    let dtype = to.dtype(x);
    let found = to.cast(indices, dtype)?;
    to.reshape(found, dims)
}

/// Whether a table holds `0, 1, …` along its only axis that is longer than 1, and indices are positions of no longer an axis.
fn is_own_position(to: &Lowering<'_, '_>, table: ValueId, axis: usize, indices: ValueId) -> bool {
    let dims = to.dims(table);
    let alone = dims.iter().enumerate().all(|(other, dim)| other == axis || dim.is(1));
    let graph = &*to.builder.graph;
    let source = unmoved(to, indices);
    let Some(node) = graph.producer(source).map(|node| graph.node(node)).filter(|_| alone) else {
        return false;
    };
    let (Op::ArgReduce(reduce), Some(&Some(x))) = (&node.op, node.inputs.first()) else { return false };
    let longest = to.dims(x).get(reduce.axis).and_then(Dim::as_constant);
    let size = dims.get(axis).and_then(Dim::as_constant);
    if longest.zip(size).is_none_or(|(longest, size)| longest > size) || !to.dtype(table).is_int() {
        return false;
    }
    let data = to.constant(table).filter(|data| to.look(data.num_elements()));
    data.is_some_and(|data| (0..).zip(numbers(&data)).all(|(place, number)| number.to_i64() == place))
}
