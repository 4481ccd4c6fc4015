//! What must hold before a backend is called; each failure names the operation and the shapes.
//!
//! Nothing here is generic over the tensor, so that it is compiled once.

use crate::backend::ExecutionError;
use crate::{DType, Dims, InlineVec, Shape};
use core::fmt::Arguments;

/// Ends with the operation's name and what is wrong.
#[cold]
#[track_caller]
pub(crate) fn fail(op: &str, what: Arguments<'_>) -> ! {
    panic!("{op}: {what}")
}

/// What a device yielded, unless it failed.
#[track_caller]
pub(crate) fn ran<T>(op: &str, result: Result<T, ExecutionError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => fail(op, format_args!("{error}")),
    }
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

/// Operands with weights and perhaps a bias, of one dtype.
#[track_caller]
pub(crate) fn same_dtypes(op: &str, x: DType, weight: DType, bias: Option<DType>) {
    same_dtype(op, x, weight);
    if let Some(bias) = bias {
        ensure!(
            x == bias,
            op,
            "the input is {x} and the bias {bias}; cast one of them, as in `.cast(DType::{x:?})`"
        );
    }
}

/// Whether shapes broadcast.
fn broadcasts(a: &[usize], b: &[usize]) -> bool {
    a.iter().rev().zip(b.iter().rev()).all(|(&a, &b)| a == b || a == 1 || b == 1)
}

/// Operands that broadcast.
#[track_caller]
pub(crate) fn compatible(op: &str, a: &[usize], b: &[usize]) {
    ensure!(broadcasts(a, b), op, "{a:?} and {b:?} do not broadcast");
}

/// Operands that broadcast; yields their common shape.
#[track_caller]
pub(crate) fn broadcast(op: &str, a: &[usize], b: &[usize]) -> Shape {
    match Shape::from(a).broadcast(&Shape::from(b)) {
        Some(shape) => shape,
        None => fail(op, format_args!("{a:?} and {b:?} do not broadcast")),
    }
}

/// Operands of one shape.
#[track_caller]
pub(crate) fn same_shape(op: &str, a: &[usize], b: &[usize]) {
    ensure!(a == b, op, "the shapes {a:?} and {b:?} differ");
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
pub(crate) fn dims(op: &str, dims: impl Iterator<Item = isize>, rank: usize) -> Dims {
    let mut dims: Dims = dims.map(|d| dim(op, d, rank)).collect();
    dims.sort_unstable();
    ensure!(dims.windows(2).all(|pair| pair[0] != pair[1]), op, "the dims {dims:?} are not distinct");
    dims
}

/// A permutation of all dims.
#[track_caller]
pub(crate) fn permutation(op: &str, axes: impl Iterator<Item = isize>, rank: usize) -> Dims {
    let axes: Dims = axes.map(|d| dim(op, d, rank)).collect();
    let mut seen = InlineVec::repeat(false, rank);
    axes.iter().for_each(|&axis| seen[axis] = true);
    ensure!(axes.len() == rank && !seen.contains(&false), op, "{axes:?} does not permute {rank} dims");
    axes
}

/// A tensor of rank `D`.
#[track_caller]
pub(crate) fn rank(op: &str, shape: &[usize], expected: usize) {
    ensure!(shape.len() == expected, op, "rank {expected} was expected, the shape is {shape:?}");
}

/// Operands of a matrix product.
#[track_caller]
pub(crate) fn matmul(a: &[usize], b: &[usize]) {
    let rank = a.len();
    ensure!(rank >= 2, "matmul", "{a:?} and {b:?}: the rank must be at least 2");
    ensure!(
        a[rank - 1] == b[rank - 2],
        "matmul",
        "{a:?} and {b:?}: {} columns meet {} rows",
        a[rank - 1],
        b[rank - 2]
    );
    ensure!(
        broadcasts(&a[..rank - 2], &b[..rank - 2]),
        "matmul",
        "{a:?} and {b:?}: the leading dims do not broadcast"
    );
}

/// Shapes that may be joined along `dim`.
#[track_caller]
pub(crate) fn cat<'a>(mut shapes: impl Iterator<Item = &'a [usize]>, dim: usize) {
    let Some(first) = shapes.next() else { fail("cat", format_args!("there are no tensors to join")) };
    for shape in shapes {
        let fits = shape.iter().zip(first).enumerate().all(|(i, (a, b))| i == dim || a == b);
        ensure!(
            fits,
            "cat",
            "{first:?} and {shape:?} differ outside of dim {dim}, along which they are joined"
        );
    }
}

/// Shapes of a gather or scatter: equal rank, the indices within the tensor outside of `dim`.
#[track_caller]
pub(crate) fn gather(op: &str, shape: &[usize], dim: usize, indices: &[usize]) {
    let fits =
        shape.iter().zip(indices.iter()).enumerate().all(|(i, (size, index))| i == dim || index <= size);
    ensure!(fits, op, "indices {indices:?} do not fit a tensor {shape:?} along dim {dim}");
}

/// A shape that another expands to.
#[track_caller]
pub(crate) fn expand(from: &[usize], to: &[usize]) {
    let fits = from.len() <= to.len()
        && from.iter().rev().zip(to.iter().rev()).all(|(&from, &to)| from == to || from == 1);
    ensure!(fits, "expand", "{from:?} does not expand to {to:?}");
    ensure!(Shape::count(to).is_some(), "expand", "{to:?} has more elements than memory can have");
}

/// A reshape that keeps the number of elements.
#[track_caller]
pub(crate) fn reshape(from: &[usize], to: &[usize]) {
    match (Shape::count(from), Shape::count(to)) {
        (Some(from), Some(to)) if from == to => {}
        (Some(count), Some(wanted)) => {
            fail("reshape", format_args!("{from:?} has {count} elements, {to:?} has {wanted}"))
        }
        (_, _) => fail("reshape", format_args!("{to:?} has more elements than memory can have")),
    }
}
