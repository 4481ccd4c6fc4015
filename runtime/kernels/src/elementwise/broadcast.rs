//! Binary operations over strided operands.

use super::scalar::{binary_of, compare_of};
use alloc::vec::Vec;
use kiln_types::{BinaryOp, CompareOp};

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
        let last: usize = dims.iter().zip(self.strides).map(|(&d, &s)| (d - 1) * s).sum();
        assert!(last < self.data.len(), "the operand's {} elements do not hold {dims:?}", self.data.len());
    }
}

/// `out = op(a, b)` over `dims`; `out` is contiguous.
///
/// # Panics
/// For operations that are not f32's, and when an operand or `out` does not hold `dims`.
pub fn binary(op: BinaryOp, dims: &[usize], a: Strided<'_>, b: Strided<'_>, out: &mut [f32]) {
    a.check(dims);
    b.check(dims);
    assert_eq!(out.len(), dims.iter().product::<usize>(), "the output does not have the dims {dims:?}");
    for_each_position(dims, [a.strides, b.strides], |i, [pa, pb]| {
        out[i] = binary_of(op, a.data[pa], b.data[pb]);
    });
}

/// `a = op(a, b)`, or `a = op(b, a)` when `swapped`; `a` is contiguous over `dims`.
///
/// # Panics
/// As [`binary`].
pub fn binary_in_place(op: BinaryOp, dims: &[usize], a: &mut [f32], b: Strided<'_>, swapped: bool) {
    b.check(dims);
    assert_eq!(a.len(), dims.iter().product::<usize>(), "the left operand does not have the dims {dims:?}");
    for_each_position(dims, [b.strides], |i, [pb]| {
        let (x, y) = (a[i], b.data[pb]);
        a[i] = if swapped { binary_of(op, y, x) } else { binary_of(op, x, y) };
    });
}

/// `out = op(a, b)` as 0 or 1 over `dims`; `out` is contiguous.
///
/// # Panics
/// When an operand or `out` does not hold `dims`.
pub fn compare(op: CompareOp, dims: &[usize], a: Strided<'_>, b: Strided<'_>, out: &mut [u8]) {
    a.check(dims);
    b.check(dims);
    assert_eq!(out.len(), dims.iter().product::<usize>(), "the output does not have the dims {dims:?}");
    for_each_position(dims, [a.strides, b.strides], |i, [pa, pb]| {
        out[i] = u8::from(compare_of(op, a.data[pa], b.data[pb]));
    });
}

/// Walks `dims` in row-major order with the offsets of `N` operands.
pub(crate) fn for_each_position<const N: usize>(
    dims: &[usize],
    strides: [&[usize]; N],
    mut body: impl FnMut(usize, [usize; N]),
) {
    let total: usize = dims.iter().product();
    let mut position: Vec<usize> = dims.iter().map(|_| 0).collect();
    let mut offsets = [0; N];
    for i in 0..total {
        body(i, offsets);
        for axis in (0..dims.len()).rev() {
            position[axis] += 1;
            for (offset, strides) in offsets.iter_mut().zip(strides) {
                *offset += strides[axis];
            }
            if position[axis] < dims[axis] {
                break;
            }
            position[axis] = 0;
            for (offset, strides) in offsets.iter_mut().zip(strides) {
                *offset -= strides[axis] * dims[axis];
            }
        }
    }
}
