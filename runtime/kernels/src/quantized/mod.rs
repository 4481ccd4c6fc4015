//! Products of 8-bit integers less their zero points, with exact sums in 32 bits, which wrap.
//!
//! The left side is made of unsigned bytes and the right side of signed ones, as `vpdpbusd` takes them: the upper bit of the others is
//! flipped, which moves them and their zero point by 128. Zero points are taken from the sums at last:
//! `Σ (a - p) (b - q) = Σ a b - q Σ a - p Σ b + Σ p q`.

mod conv;
mod pack;
mod tile;

pub use conv::{PackedQuantizedConv, quantized_conv};
pub use pack::{Bytes, PackedBytes};

use crate::scratch::with_scratch;
use crate::size::{elements, reach};
use crate::threads::{self, INLINE_WORK, SharedMut, parallel_for};
use core::ops::Range;
use pack::{GROUP, signed_zero, unsigned_zero};
use tile::{COLS, ROWS, Tile};

/// Multiply-adds in a nanosecond, roughly.
const PER_NANOSECOND: usize = 200;
/// Bytes of left rows that are used again and again: half of a second-level cache of 1 MiB.
const BLOCK_ROWS: usize = 512 * 1024;

/// One zero point for all, or one for each row or column.
#[derive(Clone, Copy, Debug)]
pub enum Zeros<'a> {
    /// The same for all.
    One(i32),
    /// One each.
    Each(&'a [i32]),
}

impl Zeros<'_> {
    fn at(&self, n: usize) -> i32 {
        match self {
            Zeros::One(zero) => *zero,
            Zeros::Each(zeros) => zeros[n],
        }
    }

    fn check(&self, count: usize) {
        if let Zeros::Each(zeros) = self {
            assert_eq!(zeros.len(), count, "zero points do not fit {count} rows or columns");
        }
    }
}

/// Writes some rows of the left side as they lie in memory, each `step` bytes after the last; what is behind a row stays.
type Gather<'a> = dyn Fn(Range<usize>, &mut [u8], usize) + Sync + 'a;

/// A product, its right side packed.
struct Product<'a> {
    rows: usize,
    /// Writes rows of the left side.
    gather: &'a Gather<'a>,
    /// What is flipped in each byte of the left side.
    flip: u8,
    left_zeros: Zeros<'a>,
    right: &'a PackedBytes,
    right_zeros: Zeros<'a>,
    out: &'a SharedMut<'a, i32>,
    out_start: usize,
    /// From one row of the result to the next.
    out_step: usize,
}

/// `out = (lhs - lhs_zeros) · (rhs - rhs_zeros)`: `m` rows of `lhs` are `lhs_step` apart, their elements side by side; `out` is row-major.
///
/// # Panics
/// When an operand does not hold its dims.
pub fn quantized_gemm(
    m: usize,
    lhs: Bytes<'_>,
    lhs_step: usize,
    lhs_zeros: Zeros<'_>,
    rhs: &PackedBytes,
    rhs_zeros: Zeros<'_>,
    out: &mut [i32],
) {
    let (k, n) = rhs.dims();
    let (data, flip) = lhs.unsigned();
    assert!(k == 0 || reach([m, k], [lhs_step, 1]) <= data.len(), "the left operand does not hold {m} rows");
    assert_eq!(out.len(), elements(&[m, n]), "the output does not hold {m} rows and {n} columns");
    lhs_zeros.check(m);
    rhs_zeros.check(n);
    let gather = |rows: Range<usize>, to: &mut [u8], step: usize| {
        for (row, to) in rows.zip(to.chunks_mut(step)) {
            to[..k].copy_from_slice(&data[row * lhs_step..][..k]);
        }
    };
    let out = &SharedMut::new(out);
    let (left_zeros, right_zeros) = (lhs_zeros, rhs_zeros);
    let (rows, right) = (m, rhs);
    let gather = &gather;
    Product { rows, gather, flip, left_zeros, right, right_zeros, out, out_start: 0, out_step: n }.run();
}

impl Product<'_> {
    /// Computes it, on several threads when that pays.
    fn run(&self) {
        let (k, n) = self.right.dims();
        if self.rows == 0 || n == 0 {
            return;
        }
        let work = self.rows.saturating_mul(n).saturating_mul(k) / PER_NANOSECOND + self.rows * n / 8 + 1;
        let wanted = match threads::sharing() {
            1 => 1,
            threads => (threads * 2).min((work / (INLINE_WORK / 2)).max(1)),
        };
        // Jobs of the same rows bring them each for itself: many rows are shared out, else columns.
        let (row_jobs, col_jobs) =
            if self.rows >= 4 * ROWS * wanted { (wanted, 1) } else { (1, wanted.min(n.div_ceil(COLS))) };
        let jobs = row_jobs * col_jobs;
        parallel_for(jobs, work / jobs + 1, |range| {
            for job in range {
                let rows = part(self.rows, ROWS, row_jobs, job % row_jobs);
                self.block(rows, part(n, COLS, col_jobs, job / row_jobs));
            }
        });
    }

    /// Computes a part whose columns start at a panel.
    fn block(&self, rows: Range<usize>, cols: Range<usize>) {
        if rows.is_empty() || cols.is_empty() {
            return;
        }
        let (k, _) = self.right.dims();
        // Whole groups, in an odd number of cache lines: rows then share no places of a cache.
        let step = (k.next_multiple_of(GROUP).div_ceil(64) | 1) * 64;
        let height =
            (BLOCK_ROWS / step).max(ROWS).next_multiple_of(ROWS).min(rows.len().next_multiple_of(ROWS));
        with_scratch(height * step / 4 + height, |space| {
            let (sums, left) = space.split_at_mut(height);
            let sums: &mut [i32] = bytemuck::cast_slice_mut(sums);
            let left: &mut [u8] = bytemuck::cast_slice_mut(left);
            for first in rows.clone().step_by(height) {
                let part = first..rows.end.min(first + height);
                self.bring(part.clone(), left, step, sums);
                self.panels(part, cols.clone(), left, step, sums);
            }
        });
    }

    /// Brings rows of the left side and their sums. Rows behind the last up to a whole tile are whatever they were.
    fn bring(&self, rows: Range<usize>, left: &mut [u8], step: usize, sums: &mut [i32]) {
        let (k, _) = self.right.dims();
        (self.gather)(rows.clone(), left, step);
        for (row, sum) in left.chunks_mut(step).zip(sums).take(rows.len()) {
            let (row, behind) = row.split_at_mut(k);
            let padding = k.next_multiple_of(GROUP) - k;
            behind[..padding].fill(0);
            if self.flip != 0 {
                row.iter_mut().for_each(|byte| *byte ^= self.flip);
            }
            *sum = tile::sum(row);
        }
    }

    /// Some rows, brought, times some columns.
    fn panels(&self, rows: Range<usize>, cols: Range<usize>, left: &[u8], step: usize, row_sums: &[i32]) {
        let groups = self.right.dims().0.div_ceil(GROUP);
        let mut sums = [0; ROWS * COLS];
        for first_col in cols.clone().step_by(COLS) {
            let panel = self.right.panel(first_col / COLS);
            let count = COLS.min(cols.end - first_col);
            for first in (0..rows.len()).step_by(ROWS) {
                let height = ROWS.min(rows.len() - first);
                let left = &left[first * step..][..(ROWS - 1) * step + groups * GROUP];
                // SAFETY: the slices hold the rows of a whole tile and a panel.
                unsafe {
                    tile::compute(
                        &Tile { groups, left: left.as_ptr(), step, panel: panel.as_ptr() },
                        &mut sums,
                    )
                };
                for (row, sums) in sums.chunks_exact(COLS).enumerate().take(height) {
                    let at = rows.start + first + row;
                    let start = self.out_start + at * self.out_step + first_col;
                    // SAFETY: this part of the output is this job's own.
                    let out = unsafe { self.out.slice(start..start + count) };
                    self.finish(at, first_col, row_sums[first + row], &sums[..count], out);
                }
            }
        }
    }

    /// A row of sums, less what zero points bring in.
    fn finish(&self, row: usize, first_col: usize, row_sum: i32, sums: &[i32], out: &mut [i32]) {
        let depth = self.right.dims().0 as i32;
        let left = unsigned_zero(self.left_zeros.at(row), self.flip);
        // Of each `q` the row's elements, less as many times `p`.
        let of_right = row_sum.wrapping_sub(depth.wrapping_mul(left));
        let col_sums = &self.right.sums()[first_col..];
        let flip = self.right.flip();
        match self.right_zeros {
            Zeros::One(zero) => {
                let constant = of_right.wrapping_mul(signed_zero(zero, flip));
                for ((out, &sum), &col_sum) in out.iter_mut().zip(sums).zip(col_sums) {
                    *out = sum.wrapping_sub(left.wrapping_mul(col_sum)).wrapping_sub(constant);
                }
            }
            Zeros::Each(zeros) => {
                for (((out, &sum), &col_sum), &zero) in
                    out.iter_mut().zip(sums).zip(col_sums).zip(&zeros[first_col..])
                {
                    let right = of_right.wrapping_mul(signed_zero(zero, flip));
                    *out = sum.wrapping_sub(left.wrapping_mul(col_sum)).wrapping_sub(right);
                }
            }
        }
    }
}

/// The `n`-th of `parts` parts of `0..len`, which start at multiples of `unit`.
fn part(len: usize, unit: usize, parts: usize, n: usize) -> Range<usize> {
    let units = len.div_ceil(unit);
    let at = |n: usize| (units * n / parts * unit).min(len);
    at(n)..at(n + 1)
}

#[cfg(test)]
mod tests;
