//! The loops around the tile: blocks that fit the caches, threads.

use super::pack::{Packed, round_rows};
use super::tile::{AHEAD, Bf16Tile, COLS, Computer, ROWS, STEPS, WHOLE, finish};
use crate::gemm::{Epilogue, blocked::cut};
use crate::scratch::with_scratch;
use crate::threads::{self, INLINE_WORK, SharedMut, parallel_for};
use core::ops::Range;

/// Multiply-adds in a nanosecond, roughly, where the machine multiplies bf16.
pub(super) const PER_NANOSECOND: usize = 500;
/// Steps of the depth after which sums are put aside: a panel of `B` stays in the first-level cache for all rows.
const BLOCK_DEPTH: usize = 512;
/// Elements of rounded rows that are used again and again: 3/4 of a second-level cache of 1 MiB.
const BLOCK_ROWS: usize = 384 * 1024;
/// Elements of rounded rows beside a `B` that stays in the second-level cache.
const FEW_ROWS: usize = 48 * 1024;
/// Elements of such a `B`.
const NEAR: usize = 256 * 1024;
/// Bytes of a block of `B`.
const BLOCK_BYTES: usize = STEPS * COLS * size_of::<u16>();
/// Elements in a cache line.
const LINE: usize = 32;

/// Elements from one row of an `A` of so many steps to the next: whole lines, an odd number of them, so that rows share no places of a cache.
pub(crate) fn row_step(depth: usize) -> usize {
    ((depth.next_multiple_of(STEPS) / LINE) | 1) * LINE
}

/// What tiles of some rows ask for while they multiply a part of a panel: as many bytes of each block behind it.
struct Ahead {
    bytes: usize,
}

impl Ahead {
    /// Few tiles ask for more each, in whole lines.
    fn of(rows: usize) -> Self {
        let bytes = BLOCK_BYTES.div_ceil(rows.div_ceil(ROWS));
        Self { bytes: bytes.next_multiple_of(LINE * size_of::<u16>()).max(AHEAD) }
    }

    /// What the tile of the row `first` asks for, beside the panel's part `b`: the next block of the panel, or the next panel, lies behind.
    fn at(&self, first: usize, b: &[u16]) -> (*const u16, usize) {
        if first / ROWS < BLOCK_BYTES / AHEAD {
            (b.as_ptr_range().end.wrapping_byte_add(first / ROWS * self.bytes), self.bytes)
        } else {
            (b.as_ptr(), 0)
        }
    }
}

/// `sums = A · B` of rounded rows, [`row_step`] or more apart, and one packed panel: [`PANEL`](super::PANEL) sums a row without gaps. Rows are computed up to
/// a multiple of [`WHOLE`].
///
/// # Panics
/// When an operand does not hold the rows, or the panel is empty.
pub(crate) fn panel_sums(rows: usize, a: &[u16], a_step: usize, panel: &[u16], sums: &mut [f32]) {
    let (computer, depth) = (Computer::new(), panel.len() / COLS);
    let whole = rows.next_multiple_of(WHOLE);
    assert!(depth > 0 && depth.is_multiple_of(STEPS) && depth <= a_step, "a panel of whole blocks");
    assert!(whole * a_step <= a.len() && whole * COLS <= sums.len(), "room for whole tiles");
    let (parts, ahead) = (depth.div_ceil(BLOCK_DEPTH), Ahead::of(rows));
    for part in 0..parts {
        let steps = cut(depth, STEPS, parts, part);
        let b = &panel[steps.start * COLS..steps.end * COLS];
        for first in (0..rows).step_by(ROWS) {
            let (ahead, ahead_bytes) = ahead.at(first, b);
            // SAFETY: the operands hold whole tiles, as was checked.
            unsafe {
                computer.compute(&Bf16Tile {
                    blocks: steps.len() / STEPS,
                    rows: ROWS.min(rows - first),
                    a: a.as_ptr().add(first * a_step + steps.start),
                    a_step,
                    b: b.as_ptr(),
                    ahead,
                    ahead_bytes,
                    to: None,
                    sums: sums.as_mut_ptr().add(first * COLS),
                    adds: part > 0,
                });
            }
        }
    }
}

/// Writes some rows of `A`, each with the elements from one to the next, and zeros behind each up to a multiple of [`STEPS`].
pub(crate) type Gather<'a> = dyn Fn(Range<usize>, *mut u16, usize) + Sync + 'a;

/// Where the rows of `A` come from.
#[derive(Clone, Copy)]
pub(crate) enum Bf16Rows<'a> {
    /// They lie in memory in f32; elements from one row to the next.
    Single(&'a [f32], usize),
    /// Written when needed.
    Gather(&'a Gather<'a>),
}

/// A whole product: `B` packed, `C` to be written.
#[derive(Clone, Copy)]
pub(crate) struct Bf16Product<'a> {
    /// Rows of `C`.
    pub m: usize,
    /// `A`.
    pub a: Bf16Rows<'a>,
    /// `B`.
    pub b: Packed<'a>,
    /// `C`, valid for all of the product.
    pub c: &'a SharedMut<'a, f32>,
    /// Where in `c` the product starts.
    pub c_start: usize,
    /// Elements from one row of `C` to the next.
    pub c_step: usize,
    /// Adds to what `C` holds, before any activation.
    pub adds: bool,
    /// What happens at the end; its residual starts where the product does.
    pub epilogue: &'a Epilogue<'a>,
}

impl Bf16Product<'_> {
    /// Computes it, on several threads when that pays. `A` and `C` hold the product, and so does the epilogue.
    pub fn run(&self) {
        let Packed { depth: k, cols: n, .. } = self.b;
        if self.m == 0 || n == 0 {
            return;
        }
        let work = self.m.saturating_mul(n).saturating_mul(k) / PER_NANOSECOND + self.m * n / 16 + 1;
        let wanted = match threads::sharing() {
            1 => 1,
            threads => (threads * 2).min((work / (INLINE_WORK / 2)).max(1)),
        };
        let (rows, cols) = (self.m.div_ceil(ROWS), n.div_ceil(COLS));
        // Jobs of the same rows round them each for itself, jobs of the same columns read the same panels: the larger operand is shared out.
        let (row_jobs, col_jobs) = if self.m >= n || cols < 4 * wanted {
            let row_jobs = rows.min(wanted);
            (row_jobs, cols.div_ceil(4).min(wanted.div_ceil(row_jobs)))
        } else {
            (1, wanted)
        };
        let jobs = row_jobs * col_jobs;
        parallel_for(jobs, work / jobs + 1, |range| {
            for job in range {
                self.block(
                    cut(self.m, ROWS, row_jobs, job % row_jobs),
                    cut(n, COLS, col_jobs, job / row_jobs),
                );
            }
        });
    }

    /// Computes it on the calling thread.
    pub fn run_here(&self) {
        self.block(0..self.m, 0..self.b.cols);
    }

    /// Computes a part of `C` whose columns start at a panel.
    fn block(&self, rows: Range<usize>, cols: Range<usize>) {
        if rows.is_empty() || cols.is_empty() {
            return;
        }
        if self.b.depth == 0 {
            return self.without_depth(rows, cols);
        }
        let a_step = row_step(self.b.depth);
        let near = a_step * (cols.len() + 1) <= NEAR;
        let height = (if near { FEW_ROWS } else { BLOCK_ROWS } / a_step / ROWS).max(1) * ROWS;
        let blocks = rows.len().div_ceil(height);
        let most = rows.len().div_ceil(blocks).next_multiple_of(ROWS) + ROWS;
        let put_aside = if self.b.depth > BLOCK_DEPTH { most } else { ROWS };
        with_scratch(most * a_step / 2 + put_aside * COLS, |space| {
            let (sums, a) = space.split_at_mut(put_aside * COLS);
            let a: &mut [u16] = bytemuck::cast_slice_mut(a);
            for block in 0..blocks {
                let part = cut(rows.len(), ROWS, blocks, block);
                let part = rows.start + part.start..rows.start + part.end;
                self.copy(part.clone(), a, a_step);
                self.panels(part, cols.clone(), a, a_step, sums);
            }
        });
    }

    /// Writes some rows, rounded and filled up with zeros.
    fn copy(&self, rows: Range<usize>, to: &mut [u16], a_step: usize) {
        let k = self.b.depth;
        match self.a {
            Bf16Rows::Gather(gather) => gather(rows, to.as_mut_ptr(), a_step),
            Bf16Rows::Single(a, step) => {
                let a = &a[rows.start * step..];
                assert!(
                    (rows.len() - 1) * step + k <= a.len() && rows.len() * a_step <= to.len(),
                    "room for rows"
                );
                // SAFETY: as was checked.
                unsafe { round_rows(rows.len(), k, (a.as_ptr(), step), (to.as_mut_ptr(), a_step)) };
            }
        }
    }

    /// Some rows, rounded, times some columns.
    fn panels(&self, rows: Range<usize>, cols: Range<usize>, a: &[u16], a_step: usize, sums: &mut [f32]) {
        let computer = Computer::new();
        let depth = self.b.depth.next_multiple_of(STEPS);
        let parts = depth.div_ceil(BLOCK_DEPTH);
        let ahead = Ahead::of(rows.len());
        for col in cols.clone().step_by(COLS) {
            let panel = &self.b.data[col / COLS * self.b.panel()..][..self.b.panel()];
            let count = COLS.min(cols.end - col);
            for part in 0..parts {
                let steps = cut(depth, STEPS, parts, part);
                for first in (0..rows.len()).step_by(ROWS) {
                    let height = ROWS.min(rows.len() - first);
                    let whole = height.next_multiple_of(WHOLE);
                    let place = if parts > 1 { first * COLS } else { 0 };
                    let sums = &mut sums[place..][..whole * COLS];
                    let a = &a[first * a_step + steps.start..][..(whole - 1) * a_step + steps.len()];
                    let b = &panel[steps.start * COLS..steps.end * COLS];
                    let (ahead, ahead_bytes) = ahead.at(first, b);
                    let row = rows.start + first;
                    // SAFETY: the element is in `C`.
                    let c = unsafe { self.c.ptr(self.c_start + row * self.c_step + col) };
                    let to = (part + 1 == parts).then_some((c.cast_const(), self.c_step));
                    // SAFETY: the slices hold what the tile names.
                    unsafe {
                        computer.compute(&Bf16Tile {
                            blocks: steps.len() / STEPS,
                            rows: height,
                            a: a.as_ptr(),
                            a_step,
                            b: b.as_ptr(),
                            ahead,
                            ahead_bytes,
                            to,
                            sums: sums.as_mut_ptr(),
                            adds: part > 0,
                        });
                    }
                    if part + 1 == parts {
                        let end = self.epilogue.of_tile(row, col, self.c_step);
                        // SAFETY: the part of `C` is this job's own; the epilogue was checked.
                        unsafe {
                            finish(sums.as_ptr(), c, self.c_step, height, count, self.adds, &end);
                        }
                    }
                }
            }
            // SAFETY: as above.
            unsafe {
                self.epilogue.activate(self.c.ptr(self.c_start), self.c_step, rows.clone(), col..col + count);
            }
        }
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
