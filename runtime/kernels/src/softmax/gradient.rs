//! The gradient of softmax and of its logarithm over rows.

use super::SoftmaxKind;
use crate::math::exp;
use crate::simd::dispatched;
use crate::threads::{SharedMut, parallel_for};

/// The gradient `out` of what went into a softmax over rows of `len` elements, from its result `output` and the gradient of
/// that.
///
/// # Panics
/// When slices differ in length, or are not whole rows.
pub fn softmax_gradient(kind: SoftmaxKind, len: usize, gradient: &[f32], output: &[f32], out: &mut [f32]) {
    assert!(gradient.len() == output.len() && out.len() == output.len(), "sizes of the softmax's gradient");
    if out.is_empty() {
        return;
    }
    assert!(len > 0 && out.len().is_multiple_of(len), "{} elements are not whole rows of {len}", out.len());
    let rows = out.len() / len;
    let out = SharedMut::new(out);
    parallel_for(rows, len / 2 + 10, |range| {
        for at in range.map(|row| row * len) {
            // SAFETY: rows are disjoint and inside.
            unsafe {
                row_gradient(kind, gradient.as_ptr().add(at), output.as_ptr().add(at), out.ptr(at), len)
            };
        }
    });
}

dispatched! {
    /// One row: `y (g - Σ g y)`, or `g - e^y Σ g`.
    ///
    /// # Safety
    /// All pointers hold `n` elements.
    unsafe fn row_gradient<S>(s, kind: SoftmaxKind, g: *const f32, y: *const f32, to: *mut f32, n: usize) {
        let mut sum = s.splat(0.0);
        for i in (0..n).step_by(S::LANES) {
            let count = S::LANES.min(n - i);
            let g = s.load_up_to(g.add(i), count);
            sum = match kind {
                SoftmaxKind::Softmax => s.mul_add(g, s.load_up_to(y.add(i), count), sum),
                SoftmaxKind::LogSoftmax => s.add(g, sum),
            };
        }
        let sum = s.splat(s.sum(sum));
        for i in (0..n).step_by(S::LANES) {
            let count = S::LANES.min(n - i);
            let (g, y) = (s.load_up_to(g.add(i), count), s.load_up_to(y.add(i), count));
            let x = match kind {
                SoftmaxKind::Softmax => s.mul(y, s.sub(g, sum)),
                SoftmaxKind::LogSoftmax => s.sub_product(g, exp(s, y), sum),
            };
            s.store_up_to(to.add(i), count, x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::noise;
    use crate::simd::forced::at_each_level;

    #[test]
    fn gradients_are_those_of_the_formula() {
        let run = || {
            for (rows, n) in [(1, 1), (3, 7), (5, 64), (2, 1001)] {
                let (g, x) = (noise(rows * n, 1), noise(rows * n, 2));
                for kind in [SoftmaxKind::Softmax, SoftmaxKind::LogSoftmax] {
                    let mut y = x.clone();
                    crate::softmax::softmax(kind, rows, n, 1, crate::InOut::InPlace(&mut y));
                    let mut got = vec![0.0; x.len()];
                    softmax_gradient(kind, n, &g, &y, &mut got);
                    for (row, got) in got.chunks(n).enumerate() {
                        let at = |values: &[f32], i: usize| f64::from(values[row * n + i]);
                        let total: f64 = (0..n).map(|i| at(&x, i).exp()).sum();
                        let share = |i: usize| at(&x, i).exp() / total;
                        let flow: f64 = (0..n).map(|i| at(&g, i) * share(i)).sum();
                        let sum: f64 = (0..n).map(|i| at(&g, i)).sum();
                        for (i, got) in got.iter().enumerate() {
                            let want = match kind {
                                SoftmaxKind::Softmax => share(i) * (at(&g, i) - flow),
                                SoftmaxKind::LogSoftmax => at(&g, i) - share(i) * sum,
                            };
                            assert!(
                                (f64::from(*got) - want).abs() < 1e-5,
                                "{kind:?} {rows} {n}: {got} {want}"
                            );
                        }
                    }
                }
            }
        };
        at_each_level(|_| run());
        run();
    }
}
