//! `ScatterND`: slices named by index tuples are replaced, or combined.
//!
//! Assignments to slices (`x[:, 1:4] = y`) reach the file as tuples that fill a box; they lower to the parts around the
//! box joined with what replaces it, which passes and constant folding understand. Tuples of one index name rows (a cache that a
//! decoder writes to), and those that count through all axes name every element.

use super::super::lowering::numbers;
use super::gather_elements::from_start;
use super::prelude::*;
use super::scatter_elements::REDUCTIONS;
use crate::ir::op;
use kiln_types::ScatterOp;
use std::ops::Range;

pub(super) struct ScatterNd {
    op: ScatterOp,
}

impl ScatterNd {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { op: node.choice("reduction", "none", REDUCTIONS)? })
    }
}

impl<'m> Operator<'m> for ScatterNd {
    const FORMS: Forms<'m, Self> =
        &[Spec::onnx("ScatterND", 11, &["data", "indices", "updates"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, indices) = (args.value("data")?, args.value("indices")?);
        let updates = args.value("updates")?;
        let rank = to.need_rank("data", x, 1)?;
        let index_rank = to.need_rank("indices", indices, 1)?;
        let depth = to.dims(indices)[index_rank - 1].as_size();
        if let Some(depth) = depth {
            if depth > rank {
                return Err(misfit("indices", format!("name {depth} axes of {rank}")));
            }
            let tuples = to.dims(indices).into_iter().take(index_rank - 1);
            let slices = to.dims(x).into_iter().skip(depth);
            to.expect_dims("updates", updates, &tuples.chain(slices).map(Some).collect::<Vec<_>>())?;
        }
        if to.dims(updates).iter().any(|dim| dim.is(0)) || to.dims(indices).iter().any(|dim| dim.is(0)) {
            return Ok(x.into());
        }
        if self.op == ScatterOp::Assign
            && let Some(ranges) = filled_box(to, x, indices)
        {
            let mut dims: Vec<Dim> = ranges.iter().map(|range| Dim::from(range.end - range.start)).collect();
            dims.extend_from_slice(&to.dims(x)[ranges.len()..]);
            let updates = to.reshape(updates, dims)?;
            return Ok(replace(to, x, updates, &ranges, 0)?.into());
        }
        if self.op == ScatterOp::Assign && names_all(to, x, indices) {
            let dims = to.dims(x);
            return Ok(to.reshape(updates, dims)?.into());
        }
        if depth == Some(1) {
            let count = Dim::product(&to.dims(indices)[..index_rank - 1]);
            let rows: Vec<Dim> =
                std::iter::once(count.clone()).chain(to.dims(x)[1..].iter().cloned()).collect();
            let indices = to.reshape(indices, vec![count])?;
            let indices = from_start(to, indices, x, 0)?;
            let updates = to.reshape(updates, rows)?;
            let assign = op::SelectAssign { axis: 0, op: self.op };
            return Ok(to.add(Op::SelectAssign(assign), &[x, indices, updates])?.into());
        }
        let reduction = match self.op {
            ScatterOp::Assign => "tensor::IndexingUpdateOp::Assign",
            ScatterOp::Add => "tensor::IndexingUpdateOp::Add",
            ScatterOp::Mul => "tensor::IndexingUpdateOp::Mul",
            ScatterOp::Max => "tensor::IndexingUpdateOp::Max",
            ScatterOp::Min => "tensor::IndexingUpdateOp::Min",
        };
        let arguments = [Arg::Operand(0), Arg::Operand(1), Arg::Operand(2), Arg::variant(reduction)];
        let ty = to.ty(x).clone();
        Ok(to.call(Call::new("scatter_nd", arguments), &[x, indices, updates], ty)?.into())
    }
}

/// The ranges of the leading axes that known index tuples name, each place once and in order.
fn filled_box(to: &Lowering<'_, '_>, x: ValueId, indices: ValueId) -> Option<Vec<Range<usize>>> {
    let data = to.constant(indices).filter(|data| to.look(data.num_elements()))?;
    let depth = data.shape.last().copied().filter(|&depth| depth > 0)?;
    let sizes: Vec<usize> = to.dims(x)[..depth].iter().map(Dim::as_size).collect::<Option<_>>()?;
    let mut places = Vec::with_capacity(data.num_elements());
    for (n, index) in numbers(&data).into_iter().enumerate() {
        let (index, size) = (index.to_i64(), sizes[n % depth]);
        let index = if index < 0 { index + size as i64 } else { index };
        places.push(usize::try_from(index).ok().filter(|&index| index < size)?);
    }
    let (first, last) = (places.get(..depth)?, &places[places.len() - depth..]);
    let ranges: Vec<Range<usize>> = first.iter().zip(last).map(|(&a, &b)| a..b + 1).collect();
    let count = ranges.iter().try_fold(1usize, |count, range| count.checked_mul(range.len()))?;
    if count == 0 || count.checked_mul(depth) != Some(places.len()) {
        return None;
    }
    let in_order = places.chunks_exact(depth).enumerate().all(|(mut n, place)| {
        place.iter().zip(&ranges).rev().all(|(&at, range)| {
            let expected = range.start + n % range.len();
            n /= range.len();
            at == expected
        })
    });
    in_order.then_some(ranges)
}

/// Whether index tuples are those of all elements, in order, as exporters write `x[:, :, :n] = y` where `n` turns out to be all there
/// are.
fn names_all(to: &Lowering<'_, '_>, x: ValueId, indices: ValueId) -> bool {
    let graph = &*to.builder.graph;
    let (dims, tuples) = (to.dims(x), to.dims(indices));
    let Some((_, all)) = tuples.split_last() else { return false };
    let Some(node) = graph.producer(indices).map(|node| graph.node(node)) else { return false };
    let is_joined = matches!(&node.op, Op::Concat(op::Concat { axis }) if *axis == dims.len());
    let each = || dims.iter().zip(&node.inputs).enumerate();
    is_joined
        && all == dims
        && node.inputs.len() == dims.len()
        && each().all(|(axis, (dim, part))| dim.is(1) || part.is_some_and(|part| counts(to, part, axis)))
}

/// Whether each element of a value is its position along an axis.
fn counts(to: &Lowering<'_, '_>, mut value: ValueId, mut axis: usize) -> bool {
    let graph = &*to.builder.graph;
    while let Some(node) = graph.producer(value).map(|node| graph.node(node)) {
        let result = &to.ty(value).dims;
        let operand = match (&node.op, node.inputs.as_slice()) {
            (Op::Arange(op::Arange { start, step: 1, .. }), _) => return start.is(0),
            (Op::Expand(_) | Op::Reshape(_), &[Some(operand)]) => operand,
            _ => return false,
        };
        let dims = &to.ty(operand).dims;
        let found = match &node.op {
            Op::Expand(_) => (axis + dims.len()).checked_sub(result.len()),
            // Axes of size 1 come and go.
            _ => {
                let longer = |dims: &[Dim]| -> Vec<(usize, Dim)> {
                    dims.iter().cloned().enumerate().filter(|(_, dim)| !dim.is(1)).collect()
                };
                let (before, after) = (longer(dims), longer(result));
                let same = before.iter().map(|(_, dim)| dim).eq(after.iter().map(|(_, dim)| dim));
                let place = after.iter().position(|&(n, _)| n == axis).filter(|_| same);
                place.and_then(|place| before.get(place)).map(|&(n, _)| n)
            }
        };
        let length = result.get(axis).filter(|length| !length.is(1));
        match found.filter(|&found| length.is_some() && dims.get(found) == length) {
            Some(found) => (value, axis) = (operand, found),
            None => return false,
        }
    }
    false
}

/// `x` with the box from `axis` on replaced.
fn replace(
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    updates: ValueId,
    ranges: &[Range<usize>],
    axis: usize,
) -> RuleResult<ValueId> {
    let Some(range) = ranges.get(axis) else { return Ok(updates) };
    let size = to.dims(x)[axis].clone();
    let (start, end) = (Dim::from(range.start), Dim::from(range.end));
    let inner = to.slice(x, axis, start.clone(), end.clone())?;
    let mut parts = vec![replace(to, inner, updates, ranges, axis + 1)?];
    if range.start > 0 {
        parts.insert(0, to.slice(x, axis, Dim::constant(0), start)?);
    }
    if !size.is(range.end as i64) {
        parts.push(to.slice(x, axis, end, size)?);
    }
    to.concat(&parts, axis)
}
