//! Products of a vector and a matrix, which read every element once: no packing.

use super::{Epilogue, Matrix};
use crate::simd::dispatched;
use crate::threads::{SharedMut, parallel_for};

/// Columns that one piece of work has at least: a few vectors of the widest kind.
const STEP: usize = 64;

/// `c = epilogue(x · B)` for a contiguous `x` of length `k` and one row `c` of length `n`; `false` when `B` is laid out in
/// neither rows nor columns, and nothing was done. Operands were checked.
pub(super) fn vector_product(
    n: usize,
    k: usize,
    x: &[f32],
    b: Matrix<'_>,
    c: &mut [f32],
    epilogue: &Epilogue<'_>,
) -> bool {
    if b.col_stride != 1 && b.row_stride != 1 {
        return false;
    }
    let c = SharedMut::new(c);
    // Memory gives about four elements a nanosecond.
    parallel_for(n.div_ceil(STEP), STEP * k / 4 + 1, |steps| {
        let cols = steps.start * STEP..n.min(steps.end * STEP);
        // SAFETY: `B` holds `k` rows and `n` columns, `x` and `c` as many; pieces are disjoint.
        unsafe {
            let to = c.ptr(cols.start);
            let from = b.data.as_ptr().add(cols.start * b.col_stride);
            if b.col_stride == 1 {
                sum_rows(k, cols.len(), x.as_ptr(), from, b.row_stride, to);
            } else {
                dot_columns(k, cols.len(), x.as_ptr(), from, b.col_stride, to);
            }
            if !epilogue.is_empty() {
                epilogue.apply(c.ptr(0), n, 0..1, cols);
            }
        }
    });
    true
}

dispatched! {
    /// `c[j] = Σ x[l] · b[l · step + j]`.
    ///
    /// # Safety
    /// `x` holds `k`, `b` `k` rows of `n`, `c` `n` elements.
    unsafe fn sum_rows<S>(s, k: usize, n: usize, x: *const f32, b: *const f32, step: usize, c: *mut f32) {
        const V: usize = 4;
        let mut j = 0;
        while j + V * S::LANES <= n {
            let mut even = [s.splat(0.0); V];
            let mut odd = [s.splat(0.0); V];
            let mut from = b.add(j);
            for l in 0..k / 2 {
                let (first, second) = (s.splat(*x.add(2 * l)), s.splat(*x.add(2 * l + 1)));
                for v in 0..V {
                    even[v] = s.mul_add(first, s.load(from.add(v * S::LANES)), even[v]);
                    odd[v] = s.mul_add(second, s.load(from.add(step + v * S::LANES)), odd[v]);
                }
                from = from.add(2 * step);
            }
            if k % 2 == 1 {
                let last = s.splat(*x.add(k - 1));
                for v in 0..V {
                    even[v] = s.mul_add(last, s.load(from.add(v * S::LANES)), even[v]);
                }
            }
            for v in 0..V {
                s.store(c.add(j + v * S::LANES), s.add(even[v], odd[v]));
            }
            j += V * S::LANES;
        }
        while j < n {
            let count = S::LANES.min(n - j);
            let mut sum = s.splat(0.0);
            for l in 0..k {
                sum = s.mul_add(s.splat(*x.add(l)), s.load_up_to(b.add(l * step + j), count), sum);
            }
            s.store_up_to(c.add(j), count, sum);
            j += S::LANES;
        }
    }
}

dispatched! {
    /// `c[j] = Σ x[l] · b[j · step + l]`.
    ///
    /// # Safety
    /// `x` holds `k`, `b` `n` columns of `k`, `c` `n` elements.
    unsafe fn dot_columns<S>(s, k: usize, n: usize, x: *const f32, b: *const f32, step: usize, c: *mut f32) {
        const COLUMNS: usize = 4;
        let mut j = 0;
        while j < n {
            let count = COLUMNS.min(n - j);
            let mut sums = [[s.splat(0.0); 2]; COLUMNS];
            let mut l = 0;
            // Missing columns repeat the last one; their sums are dropped.
            let from: [*const f32; COLUMNS] = core::array::from_fn(|i| b.add((j + i.min(count - 1)) * step));
            while l + 2 * S::LANES <= k {
                let (first, second) = (s.load(x.add(l)), s.load(x.add(l + S::LANES)));
                for i in 0..COLUMNS {
                    sums[i][0] = s.mul_add(first, s.load(from[i].add(l)), sums[i][0]);
                    sums[i][1] = s.mul_add(second, s.load(from[i].add(l + S::LANES)), sums[i][1]);
                }
                l += 2 * S::LANES;
            }
            while l < k {
                let part = S::LANES.min(k - l);
                let first = s.load_up_to(x.add(l), part);
                for i in 0..COLUMNS {
                    sums[i][0] = s.mul_add(first, s.load_up_to(from[i].add(l), part), sums[i][0]);
                }
                l += S::LANES;
            }
            for i in 0..count {
                *c.add(j + i) = s.sum(s.add(sums[i][0], sums[i][1]));
            }
            j += COLUMNS;
        }
    }
}
