//! Softmax and its logarithm along one axis of `[outer, len, inner]`.

mod gradient;

pub use gradient::softmax_gradient;

use crate::InOut;
use crate::math::{bounded_exp, log};
use crate::simd::{Simd, dispatched};
use crate::size::elements;
use crate::threads::parallel_for;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoftmaxKind {
    /// `e^x / Σ e^x`.
    Softmax,
    /// `x - ln Σ e^x`.
    LogSoftmax,
}

/// Columns that one piece of work has at most: a multiple of every vector's lanes.
const COLUMNS: usize = 256;

/// Softmax of `[outer, len, inner]` along `len`. A row of `-∞` yields NaN.
///
/// # Panics
/// When a slice has the wrong size.
pub fn softmax(kind: SoftmaxKind, outer: usize, len: usize, inner: usize, data: InOut<'_>) {
    assert_eq!(data.len(), elements(&[outer, len, inner]), "size of the softmax's data");
    if data.len() == 0 {
        return;
    }
    let (from, to) = data.into_shared();
    if inner == 1 {
        return parallel_for(outer, len + 10, |rows| {
            for row in rows {
                // SAFETY: rows are disjoint; source and destination are equal or apart.
                unsafe { softmax_row(kind, from.ptr(row * len), to.ptr(row * len), len) };
            }
        });
    }
    let blocks = inner.div_ceil(COLUMNS);
    parallel_for(outer * blocks, len * inner.min(COLUMNS), |range| {
        for (o, first) in range.map(|i| (i / blocks, i % blocks * COLUMNS)) {
            let start = o * len * inner + first;
            let cols = COLUMNS.min(inner - first);
            // SAFETY: as above, for columns.
            unsafe { softmax_columns(kind, from.ptr(start), to.ptr(start), len, inner, cols) };
        }
    });
}

/// The largest element of a row, -∞ for none; NaN may or may not be seen.
#[inline(always)]
pub(crate) unsafe fn row_max<S: Simd>(s: S, x: *const f32, n: usize) -> f32 {
    let mut max = [s.splat(f32::NEG_INFINITY); 2];
    let mut i = 0;
    // SAFETY: the caller's row has `n` elements.
    unsafe {
        while i + 2 * S::LANES <= n {
            max[0] = s.max(s.load(x.add(i)), max[0]);
            max[1] = s.max(s.load(x.add(i + S::LANES)), max[1]);
            i += 2 * S::LANES;
        }
        while i < n {
            // The last vector reaches back into what was seen already.
            let count = S::LANES.min(n - i);
            let x = if n >= S::LANES {
                s.load(x.add(i + count - S::LANES))
            } else {
                let mut lanes = [f32::NEG_INFINITY; 16];
                s.store_up_to(lanes.as_mut_ptr(), count, s.load_up_to(x, count));
                s.load(lanes.as_ptr())
            };
            max[0] = s.max(x, max[0]);
            i += S::LANES;
        }
        s.largest(s.max(max[0], max[1]))
    }
}

/// `e^x` of a score less the largest one: 0 where it would be subnormal. Some CPUs take a hundred times as long for such numbers, and hidden
/// keys are full of them.
#[inline(always)]
fn weight<S: Simd>(s: S, x: S::F) -> S::F {
    // The operand order lets NaN through.
    let least = s.splat(-87.0);
    s.select(s.lt(x, least), s.splat(0.0), bounded_exp(s, s.max(least, x)))
}

/// Writes `e^(x - shift)` and yields the sum.
#[inline(always)]
pub(crate) unsafe fn exp_row<S: Simd>(s: S, x: *const f32, to: *mut f32, n: usize, shift: f32) -> f32 {
    let shift_all = s.splat(shift);
    let mut sums = [s.splat(0.0); 2];
    let mut i = 0;
    // SAFETY: the caller's rows have `n` elements.
    unsafe {
        while i + 2 * S::LANES <= n {
            for v in 0..2 {
                let at = i + v * S::LANES;
                let e = weight(s, s.sub(s.load(x.add(at)), shift_all));
                s.store(to.add(at), e);
                sums[v] = s.add(sums[v], e);
            }
            i += 2 * S::LANES;
        }
        let mut rest = [0.0; 16];
        while i < n {
            let count = S::LANES.min(n - i);
            let e = weight(s, s.sub(s.load_up_to(x.add(i), count), shift_all));
            s.store_up_to(to.add(i), count, e);
            // Lanes beyond the row count as nothing.
            s.store_up_to(rest.as_mut_ptr(), count, e);
            sums[0] = s.add(sums[0], s.load_up_to(rest.as_ptr(), count));
            i += S::LANES;
        }
    }
    s.sum(s.add(sums[0], sums[1]))
}

/// `Σ e^(x - shift)`.
#[inline(always)]
pub(crate) unsafe fn exp_sum<S: Simd>(s: S, x: *const f32, n: usize, shift: f32) -> f32 {
    let shift = s.splat(shift);
    let mut sums = [s.splat(0.0); 2];
    let mut i = 0;
    // SAFETY: the caller's row has `n` elements.
    unsafe {
        while i + 2 * S::LANES <= n {
            for v in 0..2 {
                sums[v] = s.add(sums[v], weight(s, s.sub(s.load(x.add(i + v * S::LANES)), shift)));
            }
            i += 2 * S::LANES;
        }
        let mut rest = [0.0; 16];
        while i < n {
            let count = S::LANES.min(n - i);
            let e = weight(s, s.sub(s.load_up_to(x.add(i), count), shift));
            // Lanes beyond the row count as nothing.
            s.store_up_to(rest.as_mut_ptr(), count, e);
            sums[0] = s.add(sums[0], s.load_up_to(rest.as_ptr(), count));
            i += S::LANES;
        }
    }
    s.sum(s.add(sums[0], sums[1]))
}

/// `to = x · scale + shift`.
#[inline(always)]
pub(crate) unsafe fn scale_row<S: Simd>(s: S, x: *const f32, to: *mut f32, n: usize, scale: f32, shift: f32) {
    let (scale, shift) = (s.splat(scale), s.splat(shift));
    let mut i = 0;
    // SAFETY: the caller's rows have `n` elements.
    unsafe {
        while i < n {
            let count = S::LANES.min(n - i);
            s.store_up_to(to.add(i), count, s.mul_add(s.load_up_to(x.add(i), count), scale, shift));
            i += S::LANES;
        }
    }
}

dispatched! {
    /// One contiguous row.
    ///
    /// # Safety
    /// Both pointers hold `n` elements, and are equal or apart.
    unsafe fn softmax_row<S>(s, kind: SoftmaxKind, from: *const f32, to: *mut f32, n: usize) {
        let max = row_max(s, from, n);
        match kind {
            SoftmaxKind::Softmax => {
                let sum = exp_row(s, from, to, n, max);
                scale_row(s, to, to, n, 1.0 / sum, 0.0);
            }
            SoftmaxKind::LogSoftmax => {
                let log_sum = s.to_array(log(s, s.splat(exp_sum(s, from, n, max))))[0];
                let shift = s.splat(max);
                let mut i = 0;
                while i < n {
                    let count = S::LANES.min(n - i);
                    let x = s.sub(s.load_up_to(from.add(i), count), shift);
                    s.store_up_to(to.add(i), count, s.sub(x, s.splat(log_sum)));
                    i += S::LANES;
                }
            }
        }
    }
}

dispatched! {
    /// Up to [`COLUMNS`] neighbouring columns whose elements are `step` apart.
    ///
    /// # Safety
    /// Both pointers hold `len` rows of `cols` elements, and are equal or apart.
    unsafe fn softmax_columns<S>(
        s,
        kind: SoftmaxKind,
        from: *const f32,
        to: *mut f32,
        len: usize,
        step: usize,
        cols: usize,
    ) {
        // Row by row, since neighbours in memory are read faster than neighbours in a column.
        let mut largest = [f32::NEG_INFINITY; COLUMNS];
        let mut sums = [0.0; COLUMNS];
        for from in (0..len).map(|l| from.add(l * step)) {
            for col in (0..cols).step_by(S::LANES) {
                let x = s.load_up_to(from.add(col), S::LANES.min(cols - col));
                let at = largest.as_mut_ptr().add(col);
                s.store(at, s.max(x, s.load(at)));
            }
        }
        for (from, to) in (0..len).map(|l| (from.add(l * step), to.add(l * step))) {
            for col in (0..cols).step_by(S::LANES) {
                let count = S::LANES.min(cols - col);
                let x = s.sub(s.load_up_to(from.add(col), count), s.load(largest.as_ptr().add(col)));
                let e = weight(s, x);
                let at = sums.as_mut_ptr().add(col);
                s.store(at, s.add(s.load(at), e));
                s.store_up_to(to.add(col), count, if kind == SoftmaxKind::Softmax { e } else { x });
            }
        }
        for col in (0..cols).step_by(S::LANES) {
            let at = sums.as_mut_ptr().add(col);
            let sum = s.load(at);
            s.store(
                at,
                match kind {
                    SoftmaxKind::Softmax => s.div(s.splat(1.0), sum),
                    SoftmaxKind::LogSoftmax => log(s, sum),
                },
            );
        }
        for to in (0..len).map(|l| to.add(l * step)) {
            for col in (0..cols).step_by(S::LANES) {
                let count = S::LANES.min(cols - col);
                let (to, by) = (to.add(col), s.load(sums.as_ptr().add(col)));
                let y = match kind {
                    SoftmaxKind::Softmax => s.mul(s.load_up_to(to, count), by),
                    SoftmaxKind::LogSoftmax => s.sub(s.load_up_to(to, count), by),
                };
                s.store_up_to(to, count, y);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::noise;
    use crate::simd::forced::at_each_level;

    #[test]
    fn rows_and_columns_equal_their_definition() {
        let run = || {
            for &(outer, len, inner) in
                &[(1, 1, 1), (5, 37, 1), (3, 128, 1), (2, 9, 21), (1, 700, 3), (2, 5, 600), (0, 4, 1)]
            {
                let x: Vec<f32> = noise(outer * len * inner, 1).iter().map(|x| x * 30.0).collect();
                for kind in [SoftmaxKind::Softmax, SoftmaxKind::LogSoftmax] {
                    let mut out = vec![7.0; x.len()];
                    softmax(kind, outer, len, inner, InOut::Copy { from: &x, to: &mut out });
                    let mut same = x.clone();
                    softmax(kind, outer, len, inner, InOut::InPlace(&mut same));
                    assert_eq!(out, same);
                    for (i, got) in out.iter().enumerate() {
                        let at = |l: usize| f64::from(x[(i / inner / len * len + l) * inner + i % inner]);
                        let max = (0..len).map(at).fold(f64::NEG_INFINITY, f64::max);
                        let sum: f64 = (0..len).map(|l| (at(l) - max).exp()).sum();
                        let log = at(i / inner % len) - max - sum.ln();
                        let want = if kind == SoftmaxKind::Softmax { log.exp() } else { log };
                        assert!(
                            (f64::from(*got) - want).abs() <= 2e-6 * (1.0 + want.abs()),
                            "{kind:?} {got} {want}"
                        );
                    }
                }
            }
        };
        at_each_level(|_| run());
        run();
    }

    #[test]
    fn masked_elements_vanish_and_masked_rows_are_nan() {
        at_each_level(|_| {
            let mut x = vec![f32::NEG_INFINITY; 20];
            x[3] = 1.0;
            softmax(SoftmaxKind::Softmax, 1, 20, 1, InOut::InPlace(&mut x));
            assert!(x.iter().enumerate().all(|(i, &y)| y == f32::from(u8::from(i == 3))));
            let mut x = vec![f32::NEG_INFINITY; 20];
            softmax(SoftmaxKind::Softmax, 1, 20, 1, InOut::InPlace(&mut x));
            assert!(x.iter().all(|y| y.is_nan()));
            let mut x = noise(20, 1);
            x[5] = f32::NAN;
            softmax(SoftmaxKind::Softmax, 1, 20, 1, InOut::InPlace(&mut x));
            assert!(x.iter().all(|y| y.is_nan()));
        });
    }
}
