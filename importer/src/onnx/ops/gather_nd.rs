//! `GatherND`: slices named by index tuples.

use super::super::lowering::numbers;
use super::gather::may_be_negative;
use super::prelude::*;
use crate::ir::op;

pub(super) struct GatherNd {
    batch_dims: usize,
}

impl GatherNd {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { batch_dims: node.size("batch_dims", 0)? })
    }
}

impl<'m> Operator<'m> for GatherNd {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("GatherND", 11, &["data", "indices"]).reads(Self::read),
        Spec::microsoft("GatherND", &["data", "indices"]).reads(|_| Ok(Self { batch_dims: 0 })),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, indices) = (args.value("data")?, args.value("indices")?);
        let batch = self.batch_dims;
        let rank = to.need_rank("data", x, batch + 1)?;
        let index_rank = to.need_rank("indices", indices, batch + 1)?;
        let (data, index) = (to.dims(x), to.dims(indices));
        let mut expected: Vec<Option<Dim>> = data[..batch].iter().cloned().map(Some).collect();
        expected.resize(index_rank, None);
        to.expect_dims("indices", indices, &expected)?;
        let Some(depth) = index[index_rank - 1].as_size() else {
            return Err(RuleError::NotConstant { input: "the last dim of indices".to_owned() });
        };
        if depth + batch > rank {
            return Err(misfit("indices", format!("name {depth} axes of {}", rank - batch)));
        }
        let mut dims = index[..index_rank - 1].to_vec();
        if depth == 1 && batch == 0 {
            let flat = to.reshape(indices, dims)?;
            let wrapped = may_be_negative(to, flat);
            return Ok(to.add(Op::Take(op::Take { axis: 0, wrapped }), &[x, flat])?.into());
        }
        dims.extend_from_slice(&data[batch + depth..]);
        if batch == 0
            && depth == rank
            && let Some(sizes) = taken_in_order(to, x, indices)
        {
            let mut part = x;
            for (axis, size) in sizes.into_iter().enumerate() {
                part = to.slice(part, axis, Dim::constant(0), size)?;
            }
            return Ok(to.reshape(part, dims)?.into());
        }
        let ty = to.ty(x).with_dims(dims);
        let (ranks, batch) = ([index_rank, ty.rank()].map(Arg::Rank), Arg::Int(batch as i64));
        let [of_indices, of_result] = ranks;
        let arguments = [Arg::Operand(0), of_indices, of_result, Arg::Operand(1), batch];
        Ok(to.call(Call::new("gather_nd", arguments), &[x, indices], ty)?.into())
    }
}

/// The sizes of the part, from each axis' beginning on, whose elements full index tuples name once and in order, as the dynamo
/// exporter writes `mask[batch, position]` of a broadcast: then nothing moves.
fn taken_in_order(to: &Lowering<'_, '_>, x: ValueId, indices: ValueId) -> Option<Vec<Dim>> {
    let dims = to.dims(x);
    let mut wanted = to.dims(indices);
    wanted.pop();
    let known = to.constant(indices).filter(|data| to.look(data.num_elements()));
    if let (Some(data), Some(shape)) = (known, to.ty(x).shape()) {
        if Dim::product(&dims) != Dim::product(&wanted) {
            return None;
        }
        let indices = numbers(&data);
        let tuples = indices.chunks_exact(shape.len().max(1));
        let place = |tuple: &[Scalar]| {
            tuple.iter().zip(&shape).try_fold(0i64, |place, (index, &size)| {
                place.checked_mul(size as i64)?.checked_add(index.to_i64())
            })
        };
        return tuples.enumerate().all(|(i, tuple)| place(tuple) == Some(i as i64)).then_some(dims);
    }
    // A counter for each axis that is longer than 1, along its own axis of the result; the other indices can but be 0. A counter
    // may end before its axis does: that the batches of a mask and of what it masks are equal is nothing that exporters note.
    let graph = &*to.builder.graph;
    let node = graph.node(graph.producer(indices)?);
    if !matches!(node.op, Op::Concat(op::Concat { axis }) if axis + 1 == to.rank(indices))
        || node.inputs.len() != dims.len()
    {
        return None;
    }
    let (mut counted, mut sizes) = (Vec::new(), dims);
    for (size, &part) in sizes.iter_mut().zip(&node.inputs).filter(|(dim, _)| !dim.is(1)) {
        let axis = counted_axis(to, part?, MAX_STEPS)?;
        *size = to.dims(part?).get(axis)?.clone();
        counted.push(axis);
    }
    let alone = wanted.iter().enumerate().all(|(axis, dim)| dim.is(1) || counted.contains(&axis));
    (alone && counted.is_sorted_by(|a, b| a < b) && Dim::product(&sizes) == Dim::product(&wanted))
        .then_some(sizes)
}

/// So many operations lie between a counter and the tuples at most; exporters write less than ten.
const MAX_STEPS: usize = 32;

/// The axis along which a value is `0, 1, …` up to its size, the same along all others; `steps` operations are looked at.
fn counted_axis(to: &Lowering<'_, '_>, value: ValueId, steps: usize) -> Option<usize> {
    let steps = steps.checked_sub(1)?;
    let graph = &*to.builder.graph;
    let node = graph.node(graph.producer(value)?);
    let source = node.inputs.first().copied().flatten();
    match &node.op {
        Op::Arange(op::Arange { start, step: 1, .. }) if start.is(0) => Some(0),
        // Narrower types and truth values do not count on.
        Op::Cast(op::Cast { to: DType::I32 | DType::I64 }) => counted_axis(to, source?, steps),
        // Exporters that were told to optimize nothing leave slices of everything, and offsets of 0.
        Op::Slice(op::Slice { ranges }) => {
            let dims = to.dims(source?);
            let whole = |(range, dim): (&op::AxisRange, &Dim)| {
                range.start.is(0) && range.end == *dim && range.step == 1
            };
            counted_axis(to, source?, steps).filter(|_| ranges.iter().zip(&dims).all(whole))
        }
        Op::Binary(BinaryOp::Add) => {
            let [a, b] = [0, 1].map(|n| node.inputs.get(n).copied().flatten());
            let is_zero = |value: Option<ValueId>| {
                value.and_then(|value| graph.number(value)).is_some_and(|number| number.to_i64() == 0)
            };
            let counter = match (is_zero(a), is_zero(b)) {
                (_, true) => a?,
                (true, _) => b?,
                _ => return None,
            };
            let axis = counted_axis(to, counter, steps)?;
            (to.dims(counter)[axis] == to.dims(value)[axis]).then_some(axis)
        }
        Op::Expand(op::Expand { dims }) => {
            let axis = counted_axis(to, source?, steps)?;
            (to.dims(source?)[axis] == dims[axis]).then_some(axis)
        }
        Op::Reshape(op::Reshape { dims }) => {
            // Axes of size 1 come and go.
            let before = to.dims(source?);
            let axis = counted_axis(to, source?, steps)?;
            let long = |dims: &[Dim]| (0..dims.len()).filter(|&axis| !dims[axis].is(1)).collect::<Vec<_>>();
            let (old, new) = (long(&before), long(dims));
            let same = old.len() == new.len() && old.iter().zip(&new).all(|(&a, &b)| before[a] == dims[b]);
            new.get(old.iter().position(|&long| long == axis)?).copied().filter(|_| same)
        }
        _ => None,
    }
}
