//! The gradient of softmax and of its logarithm along one axis of `[outer, len, inner]`.

use super::{COLUMNS, SoftmaxKind};
use crate::math::exp;
use crate::simd::dispatched;
use crate::size::elements;
use crate::threads::{SharedMut, parallel_for};

/// The gradient `out` of what went into [`super::softmax`] of `[outer, len, inner]` along `len`, from its result `output` and the
/// gradient of that.
///
/// # Panics
/// When a slice has the wrong size.
pub fn softmax_gradient(
    kind: SoftmaxKind,
    [outer, len, inner]: [usize; 3],
    gradient: &[f32],
    output: &[f32],
    out: &mut [f32],
) {
    let sizes = [gradient.len(), output.len(), out.len()];
    assert_eq!(sizes, [elements(&[outer, len, inner]); 3], "sizes of the softmax's gradient");
    if out.is_empty() {
        return;
    }
    let out = SharedMut::new(out);
    if inner == 1 {
        return parallel_for(outer, len / 2 + 10, |range| {
            for at in range.map(|row| row * len) {
                // SAFETY: rows are disjoint and inside.
                unsafe {
                    row_gradient(kind, gradient.as_ptr().add(at), output.as_ptr().add(at), out.ptr(at), len)
                };
            }
        });
    }
    let blocks = inner.div_ceil(COLUMNS);
    parallel_for(outer * blocks, len * inner.min(COLUMNS) / 2 + 10, |range| {
        for (o, first) in range.map(|i| (i / blocks, i % blocks * COLUMNS)) {
            let at = o * len * inner + first;
            let cols = COLUMNS.min(inner - first);
            // SAFETY: as above, for columns.
            unsafe {
                let (g, y) = (gradient.as_ptr().add(at), output.as_ptr().add(at));
                columns_gradient(kind, g, y, out.ptr(at), len, inner, cols);
            }
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

dispatched! {
    /// The same for up to [`COLUMNS`] neighbouring columns whose elements are `step` apart.
    ///
    /// # Safety
    /// All pointers hold `len` rows of `cols` elements.
    unsafe fn columns_gradient<S>(
        s,
        kind: SoftmaxKind,
        g: *const f32,
        y: *const f32,
        to: *mut f32,
        len: usize,
        step: usize,
        cols: usize,
    ) {
        // Row by row, since neighbours in memory are read faster than neighbours in a column.
        let mut sums = [0.0; COLUMNS];
        let row = |l: usize| (g.add(l * step), y.add(l * step), to.add(l * step));
        for (g, y, _) in (0..len).map(row) {
            for col in (0..cols).step_by(S::LANES) {
                let count = S::LANES.min(cols - col);
                let (g, sum) = (s.load_up_to(g.add(col), count), s.load(sums.as_ptr().add(col)));
                let sum = match kind {
                    SoftmaxKind::Softmax => s.mul_add(g, s.load_up_to(y.add(col), count), sum),
                    SoftmaxKind::LogSoftmax => s.add(g, sum),
                };
                s.store(sums.as_mut_ptr().add(col), sum);
            }
        }
        for (g, y, to) in (0..len).map(row) {
            for col in (0..cols).step_by(S::LANES) {
                let count = S::LANES.min(cols - col);
                let (g, y) = (s.load_up_to(g.add(col), count), s.load_up_to(y.add(col), count));
                let sum = s.load(sums.as_ptr().add(col));
                let x = match kind {
                    SoftmaxKind::Softmax => s.mul(y, s.sub(g, sum)),
                    SoftmaxKind::LogSoftmax => s.sub_product(g, exp(s, y), sum),
                };
                s.store_up_to(to.add(col), count, x);
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
    fn gradients_are_those_of_the_formula() {
        let run = || {
            let sizes = [
                [1, 1, 1],
                [3, 7, 1],
                [5, 64, 1],
                [2, 1001, 1],
                [2, 9, 21],
                [1, 300, 3],
                [3, 4, 600],
                [0, 4, 2],
            ];
            for [outer, len, inner] in sizes {
                let count = outer * len * inner;
                let (g, x) = (noise(count, 1), noise(count, 2));
                for kind in [SoftmaxKind::Softmax, SoftmaxKind::LogSoftmax] {
                    let mut y = x.clone();
                    crate::softmax::softmax(kind, outer, len, inner, crate::InOut::InPlace(&mut y));
                    let mut found = vec![7.0; count];
                    softmax_gradient(kind, [outer, len, inner], &g, &y, &mut found);
                    for lane in 0..outer * inner {
                        let place = |l: usize| (lane / inner * len + l) * inner + lane % inner;
                        let at = |values: &[f32], l: usize| f64::from(values[place(l)]);
                        let total: f64 = (0..len).map(|l| at(&x, l).exp()).sum();
                        let share = |l: usize| at(&x, l).exp() / total;
                        let flow: f64 = (0..len).map(|l| at(&g, l) * share(l)).sum();
                        let sum: f64 = (0..len).map(|l| at(&g, l)).sum();
                        for l in 0..len {
                            let want = match kind {
                                SoftmaxKind::Softmax => share(l) * (at(&g, l) - flow),
                                SoftmaxKind::LogSoftmax => at(&g, l) - share(l) * sum,
                            };
                            let got = at(&found, l);
                            assert!(
                                (got - want).abs() < 1e-5,
                                "{kind:?} {outer} {len} {inner}: {got} {want}"
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
