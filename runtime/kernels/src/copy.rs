//! Copies between strided layouts, and sums into rows that are chosen by index.

use crate::simd::dispatched;
use crate::size::elements;
use crate::threads::{SharedMut, parallel_chunks, parallel_for};
use crate::walk::{Axis, Walk};
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
        let ends = |(low, high): (isize, isize), (&dim, &stride): (&usize, &isize)| {
            let reach = (isize::try_from(dim).ok()? - 1).checked_mul(stride)?;
            Some(if reach < 0 { (low.checked_add(reach)?, high) } else { (low, high.checked_add(reach)?) })
        };
        let first = isize::try_from(self.offset).ok().map(|offset| (offset, offset));
        let ends = first.and_then(|first| dims.iter().zip(self.strides).try_fold(first, ends));
        assert!(
            ends.is_some_and(|(low, high)| low >= 0 && high < len as isize),
            "{dims:?} lies outside of the {what}'s {len} elements"
        );
    }

    /// Whether no two positions are one element: each stride reaches beyond what the smaller ones span.
    fn is_injective(&self, dims: &[usize]) -> bool {
        let mut axes = [(0usize, 0usize); 16];
        let mut count = 0;
        for (&d, &s) in dims.iter().zip(self.strides).filter(|(d, _)| **d > 1) {
            if count == axes.len() {
                return false;
            }
            axes[count] = (s.unsigned_abs(), d);
            count += 1;
        }
        axes[..count].sort_unstable();
        let mut span = 0;
        axes[..count].iter().all(|&(s, d)| {
            let free = s > span;
            span += s * (d - 1);
            free
        })
    }
}

/// Copies `dims` elements from one layout to another. Where positions of the destination coincide, any of their
/// elements may stay.
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
    // One body for each size of element, whatever the elements are.
    match (size_of::<T>(), align_of::<T>()) {
        (1, _) => {
            copy_elements::<u8>(dims, bytemuck::cast_slice(src), from, bytemuck::cast_slice_mut(dst), to)
        }
        (2, 2) => {
            copy_elements::<u16>(dims, bytemuck::cast_slice(src), from, bytemuck::cast_slice_mut(dst), to)
        }
        (4, 4) => {
            copy_elements::<u32>(dims, bytemuck::cast_slice(src), from, bytemuck::cast_slice_mut(dst), to)
        }
        (8, 8) => {
            copy_elements::<u64>(dims, bytemuck::cast_slice(src), from, bytemuck::cast_slice_mut(dst), to)
        }
        _ => copy_elements(dims, src, from, dst, to),
    }
}

/// Side of the square that a transposition moves at once: a cache line of f32.
const SQUARE: usize = 16;
/// Elements of each line that are moved at once.
const RUN: usize = 1024;

fn copy_elements<T: Copy + Send + Sync>(
    dims: &[usize],
    src: &[T],
    from: Layout<'_>,
    dst: &mut [T],
    to: Layout<'_>,
) {
    let walk = Walk::<2>::new(dims, |n, axis| [from.strides, to.strides][n][axis]);
    let (row, [step_from, step_to]) = (walk.row(), walk.row_strides());
    // Without this, threads could write one element at once.
    let safe = to.is_injective(dims);
    let dst = SharedMut::new(dst);
    // The dim whose neighbours lie side by side in the source, as those of rows do in the destination. Rows that are short, or one element again
    // and again, are worth it next to it only.
    let side_by_side = |axis: &Axis<2>| {
        axis.strides[0] == 1 && axis.size >= 4 && (walk.is_next_to_row(axis) || row >= 8 && step_from != 0)
    };
    let across = if step_from != 1 && step_to == 1 && safe { walk.axis_where(side_by_side) } else { None };
    if let Some(axis) = across {
        let outer = walk.around(&axis);
        let (lines, step_out) = (axis.size, axis.strides[1]);
        // Few elements of lines woven together are one run of the destination.
        let weaves = (2..SQUARE).contains(&row) && step_out == row as isize;
        let [strip, run] = if weaves { [RUN, row] } else { [SQUARE, RUN] };
        // All strips of a run, which threads share: they read the same cache lines.
        let [strips, runs] = [lines.div_ceil(strip), row.div_ceil(run)];
        return parallel_for(
            outer.rows() * runs * strips,
            strip.min(lines) * run.min(row) / if weaves { 4 } else { 1 },
            |range| {
                for unit in range {
                    let (place, part) = (unit / (strips * runs), unit % (strips * runs));
                    let (start, first) = (part / strips * run, part % strips * strip);
                    outer.for_each(place..place + 1, |_, [a, b]| {
                        let a = from.offset as isize + a + first as isize + start as isize * step_from;
                        let b = to.offset as isize + b + first as isize * step_out + start as isize;
                        // SAFETY: the layouts were checked; strips of the destination are disjoint, and so are runs of them.
                        unsafe {
                            let (from, to) = (src.as_ptr().offset(a), dst.ptr(0).offset(b));
                            let (lines, n) = (strip.min(lines - first), run.min(row - start));
                            if weaves {
                                weave(from, step_from, to, lines, n);
                            } else {
                                transpose(from, step_from, to, step_out, lines, n);
                            }
                        }
                    });
                }
            },
        );
    }
    let copy_rows = |rows: core::ops::Range<usize>| {
        walk.for_each(rows, |_, [a, b]| {
            // SAFETY: the layouts were checked; rows of an injective destination are disjoint, others stay on one thread.
            unsafe {
                let from = src.as_ptr().offset(from.offset as isize + a);
                let to = dst.ptr(0).offset(to.offset as isize + b);
                copy_row(from, step_from, to, step_to, row);
            }
        });
    };
    if safe { parallel_for(walk.rows(), row / 4 + 3, copy_rows) } else { copy_rows(0..walk.rows()) }
}

/// `to[i · step_to] = from[i · step_from]` for `n` elements.
///
/// # Safety
/// Both sides hold them.
#[inline(always)]
unsafe fn copy_row<T: Copy>(from: *const T, step_from: isize, to: *mut T, step_to: isize, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match (step_from, step_to) {
            (1, 1) => core::ptr::copy_nonoverlapping(from, to, n),
            (0, 1) => core::slice::from_raw_parts_mut(to, n).fill(*from),
            _ => {
                for i in 0..n as isize {
                    *to.offset(i * step_to) = *from.offset(i * step_from);
                }
            }
        }
    }
}

/// `to[l · n + i] = from[i · step + l]` for `lines` lines and `n` elements.
///
/// # Safety
/// Both sides hold them.
unsafe fn weave<T: Copy>(from: *const T, step: isize, to: *mut T, lines: usize, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if n == 2 {
            let (a, b) = (from, from.offset(step));
            for l in 0..lines {
                to.add(2 * l).write(*a.add(l));
                to.add(2 * l + 1).write(*b.add(l));
            }
            return;
        }
        for i in 0..n {
            let from = from.offset(i as isize * step);
            for l in 0..lines {
                to.add(l * n + i).write(*from.add(l));
            }
        }
    }
}

/// `to[l · step_to + i] = from[i · step_from + l]` for `lines` lines and `n` elements: a strip of a transposition.
///
/// # Safety
/// Both sides hold them.
unsafe fn transpose<T: Copy>(
    from: *const T,
    step_from: isize,
    to: *mut T,
    step_to: isize,
    lines: usize,
    n: usize,
) {
    // SAFETY: the caller's promise; the square is as large as what is moved through it. Elements of four bytes travel as
    // f32, whose bits vectors leave alone.
    unsafe {
        let mut start = 0;
        if size_of::<T>() == 4 && align_of::<T>() == align_of::<f32>() {
            return transpose_squares(from.cast(), step_from, to.cast(), step_to, lines, n);
        }
        if lines == SQUARE {
            while start + SQUARE <= n {
                // Through a small square, so that both sides are touched line by line.
                let mut square = [*from; SQUARE * SQUARE];
                for i in 0..SQUARE {
                    let line = from.offset((start + i) as isize * step_from);
                    for l in 0..SQUARE {
                        square[l * SQUARE + i] = *line.add(l);
                    }
                }
                for l in 0..SQUARE {
                    let line = to.offset(l as isize * step_to).add(start);
                    core::ptr::copy_nonoverlapping(square.as_ptr().add(l * SQUARE), line, SQUARE);
                }
                start += SQUARE;
            }
        }
        for l in 0..lines {
            for i in start..n {
                *to.offset(l as isize * step_to).add(i) = *from.offset(i as isize * step_from).add(l);
            }
        }
    }
}

dispatched! {
    /// [`transpose`] by squares of vectors, of which those at the edges are smaller.
    ///
    /// # Safety
    /// As for [`transpose`].
    unsafe fn transpose_squares<S>(
        s,
        from: *const f32,
        step_from: isize,
        to: *mut f32,
        step_to: isize,
        lines: usize,
        n: usize,
    ) {
        for start in (0..n).step_by(S::LANES) {
            let height = S::LANES.min(n - start);
            for first in (0..lines).step_by(S::LANES) {
                let width = S::LANES.min(lines - first);
                let mut rows = [s.splat(0.0); 16];
                for i in 0..height {
                    rows[i] = s.load_up_to(from.offset((start + i) as isize * step_from).add(first), width);
                }
                let columns = s.transpose(rows);
                for l in 0..width {
                    s.store_up_to(to.offset((first + l) as isize * step_to).add(start), height, columns[l]);
                }
            }
        }
    }
}

/// Columns that a thread adds at least.
const COLUMNS: usize = 64;

/// Adds to chosen rows of a `[rows, width]` table: `table[indices[i], ..] += values[i, ..]`. Values for one row are added in their
/// order: threads share the columns, not the rows.
///
/// # Panics
/// When sizes do not fit, or an index is not below the number of rows.
pub fn add_rows(width: usize, table: &mut [f32], indices: &[usize], values: &[f32]) {
    assert_eq!(values.len(), elements(&[indices.len(), width]), "size of the values that are added");
    let rows = table.len().checked_div(width).unwrap_or(0);
    assert_eq!(table.len(), rows * width, "{} elements are not whole rows of {width}", table.len());
    if width == 0 {
        return;
    }
    if let Some(index) = indices.iter().find(|&&index| index >= rows) {
        panic!("index {index} is out of range for size {rows}");
    }
    let table = SharedMut::new(table);
    let blocks = width.div_ceil(COLUMNS);
    parallel_for(blocks, indices.len() * (COLUMNS.min(width) / 4 + 3), |range| {
        let (first, end) = (range.start * COLUMNS, width.min(range.end * COLUMNS));
        // SAFETY: indices were checked; ranges of columns are disjoint.
        unsafe { add_columns(table.ptr(first), values.as_ptr().add(first), indices, width, end - first) };
    });
}

dispatched! {
    /// The part of [`add_rows`] that `n` columns make up.
    ///
    /// # Safety
    /// Both pointers are to the first of these columns in matrices of the width, which hold the rows that indices name, and one row
    /// an index.
    unsafe fn add_columns<S>(s, table: *mut f32, values: *const f32, indices: &[usize], width: usize, n: usize) {
        for (row, &index) in indices.iter().enumerate() {
            let (to, from) = (table.add(index * width), values.add(row * width));
            for i in (0..n).step_by(S::LANES) {
                let count = S::LANES.min(n - i);
                let sum = s.add(s.load_up_to(to.add(i), count), s.load_up_to(from.add(i), count));
                s.store_up_to(to.add(i), count, sum);
            }
        }
    }
}

/// [`add_rows`] to zeros, which are written first.
///
/// # Panics
/// As for [`add_rows`].
pub fn sum_rows(width: usize, table: &mut [f32], indices: &[usize], values: &[f32]) {
    const PIECE: usize = 16 << 10;
    parallel_chunks(table, PIECE, PIECE / 8, |_, piece| piece.fill(0.0));
    add_rows(width, table, indices, values);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive<T: Pod>(dims: &[usize], src: &[T], from: Layout<'_>, dst: &mut [T], to: Layout<'_>) {
        for i in 0..dims.iter().product::<usize>() {
            let (mut rest, mut a, mut b) = (i, from.offset as isize, to.offset as isize);
            for axis in (0..dims.len()).rev() {
                let p = (rest % dims[axis]) as isize;
                rest /= dims[axis];
                a += p * from.strides[axis];
                b += p * to.strides[axis];
            }
            dst[b as usize] = src[a as usize];
        }
    }

    fn check<T: Pod + Send + Sync + PartialEq + core::fmt::Debug>(of: impl Fn(usize) -> T) {
        let src: Vec<T> = (0..40_000).map(&of).collect();
        #[allow(clippy::type_complexity, reason = "a table")]
        let cases: &[(&[usize], usize, &[isize], usize, &[isize])] = &[
            (&[], 3, &[], 2, &[]),
            (&[10], 9, &[-1], 0, &[1]),
            (&[3, 4], 0, &[0, 1], 0, &[4, 1]),
            (&[3, 4], 5, &[1, 0], 0, &[4, 1]),
            (&[40, 50], 1, &[1, 40], 0, &[50, 1]),
            (&[33, 17], 0, &[1, 33], 0, &[17, 1]),
            (&[5, 58, 2], 3, &[116, 1, 58], 0, &[116, 2, 1]),
            (&[3, 1100, 3], 0, &[3300, 1, 1100], 0, &[3300, 3, 1]),
            // All dims the other way round, and others between.
            (&[35, 19, 37], 2, &[1, 35, 665], 0, &[703, 37, 1]),
            (&[5, 7, 3, 33], 0, &[1, 5, 35, 105], 0, &[693, 99, 33, 1]),
            (&[17, 4, 3, 21], 0, &[12, 1, 4, 204], 0, &[252, 63, 21, 1]),
            (&[18, 5, 9], 0, &[1, 18, 0], 0, &[45, 9, 1]),
            (&[100, 200], 0, &[1, 100], 7, &[201, 1]),
            (&[21, 1100], 0, &[1, 21], 0, &[1100, 1]),
            (&[4, 2065], 1, &[1, 5], 2, &[2070, 1]),
            (&[2, 12, 31, 16], 0, &[5952, 16, 192, 1], 0, &[5952, 496, 16, 1]),
            (&[2, 31, 12, 16], 0, &[5952, 1, 31, 372], 0, &[5952, 192, 16, 1]),
            (&[5, 6], 100, &[6, 1], 3, &[20, 2]),
            (&[4, 5, 6], 119, &[-30, -6, -1], 0, &[30, 6, 1]),
            (&[3, 5], 0, &[5, 1], 0, &[0, 1]),
        ];
        for &(dims, offset, from, start, to) in cases {
            let (from, to) = (Layout { offset, strides: from }, Layout { offset: start, strides: to });
            let (mut got, mut want) = (vec![of(0); 40_000], vec![of(0); 40_000]);
            copy_strided(dims, &src, from, &mut got, to);
            naive(dims, &src, from, &mut want, to);
            assert!(got == want, "{dims:?} {from:?} {to:?}");
        }
    }

    #[test]
    fn layouts_of_all_sizes_are_copied() {
        check(|i| i as u8);
        check(|i| i as i16);
        check(|i| i as f32);
        check(|i| i as i64);
        check(|i| [i as u32; 3]);
    }

    #[test]
    fn rows_are_added_in_order() {
        let run = || {
            for (rows, width, count) in [(5, 1, 9), (7, 70, 20), (300, 200, 500), (3, 64, 0), (4, 0, 2)] {
                let noise =
                    |n: usize, seed| crate::gemm::noise(n, seed).iter().map(|x| x * 1e3).collect::<Vec<_>>();
                let (mut table, values) = (noise(rows * width, 1), noise(count * width, 2));
                let indices: Vec<usize> = (0..count).map(|i| i * i % rows).collect();
                let mut want = [table.clone(), vec![0.0; table.len()]];
                for want in &mut want {
                    for (&index, value) in indices.iter().zip(values.chunks(width.max(1))) {
                        want[index * width..][..width].iter_mut().zip(value).for_each(|(x, y)| *x += y);
                    }
                }
                add_rows(width, &mut table, &indices, &values);
                assert_eq!(table, want[0]);
                sum_rows(width, &mut table, &indices, &values);
                assert_eq!(table, want[1]);
            }
        };
        crate::simd::forced::at_each_level(|_| run());
        run();
    }

    #[test]
    #[should_panic(expected = "index 4 is out of range")]
    fn an_index_beyond_the_rows_is_refused() {
        add_rows(1, &mut [0.0; 4], &[4], &[0.0]);
    }
}
