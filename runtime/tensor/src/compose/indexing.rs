//! Index operations beyond the backend's own, composed from them.

use super::calc::{T, add, along, index_dtype, indices as host_indices, reshape, to_dtype};
use crate::backend::{Backend, Primitive};
use crate::check::ensure;
use crate::trace;
use crate::{BinaryOp, CompareOp, DType, Dims, Expression, ReduceOp, Scalar, ScatterOp, Shape, Step, Traced};
use alloc::vec;
use alloc::vec::Vec;

/// Indices that may be negative, made to count from the start of a dim of the given size. Those that are out of its range stay as they are.
pub(crate) fn wrapped<B: Backend>(indices: T<B>, size: usize) -> T<B> {
    let own = index_dtype::<B>();
    // A narrow dtype may not have the size.
    let indices = if indices.dtype().size() < own.size() { to_dtype::<B>(indices, own) } else { indices };
    let dtype = indices.dtype();
    let expression = Expression::new(vec![
        Step::Input(0),
        Step::Parameter(0, dtype),
        Step::Binary(BinaryOp::Add, 0, 1),
        Step::Constant(Scalar::Int(0), dtype),
        Step::Compare(CompareOp::Lower, 2, 3),
        Step::Where(4, 0, 2),
        Step::Compare(CompareOp::Lower, 0, 3),
        Step::Where(6, 5, 0),
    ]);
    let mut results = B::elementwise(&expression, [indices].into(), &[Scalar::from(size)]);
    results.remove(0)
}

/// See `Tensor::take`.
pub(crate) fn take<B: Backend>(tensor: T<B>, dim: usize, indices: T<B>, negative: bool) -> T<B> {
    let (mut dims, index_shape) = (tensor.shape().dims, indices.shape());
    let mut flat = reshape::<B>(indices, &[index_shape.num_elements()]);
    if negative {
        flat = wrapped::<B>(flat, dims[dim]);
    }
    let rows = B::select(tensor, dim, flat);
    dims.splice(dim..dim + 1, index_shape.dims);
    reshape::<B>(rows, &dims)
}

/// Row-major strides of some dims.
fn strides(dims: &[usize]) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i] * dims[i] as i64;
    }
    strides
}

/// Coordinates in the last dim as positions in the flattened `dims` of one of `batches`: `[n]`. With coordinates that are out of range
/// positions are so in all of them.
fn flat_positions<B: Backend>(coordinates: T<B>, dims: &[usize], batches: usize) -> T<B> {
    if let (&[size], 0..=1) = (dims, batches) {
        let count = coordinates.shape().num_elements();
        return wrapped::<B>(reshape::<B>(coordinates, &[count]), size);
    }
    let count = coordinates.shape().num_elements() / dims.len().max(1);
    let coordinates = to_dtype::<B>(reshape::<B>(coordinates, &[count, dims.len()]), index_dtype::<B>());
    let row = |values: Vec<i64>| reshape::<B>(host_indices::<B>(values, &coordinates), &[1, dims.len()]);
    let sizes = row(dims.iter().map(|&size| size as i64).collect());
    let steps = row(strides(dims));
    // More than other coordinates and the start of a batch add.
    let outside = Traced::parameter(-(batches as i64) * dims.iter().product::<usize>() as i64);
    let [parts] = trace::run::<B, 3, 1>([coordinates, sizes, steps], |[at, size, step]| {
        let from_start = at.clone().mask_where(at.clone().lower(0), at + size.clone());
        let inside = from_start.clone().greater_equal(0).bool_and(from_start.clone().lower(size));
        [outside.mask_where(inside, from_start * step)]
    });
    reshape::<B>(B::reduce(ReduceOp::Sum, parts, &[1]), &[count])
}

/// See `Tensor::gather_nd`.
#[track_caller]
pub(crate) fn gather_nd<B: Backend>(tensor: T<B>, indices: T<B>, batch_dims: usize) -> T<B> {
    let (shape, index_shape) = (tensor.shape(), indices.shape());
    let Some((&depth, outer)) = index_shape.dims.split_last() else {
        crate::check::fail("gather_nd", format_args!("the indices have no dims"))
    };
    let fits = batch_dims <= outer.len()
        && batch_dims + depth <= shape.rank()
        && shape[..batch_dims] == outer[..batch_dims];
    ensure!(fits, "gather_nd", "indices {index_shape} do not fit {shape} with {batch_dims} batch dims");
    let (batch, indexed) = (&shape[..batch_dims], &shape[batch_dims..batch_dims + depth]);
    let rest = &shape[batch_dims + depth..];
    let mut result = Dims::from(outer);
    result.extend_from_slice(rest);

    let (batches, per_batch): (usize, usize) = (batch.iter().product(), indexed.iter().product());
    let count: usize = outer.iter().product();
    let mut positions = if depth == 0 {
        B::full(Shape::from([count]), Scalar::Int(0), index_dtype::<B>(), &B::device(&tensor))
    } else {
        flat_positions::<B>(indices, indexed, batches)
    };
    if batches > 1 {
        let starts = host_indices::<B>((0..batches).map(|b| (b * per_batch) as i64).collect(), &tensor);
        let positions_by_batch = reshape::<B>(positions, &[batches, count / batches]);
        positions = reshape::<B>(add::<B>(positions_by_batch, along::<B>(starts, 0, 2)), &[count]);
    }
    let rows = reshape::<B>(tensor, &[batches * per_batch, rest.iter().product()]);
    reshape::<B>(B::select(rows, 0, positions), &result)
}

/// See `Tensor::scatter_nd`.
#[track_caller]
pub(crate) fn scatter_nd<B: Backend>(tensor: T<B>, indices: T<B>, updates: T<B>, op: ScatterOp) -> T<B> {
    let (shape, index_shape) = (tensor.shape(), indices.shape());
    let Some((&depth, outer)) = index_shape.dims.split_last() else {
        crate::check::fail("scatter_nd", format_args!("the indices have no dims"))
    };
    ensure!(depth <= shape.rank(), "scatter_nd", "indices {index_shape} do not fit {shape}");
    let (indexed, rest) = shape.dims.split_at(depth);
    let mut wanted = Dims::from(outer);
    wanted.extend_from_slice(rest);
    let given = updates.shape();
    ensure!(given.dims == wanted, "scatter_nd", "updates {given} should be {wanted:?}");

    let count: usize = outer.iter().product();
    let (rows, width): (usize, usize) = (indexed.iter().product(), rest.iter().product());
    let positions = if depth == 0 {
        B::full(Shape::from([count]), Scalar::Int(0), index_dtype::<B>(), &B::device(&tensor))
    } else {
        flat_positions::<B>(indices, indexed, 1)
    };
    let table = reshape::<B>(tensor, &[rows, width]);
    let updates = reshape::<B>(updates, &[count, width]);
    reshape::<B>(B::select_assign(table, 0, positions, updates, op), &shape.dims)
}

/// `[rows, columns]` of bool: true on and above (`upper`) or below the `diagonal`-th diagonal.
pub(crate) fn triangle_mask<B: Backend>(
    rows: usize,
    columns: usize,
    op: CompareOp,
    diagonal: i64,
    device: &B::Device,
) -> T<B> {
    let row = B::arange(diagonal, diagonal + rows as i64, 1, index_dtype::<B>(), device);
    let column = B::arange(0, columns as i64, 1, index_dtype::<B>(), device);
    B::compare(op, reshape::<B>(column, &[1, columns]), reshape::<B>(row, &[rows, 1]))
}

/// Keeps one triangle of the last two dims.
pub(crate) fn triangle<B: Backend>(tensor: T<B>, upper: bool, diagonal: i64) -> T<B> {
    let shape = tensor.shape();
    let rank = shape.rank();
    let outside = if upper { CompareOp::Lower } else { CompareOp::Greater };
    let mask = triangle_mask::<B>(shape[rank - 2], shape[rank - 1], outside, diagonal, &B::device(&tensor));
    let mask = super::calc::lead_to_rank::<B>(mask, rank);
    B::mask_fill(tensor, mask, Scalar::Int(0))
}

/// See `Tensor::one_hot_fill`.
pub(crate) fn one_hot<B: Backend>(
    tensor: T<B>,
    classes: usize,
    (on, off): (Scalar, Scalar),
    dtype: DType,
    axis: usize,
) -> T<B> {
    let tensor = to_dtype::<B>(tensor, index_dtype::<B>());
    let mut dims = tensor.shape().dims;
    let rank = dims.len();
    // Not a remainder: a value beyond the classes must stay beyond them.
    let negative = B::compare_scalar(CompareOp::Lower, tensor.clone(), Scalar::Int(0));
    let from_end = B::binary_scalar(BinaryOp::Add, tensor.clone(), Scalar::from(classes));
    let tensor = B::select_where(negative, from_end, tensor);
    dims.insert(axis, 1);
    let class = B::arange(0, classes as i64, 1, index_dtype::<B>(), &B::device(&tensor));
    let chosen = B::compare(CompareOp::Equal, reshape::<B>(tensor, &dims), along::<B>(class, axis, rank + 1));
    let filled = B::full(chosen.shape(), off, dtype, &B::device(&chosen));
    B::mask_fill(filled, chosen, on)
}
