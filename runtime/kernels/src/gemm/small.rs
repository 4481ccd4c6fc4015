//! Batches of products so small that packing would cost more than it saves.

use super::Matrix;
use crate::simd::{Simd, dispatched};

/// Most rows, columns and depth.
const MOST: usize = 16;

/// Whether this file's way is the one: matrices, not vectors.
pub(super) fn suits(m: usize, n: usize, k: usize) -> bool {
    (2..=MOST).contains(&m) && (2..=MOST).contains(&n) && (1..=MOST).contains(&k)
}

dispatched! {
    /// Many products: the `i`-th of the operands from `offsets[i]` on, to the `i`-th run of `m · n` elements of `c`.
    ///
    /// # Safety
    /// Operands hold their dims from each offset on, `c` is valid for all results, and [`suits`] says yes.
    pub(super) unsafe fn small_products<S>(
        s,
        size: [usize; 3],
        a: Matrix<'_>,
        b: Matrix<'_>,
        offsets: &[[usize; 2]],
        c: *mut f32,
    ) {
        let [m, n, k] = size;
        let mut rows = [0.0; MOST * MOST];
        for (i, &[at_a, at_b]) in offsets.iter().enumerate() {
            let (from, c) = (a.data.as_ptr().add(at_a), c.add(i * m * n));
            let (mut to, mut step) = (b.data.as_ptr().add(at_b), b.row_stride);
            if b.col_stride != 1 {
                for row in 0..k {
                    for col in 0..n {
                        rows[row * n + col] = *to.add(row * b.row_stride + col * b.col_stride);
                    }
                }
                (to, step) = (rows.as_ptr(), n);
            }
            for col in (0..n).step_by(S::LANES) {
                let columns = Columns { k, to: to.add(col), step, lanes: S::LANES.min(n - col), n };
                let mut row = 0;
                while row < m {
                    let from = from.add(row * a.row_stride);
                    let strides = [a.row_stride, a.col_stride];
                    let c = c.add(row * n + col);
                    row += match m - row {
                        8.. => columns.product::<S, 8>(s, from, strides, c),
                        4.. => columns.product::<S, 4>(s, from, strides, c),
                        _ => columns.product::<S, 1>(s, from, strides, c),
                    };
                }
            }
        }
    }
}

/// Some columns of a right operand, no more than a vector has.
struct Columns {
    k: usize,
    to: *const f32,
    step: usize,
    lanes: usize,
    /// Elements from one row of the result to the next.
    n: usize,
}

impl Columns {
    /// `R` rows of the result, whose number is yielded.
    ///
    /// # Safety
    /// `a` has these rows, and so has the result.
    #[inline(always)]
    unsafe fn product<S: Simd, const R: usize>(
        &self,
        s: S,
        a: *const f32,
        [row_stride, col_stride]: [usize; 2],
        c: *mut f32,
    ) -> usize {
        let mut sums = [s.splat(0.0); R];
        // SAFETY: the caller's promise.
        unsafe {
            for p in 0..self.k {
                let b = s.load_up_to(self.to.add(p * self.step), self.lanes);
                for r in 0..R {
                    let a = s.splat(*a.add(r * row_stride + p * col_stride));
                    sums[r] = s.mul_add(a, b, sums[r]);
                }
            }
            for r in 0..R {
                s.store_up_to(c.add(r * self.n), self.lanes, sums[r]);
            }
        }
        R
    }
}
