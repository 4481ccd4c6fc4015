//! Batch normalization in training: the statistics of a batch and what comes back through them, each in one pass over rows of
//! channels (`[batch · spatial, channels]`: images with their channels last).
//!
//! Sums are taken in blocks of fixed size and then joined in f64, so that results do not depend on the number of threads.

use crate::in_out::InOut;
use crate::scratch::with_scratch;
use crate::simd::dispatched;
use crate::threads::{SharedMut, parallel_for};
use alloc::vec;
use num_traits::Float;

/// Rows of a block.
pub(crate) const ROWS: usize = 512;
/// Channels that are summed at once: they stay in registers.
const STRIP: usize = 64;

/// The mean of each channel and its variance, over the batch as a whole population.
///
/// # Panics
/// When `x` is not whole rows, or there are not as many means and variances as channels.
pub fn channel_moments(x: &[f32], mean: &mut [f32], variance: &mut [f32]) {
    let channels = mean.len();
    assert_eq!(variance.len(), channels, "as many variances as means");
    let rows = rows_of(x.len(), channels);
    let blocks = rows.div_ceil(ROWS);
    with_scratch(2 * blocks * channels, |sums| {
        in_blocks(1, rows, channels, sums, |block, strip, len, sums, squares| {
            // SAFETY: the block's rows hold the strip, and so do its sums.
            unsafe {
                block_moments(
                    x.as_ptr().add(block.start * channels + strip),
                    channels,
                    block.len(),
                    len,
                    sums,
                    squares,
                )
            }
        });
        let (means, squares) = sums.split_at(blocks * channels);
        for c in 0..channels {
            // Chan, Golub & LeVeque 1979: moments of parts into those of the whole.
            let (mut count, mut center, mut square) = (0.0f64, 0.0f64, 0.0f64);
            for block in 0..blocks {
                let size = ROWS.min(rows - block * ROWS) as f64;
                let delta = f64::from(means[block * channels + c]) - center;
                let total = count + size;
                center += delta * size / total;
                square += f64::from(squares[block * channels + c]) + delta * delta * count * size / total;
                count = total;
            }
            mean[c] = center as f32;
            variance[c] = if count > 0.0 { (square / count) as f32 } else { f32::NAN };
        }
    });
}

/// `x · scale + shift` for each row.
///
/// # Panics
/// When sizes do not fit.
pub fn scale_shift_rows(scale: &[f32], shift: &[f32], data: InOut<'_>) {
    let channels = scale.len();
    assert_eq!(shift.len(), channels, "one scale and one shift a channel");
    let rows = rows_of(data.len(), channels);
    let (from, to) = data.into_shared();
    parallel_for(rows, channels / 8 + 2, |range| {
        let at = range.start * channels;
        // SAFETY: rows are disjoint and inside; source and destination are equal or apart.
        unsafe { affine_rows(from.ptr(at), None, to.ptr(at), range.len(), scale, shift) };
    });
}

/// Gradients of a batch normalization with the statistics of its batch.
#[derive(Debug)]
pub struct BatchNormGradients<'a> {
    /// Of the input, as large as it.
    pub input: &'a mut [f32],
    /// Of the weight.
    pub weight: &'a mut [f32],
    /// Of the bias.
    pub bias: &'a mut [f32],
}

/// Computes the gradients of `(x - mean) / √(variance + epsilon) · weight + bias`, where mean and variance are the batch's.
///
/// # Panics
/// When sizes do not fit.
pub fn batch_norm_gradient(
    gradient: &[f32],
    x: &[f32],
    weight: &[f32],
    [mean, variance]: [&[f32]; 2],
    epsilon: f64,
    into: BatchNormGradients<'_>,
) {
    let channels = weight.len();
    let sizes = [mean.len(), variance.len(), into.weight.len(), into.bias.len()];
    assert_eq!(sizes, [channels; 4], "one statistic and one parameter a channel");
    assert!(gradient.len() == x.len() && into.input.len() == x.len(), "as many gradients as elements");
    let rows = rows_of(x.len(), channels);
    let blocks = rows.div_ceil(ROWS);
    with_scratch(2 * blocks * channels, |sums| {
        in_blocks(1, rows, channels, sums, |block, strip, len, sums, products| {
            let at = block.start * channels + strip;
            // SAFETY: as in `channel_moments`.
            unsafe {
                let (g, x) = (gradient.as_ptr().add(at), x.as_ptr().add(at));
                block_products(g, x, channels, block.len(), len, mean.as_ptr().add(strip), sums, products);
            }
        });
        let total =
            |part: &[f32], c: usize| -> f64 { (0..blocks).map(|b| f64::from(part[b * channels + c])).sum() };
        let (plain, products) = sums.split_at(blocks * channels);
        // The input's gradient is `scale · g + slope · (x - mean) + shift`. A mean that is large beside the deviation would
        // drown the sum, were it part of the shift.
        let mut factors = [vec![0.0; channels], vec![0.0; channels], vec![0.0; channels]];
        let [scale, slope, shift] = &mut factors;
        for c in 0..channels {
            let inverse = 1.0 / Float::sqrt(f64::from(variance[c]) + epsilon);
            let (sum, product) = (total(plain, c), total(products, c));
            let (factor, count) = (f64::from(weight[c]) * inverse, rows.max(1) as f64);
            into.weight[c] = (product * inverse) as f32;
            into.bias[c] = sum as f32;
            scale[c] = factor as f32;
            slope[c] = (-factor * inverse * inverse * product / count) as f32;
            shift[c] = (-factor * sum / count) as f32;
        }
        let [scale, slope, shift] = &factors;
        let out = SharedMut::new(into.input);
        parallel_for(rows, channels / 6 + 2, |range| {
            let at = range.start * channels;
            // SAFETY: rows are disjoint and inside.
            unsafe {
                let (g, x) = (gradient.as_ptr().add(at), x.as_ptr().add(at));
                affine_rows(g, Some((x, slope, mean)), out.ptr(at), range.len(), scale, shift);
            }
        });
    });
}

fn rows_of(len: usize, channels: usize) -> usize {
    assert!(channels > 0 || len == 0, "rows without channels");
    assert!(len.is_multiple_of(channels.max(1)), "{len} elements are not whole rows of {channels}");
    len / channels.max(1)
}

/// Runs `sum` on each block of each image's rows and each strip of channels, with places for two sums a channel: all first ones
/// (`[images, blocks, channels]`), then all second ones.
pub(crate) fn in_blocks(
    images: usize,
    rows: usize,
    channels: usize,
    sums: &mut [f32],
    sum: impl Fn(core::ops::Range<usize>, usize, usize, *mut f32, *mut f32) + Sync,
) {
    let (blocks, strips) = (rows.div_ceil(ROWS), channels.div_ceil(STRIP));
    let all = images * blocks;
    let sums = SharedMut::new(sums);
    parallel_for(all * strips, ROWS.min(rows) * STRIP.min(channels) / 10 + 10, |range| {
        for (block, strip) in range.map(|i| (i / strips, i % strips * STRIP)) {
            let at = block * channels + strip;
            // SAFETY: each block and strip has its own places.
            let (first, second) = unsafe { (sums.ptr(at), sums.ptr(all * channels + at)) };
            let (image, from) = (block / blocks * rows, block % blocks * ROWS);
            sum(
                image + from..image + rows.min(from + ROWS),
                strip,
                STRIP.min(channels - strip),
                first,
                second,
            );
        }
    });
}

/// Vectors of a strip on the narrowest machine that has vectors.
const VECTORS: usize = 4;

dispatched! {
    /// The mean of each of `len` channels over some rows, and the sum of squares around it.
    ///
    /// # Safety
    /// The rows hold the channels, `step` apart; there is room for the results.
    pub(crate) unsafe fn block_moments<S>(
        s,
        x: *const f32,
        step: usize,
        rows: usize,
        len: usize,
        means: *mut f32,
        squares: *mut f32,
    ) {
        let count = s.splat(rows as f32);
        let mut c = 0;
        while c < len {
            let here = (len - c).min(VECTORS * S::LANES);
            let lanes = |v: usize| here.saturating_sub(v * S::LANES).min(S::LANES);
            // Around the first row nothing is lost when a mean is large beside the deviation.
            let mut first = [s.splat(0.0); VECTORS];
            let (mut sum, mut square) = (first, first);
            for v in 0..VECTORS {
                first[v] = s.load_up_to(x.wrapping_add(c + v * S::LANES), lanes(v));
            }
            if here == VECTORS * S::LANES {
                for row in 0..rows {
                    let x = x.add(row * step + c);
                    for v in 0..VECTORS {
                        let d = s.sub(s.load(x.add(v * S::LANES)), first[v]);
                        sum[v] = s.add(sum[v], d);
                        square[v] = s.mul_add(d, d, square[v]);
                    }
                }
            } else {
                for row in 0..rows {
                    let x = x.wrapping_add(row * step + c);
                    for v in 0..VECTORS {
                        let d = s.sub(s.load_up_to(x.wrapping_add(v * S::LANES), lanes(v)), first[v]);
                        sum[v] = s.add(sum[v], d);
                        square[v] = s.mul_add(d, d, square[v]);
                    }
                }
            }
            for v in 0..VECTORS {
                let mean = s.div(sum[v], count);
                s.store_up_to(means.wrapping_add(c + v * S::LANES), lanes(v), s.add(first[v], mean));
                s.store_up_to(squares.wrapping_add(c + v * S::LANES), lanes(v), s.sub_product(square[v], sum[v], mean));
            }
            c += here;
        }
    }
}

dispatched! {
    /// For each of `len` channels, `Σ g` and `Σ g (x - mean)` over some rows.
    ///
    /// # Safety
    /// The rows hold the channels, `step` apart; there is room for the results.
    pub(crate) unsafe fn block_products<S>(
        s,
        g: *const f32,
        x: *const f32,
        step: usize,
        rows: usize,
        len: usize,
        mean: *const f32,
        sums: *mut f32,
        products: *mut f32,
    ) {
        let mut c = 0;
        while c < len {
            let here = (len - c).min(VECTORS * S::LANES);
            let lanes = |v: usize| here.saturating_sub(v * S::LANES).min(S::LANES);
            let mut center = [s.splat(0.0); VECTORS];
            let (mut sum, mut product) = (center, center);
            for v in 0..VECTORS {
                center[v] = s.load_up_to(mean.wrapping_add(c + v * S::LANES), lanes(v));
            }
            for row in 0..rows {
                let (g, x) = (g.wrapping_add(row * step + c), x.wrapping_add(row * step + c));
                for v in 0..VECTORS {
                    let (g, x) = if here == VECTORS * S::LANES {
                        (s.load(g.add(v * S::LANES)), s.load(x.add(v * S::LANES)))
                    } else {
                        let at = v * S::LANES;
                        (s.load_up_to(g.wrapping_add(at), lanes(v)), s.load_up_to(x.wrapping_add(at), lanes(v)))
                    };
                    sum[v] = s.add(sum[v], g);
                    product[v] = s.mul_add(g, s.sub(x, center[v]), product[v]);
                }
            }
            for v in 0..VECTORS {
                s.store_up_to(sums.wrapping_add(c + v * S::LANES), lanes(v), sum[v]);
                s.store_up_to(products.wrapping_add(c + v * S::LANES), lanes(v), product[v]);
            }
            c += here;
        }
    }
}

dispatched! {
    /// `to = g · scale + (x - mean) · slope + shift` for each row, without `x`, its slope and its mean if there is none.
    ///
    /// # Safety
    /// All rows hold the channels.
    pub(crate) unsafe fn affine_rows<S>(
        s,
        g: *const f32,
        x: Option<(*const f32, &[f32], &[f32])>,
        to: *mut f32,
        rows: usize,
        scale: &[f32],
        shift: &[f32],
    ) {
        let channels = scale.len();
        for at in (0..rows).map(|row| row * channels) {
            for c in (0..channels).step_by(S::LANES) {
                let lanes = S::LANES.min(channels - c);
                let shift = s.load_up_to(shift.as_ptr().add(c), lanes);
                let shift = match x {
                    Some((x, slope, mean)) => {
                        let slope = s.load_up_to(slope.as_ptr().add(c), lanes);
                        let mean = s.load_up_to(mean.as_ptr().add(c), lanes);
                        s.mul_add(s.sub(s.load_up_to(x.add(at + c), lanes), mean), slope, shift)
                    }
                    None => shift,
                };
                let scale = s.load_up_to(scale.as_ptr().add(c), lanes);
                s.store_up_to(to.add(at + c), lanes, s.mul_add(s.load_up_to(g.add(at + c), lanes), scale, shift));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::noise;
    use crate::simd::forced::at_each_level;

    /// Moments of a channel, in f64.
    fn moments(x: &[f32], channels: usize, c: usize) -> (f64, f64) {
        let column: Vec<f64> = x[c..].iter().step_by(channels).map(|&x| f64::from(x)).collect();
        let mean = column.iter().sum::<f64>() / column.len() as f64;
        (mean, column.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / column.len() as f64)
    }

    fn close(got: f32, want: f64, scale: f64) -> bool {
        (f64::from(got) - want).abs() <= 3e-5 * (scale + want.abs())
    }

    const SIZES: [(usize, usize); 7] = [(1, 1), (3, 5), (7, 64), (513, 3), (1100, 70), (40, 130), (600, 16)];

    #[test]
    fn moments_are_those_of_the_columns() {
        let run = || {
            for (rows, channels) in SIZES {
                // A mean far from 0, as large sums lose digits there.
                let x: Vec<f32> = noise(rows * channels, 1).iter().map(|x| x * 0.5 + 30.0).collect();
                let (mut mean, mut variance) = (vec![0.0; channels], vec![0.0; channels]);
                channel_moments(&x, &mut mean, &mut variance);
                for c in 0..channels {
                    let (m, v) = moments(&x, channels, c);
                    assert!(
                        close(mean[c], m, 1.0) && close(variance[c], v, 0.3),
                        "{rows} {channels}: {} {v}",
                        variance[c]
                    );
                }
                let (scale, shift) = (noise(channels, 2), noise(channels, 3));
                let mut y = vec![0.0; x.len()];
                scale_shift_rows(&scale, &shift, InOut::Copy { from: &x, to: &mut y });
                for (i, y) in y.iter().enumerate() {
                    let want =
                        f64::from(x[i]) * f64::from(scale[i % channels]) + f64::from(shift[i % channels]);
                    assert!(close(*y, want, 1.0));
                }
            }
        };
        at_each_level(|_| run());
        run();
    }

    #[test]
    fn gradients_are_those_of_the_formula() {
        let epsilon = 1e-3;
        let run = || {
            for (rows, channels) in SIZES {
                let (x, g, weight) =
                    (noise(rows * channels, 1), noise(rows * channels, 2), noise(channels, 3));
                let (mut mean, mut variance) = (vec![0.0; channels], vec![0.0; channels]);
                channel_moments(&x, &mut mean, &mut variance);
                let (mut input, mut of_weight, mut bias) =
                    (vec![0.0; x.len()], vec![0.0; channels], vec![0.0; channels]);
                let into = BatchNormGradients { input: &mut input, weight: &mut of_weight, bias: &mut bias };
                batch_norm_gradient(&g, &x, &weight, [&mean, &variance], epsilon, into);
                for c in 0..channels {
                    let (m, v) = moments(&x, channels, c);
                    let inverse = 1.0 / (v + epsilon).sqrt();
                    let at = |i: usize| i * channels + c;
                    let y = |i: usize| (f64::from(x[at(i)]) - m) * inverse;
                    let sum: f64 = (0..rows).map(|i| f64::from(g[at(i)])).sum();
                    let product: f64 = (0..rows).map(|i| f64::from(g[at(i)]) * y(i)).sum();
                    assert!(
                        close(bias[c], sum, 3.0) && close(of_weight[c], product, 3.0),
                        "{rows} {channels}"
                    );
                    for i in 0..rows {
                        let flow = f64::from(g[at(i)]) - (sum + y(i) * product) / rows as f64;
                        let want = f64::from(weight[c]) * inverse * flow;
                        assert!(
                            close(input[at(i)], want, inverse),
                            "{rows} {channels}: {} {want}",
                            input[at(i)]
                        );
                    }
                }
            }
        };
        at_each_level(|_| run());
        run();
    }

    #[test]
    fn nothing_has_no_moments() {
        let (mut mean, mut variance) = ([1.0; 2], [1.0; 2]);
        channel_moments(&[], &mut mean, &mut variance);
        assert!(variance.iter().all(|v| v.is_nan()));
    }
}
