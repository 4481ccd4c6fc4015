//! Normalizations.

mod gradient;
mod groups;

pub use gradient::{NormGradients, layer_norm_gradient, rms_norm_gradient};
pub use groups::{GroupNormShape, group_norm_channels_last, group_norm_gradient};

use crate::InOut;
use crate::batch_norm::scale_shift_rows;
use crate::reduce::sum;
use crate::simd::dispatched;
use crate::size::elements;
use crate::threads::parallel_for;
use num_traits::Float;

/// Normalizes rows of `weight.len()` elements to mean 0 and variance 1, then scales and shifts elementwise.
///
/// # Panics
/// When the data is not whole rows, or `bias` has another length than `weight`.
pub fn layer_norm(weight: &[f32], bias: Option<&[f32]>, epsilon: f32, data: InOut<'_>) {
    assert!(bias.is_none_or(|b| b.len() == weight.len()), "size of the layer norm's bias");
    normalize_rows(weight, bias, epsilon, true, data);
}

/// Divides rows of `weight.len()` elements by the root of their mean square, then scales elementwise.
///
/// # Panics
/// When the data is not whole rows.
pub fn rms_norm(weight: &[f32], epsilon: f32, data: InOut<'_>) {
    normalize_rows(weight, None, epsilon, false, data);
}

fn normalize_rows(weight: &[f32], bias: Option<&[f32]>, epsilon: f32, center: bool, data: InOut<'_>) {
    let (len, row) = (data.len(), weight.len());
    if len == 0 {
        return;
    }
    assert!(row > 0 && len.is_multiple_of(row), "{len} elements are not whole rows of {row}");
    let (from, to) = data.into_shared();
    parallel_for(len / row, row / 4 + 10, |rows| {
        for at in rows.map(|i| i * row) {
            // SAFETY: rows are disjoint; source and destination are equal or apart.
            unsafe {
                let (x, y) = (from.ptr(at), to.ptr(at));
                let (mean, scale) = statistics(x, row, epsilon, center);
                normalize_row(x, y, mean, scale, weight, bias);
            }
        }
    });
}

/// The mean (0 unless `center`) and `1 / √(mean square around it + epsilon)`.
///
/// # Safety
/// `x` holds `n` elements that nobody writes meanwhile.
unsafe fn statistics(x: *const f32, n: usize, epsilon: f32, center: bool) -> (f32, f32) {
    // SAFETY: the caller's promise.
    unsafe {
        let count = n as f32;
        let mean = if center { sum(core::slice::from_raw_parts(x, n)) / count } else { 0.0 };
        let (rest, squares) = sums_around(x, n, mean);
        if !center {
            return (0.0, 1.0 / Float::sqrt(squares / count + epsilon));
        }
        // Where elements have much in common their sum is rounded by more than they differ: what it lost is their sum around it.
        let rest = rest / count;
        let variance = squares / count - rest * rest;
        let variance = if variance < 0.0 { 0.0 } else { variance };
        (mean + rest, 1.0 / Float::sqrt(variance + epsilon))
    }
}

/// Group normalization of `[batch, channels, spatial]`; `weight` and `bias` are `[channels]`. Instance normalization is
/// `groups = channels`.
///
/// # Panics
/// When sizes do not fit, or `groups` does not divide `channels`.
pub fn group_norm(
    channels: usize,
    spatial: usize,
    groups: usize,
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    epsilon: f32,
    data: InOut<'_>,
) {
    assert!(groups > 0 && channels.is_multiple_of(groups), "{channels} channels in {groups} groups");
    assert!(weight.is_none_or(|w| w.len() == channels), "size of the group norm's weight");
    assert!(bias.is_none_or(|b| b.len() == channels), "size of the group norm's bias");
    let (len, group) = (data.len(), elements(&[channels / groups, spatial]));
    if len == 0 {
        return;
    }
    assert!(
        group > 0 && len.is_multiple_of(elements(&[groups, group])),
        "{len} elements are not whole images"
    );
    let (from, to) = data.into_shared();
    parallel_for(len / group, group / 4 + 10, |range| {
        for i in range {
            // SAFETY: groups are disjoint; source and destination are equal or apart.
            unsafe {
                let (mean, scale) = statistics(from.ptr(i * group), group, epsilon, true);
                for j in 0..channels / groups {
                    let channel = i % groups * (channels / groups) + j;
                    let at = i * group + j * spatial;
                    let scale = scale * weight.map_or(1.0, |w| w[channel]);
                    let shift = bias.map_or(0.0, |b| b[channel]);
                    shift_and_scale(from.ptr(at), to.ptr(at), spatial, mean, scale, shift);
                }
            }
        }
    });
}

/// `x · scale + shift` per channel of `[batch, channels, spatial]`: a batch normalization with its statistics folded in.
///
/// # Panics
/// When sizes do not fit.
pub fn scale_shift(spatial: usize, scale: &[f32], shift: &[f32], data: InOut<'_>) {
    assert_eq!(scale.len(), shift.len(), "one scale and one shift a channel");
    let len = data.len();
    if len == 0 {
        return;
    }
    if spatial == 1 {
        return scale_shift_rows(scale, shift, data);
    }
    let image = elements(&[scale.len(), spatial]);
    assert!(image > 0 && len.is_multiple_of(image), "{len} elements are not whole images of {image}");
    let (from, to) = data.into_shared();
    parallel_for(len / spatial, spatial / 8 + 5, |range| {
        for i in range {
            let channel = i % scale.len();
            let at = i * spatial;
            // SAFETY: channels are disjoint; source and destination are equal or apart.
            unsafe {
                shift_and_scale(from.ptr(at), to.ptr(at), spatial, 0.0, scale[channel], shift[channel]);
            }
        }
    });
}

dispatched! {
    /// `Σ (x - mean)` and `Σ (x - mean)²`.
    ///
    /// # Safety
    /// `x` holds `n` elements.
    unsafe fn sums_around<S>(s, x: *const f32, n: usize, mean: f32) -> (f32, f32) {
        let all = s.splat(mean);
        let (mut rest, mut total) = (0.0f32, 0.0f32);
        let mut i = 0;
        // Stretches bound the error of long sums.
        while i + 4 * S::LANES <= n {
            let end = n.min(i + 8192);
            let mut plain = [s.splat(0.0); 4];
            let mut sums = plain;
            while i + 4 * S::LANES <= end {
                for v in 0..4 {
                    let d = s.sub(s.load(x.add(i + v * S::LANES)), all);
                    plain[v] = s.add(plain[v], d);
                    sums[v] = s.mul_add(d, d, sums[v]);
                }
                i += 4 * S::LANES;
            }
            rest += s.sum(s.add(s.add(plain[0], plain[1]), s.add(plain[2], plain[3])));
            total += s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])));
        }
        while i < n {
            let d = *x.add(i) - mean;
            rest += d;
            total += d * d;
            i += 1;
        }
        (rest, total)
    }
}

dispatched! {
    /// `to = (x - mean) · scale · weight + bias`.
    ///
    /// # Safety
    /// Both pointers hold `weight.len()` elements, and are equal or apart.
    unsafe fn normalize_row<S>(
        s,
        x: *const f32,
        to: *mut f32,
        mean: f32,
        scale: f32,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) {
        let (mean, scale) = (s.splat(mean), s.splat(scale));
        let n = weight.len();
        let mut i = 0;
        while i < n {
            let count = S::LANES.min(n - i);
            let normal = s.mul(s.sub(s.load_up_to(x.add(i), count), mean), scale);
            let weight = s.load_up_to(weight.as_ptr().add(i), count);
            let y = match bias {
                Some(bias) => s.mul_add(normal, weight, s.load_up_to(bias.as_ptr().add(i), count)),
                None => s.mul(normal, weight),
            };
            s.store_up_to(to.add(i), count, y);
            i += S::LANES;
        }
    }
}

dispatched! {
    /// `to = (x - mean) · scale + shift`.
    ///
    /// # Safety
    /// Both pointers hold `n` elements, and are equal or apart.
    unsafe fn shift_and_scale<S>(s, x: *const f32, to: *mut f32, n: usize, mean: f32, scale: f32, shift: f32) {
        let (mean, scale, shift) = (s.splat(mean), s.splat(scale), s.splat(shift));
        let mut i = 0;
        while i < n {
            let count = S::LANES.min(n - i);
            let x = s.sub(s.load_up_to(x.add(i), count), mean);
            s.store_up_to(to.add(i), count, s.mul_add(x, scale, shift));
            i += S::LANES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::noise;
    use crate::simd::forced::at_each_level;

    fn moments(x: &[f32]) -> (f64, f64) {
        let n = x.len() as f64;
        let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        (mean, x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n)
    }

    fn close(got: f32, want: f64) -> bool {
        (f64::from(got) - want).abs() <= 2e-5 * (1.0 + want.abs())
    }

    #[test]
    fn rows_are_normalized() {
        let run = || {
            for &(rows, n) in &[(1, 1), (3, 7), (5, 64), (2, 768), (1, 20_001)] {
                let x: Vec<f32> = noise(rows * n, 1).iter().map(|x| x * 3.0 + 10.0).collect();
                let (w, b) = (noise(n, 2), noise(n, 3));
                let (mut y, mut z) = (x.clone(), vec![0.0; x.len()]);
                layer_norm(&w, Some(&b), 1e-5, InOut::InPlace(&mut y));
                rms_norm(&w, 1e-5, InOut::Copy { from: &x, to: &mut z });
                for (i, &value) in x.iter().enumerate() {
                    let row = &x[i / n * n..][..n];
                    let (mean, variance) = moments(row);
                    let normal = (f64::from(value) - mean) / (variance + 1e-5).sqrt();
                    let want = normal * f64::from(w[i % n]) + f64::from(b[i % n]);
                    assert!(close(y[i], want), "{rows} {n}: {} {want}", y[i]);
                    let square = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / n as f64;
                    let want = f64::from(value) / (square + 1e-5).sqrt() * f64::from(w[i % n]);
                    assert!(close(z[i], want), "rms {rows} {n}: {} {want}", z[i]);
                }
            }
        };
        at_each_level(|_| run());
        run();
    }

    /// What rows have in common is more than their sum can be told apart by.
    #[test]
    fn rows_far_from_zero_are_normalized() {
        at_each_level(|_| {
            for (n, offset) in [(7, 1000.1), (768, 1000.1), (777, 0.1), (20_001, 65_537.3)] {
                let ones = vec![1.0; n];
                let equal = vec![offset; n];
                let mut y = equal.clone();
                layer_norm(&ones, None, 1e-5, InOut::InPlace(&mut y));
                assert!(y.iter().all(|&y| y == 0.0), "{n} times {offset}: {}", y[0]);
                let mut y = equal;
                group_norm(1, n, 1, None, None, 1e-5, InOut::InPlace(&mut y));
                assert!(y.iter().all(|&y| y == 0.0), "{n} times {offset}: {}", y[0]);
                // Of these the statistics are as good as f32 can hold them.
                let x: Vec<f32> = noise(n, 1).iter().map(|x| x + offset).collect();
                // SAFETY: there are that many.
                let (mean, scale) = unsafe { statistics(x.as_ptr(), n, 1e-5, true) };
                let (m, v) = moments(&x);
                assert!((f64::from(mean) - m).abs() <= f64::from(f32::EPSILON) * m, "{n}: {mean} {m}");
                assert!(close(scale, 1.0 / (v + 1e-5).sqrt()), "{n}: {scale}");
            }
        });
    }

    #[test]
    fn groups_and_channels_are_normalized() {
        at_each_level(|_| {
            for spatial in [35, 1] {
                let (batch, channels, groups) = (2, 6, 3);
                let x = noise(batch * channels * spatial, 1);
                let (w, b) = (noise(channels, 2), noise(channels, 3));
                let mut y = x.clone();
                group_norm(channels, spatial, groups, Some(&w), Some(&b), 1e-5, InOut::InPlace(&mut y));
                let mut z = x.clone();
                scale_shift(spatial, &w, &b, InOut::InPlace(&mut z));
                let group = channels / groups * spatial;
                for (i, &value) in x.iter().enumerate() {
                    let channel = i / spatial % channels;
                    let (mean, variance) = moments(&x[i / group * group..][..group]);
                    let normal = (f64::from(value) - mean) / (variance + 1e-5).sqrt();
                    assert!(close(y[i], normal * f64::from(w[channel]) + f64::from(b[channel])));
                    assert!(close(z[i], f64::from(value) * f64::from(w[channel]) + f64::from(b[channel])));
                }
            }
        });
    }
}
