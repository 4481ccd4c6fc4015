//! The loops around the tile: blocks that fit the caches, panels, threads.

use super::Epilogue;
use super::pack::{Part, depth_blocks, pack_rhs, padded_cols};
use super::tile::{Kernels, Tile, runs};
use crate::consumed::KEPT;
use crate::scratch::with_scratch;
use crate::size::elements;
use crate::threads::{self, INLINE_WORK, SharedMut, parallel_for};
use core::ops::Range;

/// Elements of `A` that one pass over the columns uses again and again: half of a second-level cache of 1 MiB.
pub(super) const BLOCK_LHS: usize = 96 * 1024;
/// Elements of `C` that stay in the cache while the depth's blocks add to them.
const BLOCK_OUT: usize = 96 * 1024;

/// Where the panels of `B` come from.
#[derive(Clone, Copy)]
pub(crate) enum Panels<'a> {
    /// All packed, in [`super::PackedRhs`]'s order.
    Packed(&'a [f32]),
    /// Rows of contiguous columns, read in place; elements from one row to the next.
    Rows(&'a [f32], usize),
    /// Written when needed.
    Fill(&'a (dyn Fn(Part, *mut f32) + Sync)),
}

/// A whole product: `A` packed, `C` to be written.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    /// Rows of `C`.
    pub m: usize,
    /// Columns of `C`.
    pub n: usize,
    /// Depth.
    pub k: usize,
    /// `A` in [`super::PackedLhs`]'s order.
    pub a: &'a [f32],
    /// `B`.
    pub b: Panels<'a>,
    /// `C`, valid for all of the product.
    pub c: &'a SharedMut<'a, f32>,
    /// Where in `c` the product starts.
    pub c_start: usize,
    /// Elements from one row of `C` to the next.
    pub c_step: usize,
    /// Adds to what `C` holds; then the depth is not 0.
    pub adds: bool,
    /// What happens at the end; its residual starts where the product does.
    pub epilogue: &'a Epilogue<'a>,
}

/// The part that one of several jobs has of a size that is cut at multiples of `step`.
pub(crate) fn cut(size: usize, step: usize, jobs: usize, job: usize) -> Range<usize> {
    let panels = size.div_ceil(step);
    let at = |job: usize| size.min(panels * job / jobs * step);
    at(job)..at(job + 1)
}

impl Product<'_> {
    /// Nanoseconds, roughly.
    pub fn work(&self) -> usize {
        // 100 multiply-adds a nanosecond.
        self.m.saturating_mul(self.n).saturating_mul(self.k) / 100 + 1
    }

    /// Computes it, on several threads when that pays.
    pub fn run(&self) {
        let kernels = Kernels::current();
        let (row_panels, col_panels) = (self.m.div_ceil(kernels.rows), self.n.div_ceil(kernels.cols));
        let work = self.work();
        let most = if work < INLINE_WORK { 1 } else { (work / (INLINE_WORK / 2)).max(1) };
        let wanted = match threads::sharing() {
            1 => 1,
            threads => (threads * 4).min(most),
        };
        let col_jobs = col_panels.min(wanted).max(1);
        let row_jobs = row_panels.min(wanted.div_ceil(col_jobs)).max(1);
        if row_jobs > 1
            && let Panels::Fill(fill) = self.b
        {
            // Several jobs would write the same panels.
            return with_scratch(elements(&[self.k, padded_cols(&kernels, self.n)]), |b| {
                pack_rhs(&kernels, self.k, self.n, fill, b, KEPT);
                Product { b: Panels::Packed(b), ..*self }.run_jobs(&kernels, row_jobs, col_jobs);
            });
        }
        self.run_jobs(&kernels, row_jobs, col_jobs);
    }

    /// Computes it on the calling thread.
    pub fn run_here(&self) {
        self.block(&Kernels::current(), 0..self.m, 0..self.n);
    }

    fn run_jobs(&self, kernels: &Kernels, row_jobs: usize, col_jobs: usize) {
        let jobs = row_jobs * col_jobs;
        if jobs == 1 {
            return self.block(kernels, 0..self.m, 0..self.n);
        }
        parallel_for(jobs, self.work() / jobs + 1, |range| {
            for job in range {
                let rows = cut(self.m, kernels.rows, row_jobs, job % row_jobs);
                let cols = cut(self.n, kernels.cols, col_jobs, job / row_jobs);
                self.block(kernels, rows, cols);
            }
        });
    }

    /// Computes a part of `C` that starts at whole panels.
    fn block(&self, kernels: &Kernels, rows: Range<usize>, cols: Range<usize>) {
        if rows.is_empty() || cols.is_empty() {
            return;
        }
        if self.k == 0 {
            return self.without_depth(rows, cols);
        }
        let depth = super::pack::block_depth(self.k).min(self.k);
        let block_rows = (BLOCK_LHS / depth / kernels.rows).max(1) * kernels.rows;
        let block_cols = (BLOCK_OUT / rows.len().min(block_rows) / kernels.cols).clamp(8, 64) * kernels.cols;
        // With one block of rows a panel is used up at once, and one place serves all.
        let reuse = rows.len() > block_rows;
        let width =
            if reuse { block_cols.min(cols.len().next_multiple_of(kernels.cols)) } else { kernels.cols };
        let space = if matches!(self.b, Panels::Packed(_)) { 0 } else { depth * width };
        with_scratch(space, |space| {
            for first in cols.clone().step_by(block_cols) {
                let cols = first..cols.end.min(first + block_cols);
                for depth in depth_blocks(self.k) {
                    for first in rows.clone().step_by(block_rows) {
                        let part = first..rows.end.min(first + block_rows);
                        let fresh = first == rows.start;
                        self.panels(kernels, part, cols.clone(), depth.clone(), space, fresh, reuse);
                    }
                }
            }
        });
    }

    /// One block: for each panel of `B` all panels of `A`.
    #[allow(clippy::too_many_arguments, reason = "the state of the loops around it")]
    fn panels(
        &self,
        kernels: &Kernels,
        rows: Range<usize>,
        cols: Range<usize>,
        depth: Range<usize>,
        space: &mut [f32],
        fresh: bool,
        reuse: bool,
    ) {
        for first in cols.clone().step_by(kernels.cols) {
            let part = first..cols.end.min(first + kernels.cols);
            let place = if reuse && !space.is_empty() { (first - cols.start) * depth.len() } else { 0 };
            let part = Part { depth: depth.clone(), width: padded_cols(kernels, part.len()), cols: part };
            let (b, b_step) = self.panel(kernels, &part, &mut space[place..], fresh || !reuse);
            self.tiles(kernels, rows.clone(), &part, b, b_step);
        }
    }

    /// Where a panel of `B` is, written first if it is not there, and the elements from one of its steps to the next.
    fn panel(&self, kernels: &Kernels, part: &Part, space: &mut [f32], write: bool) -> (*const f32, usize) {
        let Part { depth, cols, width } = part;
        let mut fill = |fill: &dyn Fn(Part, *mut f32)| {
            let to = &mut space[..depth.len() * width];
            if write {
                fill(part.clone(), to.as_mut_ptr());
            }
            (to.as_ptr(), *width)
        };
        match self.b {
            Panels::Packed(b) => {
                let padded = padded_cols(kernels, self.n);
                (b[depth.start * padded + cols.start * depth.len()..].as_ptr(), *width)
            }
            Panels::Rows(b, step) if cols.len() == *width => {
                (b[depth.start * step + cols.start..].as_ptr(), step)
            }
            // The last panel would be read beyond its columns.
            Panels::Rows(b, step) => fill(&|part, to| {
                let b = super::Matrix { data: b, row_stride: step, col_stride: 1 };
                // SAFETY: the product's operands were checked.
                unsafe { super::pack::pack_rhs_panel(b, part, to) }
            }),
            Panels::Fill(write) => fill(write),
        }
    }

    /// The tiles of one panel of `B`, which is at `b`.
    fn tiles(&self, kernels: &Kernels, rows: Range<usize>, part: &Part, b: *const f32, b_step: usize) {
        let Part { depth, cols, width } = part;
        let ends = depth.end == self.k && !self.epilogue.is_empty();
        let most = if ends { self.epilogue.tiles_at_once() } else { usize::MAX };
        let (whole, rest) = (rows.len() / kernels.rows, rows.len() % kernels.rows);
        let heights = [(kernels.rows, whole), (rest, usize::from(rest > 0))];
        for run in runs(rows.start, heights, 0, most) {
            let (first, height) = (run.rows.start, run.height);
            let a = self.a[depth.start * self.m + first * depth.len()..].as_ptr();
            // SAFETY: the panels hold `depth` steps of these rows and columns; the part of `C` is this job's own.
            unsafe {
                kernels.of(height, *width)(&Tile {
                    count: run.count,
                    depth: depth.len(),
                    a,
                    a_next: height * depth.len(),
                    a_step: height,
                    offsets: core::ptr::null(),
                    b,
                    b_step,
                    c: self.c.ptr(self.c_start + first * self.c_step + cols.start),
                    c_step: self.c_step,
                    cols: cols.len(),
                    accumulate: depth.start > 0 || self.adds,
                    finish: ends.then(|| self.epilogue.of_tile(first, cols.start, self.c_step)),
                    ahead: core::ptr::null(),
                    ahead_step: 0,
                });
                if ends {
                    let c = self.c.ptr(self.c_start);
                    self.epilogue.activate(c, self.c_step, run.rows, cols.clone());
                }
            }
        }
    }

    /// A product of depth 0: zeros, and the epilogue.
    fn without_depth(&self, rows: Range<usize>, cols: Range<usize>) {
        for row in rows.clone() {
            let start = self.c_start + row * self.c_step;
            // SAFETY: this part of `C` is this job's own.
            unsafe { self.c.slice(start + cols.start..start + cols.end) }.fill(0.0);
        }
        // SAFETY: as above; the epilogue was checked.
        unsafe { self.epilogue.apply(self.c.ptr(self.c_start), self.c_step, rows, cols) };
    }
}
