//! Binary operations over strided operands.

use super::rows::{Row, binary_row, compare_row};
use crate::threads::{SharedMut, parallel_for};
use crate::walk::Walk;
use core::ops::Range;
use kiln_types::{BinaryOp, CompareOp, Shape};

/// Elements of a row that one piece of work has at most.
pub(super) const BLOCK: usize = 4096;

/// An operand seen through strides: the element at position `p` of the output is `data[Σ p[i] · strides[i]]`.
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a> {
    /// The elements, from the view's first on.
    pub data: &'a [f32],
    /// Elements between neighbours, per output dim; 0 broadcasts.
    pub strides: &'a [usize],
}

impl Strided<'_> {
    /// Checks that every position of `dims` lies inside the data.
    pub(crate) fn check(&self, dims: &[usize]) {
        assert_eq!(self.strides.len(), dims.len(), "one stride per dim");
        if dims.contains(&0) {
            return;
        }
        let reach =
            |sum: usize, (&dim, &stride): (&usize, &usize)| (dim - 1).checked_mul(stride)?.checked_add(sum);
        let last = dims.iter().zip(self.strides).try_fold(0, reach);
        assert!(
            last.is_some_and(|last| last < self.data.len()),
            "the operand's {} elements do not hold {dims:?}",
            self.data.len()
        );
    }
}

/// `Strided`, for threads.
#[derive(Clone, Copy)]
pub(super) struct View(*const f32);

// SAFETY: read only, and only while the slice it was made from is borrowed.
unsafe impl Sync for View {}
// SAFETY: as for `Sync`.
unsafe impl Send for View {}

impl View {
    pub fn of(operand: &Strided<'_>) -> Self {
        View(operand.data.as_ptr())
    }

    /// The row from an offset on.
    ///
    /// # Safety
    /// The offset lies inside.
    #[inline(always)]
    pub unsafe fn row(self, offset: isize, stride: isize) -> Row {
        // SAFETY: the caller's promise.
        unsafe { Row::new(self.0.offset(offset), stride) }
    }
}

/// Cuts a walk with contiguous output into pieces, each a part of a row, and shares them out: `body(row offsets, start and
/// length within the row, start in the output)`. `work` is the cost of eight elements.
pub(super) fn for_each_piece<const N: usize>(
    walk: &Walk<N>,
    work: usize,
    body: impl Fn([isize; N], Range<usize>, usize) + Sync,
) {
    let row = walk.row();
    let pieces = row.div_ceil(BLOCK);
    if pieces == 1 {
        return parallel_for(walk.rows(), row * work / 8 + 5, |rows| {
            walk.for_each(rows, |i, offsets| body(offsets, 0..row, i * row));
        });
    }
    parallel_for(walk.rows() * pieces, BLOCK * work / 8 + 5, |range| {
        for unit in range {
            let (i, start) = (unit / pieces, unit % pieces * BLOCK);
            walk.for_each(i..i + 1, |_, offsets| {
                body(offsets, start..row.min(start + BLOCK), i * row + start);
            });
        }
    });
}

/// The cost of eight elements in nanoseconds.
fn work(op: BinaryOp) -> usize {
    match op {
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Max | BinaryOp::Min => 1,
        _ => 80,
    }
}

/// Panics for the operations that f32 does not have, before any thread starts.
fn check_operation(op: BinaryOp) {
    super::binary_of(op, 1.0, 1.0);
}

/// `out = op(a, b)` over `dims`; `out` is contiguous.
///
/// # Panics
/// For operations that are not f32's, and when an operand or `out` does not hold `dims`.
pub fn binary(op: BinaryOp, dims: &[usize], a: Strided<'_>, b: Strided<'_>, out: &mut [f32]) {
    a.check(dims);
    b.check(dims);
    check_operation(op);
    assert_eq!(Some(out.len()), Shape::count(dims), "the output does not have the dims {dims:?}");
    if out.is_empty() {
        return;
    }
    let walk = Walk::new(dims, |n, axis| [a.strides, b.strides][n][axis] as isize);
    let [step_a, step_b] = walk.row_strides();
    let (a, b, out) = (View::of(&a), View::of(&b), SharedMut::new(out));
    for_each_piece(&walk, work(op), |[at_a, at_b], part, to| {
        // SAFETY: `check` has shown that all rows lie inside; pieces of the output are disjoint.
        unsafe {
            let (a, b) = (a.row(at_a, step_a).from(part.start), b.row(at_b, step_b).from(part.start));
            binary_row(op, a, b, out.ptr(to), part.len());
        }
    });
}

/// `a = op(a, b)`, or `a = op(b, a)` when `swapped`; `a` is contiguous over `dims`.
///
/// # Panics
/// As [`binary`].
pub fn binary_in_place(op: BinaryOp, dims: &[usize], a: &mut [f32], b: Strided<'_>, swapped: bool) {
    b.check(dims);
    check_operation(op);
    assert_eq!(Some(a.len()), Shape::count(dims), "the left operand does not have the dims {dims:?}");
    if a.is_empty() {
        return;
    }
    let walk = Walk::<1>::new(dims, |_, axis| b.strides[axis] as isize);
    let [step] = walk.row_strides();
    let (b, out) = (View::of(&b), SharedMut::new(a));
    for_each_piece(&walk, work(op), |[at], part, to| {
        // SAFETY: as in `binary`; the row of `a` is the piece itself.
        unsafe {
            let b = b.row(at, step).from(part.start);
            let a = Row::Elements(out.ptr(to).cast_const());
            let (x, y) = if swapped { (b, a) } else { (a, b) };
            binary_row(op, x, y, out.ptr(to), part.len());
        }
    });
}

/// `out = op(a, b)` as 0 or 1 over `dims`; `out` is contiguous.
///
/// # Panics
/// When an operand or `out` does not hold `dims`.
pub fn compare(op: CompareOp, dims: &[usize], a: Strided<'_>, b: Strided<'_>, out: &mut [u8]) {
    a.check(dims);
    b.check(dims);
    assert_eq!(Some(out.len()), Shape::count(dims), "the output does not have the dims {dims:?}");
    if out.is_empty() {
        return;
    }
    let walk = Walk::new(dims, |n, axis| [a.strides, b.strides][n][axis] as isize);
    let [step_a, step_b] = walk.row_strides();
    let (a, b, out) = (View::of(&a), View::of(&b), SharedMut::new(out));
    for_each_piece(&walk, 1, |[at_a, at_b], part, to| {
        // SAFETY: as in `binary`.
        unsafe {
            let (a, b) = (a.row(at_a, step_a).from(part.start), b.row(at_b, step_b).from(part.start));
            compare_row(op, a, b, out.ptr(to), part.len());
        }
    });
}
