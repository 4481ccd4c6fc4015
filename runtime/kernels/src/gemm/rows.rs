//! Products whose left operand is read where it lies, or gathered row by row when it is needed: images with their channels
//! last against packed weights.

use super::blocked::{BLOCK_LHS, cut};
use super::pack::{BLOCK_DEPTH, PackedRhs, depth_blocks, padded_cols};
use super::tile::{Kernels, Tile, runs};
use super::{Epilogue, Matrix};
use crate::scratch::with_scratch;
use crate::size::{elements, reach};
use crate::threads::{self, INLINE_WORK, SharedMut, parallel_chunks, parallel_for};
use core::ops::Range;

/// Elements of gathered rows that are used again and again: an eighth of a second-level cache of 1 MiB.
const BLOCK_ROWS: usize = 32 * 1024;
/// Elements between rows (2 KiB) of which multiples share few places of a first-level cache: such rows are better gathered.
const CLASH: usize = 512;

/// Elements (256 KiB) from which on an operand is taken to lie in a third-level cache or in memory: a quarter of a second-level cache of 1 MiB.
pub(crate) const FAR: usize = 64 * 1024;
/// Panels of rows for each thread from which on they are shared out: fewer could not be evenly.
const ROW_PANELS: usize = 4;

/// Steps of the depth that leave time to ask for a panel.
const DEEP: usize = 64;
/// Tiles that share in asking for the next panel.
const ASKING: usize = 4;

/// Elements between copies of rows, so that they do not clash: a cache line.
const APART: usize = 16;

/// Writes the elements of some rows and steps of the depth, row after row without gaps.
pub(crate) type Gather<'a> = dyn Fn(Range<usize>, Range<usize>, *mut f32) + Sync + 'a;

/// Where the rows of `A` come from.
#[derive(Clone, Copy)]
pub(crate) enum Rows<'a> {
    /// They lie in memory; elements from one row to the next.
    InPlace(&'a [f32], usize),
    /// Written when needed.
    Gather(&'a Gather<'a>),
    /// Windows of an image.
    Windows {
        /// From the first window's first element on.
        image: &'a [f32],
        /// Elements from one window to the next.
        step: usize,
        /// Where each step of the depth lies, from a window's first element on.
        offsets: &'a [usize],
    },
}

/// The order in which panels of `B` are read. Results do not depend on it.
#[derive(Clone, Copy)]
pub(crate) enum PanelOrder {
    /// From the first panel to the last.
    Forwards,
    /// From the last panel to the first.
    Backwards,
}

impl PanelOrder {
    /// The order of the `n`-th of many products with one `B`: in turns, so that each finds in the caches what the one before read last. A `B`
    /// that is a little larger than a cache would not be found there at all if it were always read from its start.
    pub fn of_turn(n: usize) -> Self {
        if n.is_multiple_of(2) { Self::Forwards } else { Self::Backwards }
    }
}

/// A whole product: `B` packed, `C` to be written.
#[derive(Clone, Copy)]
pub(crate) struct RowsProduct<'a> {
    /// Rows of `C`.
    pub m: usize,
    /// `A`.
    pub a: Rows<'a>,
    /// `B`.
    pub b: &'a PackedRhs,
    /// `C`, valid for all of the product.
    pub c: &'a SharedMut<'a, f32>,
    /// Where in `c` the product starts.
    pub c_start: usize,
    /// Elements from one row of `C` to the next.
    pub c_step: usize,
    /// Adds to what `C` holds.
    pub adds: bool,
    /// The order in which panels of `B` are read.
    pub order: PanelOrder,
    /// What happens at the end; its residual starts where the product does.
    pub epilogue: &'a Epilogue<'a>,
}

impl RowsProduct<'_> {
    /// Computes it, on several threads when that pays. `A` and `C` hold the product, and so does the epilogue.
    pub fn run(&self) {
        let kernels = Kernels::current();
        let (k, n) = self.b.dims();
        if self.m == 0 || n == 0 {
            return;
        }
        self.check();
        if let Rows::InPlace(a, _) = self.a
            && self.m == 1
            && self.b.data.len() < FAR
            && (1..=BLOCK_DEPTH).contains(&k)
        {
            return self.row(&kernels, a);
        }
        // 100 multiply-adds a nanosecond.
        let work = self.m.saturating_mul(n).saturating_mul(k) / 100 + 1;
        if work < INLINE_WORK {
            return self.block(&kernels, 0..self.m, 0..n);
        }
        let threads = threads::sharing();
        let wanted = match threads {
            1 => 1,
            threads => (threads * 4).min((work / (INLINE_WORK / 2)).max(1)),
        };
        let (row_panels, col_panels) = (self.m.div_ceil(kernels.rows), n.div_ceil(kernels.cols));
        // Jobs of different rows gather different rows; only few rows are shared out by columns, unless they outweigh `B`: a thread finds and
        // leaves rows of its own in its caches.
        let outweigh = self.m.saturating_mul(k + n) >= k.saturating_mul(n);
        let (row_jobs, col_jobs) = if row_panels >= 2 * wanted {
            (wanted, 1)
        } else if outweigh && row_panels >= ROW_PANELS * threads {
            (wanted.min(2 * threads), 1)
        } else {
            let cols = col_panels.min(wanted);
            (row_panels.min(wanted.div_ceil(cols)), cols)
        };
        let jobs = row_jobs * col_jobs;
        parallel_for(jobs, work / jobs + 1, |range| {
            for job in range {
                // No job of several has one row, whose tile sums in an order of its own: results are equal for any number of threads.
                let rows = match row_panels >= 2 * row_jobs {
                    true => cut(self.m, kernels.rows, row_jobs, job % row_jobs),
                    false => even(self.m, row_jobs, job % row_jobs),
                };
                let cols = cut(n, kernels.cols, col_jobs, job / row_jobs);
                self.block(&kernels, rows, cols);
            }
        });
    }

    /// Computes it on the calling thread; otherwise as [`RowsProduct::run`].
    pub fn run_here(&self) {
        self.check();
        self.block(&Kernels::current(), 0..self.m, 0..self.b.dims().1);
    }

    fn check(&self) {
        assert_eq!(self.b.level, crate::simd::level(), "the right operand was packed for another machine");
        match self.a {
            Rows::InPlace(a, step) => Matrix::row_major(a, step).check(self.m, self.b.depth, "left operand"),
            Rows::Windows { image, step, offsets } => {
                let farthest = offsets.iter().max().map_or(0, |offset| reach([self.m, 2], [step, *offset]));
                assert!(offsets.len() == self.b.depth, "an offset for each step of the depth");
                assert!(farthest <= image.len(), "windows lie in the image");
            }
            Rows::Gather(_) => {}
        }
    }

    /// A single row times a `B` that is near and not deep. In small networks the way to a panel takes longer than its arithmetic.
    fn row(&self, kernels: &Kernels, a: &[f32]) {
        let (depth, n) = self.b.dims();
        let mut tile = Tile {
            count: 1,
            depth,
            a: a.as_ptr(),
            a_next: 0,
            a_step: 0,
            offsets: core::ptr::null(),
            b: self.b.data.as_ptr(),
            b_step: kernels.cols,
            // SAFETY: `C` is valid for all of the product.
            c: unsafe { self.c.ptr(self.c_start) },
            c_step: self.c_step,
            cols: kernels.cols,
            accumulate: self.adds,
            finish: (!self.epilogue.is_empty()).then(|| self.epilogue.of_tile(0, 0, self.c_step)),
            ahead: core::ptr::null(),
            ahead_step: 0,
        };
        let whole = kernels.of_rows(1, kernels.cols);
        let mut left = n;
        while left >= kernels.cols {
            // SAFETY: `A`, `B` and the epilogue were checked, and hold as many columns as `C` does.
            unsafe { whole(&tile) };
            tile.go_right(kernels.cols);
            left -= kernels.cols;
        }
        if left > 0 {
            tile.cols = left;
            tile.b_step = padded_cols(kernels, left);
            // SAFETY: as above, of the last panel.
            unsafe { kernels.of_rows(1, tile.b_step)(&tile) };
        }
        // SAFETY: as above.
        unsafe { self.epilogue.activate(self.c.ptr(self.c_start), self.c_step, 0..1, 0..n) };
    }

    /// Computes a part of `C` whose columns start at a whole panel.
    fn block(&self, kernels: &Kernels, rows: Range<usize>, cols: Range<usize>) {
        let k = self.b.depth;
        if rows.is_empty() || cols.is_empty() {
            return;
        }
        if k == 0 {
            return self.without_depth(rows, cols);
        }
        let depth = super::pack::block_depth(k).min(k);
        let in_place = match self.a {
            Rows::InPlace(a, step) if !clash(step) || self.m == 1 => Some((a, step)),
            Rows::Windows { image, step, .. } => Some((image, step)),
            Rows::InPlace(..) | Rows::Gather(_) => None,
        };
        let elements = if in_place.is_some() { BLOCK_LHS } else { BLOCK_ROWS };
        let block = (elements / depth / kernels.rows).max(1) * kernels.rows;
        let blocks = rows.len().div_ceil(block);
        let space = if in_place.is_some() { 0 } else { block.min(rows.len()) * depth };
        with_scratch(space, |space| {
            for block in 0..blocks {
                let part = cut(rows.len(), kernels.rows, blocks, block);
                let rows = rows.start + part.start..rows.start + part.end;
                for depth in depth_blocks(k) {
                    let (a, a_step) = match (in_place, self.a) {
                        (Some((a, step)), Rows::Windows { .. }) => (a[rows.start * step..].as_ptr(), step),
                        (Some((a, step)), _) => (a[rows.start * step + depth.start..].as_ptr(), step),
                        (None, _) => {
                            self.copy(rows.clone(), depth.clone(), space.as_mut_ptr());
                            (space.as_ptr(), depth.len())
                        }
                    };
                    self.tiles(kernels, rows.clone(), cols.clone(), depth, a, a_step);
                }
            }
        });
    }

    /// Writes some rows and steps of the depth to where there is room for them.
    fn copy(&self, rows: Range<usize>, depth: Range<usize>, to: *mut f32) {
        match self.a {
            // SAFETY: `A` was checked; there is room.
            Rows::InPlace(a, step) => unsafe { copy_rows(&a[depth.start..], step, rows, depth.len(), to) },
            Rows::Gather(gather) => gather(rows, depth, to),
            Rows::Windows { .. } => unreachable!("windows are read where they lie"),
        }
    }

    /// Some rows, which are at `a`, times some columns, within one block of the depth.
    fn tiles(
        &self,
        kernels: &Kernels,
        rows: Range<usize>,
        cols: Range<usize>,
        depth: Range<usize>,
        a: *const f32,
        a_step: usize,
    ) {
        let (k, n) = self.b.dims();
        let padded = padded_cols(kernels, n);
        let ends = depth.end == k && !self.epilogue.is_empty();
        let panels = cols.len().div_ceil(kernels.cols);
        let heights = heights(kernels, rows.len());
        let asking = (heights[0].1 + heights[1].1).min(ASKING);
        let most = if ends { self.epilogue.tiles_at_once() } else { usize::MAX };
        for i in 0..panels {
            let panel = match self.order {
                PanelOrder::Forwards => i,
                PanelOrder::Backwards => panels - 1 - i,
            };
            let col = cols.start + panel * kernels.cols;
            let count = kernels.cols.min(cols.end - col);
            let width = padded_cols(kernels, count);
            let b = self.b.data[depth.start * padded + col * depth.len()..].as_ptr();
            let next = self.next_panel(kernels, &cols, &depth, col);
            let next = next.filter(|_| width == kernels.cols && asking > 1);
            let ahead_step = next.map_or(0, |_| width.div_ceil(asking));
            for run in runs(rows.start, heights, next.map_or(0, |_| asking), most) {
                let (row, height) = (run.rows.start, run.height);
                let ahead = next.filter(|_| run.above < asking);
                let (tile, offsets) = match (self.a, ahead) {
                    (Rows::Windows { offsets, .. }, _) => {
                        (kernels.of_windows(height, width), offsets[depth.clone()].as_ptr())
                    }
                    (_, None) => (kernels.of_rows(height, width), core::ptr::null()),
                    (_, Some(_)) => (kernels.of_rows_ahead(height), core::ptr::null()),
                };
                // SAFETY: the rows at `a` and the panel hold `depth` steps; the part of `C` is this job's own.
                unsafe {
                    tile(&Tile {
                        count: run.count,
                        depth: depth.len(),
                        a: a.add((row - rows.start) * a_step),
                        a_next: height * a_step,
                        a_step,
                        offsets,
                        b,
                        b_step: width,
                        c: self.c.ptr(self.c_start + row * self.c_step + col),
                        c_step: self.c_step,
                        cols: count,
                        accumulate: depth.start > 0 || self.adds,
                        finish: ends.then(|| self.epilogue.of_tile(row, col, self.c_step)),
                        ahead: ahead.map_or(core::ptr::null(), |next| {
                            next.wrapping_add(run.above * depth.len() * ahead_step)
                        }),
                        ahead_step,
                    });
                    if ends {
                        let c = self.c.ptr(self.c_start);
                        self.epilogue.activate(c, self.c_step, run.rows, col..col + count);
                    }
                }
            }
        }
    }

    /// The panel of `B` that is read after the one at `col`, where `B` is so large that it comes from afar.
    fn next_panel(
        &self,
        kernels: &Kernels,
        cols: &Range<usize>,
        depth: &Range<usize>,
        col: usize,
    ) -> Option<*const f32> {
        let (k, n) = self.b.dims();
        if self.b.data.len() < FAR || depth.len() < DEEP {
            return None;
        }
        let at = |depth: Range<usize>, col: usize| depth.start * padded_cols(kernels, n) + col * depth.len();
        let last = cols.start + (cols.len() - 1) / kernels.cols * kernels.cols;
        let (first, last, next) = match self.order {
            PanelOrder::Forwards => (cols.start, last, col + kernels.cols),
            PanelOrder::Backwards => (last, cols.start, col.wrapping_sub(kernels.cols)),
        };
        let next = if col == last {
            at(depth_blocks(k).find(|block| block.start == depth.end)?, first)
        } else {
            at(depth.clone(), next)
        };
        self.b.data.get(next).map(core::ptr::from_ref)
    }

    /// A product of depth 0: zeros, and the epilogue.
    fn without_depth(&self, rows: Range<usize>, cols: Range<usize>) {
        for row in rows.clone().filter(|_| !self.adds) {
            let start = self.c_start + row * self.c_step;
            // SAFETY: this part of `C` is this job's own.
            unsafe { self.c.slice(start + cols.start..start + cols.end) }.fill(0.0);
        }
        // SAFETY: as above; the epilogue was checked.
        unsafe { self.epilogue.apply(self.c.ptr(self.c_start), self.c_step, rows, cols) };
    }
}

/// `C = A · B`, or `C += A · B` if it `adds`, on the calling thread, for a single panel of `B`: for each step of its depth its width, which is
/// one of [`panel_widths`]. `A` is read where it lies; the elements of its rows, or those of its columns, lie side by side.
///
/// # Panics
/// When an operand does not hold its dims.
pub(crate) fn panel_product(
    m: usize,
    a: Matrix<'_>,
    (panel, depth, width): (&[f32], usize, usize),
    (c, c_step): (&mut [f32], usize),
    adds: bool,
) {
    let kernels = Kernels::current();
    if m == 0 || depth == 0 {
        return;
    }
    a.check(m, depth, "left operand");
    assert!(panel_widths().contains(&width), "a panel has no {width} columns");
    assert!(panel.len() >= elements(&[depth, width]), "the panel does not hold {depth} steps");
    assert!(reach([m, width], [c_step, 1]) <= c.len() && c_step >= width, "C does not hold {m} rows");
    let in_rows = a.col_stride == 1;
    assert!(in_rows || a.row_stride == 1, "neither rows nor columns of the left operand lie side by side");
    for run in runs(0, heights(&kernels, m), 0, usize::MAX) {
        let (rows, height) = (run.rows, run.height);
        let (kernel, a_step) = match in_rows {
            true => (kernels.of_rows(height, width), a.row_stride),
            false => (kernels.of(height, width), a.col_stride),
        };
        // SAFETY: the operands hold the rows and the panel, as was checked.
        unsafe {
            kernel(&Tile {
                count: run.count,
                depth,
                a: a.data[rows.start * a.row_stride..].as_ptr(),
                a_next: height * a.row_stride,
                a_step,
                offsets: core::ptr::null(),
                b: panel.as_ptr(),
                b_step: width,
                c: c[rows.start * c_step..].as_mut_ptr(),
                c_step,
                cols: width,
                accumulate: adds,
                finish: None,
                ahead: core::ptr::null(),
                ahead_step: 0,
            });
        }
    }
}

/// Columns of a panel of one vector and of a full one.
pub(crate) fn panel_widths() -> [usize; 2] {
    let kernels = Kernels::current();
    [kernels.lanes, kernels.cols]
}

/// Columns of a panel.
pub(crate) fn panel_cols() -> usize {
    Kernels::current().cols
}

/// The `i`-th of `count` parts of a size, which differ by one at most.
fn even(size: usize, count: usize, i: usize) -> Range<usize> {
    size * i / count..size * (i + 1) / count
}

/// The tiles that share out some rows evenly: heights, and how many of each. None has a single row, unless there is but one.
fn heights(kernels: &Kernels, rows: usize) -> [(usize, usize); 2] {
    let count = rows.div_ceil(kernels.rows).max(1);
    let (height, higher) = (rows / count, rows % count);
    [(height + 1, higher), (height, if height == 0 { 0 } else { count - higher })]
}

/// Whether rows this many elements apart share few places of a first-level cache, so that a tile's rows displace each other.
fn clash(step: usize) -> bool {
    step.is_multiple_of(CLASH)
}

/// Lends the first `len` elements of some rows, which lie in `from`, with the elements from one to the next: where they are, or copies that do not
/// clash. All jobs of a product then share one copy.
pub(super) fn spread(from: &[f32], step: usize, rows: usize, len: usize, body: impl FnOnce(&[f32], usize)) {
    if rows <= 1 || !clash(step) {
        return body(from, step);
    }
    // A depth may be less than the step, and clash with the line behind it.
    let apart = if clash(len + APART) { len + 2 * APART } else { len + APART };
    with_scratch(rows * apart, |copies| {
        parallel_chunks(copies, apart, len / 8 + 1, |row, to| {
            to[..len].copy_from_slice(&from[row * step..][..len]);
        });
        body(copies, apart);
    });
}

/// Copies the first `len` elements of some rows, one row behind the other.
///
/// # Safety
/// `from` holds the rows, `step` apart; `to` has room for them.
unsafe fn copy_rows(from: &[f32], step: usize, rows: Range<usize>, len: usize, to: *mut f32) {
    for (i, row) in rows.enumerate() {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr().add(row * step), to.add(i * len), len) };
    }
}
