//! The order in which the kernel reads its operands.
//!
//! The depth is cut into blocks of equal size. Within a block, `A` is cut into panels of the tile's rows (the last panel
//! has what remains, unpadded) and `B` into panels of the tile's columns (the last is padded to a width
//! for which there is a tile). A panel holds, for each step of the depth, its rows or columns side by side.

use super::Matrix;
use super::tile::Kernels;
use crate::consumed::{Consumed, KEPT, in_parts};
use crate::scratch::{self, Aligned, with_scratch};
use crate::simd::{Level, dispatched, level};
use crate::size::elements;
use crate::threads::{SharedMut, parallel_for};
use core::ops::Range;

/// Most steps of the depth in one block. A panel of `B` then takes 16 to 48 KiB: the widest ones do not fit every first-level cache, but are read
/// in order, which caches foresee, while each block of the depth reads and writes all of `C` again.
pub(super) const BLOCK_DEPTH: usize = 384;

/// Steps of the depth in each block but the last.
pub(super) fn block_depth(depth: usize) -> usize {
    let blocks = depth.div_ceil(BLOCK_DEPTH).max(1);
    depth.div_ceil(blocks).next_multiple_of(8)
}

/// The blocks of a depth.
pub(super) fn depth_blocks(depth: usize) -> impl Iterator<Item = Range<usize>> {
    let block = block_depth(depth).max(1);
    (0..depth).step_by(block).map(move |start| start..depth.min(start + block))
}

/// Columns of a panel or of a whole packed `B` with their padding.
pub(super) fn padded_cols(kernels: &Kernels, cols: usize) -> usize {
    cols.next_multiple_of(kernels.unit)
}

/// A left operand in the kernel's order, made once and used often: a weight.
#[derive(Clone, Debug)]
pub struct PackedLhs {
    pub(super) rows: usize,
    pub(super) depth: usize,
    pub(super) level: Level,
    pub(super) data: Aligned,
}

/// A right operand in the kernel's order, made once and used often: a weight.
#[derive(Clone, Debug)]
pub struct PackedRhs {
    pub(super) depth: usize,
    pub(super) cols: usize,
    pub(super) level: Level,
    pub(super) data: Aligned,
}

impl PackedLhs {
    /// Packs `rows` by `depth` elements.
    ///
    /// # Panics
    /// When the view does not hold them.
    pub fn new(a: Matrix<'_>, rows: usize, depth: usize) -> Self {
        a.check(rows, depth, "left operand");
        let mut data = Aligned::lasting(elements(&[rows, depth]));
        pack_lhs(&Kernels::current(), a, rows, depth, &mut data);
        Self { rows, depth, level: level(), data }
    }

    /// Rows and depth.
    pub fn dims(&self) -> (usize, usize) {
        (self.rows, self.depth)
    }
}

impl PackedRhs {
    /// Packs `depth` by `cols` elements.
    ///
    /// # Panics
    /// When the view does not hold them.
    pub fn new(b: Matrix<'_>, depth: usize, cols: usize) -> Self {
        Self::consuming(b, depth, cols, KEPT)
    }

    /// [`PackedRhs::new`] of a weight that is read part by part.
    ///
    /// # Panics
    /// When the view does not hold the elements.
    pub fn consuming(b: Matrix<'_>, depth: usize, cols: usize, consumed: Consumed<'_>) -> Self {
        Self::of(b, depth, cols, Aligned::lasting, consumed)
    }

    /// [`PackedRhs::new`] in memory that [`PackedRhs::recycle`] gives back, for a product that is computed once.
    ///
    /// # Panics
    /// When the view does not hold the elements.
    pub(crate) fn once(b: Matrix<'_>, depth: usize, cols: usize) -> Self {
        Self::of(b, depth, cols, scratch::take, KEPT)
    }

    /// [`PackedRhs::consuming`] in memory of at least as many elements as `space` is asked for.
    ///
    /// # Panics
    /// When the view does not hold the elements.
    pub(crate) fn of(
        b: Matrix<'_>,
        depth: usize,
        cols: usize,
        space: fn(usize) -> Aligned,
        consumed: Consumed<'_>,
    ) -> Self {
        let len = packed_rhs_len(depth, cols);
        let mut data = space(len);
        pack_rhs_consuming(b, depth, cols, &mut data[..len], consumed);
        Self { depth, cols, level: level(), data }
    }

    /// Filters `[cols, channels, taps]` as a right operand `[taps · channels, cols]`, in memory that `space` gives.
    ///
    /// # Panics
    /// When there are not so many filters.
    pub(crate) fn of_filters(
        filters: &[f32],
        channels: usize,
        taps: usize,
        cols: usize,
        space: fn(usize) -> Aligned,
        consumed: Consumed<'_>,
    ) -> Self {
        let depth = channels * taps;
        assert_eq!(filters.len(), elements(&[cols, depth]), "the filters do not have their dims");
        let (kernels, len) = (Kernels::current(), packed_rhs_len(depth, cols));
        let mut data = space(len);
        let (padded, to) = (padded_cols(&kernels, cols), SharedMut::new(&mut data[..len]));
        let pack = |panels: Range<usize>| {
            for panel in panels {
                let first = panel * kernels.cols;
                let count = kernels.cols.min(cols - first);
                let width = padded_cols(&kernels, count);
                with_scratch(depth * width, |columns| {
                    pack_columns(&filters[first * depth..(first + count) * depth], depth, width, columns);
                    for block in depth_blocks(depth) {
                        let start = block.start * padded + first * block.len();
                        // SAFETY: each panel of a block has its own part of the destination.
                        let to = unsafe { to.slice(start..start + block.len() * width) };
                        for (step, to) in block.zip(to.chunks_exact_mut(width)) {
                            let from = (step % channels * taps + step / channels) * width;
                            to.copy_from_slice(&columns[from..from + width]);
                        }
                    }
                });
            }
        };
        let panel = kernels.cols * depth;
        in_parts(cols.div_ceil(kernels.cols), panel, panel, pack, |panels| {
            consumed(panels.start * panel..filters.len().min(panels.end * panel));
        });
        Self { depth, cols, level: level(), data }
    }

    /// An operand of zeros, whose elements are written through [`PackedRhs::elements`].
    pub(crate) fn zeros(depth: usize, cols: usize) -> Self {
        let data = Aligned::lasting(packed_rhs_len(depth, cols));
        Self { depth, cols, level: level(), data }
    }

    /// All elements, in the kernel's order; see [`packed_place`].
    pub(crate) fn elements(&mut self) -> &mut [f32] {
        &mut self.data
    }

    /// Leaves its memory to others.
    pub(crate) fn recycle(self) {
        scratch::give(self.data);
    }

    /// Depth and columns.
    pub fn dims(&self) -> (usize, usize) {
        (self.depth, self.cols)
    }
}

/// Packs the whole of `A`, which was checked, into `rows · depth` elements.
pub(super) fn pack_lhs(kernels: &Kernels, a: Matrix<'_>, rows: usize, depth: usize, to: &mut [f32]) {
    assert_eq!(to.len(), elements(&[rows, depth]));
    let (step, to) = (kernels.rows, SharedMut::new(to));
    parallel_for(rows.div_ceil(step), step * depth, |panels| {
        for block in depth_blocks(depth) {
            for panel in panels.clone() {
                let first = panel * step;
                let count = step.min(rows - first);
                let from = &a.data[first * a.row_stride + block.start * a.col_stride..];
                // SAFETY: the source was checked; each panel has its own part of the destination.
                unsafe {
                    let to = to.ptr(block.start * rows + first * block.len());
                    pack_panel(from.as_ptr(), a.col_stride, a.row_stride, block.len(), count, count, to);
                }
            }
        }
    });
}

/// Packs the whole of `A` into `rows · depth` elements.
///
/// # Panics
/// When the view does not hold it.
pub(crate) fn pack_lhs_into(a: Matrix<'_>, rows: usize, depth: usize, to: &mut [f32]) {
    a.check(rows, depth, "left operand");
    pack_lhs(&Kernels::current(), a, rows, depth, to);
}

/// Elements that a packed `B` takes.
pub(crate) fn packed_rhs_len(depth: usize, cols: usize) -> usize {
    elements(&[depth, padded_cols(&Kernels::current(), cols)])
}

/// Where the element of a step of the depth and a column lies in a packed `B` of these dims, and how many columns from it on lie beside it.
pub(crate) fn packed_place(depth: usize, cols: usize, step: usize, col: usize) -> (usize, usize) {
    let kernels = Kernels::current();
    let block = block_depth(depth).max(1);
    let start = step / block * block;
    let steps = block.min(depth - start);
    let panel = col - col % kernels.cols;
    let beside = kernels.cols.min(cols - panel);
    let width = padded_cols(&kernels, beside);
    let place = start * padded_cols(&kernels, cols) + panel * steps + (step - start) * width + (col - panel);
    (place, panel + beside - col)
}

/// Packs the whole of `B` into [`packed_rhs_len`] elements.
///
/// # Panics
/// When the view does not hold it.
pub(crate) fn pack_rhs_into(b: Matrix<'_>, depth: usize, cols: usize, to: &mut [f32]) {
    pack_rhs_consuming(b, depth, cols, to, KEPT);
}

/// [`pack_rhs_into`] of a weight that is read part by part.
fn pack_rhs_consuming(b: Matrix<'_>, depth: usize, cols: usize, to: &mut [f32], consumed: Consumed<'_>) {
    b.check(depth, cols, "right operand");
    let kernels = Kernels::current();
    if b.col_stride == 1 {
        return pack_rows(&kernels, b, depth, cols, to, consumed);
    }
    // SAFETY: checked above.
    let fill = |part: Part, to: *mut f32| unsafe { pack_rhs_panel(b, part, to) };
    pack_rhs(&kernels, depth, cols, &fill, to, &|cols| {
        // Columns that do not follow each other lie among others.
        if b.row_stride == 1 {
            consumed(cols.start * b.col_stride..b.data.len().min(cols.end * b.col_stride));
        }
    });
}

/// Packs the whole of a `B` whose rows lie in one piece, which was checked: several panels at once, so that memory is read in long runs.
fn pack_rows(
    kernels: &Kernels,
    b: Matrix<'_>,
    depth: usize,
    cols: usize,
    to: &mut [f32],
    consumed: Consumed<'_>,
) {
    /// As many streams as are written at once without driving each other out of the first-level cache.
    const PANELS: usize = 8;
    let padded = padded_cols(kernels, cols);
    assert_eq!(to.len(), elements(&[depth, padded]));
    let (group, to) = (PANELS * kernels.cols, SharedMut::new(to));
    for block in depth_blocks(depth) {
        let pack = |steps: Range<usize>| {
            for first in (0..cols).step_by(group) {
                let count = group.min(cols - first);
                let from = &b.data[(block.start + steps.start) * b.row_stride + first..];
                // SAFETY: `B` was checked; each step has its own part of each panel.
                unsafe {
                    let to = to.ptr(block.start * padded + first * block.len());
                    let last = padded_cols(kernels, count % kernels.cols);
                    let (start, steps) = (steps.start, steps.len());
                    pack_panels(
                        from.as_ptr(),
                        b.row_stride,
                        start,
                        steps,
                        block.len(),
                        count,
                        kernels.cols,
                        last,
                        to,
                    );
                }
            }
        };
        in_parts(block.len(), cols, cols, pack, |steps| {
            let [start, end] = [steps.start, steps.end].map(|step| (block.start + step) * b.row_stride);
            consumed(start..b.data.len().min(end));
        });
    }
}

/// The part of `B` that one panel of one block holds.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Steps of the depth.
    pub depth: Range<usize>,
    /// Columns.
    pub cols: Range<usize>,
    /// Elements from one step to the next; the columns, or more for padding.
    pub width: usize,
}

/// Packs the whole of `B` through `fill`, which writes one panel; `consumed` gets the columns that are done.
pub(super) fn pack_rhs(
    kernels: &Kernels,
    depth: usize,
    cols: usize,
    fill: &(dyn Fn(Part, *mut f32) + Sync),
    to: &mut [f32],
    consumed: Consumed<'_>,
) {
    let padded = padded_cols(kernels, cols);
    assert_eq!(to.len(), elements(&[depth, padded]));
    let to = SharedMut::new(to);
    let pack = |panels: Range<usize>| {
        for depth in depth_blocks(depth) {
            for panel in panels.clone() {
                let first = panel * kernels.cols;
                let cols = first..cols.min(first + kernels.cols);
                // SAFETY: each panel has its own part of the destination.
                let to = unsafe { to.ptr(depth.start * padded + first * depth.len()) };
                let width = padded_cols(kernels, cols.len());
                fill(Part { depth: depth.clone(), cols, width }, to);
            }
        }
    };
    let panel = kernels.cols * depth;
    in_parts(cols.div_ceil(kernels.cols), panel, panel, pack, |panels| {
        consumed(panels.start * kernels.cols..cols.min(panels.end * kernels.cols));
    });
}

/// Packs one panel of a plain `B`.
///
/// # Safety
/// The part lies inside of the matrix; `to` is valid for writing the panel.
pub(crate) unsafe fn pack_rhs_panel(b: Matrix<'_>, part: Part, to: *mut f32) {
    let from = &b.data[part.depth.start * b.row_stride + part.cols.start * b.col_stride..];
    // SAFETY: the caller's promise.
    unsafe {
        pack_panel(
            from.as_ptr(),
            b.row_stride,
            b.col_stride,
            part.depth.len(),
            part.cols.len(),
            part.width,
            to,
        );
    }
}

/// Rows of `depth` elements as columns, `width` elements from one step of the depth to the next.
///
/// # Panics
/// When they are more than the width, or there is not room for just so many steps.
pub(crate) fn pack_columns(rows: &[f32], depth: usize, width: usize, to: &mut [f32]) {
    let count = rows.len() / depth.max(1);
    assert!(count <= width && rows.len() == count * depth && to.len() == depth * width, "room for the rows");
    // SAFETY: both sides were checked.
    unsafe { pack_panel(rows.as_ptr(), 1, depth, depth, count, width, to.as_mut_ptr()) };
}

dispatched! {
    /// Some steps of panels of `width` columns that lie side by side, of `depth` steps each; the last one has `last` columns with its padding, unless it is whole.
    ///
    /// # Safety
    /// The source holds `steps` rows of `count` elements, the destination the panels; `start + steps` is at most `depth`.
    unsafe fn pack_panels<S>(
        s,
        from: *const f32,
        depth_stride: usize,
        start: usize,
        steps: usize,
        depth: usize,
        count: usize,
        width: usize,
        last: usize,
        to: *mut f32,
    ) {
        let whole = count / width * width;
        for l in start..start + steps {
            let from = from.add((l - start) * depth_stride);
            for first in (0..whole).step_by(width) {
                let to = to.add(first * depth + l * width);
                for i in (0..width).step_by(S::LANES) {
                    s.store(to.add(i), s.load(from.add(first + i)));
                }
            }
            let (from, to) = (from.add(whole), to.add(whole * depth + l * last));
            let mut i = 0;
            while whole + i < count {
                let x = s.load_up_to(from.add(i), count - whole - i);
                s.store_up_to(to.add(i), last - i, x);
                i += S::LANES;
            }
        }
    }
}

dispatched! {
    /// `to[l · width + i] = from[l · depth_stride + i · stride]` for `i` below `count`; what is behind, up to `width`, is 0 or
    /// anything.
    ///
    /// # Safety
    /// The source holds these elements, the destination `depth · width`.
    unsafe fn pack_panel<S>(
        s,
        from: *const f32,
        depth_stride: usize,
        stride: usize,
        depth: usize,
        count: usize,
        width: usize,
        to: *mut f32,
    ) {
        if stride == 1 {
            for l in 0..depth {
                let (from, to) = (from.add(l * depth_stride), to.add(l * width));
                let mut i = 0;
                while i < count {
                    let x = s.load_up_to(from.add(i), count - i);
                    // What a whole vector writes beyond its step, the next steps overwrite, if they are in the panel.
                    if l * width + i + S::LANES <= depth * width {
                        s.store(to.add(i), x);
                    } else {
                        s.store_up_to(to.add(i), width - i, x);
                    }
                    i += S::LANES;
                }
            }
        } else if depth_stride == 1 {
            for first in (0..count).step_by(S::LANES) {
                let lines = S::LANES.min(count - first);
                let from = from.add(first * stride);
                let mut l = 0;
                while l < depth {
                    let steps = S::LANES.min(depth - l);
                    let mut rows = [s.splat(0.0); 16];
                    for i in 0..S::LANES {
                        if i < lines {
                            rows[i] = s.load_up_to(from.add(i * stride + l), steps);
                        }
                    }
                    let columns = s.transpose(rows);
                    let inside = (l + S::LANES - 1) * width + S::LANES <= depth * width;
                    let free = width - first >= S::LANES || first == 0 && inside;
                    if free && steps == S::LANES {
                        for i in 0..S::LANES {
                            s.store(to.add((l + i) * width + first), columns[i]);
                        }
                    } else {
                        for i in 0..steps {
                            s.store_up_to(to.add((l + i) * width + first), width - first, columns[i]);
                        }
                    }
                    l += S::LANES;
                }
            }
        } else {
            for l in 0..depth {
                for i in 0..count {
                    *to.add(l * width + i) = *from.add(l * depth_stride + i * stride);
                }
            }
        }
    }
}
