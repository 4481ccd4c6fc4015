//! Products of 8-bit integers less their zero points, with exact sums in 32 bits, which wrap.
//!
//! The left side is made of unsigned bytes and the right side of signed ones, as `vpdpbusd` takes them: the upper bit of the others is
//! flipped, which moves them and their zero point by 128. Zero points are taken from the sums at last:
//! `Σ (a - p) (b - q) = Σ a b - q Σ a - p Σ b + Σ p q`.

mod conv;
mod depthwise;
mod epilogue;
mod pack;
mod tile;

pub use conv::{PackedQuantizedConv, quantized_conv};
pub use depthwise::{PackedQuantizedDepthwise, quantized_depthwise};
pub use epilogue::{Epilogue, Output};
pub use pack::{Bytes, PackedBytes};

use crate::scratch::with_scratch;
use crate::simd::dispatched;
use crate::size::{elements, reach};
use crate::threads::{self, INLINE_WORK, parallel_for};
use core::ops::Range;
use epilogue::{Columns, Out};
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

/// The rows of the left side.
#[derive(Clone, Copy)]
enum Left<'a> {
    /// They lie in memory, so many bytes apart.
    InPlace(&'a [u8], usize),
    /// They are brought when they are wanted.
    Gather(&'a Gather<'a>),
}

/// A product, its right side packed.
struct Product<'a> {
    rows: usize,
    left: Left<'a>,
    /// What is flipped in each byte of the left side.
    flip: u8,
    left_zeros: Zeros<'a>,
    right: &'a PackedBytes,
    right_zeros: Zeros<'a>,
    out: &'a Out<'a>,
    out_start: usize,
    /// From one row of the result to the next.
    out_step: usize,
    /// The first column, among those of all groups.
    out_col: usize,
}

/// `out = (lhs - lhs_zeros) · (rhs - rhs_zeros)`, or what becomes of these sums: `m` rows of `lhs` are `lhs_step` apart, their elements
/// side by side; `out` is row-major.
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
    out: Output<'_>,
) {
    let (k, n) = rhs.dims();
    let (data, flip) = lhs.unsigned();
    assert!(k == 0 || reach([m, k], [lhs_step, 1]) <= data.len(), "the left operand does not hold {m} rows");
    lhs_zeros.check(m);
    rhs_zeros.check(n);
    Product {
        rows: m,
        left: Left::InPlace(data, lhs_step),
        flip,
        left_zeros: lhs_zeros,
        right: rhs,
        right_zeros: rhs_zeros,
        out: &Out::new(out, elements(&[m, n]), n),
        out_start: 0,
        out_step: n,
        out_col: 0,
    }
    .run();
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
        // Whole tiles of rows that are as the tiles take them stay where they are.
        let tiles = rows.start..rows.end - rows.len() % ROWS;
        let (in_place, brought) = match self.left {
            Left::InPlace(data, step) if self.flip == 0 && k > 0 && k.is_multiple_of(GROUP) => {
                (Some((data, step)), tiles.end..rows.end)
            }
            _ => (None, rows.clone()),
        };
        if let Some((data, step)) = in_place {
            let height = (BLOCK_ROWS / step.max(1)).next_multiple_of(ROWS).max(ROWS);
            for first in tiles.clone().step_by(height) {
                let part = first..tiles.end.min(first + height);
                self.panels(part, cols.clone(), &data[first * step..], step);
            }
        }
        if brought.is_empty() {
            return;
        }
        // Whole groups, in an odd number of cache lines: rows then share no places of a cache.
        let step = (k.next_multiple_of(GROUP).div_ceil(64) | 1) * 64;
        let height =
            (BLOCK_ROWS / step).max(ROWS).next_multiple_of(ROWS).min(brought.len().next_multiple_of(ROWS));
        with_scratch(height * step / 4, |space| {
            let left: &mut [u8] = bytemuck::cast_slice_mut(space);
            for first in brought.clone().step_by(height) {
                let part = first..brought.end.min(first + height);
                self.bring(part.clone(), left, step);
                self.panels(part, cols.clone(), left, step);
            }
        });
    }

    /// Brings rows of the left side. Rows behind the last up to a whole tile are whatever they were.
    fn bring(&self, rows: Range<usize>, left: &mut [u8], step: usize) {
        let (k, _) = self.right.dims();
        match self.left {
            Left::Gather(gather) => gather(rows.clone(), left, step),
            Left::InPlace(data, from) => {
                for (row, to) in rows.clone().zip(left.chunks_mut(step)) {
                    to[..k].copy_from_slice(&data[row * from..][..k]);
                }
            }
        }
        for row in left.chunks_mut(step).take(rows.len()) {
            let (row, behind) = row.split_at_mut(k);
            let padding = k.next_multiple_of(GROUP) - k;
            behind[..padding].fill(0);
            if self.flip != 0 {
                row.iter_mut().for_each(|byte| *byte ^= self.flip);
            }
        }
    }

    /// Some rows, which lie `step` bytes apart, times some columns.
    fn panels(&self, rows: Range<usize>, cols: Range<usize>, left: &[u8], step: usize) {
        if !cols.clone().any(|col| self.right_zero(col) != 0) {
            return self.panels_with(rows, cols, left, step, None);
        }
        let (k, _) = self.right.dims();
        with_scratch(rows.len(), |space| {
            let of_rows: &mut [i32] = bytemuck::cast_slice_mut(space);
            for (n, (row, sum)) in rows.clone().zip(&mut *of_rows).enumerate() {
                let zeros = (k as i32).wrapping_mul(self.left_zero(row));
                *sum = tile::sum(&left[n * step..][..k]).wrapping_sub(zeros);
            }
            self.panels_with(rows, cols, left, step, Some(of_rows));
        });
    }

    /// The zero point of a row of bytes that became unsigned.
    fn left_zero(&self, row: usize) -> i32 {
        unsigned_zero(self.left_zeros.at(row), self.flip)
    }

    /// The zero point of a column of bytes that became signed.
    fn right_zero(&self, col: usize) -> i32 {
        signed_zero(self.right_zeros.at(col), self.right.flip())
    }

    /// [`Product::panels`] with the sum of each row less as many zero points, where a column has a zero point.
    fn panels_with(
        &self,
        rows: Range<usize>,
        cols: Range<usize>,
        left: &[u8],
        step: usize,
        of_rows: Option<&[i32]>,
    ) {
        let groups = self.right.dims().0.div_ceil(GROUP);
        let mut sums = [[0; COLS]; ROWS];
        for first_col in cols.clone().step_by(COLS) {
            let panel = self.right.panel(first_col / COLS);
            let count = COLS.min(cols.end - first_col);
            let mut columns = self.out.columns(self.out_col + first_col, count);
            let points = self.zero_points(first_col, &mut columns, of_rows.is_some());
            for first in (0..rows.len()).step_by(ROWS) {
                let height = ROWS.min(rows.len() - first);
                let left = &left[first * step..][..(ROWS - 1) * step + groups * GROUP];
                // SAFETY: the slices hold the rows of a whole tile and a panel.
                unsafe {
                    tile::compute(
                        &Tile { groups, rows: height, left: left.as_ptr(), step, panel: panel.as_ptr() },
                        &mut sums,
                    )
                };
                let sums = &mut sums[..height];
                if let Some(points) = &points {
                    for (row, sums) in sums.iter_mut().enumerate() {
                        let of_right = of_rows.map_or(0, |of_rows| of_rows[first + row]);
                        // SAFETY: arrays.
                        unsafe {
                            ZeroPoints::take(points, sums, self.left_zero(rows.start + first + row), of_right)
                        };
                    }
                }
                let start = self.out_start + (rows.start + first) * self.out_step + first_col;
                // SAFETY: this part of the output is this job's own.
                unsafe { self.out.write(sums, &columns, start, self.out_step) };
            }
        }
    }

    /// What zero points bring into some columns, if that differs from row to row; what they bring into all rows alike becomes part of what
    /// is added to the columns.
    fn zero_points(&self, first_col: usize, columns: &mut Columns, of_right: bool) -> Option<ZeroPoints> {
        let of_left = &self.right.sums()[first_col..first_col + columns.count];
        if let (Zeros::One(_), false) = (self.left_zeros, of_right) {
            let left = self.left_zero(0);
            for (base, &sum) in columns.base.iter_mut().zip(of_left) {
                *base = base.wrapping_sub(left.wrapping_mul(sum));
            }
            return None;
        }
        let mut points = ZeroPoints { of_left: [0; COLS], right: [0; COLS] };
        points.of_left[..of_left.len()].copy_from_slice(of_left);
        for (col, zero) in points.right[..of_left.len()].iter_mut().enumerate() {
            *zero = self.right_zero(first_col + col);
        }
        Some(points)
    }
}

/// What the columns of a panel have to do with zero points.
struct ZeroPoints {
    /// How often the left side's zero point is in the sums: the sums of the columns.
    of_left: [i32; COLS],
    /// The right side's zero points.
    right: [i32; COLS],
}

impl ZeroPoints {
    dispatched! {
        /// Takes from a row of sums what zero points brought in: the left side's, and each column's as often as `of_right` says, the row's
        /// sum less that of as many zero points.
        unsafe fn take<S>(_s, points: &ZeroPoints, sums: &mut [i32; COLS], left: i32, of_right: i32) {
            for col in 0..COLS {
                let brought = left.wrapping_mul(points.of_left[col]);
                let brought = brought.wrapping_add(of_right.wrapping_mul(points.right[col]));
                sums[col] = sums[col].wrapping_sub(brought);
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
