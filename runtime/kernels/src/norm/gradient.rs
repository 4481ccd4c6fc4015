//! The gradients of layer normalization and of division by the root mean square.
//!
//! Sums over rows are taken in blocks of fixed size, so that results do not depend on the number of threads.

use super::statistics;
use crate::scratch::with_scratch;
use crate::simd::dispatched;
use crate::threads::{SharedMut, parallel_for};

/// Rows of a block.
const ROWS: usize = 32;

/// Where the gradients of a normalization go.
#[derive(Debug)]
pub struct NormGradients<'a> {
    /// Of the input, as large as it.
    pub input: &'a mut [f32],
    /// Of the weight.
    pub weight: &'a mut [f32],
    /// Of the bias, or of what would be one.
    pub bias: &'a mut [f32],
}

/// The gradients of [`super::layer_norm`] of `x`.
///
/// # Panics
/// When sizes do not fit.
pub fn layer_norm_gradient(
    weight: &[f32],
    epsilon: f32,
    gradient: &[f32],
    x: &[f32],
    into: NormGradients<'_>,
) {
    rows_gradient(weight, epsilon, true, gradient, x, into);
}

/// The gradients of [`super::rms_norm`] of `x`.
///
/// # Panics
/// When sizes do not fit.
pub fn rms_norm_gradient(weight: &[f32], epsilon: f32, gradient: &[f32], x: &[f32], into: NormGradients<'_>) {
    rows_gradient(weight, epsilon, false, gradient, x, into);
}

fn rows_gradient(
    weight: &[f32],
    epsilon: f32,
    center: bool,
    gradient: &[f32],
    x: &[f32],
    into: NormGradients<'_>,
) {
    let n = weight.len();
    assert!(gradient.len() == x.len() && into.input.len() == x.len(), "as many gradients as elements");
    assert!(into.weight.len() == n && into.bias.len() == n, "as many gradients as parameters");
    into.weight.fill(0.0);
    into.bias.fill(0.0);
    if x.is_empty() {
        return;
    }
    assert!(n > 0 && x.len().is_multiple_of(n), "{} elements are not whole rows of {n}", x.len());
    let rows = x.len() / n;
    let blocks = rows.div_ceil(ROWS);
    with_scratch(2 * blocks * n, |sums| {
        let (sums_of_all, out) = (SharedMut::new(sums), SharedMut::new(into.input));
        parallel_for(blocks, ROWS.min(rows) * (n / 2 + 10), |range| {
            for block in range {
                // SAFETY: blocks have their own rows and sums.
                unsafe {
                    let sums = sums_of_all.slice(2 * block * n..2 * (block + 1) * n);
                    sums.fill(0.0);
                    for at in (block * ROWS..rows.min((block + 1) * ROWS)).map(|row| row * n) {
                        let (g, x) = (gradient.as_ptr().add(at), x.as_ptr().add(at));
                        let (mean, scale) = statistics(x, n, epsilon, center);
                        row_gradient(g, x, out.ptr(at), weight, mean, scale, center, sums.as_mut_ptr());
                    }
                }
            }
        });
        for sums in sums.chunks_exact(2 * n) {
            let (of_weight, of_bias) = sums.split_at(n);
            into.weight.iter_mut().zip(of_weight).for_each(|(sum, x)| *sum += x);
            into.bias.iter_mut().zip(of_bias).for_each(|(sum, x)| *sum += x);
        }
    });
}

dispatched! {
    /// One row: the gradient of its elements, and what it adds to the parameters' (`[weight, bias]`).
    ///
    /// # Safety
    /// `g`, `x` and `to` hold as many elements as the weight, `sums` twice as many.
    unsafe fn row_gradient<S>(
        s,
        g: *const f32,
        x: *const f32,
        to: *mut f32,
        weight: &[f32],
        mean: f32,
        scale: f32,
        center: bool,
        sums: *mut f32,
    ) {
        let n = weight.len();
        let (mean, scale) = (s.splat(mean), s.splat(scale));
        let (mut plain, mut along) = (s.splat(0.0), s.splat(0.0));
        for i in (0..n).step_by(S::LANES) {
            let count = S::LANES.min(n - i);
            let g = s.load_up_to(g.add(i), count);
            let weighted = s.mul(g, s.load_up_to(weight.as_ptr().add(i), count));
            let y = s.mul(s.sub(s.load_up_to(x.add(i), count), mean), scale);
            plain = s.add(plain, weighted);
            along = s.mul_add(weighted, y, along);
            let (of_weight, of_bias) = (sums.add(i), sums.add(n + i));
            s.store_up_to(of_weight, count, s.mul_add(g, y, s.load_up_to(of_weight, count)));
            s.store_up_to(of_bias, count, s.add(g, s.load_up_to(of_bias, count)));
        }
        let size = n as f32;
        let plain = s.splat(if center { s.sum(plain) / size } else { 0.0 });
        let along = s.splat(s.sum(along) / size);
        for i in (0..n).step_by(S::LANES) {
            let count = S::LANES.min(n - i);
            let weighted = s.mul(s.load_up_to(g.add(i), count), s.load_up_to(weight.as_ptr().add(i), count));
            let y = s.mul(s.sub(s.load_up_to(x.add(i), count), mean), scale);
            let flow = s.sub_product(s.sub(weighted, plain), y, along);
            s.store_up_to(to.add(i), count, s.mul(flow, scale));
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
        let epsilon = 1e-3;
        let run = || {
            for (rows, n, center) in [(1, 1), (3, 7), (33, 64), (70, 100)]
                .into_iter()
                .flat_map(|(r, n)| [(r, n, true), (r, n, false)])
            {
                let (g, x, weight) = (noise(rows * n, 1), noise(rows * n, 2), noise(n, 3));
                let (mut input, mut of_weight, mut bias) = (vec![1.0; x.len()], vec![1.0; n], vec![1.0; n]);
                let into = NormGradients { input: &mut input, weight: &mut of_weight, bias: &mut bias };
                rows_gradient(&weight, epsilon, center, &g, &x, into);
                let (mut want_weight, mut want_bias) = (vec![0.0; n], vec![0.0; n]);
                for row in 0..rows {
                    let at = |values: &[f32], i: usize| f64::from(values[row * n + i]);
                    let size = n as f64;
                    let mean = if center { (0..n).map(|i| at(&x, i)).sum::<f64>() / size } else { 0.0 };
                    let square = (0..n).map(|i| (at(&x, i) - mean).powi(2)).sum::<f64>() / size;
                    let scale = 1.0 / (square + f64::from(epsilon)).sqrt();
                    let y = |i: usize| (at(&x, i) - mean) * scale;
                    let weighted = |i: usize| at(&g, i) * f64::from(weight[i]);
                    let plain = if center { (0..n).map(weighted).sum::<f64>() / size } else { 0.0 };
                    let along = (0..n).map(|i| weighted(i) * y(i)).sum::<f64>() / size;
                    for i in 0..n {
                        want_weight[i] += at(&g, i) * y(i);
                        want_bias[i] += at(&g, i);
                        let want = scale * (weighted(i) - plain - y(i) * along);
                        let got = input[row * n + i];
                        assert!(
                            (f64::from(got) - want).abs() < 3e-5 * (1.0 + scale),
                            "{rows} {n}: {got} {want}"
                        );
                    }
                }
                for i in 0..n {
                    assert!((f64::from(of_weight[i]) - want_weight[i]).abs() < 1e-4, "{rows} {n}");
                    assert!((f64::from(bias[i]) - want_bias[i]).abs() < 1e-4, "{rows} {n}");
                }
            }
        };
        at_each_level(|_| run());
        run();
    }
}
