//! What must hold before a backend is called; each failure names the operation and the shapes.
//!
//! Nothing here is generic over the tensor, so that it is compiled once.

use crate::{DType, Shape};
use alloc::vec::Vec;
use core::fmt::Arguments;

/// Ends with the operation's name and what is wrong.
#[cold]
#[track_caller]
pub(crate) fn fail(op: &str, what: Arguments<'_>) -> ! {
    panic!("{op}: {what}")
}

/// Fails with a formatted message unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $op:expr, $($what:tt)+) => {
        if !$condition {
            $crate::check::fail($op, format_args!($($what)+));
        }
    };
}
pub(crate) use ensure;

/// Operands of one dtype.
#[track_caller]
pub(crate) fn same_dtype(op: &str, a: DType, b: DType) {
    ensure!(a == b, op, "the operands are {a} and {b}; cast one of them, as in `.cast(DType::{a:?})`");
}

/// Operands that broadcast; yields their common shape.
#[track_caller]
pub(crate) fn broadcast(op: &str, a: &Shape, b: &Shape) -> Shape {
    match a.broadcast(b) {
        Some(shape) => shape,
        None => fail(op, format_args!("{a} and {b} do not broadcast")),
    }
}

/// Operands of one shape.
#[track_caller]
pub(crate) fn same_shape(op: &str, a: &Shape, b: &Shape) {
    ensure!(a == b, op, "the shapes {a} and {b} differ");
}

/// A dim, counted from the end when negative.
#[track_caller]
pub(crate) fn dim(op: &str, dim: isize, rank: usize) -> usize {
    let wrapped = if dim < 0 { dim + rank as isize } else { dim };
    ensure!((0..rank as isize).contains(&wrapped), op, "there is no dim {dim} in rank {rank}");
    wrapped as usize
}

/// Distinct dims, sorted.
#[track_caller]
pub(crate) fn dims(op: &str, dims: impl Iterator<Item = isize>, rank: usize) -> Vec<usize> {
    let mut dims: Vec<usize> = dims.map(|d| dim(op, d, rank)).collect();
    dims.sort_unstable();
    ensure!(dims.windows(2).all(|pair| pair[0] != pair[1]), op, "the dims {dims:?} are not distinct");
    dims
}

/// A permutation of all dims.
#[track_caller]
pub(crate) fn permutation(op: &str, axes: impl Iterator<Item = isize>, rank: usize) -> Vec<usize> {
    let axes: Vec<usize> = axes.map(|d| dim(op, d, rank)).collect();
    let mut seen = alloc::vec![false; rank];
    axes.iter().for_each(|&axis| seen[axis] = true);
    ensure!(axes.len() == rank && !seen.contains(&false), op, "{axes:?} does not permute {rank} dims");
    axes
}

/// A tensor of rank `D`.
#[track_caller]
pub(crate) fn rank(op: &str, shape: &Shape, expected: usize) {
    ensure!(shape.rank() == expected, op, "rank {expected} was expected, the shape is {shape}");
}

/// Operands of a matrix product.
#[track_caller]
pub(crate) fn matmul(a: &Shape, b: &Shape) {
    let rank = a.rank();
    ensure!(rank >= 2, "matmul", "{a} and {b}: the rank must be at least 2");
    ensure!(
        a[rank - 1] == b[rank - 2],
        "matmul",
        "{a} and {b}: {} columns meet {} rows",
        a[rank - 1],
        b[rank - 2]
    );
    let outer = |shape: &Shape| Shape::from(&shape[..rank - 2]);
    ensure!(
        outer(a).broadcast(&outer(b)).is_some(),
        "matmul",
        "{a} and {b}: the leading dims do not broadcast"
    );
}

/// Shapes that may be joined along `dim`.
#[track_caller]
pub(crate) fn cat(shapes: &[Shape], dim: usize) {
    let Some(first) = shapes.first() else { fail("cat", format_args!("there are no tensors to join")) };
    let others = |shape: &Shape| {
        let mut dims = shape.dims.clone();
        dims.remove(dim);
        dims
    };
    for shape in shapes {
        ensure!(
            others(shape) == others(first),
            "cat",
            "{first} and {shape} differ outside of dim {dim}, along which they are joined"
        );
    }
}

/// Shapes of a gather or scatter: equal rank, the indices within the tensor outside of `dim`.
#[track_caller]
pub(crate) fn gather(op: &str, shape: &Shape, dim: usize, indices: &Shape) {
    let fits =
        shape.iter().zip(indices.iter()).enumerate().all(|(i, (size, index))| i == dim || index <= size);
    ensure!(fits, op, "indices {indices} do not fit a tensor {shape} along dim {dim}");
}

/// A shape that another expands to.
#[track_caller]
pub(crate) fn expand(from: &Shape, to: &Shape) {
    let fits = from.rank() <= to.rank()
        && from.iter().rev().zip(to.iter().rev()).all(|(&from, &to)| from == to || from == 1);
    ensure!(fits, "expand", "{from} does not expand to {to}");
}

/// A reshape that keeps the number of elements.
#[track_caller]
pub(crate) fn reshape(from: &Shape, to: &Shape) {
    ensure!(
        from.num_elements() == to.num_elements(),
        "reshape",
        "{from} has {} elements, {to} has {}",
        from.num_elements(),
        to.num_elements()
    );
}
