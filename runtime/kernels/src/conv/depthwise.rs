//! Convolutions in which each result has one channel to look at: sums of shifted rows, straight from a padded channel.

use super::image::{SLACK, pad_channel, padded_size};
use super::{ConvShape, End};
use crate::math::{Map, map_slice};
use crate::scratch::with_scratch;
use crate::simd::dispatched;
use crate::threads::{SharedMut, parallel_for};
use alloc::vec::Vec;
use kiln_types::Activation;

/// Whether this file's way is the one for a convolution.
pub(super) fn suits(shape: &ConvShape) -> bool {
    shape.groups > 1
        && shape.in_channels == shape.groups
        && shape.output[0] == 1
        && shape.kernel[0] == 1
        && shape.stride[2] <= 2
}

/// The result of a depthwise convolution.
pub(super) fn depthwise(shape: &ConvShape, x: &[f32], weight: &[f32], end: &End<'_>, out: &mut [f32]) {
    let padded = padded_size(shape.input, shape.padding);
    let (input, pixels): (usize, usize) = (shape.input.iter().product(), shape.output.iter().product());
    let [_, kh, kw] = shape.kernel;
    // For every second window, rows are kept as two halves, each of which is then read without gaps.
    let halves = shape.stride[2] == 2;
    let width = if halves { padded[2].next_multiple_of(2) } else { padded[2] };
    let size = padded[0] * padded[1] * width;
    let place = |x: usize| if halves { x / 2 + x % 2 * (width / 2) } else { x };
    let taps: Vec<usize> = (0..kh * kw)
        .map(|k| k / kw * shape.dilation[1] * width + place(k % kw * shape.dilation[2]))
        .collect();
    let (low, high) = match (end.residual, end.activation) {
        (None, Some(Activation::Relu)) => (0.0, f32::INFINITY),
        (None, Some(Activation::Clamp { min, max })) => (min as f32, max as f32),
        _ => (f32::NEG_INFINITY, f32::INFINITY),
    };
    let multiplier = shape.out_channels / shape.groups;
    let work = pixels * taps.len() / 20 + size / 8 + 20;
    let rest = match (end.residual, end.activation) {
        (None, Some(Activation::Relu | Activation::Clamp { .. })) => None,
        (_, activation) => activation,
    };
    // Several small channels are padded before the first one is read: what was just written is slow to read back.
    let batch = (4096 / size).max(1);
    let (channels, out) = (out.len() / pixels, SharedMut::new(out));
    parallel_for(channels, work, |range| {
        with_scratch(batch * size + 2 * SLACK, |space| {
            space[batch * size..].fill(0.0);
            let mut start = range.start;
            while start < range.end {
                let some = start..range.end.min(start + batch);
                for (i, to) in some.clone().zip(space.chunks_mut(size)) {
                    let at = i / shape.out_channels * shape.in_channels + i % shape.out_channels / multiplier;
                    let from = &x[at * input..(at + 1) * input];
                    pad_channel(from, shape.input, shape.padding, halves, to);
                }
                for (place, i) in some.enumerate() {
                    let channel = i % shape.out_channels;
                    let rows = Rows {
                        height: shape.output[1],
                        width: shape.output[2],
                        step: shape.stride[1] * width,
                        bias: end.bias.map_or(0.0, |bias| bias[channel]),
                        low,
                        high,
                    };
                    let weight = &weight[channel * taps.len()..(channel + 1) * taps.len()];
                    // SAFETY: each tap of each pixel lies in the padded channel; vectors reach at most `2 · SLACK` beyond
                    // it, where the next channel or the slack is. Channels of the result are disjoint.
                    unsafe {
                        let to = out.slice(i * pixels..(i + 1) * pixels);
                        sum_taps(&rows, space.as_ptr().add(place * size), &taps, weight, to.as_mut_ptr());
                        if let Some(residual) = end.residual {
                            to.iter_mut().zip(&residual[i * pixels..]).for_each(|(x, r)| *x += r);
                        }
                        if let Some(activation) = rest {
                            map_slice(Map::Activation(activation), to.as_ptr(), to.as_mut_ptr(), pixels);
                        }
                    }
                }
                start += batch;
            }
        });
    });
}

/// The rows of one channel's result.
struct Rows {
    height: usize,
    width: usize,
    /// Elements between the first windows of neighbouring rows.
    step: usize,
    bias: f32,
    low: f32,
    high: f32,
}

dispatched! {
    /// `out[y, x] = clamp(bias + Σ weight[k] · image[y · step + x + taps[k]])`.
    ///
    /// # Safety
    /// The image holds what is read, and two vectors more; `out` holds `height · width` elements.
    unsafe fn sum_taps<S>(s, rows: &Rows, image: *const f32, taps: &[usize], weight: &[f32], out: *mut f32) {
        // Four vectors at a time, of one row or of several, keep the machine busy.
        const V: usize = 4;
        let (mut y, mut x) = (0, 0);
        while y < rows.height {
            // Missing vectors repeat the last one; they are not written.
            let (mut place, mut count) = ((y, x), 0);
            let places: [(usize, usize); V] = core::array::from_fn(
                #[inline(always)]
                |_| {
                    if y < rows.height {
                        place = (y, x);
                        count += 1;
                        x += S::LANES;
                        if x >= rows.width {
                            (y, x) = (y + 1, 0);
                        }
                    }
                    place
                },
            );
            let from = places.map(|(y, x)| image.add(y * rows.step + x));
            let mut sums = [s.splat(rows.bias); V];
            for (tap, weight) in taps.iter().zip(weight) {
                let weight = s.splat(*weight);
                for i in 0..V {
                    sums[i] = s.mul_add(weight, s.load(from[i].add(*tap)), sums[i]);
                }
            }
            for i in 0..count {
                let (y, x) = places[i];
                let sum = s.min(s.splat(rows.high), s.max(s.splat(rows.low), sums[i]));
                s.store_up_to(out.add(y * rows.width + x), rows.width - x, sum);
            }
        }
    }
}
