//! Group normalization of images with their channels last, and the gradients of group normalization with channels first or last.
//! Instance normalization has one group a channel.
//!
//! With channels last, sums are those of batch normalization, taken image by image: for each channel over blocks of rows of
//! fixed size, then joined in f64. With channels first, a group's elements are neighbours. Neither depends on the number of threads.

use super::{NormGradients, statistics};
use crate::batch_norm::{ROWS, affine_rows, block_moments, block_products, in_blocks};
use crate::scratch::with_scratch;
use crate::simd::dispatched;
use crate::size::elements;
use crate::threads::{SharedMut, parallel_for};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use num_traits::Float;

/// The geometry of a group normalization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupNormShape {
    /// Images.
    pub batch: usize,
    /// Channels of an image.
    pub channels: usize,
    /// Elements of a channel.
    pub spatial: usize,
    /// Groups of neighbouring channels; divides their number.
    pub groups: usize,
}

impl GroupNormShape {
    /// From the dims of `x`, `[batch, channels, spatial…]`.
    ///
    /// # Panics
    /// When there are no channels, or `groups` does not divide them.
    pub fn new(x: &[usize], groups: usize) -> Self {
        assert!(x.len() >= 2, "group normalization needs batch and channels, got {x:?}");
        let channels = x[1];
        assert!(groups > 0 && channels.is_multiple_of(groups), "{channels} channels in {groups} groups");
        Self { batch: x[0], channels, spatial: x[2..].iter().product(), groups }
    }

    fn len(&self) -> usize {
        elements(&[self.batch, self.channels, self.spatial])
    }

    /// Channels of a group.
    fn width(&self) -> usize {
        self.channels / self.groups
    }

    /// Elements of a group.
    fn size(&self) -> usize {
        self.width() * self.spatial
    }

    /// Blocks of an image's rows.
    fn blocks(&self) -> usize {
        self.spatial.div_ceil(ROWS)
    }
}

/// Group normalization of `x`, `[batch, spatial…, channels]`, into `out` of the same order; `weight` and `bias` are `[channels]`.
///
/// # Panics
/// When sizes do not fit.
pub fn group_norm_channels_last(
    shape: &GroupNormShape,
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    epsilon: f64,
    x: &[f32],
    out: &mut [f32],
) {
    let channels = shape.channels;
    assert!(x.len() == shape.len() && out.len() == shape.len(), "size of what is normalized");
    assert!([weight, bias].into_iter().flatten().all(|w| w.len() == channels), "one parameter a channel");
    if x.is_empty() {
        return;
    }
    let mut factors = [0.0f32; 3].map(|zero| vec![zero; shape.batch * channels]);
    let [means, scales, shifts] = &mut factors;
    for (group, (mean, inverse)) in moments(shape, x, epsilon).into_iter().enumerate() {
        for at in shape.channels_of(group) {
            let c = at % channels;
            means[at] = mean as f32;
            scales[at] = (inverse * f64::from(weight.map_or(1.0, |w| w[c]))) as f32;
            shifts[at] = bias.map_or(0.0, |b| b[c]);
        }
    }
    let [means, scales, shifts] = &factors;
    let out = SharedMut::new(out);
    shape.in_images(|image, at, rows| {
        let of = |factors: &[f32]| factors[image * channels..].as_ptr();
        // SAFETY: blocks of rows are disjoint and inside, and each image has its factors.
        unsafe {
            center_rows(x.as_ptr().add(at), out.ptr(at), rows, channels, of(means), of(scales), of(shifts));
        }
    });
}

/// The gradients of group normalization of `x`, which is `[batch, spatial…, channels]` if `channels_last`, else
/// `[batch, channels, spatial…]`, as its gradients are; `weight` is `[channels]`.
///
/// # Panics
/// When sizes do not fit.
pub fn group_norm_gradient(
    shape: &GroupNormShape,
    channels_last: bool,
    weight: Option<&[f32]>,
    epsilon: f64,
    gradient: &[f32],
    x: &[f32],
    into: NormGradients<'_>,
) {
    let channels = shape.channels;
    let sizes = [gradient.len(), x.len(), into.input.len()];
    assert_eq!(sizes, [shape.len(); 3], "size of what was normalized");
    assert!(weight.is_none_or(|w| w.len() == channels), "one weight a channel");
    assert!(into.weight.len() == channels && into.bias.len() == channels, "one gradient a channel");
    into.weight.fill(0.0);
    into.bias.fill(0.0);
    if x.is_empty() {
        return;
    }
    let of_weight = |c: usize| weight.map_or(1.0, |w| f64::from(w[c]));
    let sums = match channels_last {
        true => of_images(shape, &of_weight, epsilon, gradient, x, into.input),
        false => of_groups(shape, &of_weight, epsilon, gradient, x, into.input),
    };
    let (mut weights, mut biases) = (vec![0.0; channels], vec![0.0; channels]);
    for (at, sums) in sums.iter().enumerate() {
        weights[at % channels] += sums.products * sums.inverse;
        biases[at % channels] += sums.plain;
    }
    for c in 0..channels {
        (into.weight[c], into.bias[c]) = (weights[c] as f32, biases[c] as f32);
    }
}

impl GroupNormShape {
    /// The channels of a group, counted over all images.
    fn channels_of(&self, group: usize) -> Range<usize> {
        group * self.width()..(group + 1) * self.width()
    }

    /// Calls `run` with an image, the position of its first element, and a number of rows, for blocks of rows of all images with
    /// their channels last.
    fn in_images(&self, run: impl Fn(usize, usize, usize) + Sync) {
        let blocks = self.blocks();
        parallel_for(self.batch * blocks, ROWS.min(self.spatial) * (self.channels / 6 + 2), |range| {
            for block in range {
                let (image, from) = (block / blocks, block % blocks * ROWS);
                let at = (image * self.spatial + from) * self.channels;
                run(image, at, ROWS.min(self.spatial - from));
            }
        });
    }
}

/// What one channel of an image gives to the gradients.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// `Σ g`.
    plain: f64,
    /// `Σ g (x - mean)`, with the group's mean.
    products: f64,
    /// `1 / √(variance + epsilon)` of the group.
    inverse: f64,
}

/// The gradient of a group's elements is `inverse · weight · g + slope · (x - mean) + shift`: slope and shift, from the sums of the
/// group's channels, the first of which is `channel`.
fn back(sums: &[Sums], channel: usize, of_weight: impl Fn(usize) -> f64, size: usize) -> (f64, f64) {
    let weighted = |of: fn(&Sums) -> f64| {
        let terms = sums.iter().enumerate().map(|(i, sums)| of_weight(channel + i) * of(sums));
        terms.sum::<f64>() / size as f64
    };
    let inverse = sums[0].inverse;
    (-inverse * inverse * inverse * weighted(|sums| sums.products), -inverse * weighted(|sums| sums.plain))
}

/// Mean and `1 / √(variance + epsilon)` of each group of each image, channels last.
fn moments(shape: &GroupNormShape, x: &[f32], epsilon: f64) -> Vec<(f64, f64)> {
    let (channels, blocks) = (shape.channels, shape.blocks());
    with_scratch(2 * shape.batch * blocks * channels, |sums| {
        in_blocks(shape.batch, shape.spatial, channels, sums, |rows, strip, len, means, squares| {
            // SAFETY: the rows hold the strip, and there is room for its sums.
            unsafe {
                let x = x.as_ptr().add(rows.start * channels + strip);
                block_moments(x, channels, rows.len(), len, means, squares);
            }
        });
        let (means, squares) = sums.split_at(shape.batch * blocks * channels);
        let group = |group: usize| {
            let (image, first) = (group / shape.groups, group % shape.groups * shape.width());
            // Chan, Golub & LeVeque 1979: moments of parts into those of the whole.
            let (mut count, mut center, mut square) = (0.0f64, 0.0f64, 0.0f64);
            for block in 0..blocks {
                let size = ROWS.min(shape.spatial - block * ROWS) as f64;
                for c in first..first + shape.width() {
                    let at = (image * blocks + block) * channels + c;
                    let delta = f64::from(means[at]) - center;
                    let total = count + size;
                    center += delta * size / total;
                    square += f64::from(squares[at]) + delta * delta * count * size / total;
                    count = total;
                }
            }
            (center, 1.0 / Float::sqrt(square / count + epsilon))
        };
        (0..shape.batch * shape.groups).map(group).collect()
    })
}

/// The gradient of images with their channels last; the sums of each channel of each image.
fn of_images(
    shape: &GroupNormShape,
    of_weight: &dyn Fn(usize) -> f64,
    epsilon: f64,
    gradient: &[f32],
    x: &[f32],
    input: &mut [f32],
) -> Vec<Sums> {
    let (channels, blocks, all) = (shape.channels, shape.blocks(), shape.batch * shape.channels);
    let moments = moments(shape, x, epsilon);
    let means: Vec<f32> = (0..all).map(|at| moments[at / shape.width()].0 as f32).collect();
    let mut found = vec![Sums::default(); all];
    with_scratch(2 * blocks * all, |sums| {
        in_blocks(shape.batch, shape.spatial, channels, sums, |rows, strip, len, plain, products| {
            let at = rows.start * channels + strip;
            // SAFETY: the rows hold the strip, the image has means, and there is room for the sums.
            unsafe {
                let (g, x) = (gradient.as_ptr().add(at), x.as_ptr().add(at));
                let mean = means.as_ptr().add(rows.start / shape.spatial * channels + strip);
                block_products(g, x, channels, rows.len(), len, mean, plain, products);
            }
        });
        let (plain, products) = sums.split_at(blocks * all);
        for (at, found) in found.iter_mut().enumerate() {
            let (image, c) = (at / channels, at % channels);
            let total = |sums: &[f32]| -> f64 {
                (0..blocks).map(|block| f64::from(sums[(image * blocks + block) * channels + c])).sum()
            };
            let inverse = moments[at / shape.width()].1;
            *found = Sums { plain: total(plain), products: total(products), inverse };
        }
    });
    let mut factors = [0.0f32; 3].map(|zero| vec![zero; all]);
    let [scales, slopes, shifts] = &mut factors;
    for group in 0..shape.batch * shape.groups {
        let range = shape.channels_of(group);
        let (slope, shift) = back(&found[range.clone()], range.start % channels, of_weight, shape.size());
        slopes[range.clone()].fill(slope as f32);
        shifts[range.clone()].fill(shift as f32);
        for at in range {
            scales[at] = (found[at].inverse * of_weight(at % channels)) as f32;
        }
    }
    let [scales, slopes, shifts] = &factors;
    let out = SharedMut::new(input);
    shape.in_images(|image, at, rows| {
        let part = image * channels..(image + 1) * channels;
        let x = Some((x[at..].as_ptr(), &slopes[part.clone()], &means[part.clone()]));
        // SAFETY: blocks of rows are disjoint and inside.
        unsafe {
            let g = gradient.as_ptr().add(at);
            affine_rows(g, x, out.ptr(at), rows, &scales[part.clone()], &shifts[part]);
        }
    });
    found
}

/// The gradient of images with their channels first; the sums of each channel of each image.
fn of_groups(
    shape: &GroupNormShape,
    of_weight: &(dyn Fn(usize) -> f64 + Sync),
    epsilon: f64,
    gradient: &[f32],
    x: &[f32],
    input: &mut [f32],
) -> Vec<Sums> {
    let (spatial, size) = (shape.spatial, shape.size());
    let mut found = vec![Sums::default(); shape.batch * shape.channels];
    let (all, out) = (SharedMut::new(&mut found), SharedMut::new(input));
    parallel_for(shape.batch * shape.groups, size / 2 + 20, |range| {
        for group in range {
            let channels = shape.channels_of(group);
            let first = channels.start % shape.channels;
            // SAFETY: a group's elements and sums are its own, and inside.
            unsafe {
                let (x, g) = (x.as_ptr().add(group * size), gradient.as_ptr().add(group * size));
                let (mean, inverse) = statistics(x, size, epsilon as f32, true);
                let found = all.slice(channels);
                for (i, found) in found.iter_mut().enumerate() {
                    let [plain, products] =
                        row_products(g.add(i * spatial), x.add(i * spatial), spatial, mean);
                    *found = Sums { plain, products, inverse: f64::from(inverse) };
                }
                let (slope, shift) = back(found, first, of_weight, size);
                for i in 0..shape.width() {
                    let scale = f64::from(inverse) * of_weight(first + i);
                    let factors = [scale, slope, f64::from(mean), shift].map(|factor| factor as f32);
                    let at = i * spatial;
                    affine_row(g.add(at), x.add(at), out.ptr(group * size + at), spatial, factors);
                }
            }
        }
    });
    found
}

dispatched! {
    /// `to = (x - mean) · scale + shift` for each row, a factor a channel.
    ///
    /// # Safety
    /// All rows hold the channels, and so do the factors.
    unsafe fn center_rows<S>(
        s,
        x: *const f32,
        to: *mut f32,
        rows: usize,
        channels: usize,
        mean: *const f32,
        scale: *const f32,
        shift: *const f32,
    ) {
        for at in (0..rows).map(|row| row * channels) {
            for c in (0..channels).step_by(S::LANES) {
                let lanes = S::LANES.min(channels - c);
                let x = s.sub(s.load_up_to(x.add(at + c), lanes), s.load_up_to(mean.add(c), lanes));
                let y = s.mul_add(x, s.load_up_to(scale.add(c), lanes), s.load_up_to(shift.add(c), lanes));
                s.store_up_to(to.add(at + c), lanes, y);
            }
        }
    }
}

/// Elements that are summed before they are added in f64.
const STRETCH: usize = 4096;

dispatched! {
    /// `Σ g` and `Σ g (x - mean)` of a row.
    ///
    /// # Safety
    /// Both hold `n` elements.
    unsafe fn row_products<S>(s, g: *const f32, x: *const f32, n: usize, mean: f32) -> [f64; 2] {
        let mean = s.splat(mean);
        let mut totals = [0.0f64; 2];
        for start in (0..n).step_by(STRETCH) {
            let end = n.min(start + STRETCH);
            let mut sums = [s.splat(0.0); 2];
            let mut products = sums;
            let mut i = start;
            while i < end {
                for v in 0..2 {
                    let lanes = end.saturating_sub(i + v * S::LANES).min(S::LANES);
                    let at = i + v * S::LANES;
                    let (g, x) = (s.load_up_to(g.wrapping_add(at), lanes), s.load_up_to(x.wrapping_add(at), lanes));
                    sums[v] = s.add(sums[v], g);
                    products[v] = s.mul_add(g, s.sub(x, mean), products[v]);
                }
                i += 2 * S::LANES;
            }
            totals[0] += f64::from(s.sum(s.add(sums[0], sums[1])));
            totals[1] += f64::from(s.sum(s.add(products[0], products[1])));
        }
        totals
    }
}

dispatched! {
    /// `to = g · scale + (x - mean) · slope + shift` for a row; the factors are scale, slope, mean and shift.
    ///
    /// # Safety
    /// All hold `n` elements.
    unsafe fn affine_row<S>(s, g: *const f32, x: *const f32, to: *mut f32, n: usize, factors: [f32; 4]) {
        let [scale, slope, mean, shift] = [s.splat(factors[0]), s.splat(factors[1]), s.splat(factors[2]), s.splat(factors[3])];
        for i in (0..n).step_by(S::LANES) {
            let lanes = S::LANES.min(n - i);
            let along = s.mul_add(s.sub(s.load_up_to(x.add(i), lanes), mean), slope, shift);
            s.store_up_to(to.add(i), lanes, s.mul_add(s.load_up_to(g.add(i), lanes), scale, along));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InOut;
    use crate::gemm::noise;
    use crate::norm::group_norm;
    use crate::simd::forced::at_each_level;

    /// Images, channels, elements of a channel, groups.
    const SHAPES: [(usize, usize, usize, usize); 7] = [
        (1, 1, 1, 1),
        (2, 6, 5, 3),
        (3, 8, 1, 2),
        (2, 5, 77, 5),
        (1, 70, 600, 7),
        (2, 64, 49, 64),
        (1, 33, 530, 1),
    ];

    /// The gradients in f64: of the input, the weight and the bias.
    fn expected(s: &GroupNormShape, weight: &[f32], epsilon: f64, g: &[f32], x: &[f32]) -> [Vec<f64>; 3] {
        let (size, mut input) = (s.size(), vec![0.0; x.len()]);
        let (mut of_weight, mut bias) = (vec![0.0; s.channels], vec![0.0; s.channels]);
        for group in 0..s.batch * s.groups {
            let range = group * size..(group + 1) * size;
            let x: Vec<f64> = x[range.clone()].iter().map(|&x| f64::from(x)).collect();
            let mean = x.iter().sum::<f64>() / size as f64;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / size as f64;
            let inverse = 1.0 / (variance + epsilon).sqrt();
            let y: Vec<f64> = x.iter().map(|x| (x - mean) * inverse).collect();
            let channel = |i: usize| (range.start + i) / s.spatial % s.channels;
            let g: Vec<f64> = g[range.clone()].iter().map(|&g| f64::from(g)).collect();
            let scaled: Vec<f64> =
                g.iter().enumerate().map(|(i, g)| g * f64::from(weight[channel(i)])).collect();
            let plain = scaled.iter().sum::<f64>() / size as f64;
            let along = scaled.iter().zip(&y).map(|(g, y)| g * y).sum::<f64>() / size as f64;
            for i in 0..size {
                input[range.start + i] = inverse * (scaled[i] - plain - y[i] * along);
                of_weight[channel(i)] += g[i] * y[i];
                bias[channel(i)] += g[i];
            }
        }
        [input, of_weight, bias]
    }

    /// `[batch, channels, spatial]` as `[batch, spatial, channels]`.
    fn last<T: Copy>(s: &GroupNormShape, x: &[T]) -> Vec<T> {
        let (c, n) = (s.channels, s.spatial);
        (0..x.len()).map(|i| x[(i / c / n * c + i % c) * n + i / c % n]).collect()
    }

    fn close(got: &[f32], want: &[f64], what: &str) {
        let largest = want.iter().fold(1.0f64, |largest, x| largest.max(x.abs()));
        for (at, (got, want)) in got.iter().zip(want).enumerate() {
            assert!((f64::from(*got) - want).abs() < 2e-5 * largest, "{what} at {at}: {got}, not {want}");
        }
    }

    #[test]
    fn gradients_are_those_of_the_formula() {
        let epsilon = 1e-3;
        let run = || {
            for (batch, channels, spatial, groups) in SHAPES {
                let s = GroupNormShape { batch, channels, spatial, groups };
                // A mean far from 0.
                let x: Vec<f32> = noise(s.len(), 1).iter().map(|x| x + 9.0).collect();
                let (g, weight) = (noise(s.len(), 2), noise(channels, 3));
                for weight in [None, Some(&weight[..])] {
                    let ones = vec![1.0; channels];
                    let [input, of_weight, bias] = expected(&s, weight.unwrap_or(&ones), epsilon, &g, &x);
                    for channels_last in [false, true] {
                        let order = |x: &[f32]| if channels_last { last(&s, x) } else { x.to_vec() };
                        let input = if channels_last { last(&s, &input) } else { input.clone() };
                        let mut got = [vec![7.0; x.len()], vec![7.0; channels], vec![7.0; channels]];
                        let [of_input, to_weight, to_bias] = &mut got;
                        let into = NormGradients { input: of_input, weight: to_weight, bias: to_bias };
                        group_norm_gradient(&s, channels_last, weight, epsilon, &order(&g), &order(&x), into);
                        close(&got[0], &input, &format!("input of {s:?}, {channels_last}"));
                        close(&got[1], &of_weight, &format!("weight of {s:?}, {channels_last}"));
                        close(&got[2], &bias, &format!("bias of {s:?}, {channels_last}"));
                    }
                }
            }
        };
        at_each_level(|_| run());
        // On threads.
        run();
    }

    #[test]
    fn both_orders_are_normalized_alike() {
        at_each_level(|_| {
            for (batch, channels, spatial, groups) in SHAPES {
                let s = GroupNormShape { batch, channels, spatial, groups };
                let x: Vec<f32> = noise(s.len(), 1).iter().map(|x| x + 4.0).collect();
                let (weight, bias) = (noise(channels, 2), noise(channels, 3));
                for (weight, bias) in [(None, None), (Some(&weight[..]), Some(&bias[..]))] {
                    let (mut first, mut got) = (vec![0.0; x.len()], vec![0.0; x.len()]);
                    let data = InOut::Copy { from: &x, to: &mut first };
                    group_norm(channels, spatial, groups, weight, bias, 1e-3, data);
                    group_norm_channels_last(&s, weight, bias, 1e-3, &last(&s, &x), &mut got);
                    let want: Vec<f64> = last(&s, &first).into_iter().map(f64::from).collect();
                    close(&got, &want, &format!("{s:?}"));
                }
            }
        });
    }
}
