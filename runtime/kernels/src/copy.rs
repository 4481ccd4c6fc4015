//! Copies between strided layouts, and of rows chosen by index.

use alloc::vec::Vec;
use bytemuck::Pod;

/// A strided view for [`copy_strided`]: the position `p` is element `offset + Σ p[i] · strides[i]`.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// The first element.
    pub offset: usize,
    /// Elements between neighbours, per dim; may be negative or, in a source, 0.
    pub strides: &'a [isize],
}

impl Layout<'_> {
    /// Checks that all of `dims` lies inside of `len` elements.
    fn check(&self, dims: &[usize], len: usize, what: &str) {
        assert_eq!(self.strides.len(), dims.len(), "one stride per dim of the {what}");
        let (mut low, mut high) = (self.offset as isize, self.offset as isize);
        for (&d, &s) in dims.iter().zip(self.strides) {
            let reach = (d as isize - 1) * s;
            if reach < 0 { low += reach } else { high += reach }
        }
        assert!(low >= 0 && high < len as isize, "{dims:?} lies outside of the {what}'s {len} elements");
    }
}

/// Copies `dims` elements from one layout to another.
///
/// # Panics
/// When a view does not lie inside of its slice.
pub fn copy_strided<T: Pod + Send + Sync>(
    dims: &[usize],
    src: &[T],
    from: Layout<'_>,
    dst: &mut [T],
    to: Layout<'_>,
) {
    if dims.contains(&0) {
        return;
    }
    from.check(dims, src.len(), "source");
    to.check(dims, dst.len(), "destination");
    let total: usize = dims.iter().product();
    let mut position: Vec<usize> = dims.iter().map(|_| 0).collect();
    let (mut a, mut b) = (from.offset as isize, to.offset as isize);
    for _ in 0..total {
        dst[b as usize] = src[a as usize];
        for axis in (0..dims.len()).rev() {
            position[axis] += 1;
            a += from.strides[axis];
            b += to.strides[axis];
            if position[axis] < dims[axis] {
                break;
            }
            position[axis] = 0;
            a -= from.strides[axis] * dims[axis] as isize;
            b -= to.strides[axis] * dims[axis] as isize;
        }
    }
}

/// Chooses along the middle dim: `dst[o, i, ..] = src[o, indices[i], ..]`; `src` is `[outer, len, row]`, `dst`
/// `[outer, indices, row]`.
///
/// # Panics
/// When sizes do not fit, or an index is not below `len`.
pub fn select_rows<T: Pod + Send + Sync>(
    outer: usize,
    len: usize,
    row: usize,
    src: &[T],
    indices: &[usize],
    dst: &mut [T],
) {
    assert_eq!(src.len(), outer * len * row, "size of the selection's source");
    assert_eq!(dst.len(), outer * indices.len() * row, "size of the selection's destination");
    for o in 0..outer {
        for (i, &index) in indices.iter().enumerate() {
            assert!(index < len, "index {index} is out of range for size {len}");
            let from = &src[(o * len + index) * row..][..row];
            dst[(o * indices.len() + i) * row..][..row].copy_from_slice(from);
        }
    }
}
