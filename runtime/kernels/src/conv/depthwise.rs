//! Convolutions in which each result has one channel to look at: sums of shifted rows, straight from a padded channel.

use super::image::{SLACK, pad_channel, padded_size};
use super::{ConvShape, End};
use crate::math::{Map, map_slice};
use crate::scratch::with_scratch;
use crate::simd::dispatched;
use crate::threads::parallel_chunks;
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
    let taps: Vec<usize> =
        (0..kh * kw).map(|k| k / kw * shape.dilation[1] * padded[2] + k % kw * shape.dilation[2]).collect();
    let (low, high) = match (end.residual, end.activation) {
        (None, Some(Activation::Relu)) => (0.0, f32::INFINITY),
        (None, Some(Activation::Clamp { min, max })) => (min as f32, max as f32),
        _ => (f32::NEG_INFINITY, f32::INFINITY),
    };
    let multiplier = shape.out_channels / shape.groups;
    let work = pixels * taps.len() / 20 + padded.iter().product::<usize>() / 8;
    parallel_chunks(out, pixels, work, |i, out| {
        let (image, channel) = (i / shape.out_channels, i % shape.out_channels);
        let at = image * shape.in_channels + channel / multiplier;
        let size: usize = padded.iter().product();
        with_scratch(size + 2 * SLACK, |space| {
            space[size..].fill(0.0);
            pad_channel(
                &x[at * input..(at + 1) * input],
                shape.input,
                shape.padding,
                0.0,
                &mut space[..size],
            );
            let rows = Rows {
                height: shape.output[1],
                width: shape.output[2],
                step: shape.stride[1] * padded[2],
                every_second: shape.stride[2] == 2,
                bias: end.bias.map_or(0.0, |bias| bias[channel]),
                low,
                high,
            };
            let weight = &weight[channel * taps.len()..(channel + 1) * taps.len()];
            // SAFETY: each tap of each pixel lies in the padded channel; vectors reach at most `2 · SLACK` beyond it.
            unsafe { sum_taps(&rows, space.as_ptr(), &taps, weight, out.as_mut_ptr()) };
        });
        if let Some(residual) = end.residual {
            out.iter_mut().zip(&residual[i * pixels..]).for_each(|(x, r)| *x += r);
        }
        let rest = match (end.residual, end.activation) {
            (None, Some(Activation::Relu | Activation::Clamp { .. })) => None,
            (_, activation) => activation,
        };
        if let Some(activation) = rest {
            let out = out.as_mut_ptr();
            // SAFETY: a channel has `pixels` elements.
            unsafe { map_slice(Map::Activation(activation), out, out, pixels) };
        }
    });
}

/// The rows of one channel's result.
struct Rows {
    height: usize,
    width: usize,
    /// Elements between the first windows of neighbouring rows.
    step: usize,
    every_second: bool,
    bias: f32,
    low: f32,
    high: f32,
}

dispatched! {
    /// `out[y, x] = clamp(bias + Σ weight[k] · image[y · step + x (or 2 x) + taps[k]])`.
    ///
    /// # Safety
    /// The image holds what is read, and two vectors more; `out` holds `height · width` elements.
    unsafe fn sum_taps<S>(s, rows: &Rows, image: *const f32, taps: &[usize], weight: &[f32], out: *mut f32) {
        // Four vectors at a time, of one row or of several, keep the machine busy.
        const V: usize = 4;
        let per_row = rows.width.div_ceil(S::LANES);
        let units = rows.height * per_row;
        let stretch = if rows.every_second { 2 } else { 1 };
        let mut unit = 0;
        while unit < units {
            let place = |i: usize| {
                // Missing vectors repeat the last one; they are not written.
                let at = (unit + i).min(units - 1);
                (at / per_row, at % per_row * S::LANES)
            };
            let from: [*const f32; V] = core::array::from_fn(|i| {
                let (y, x) = place(i);
                image.add(y * rows.step + x * stretch)
            });
            let mut sums = [s.splat(rows.bias); V];
            for (tap, weight) in taps.iter().zip(weight) {
                let weight = s.splat(*weight);
                for i in 0..V {
                    let at = from[i].add(*tap);
                    let x = if rows.every_second { s.load_even(at) } else { s.load(at) };
                    sums[i] = s.mul_add(weight, x, sums[i]);
                }
            }
            for i in 0..V.min(units - unit) {
                let (y, x) = place(i);
                let sum = s.min(s.splat(rows.high), s.max(s.splat(rows.low), sums[i]));
                s.store_up_to(out.add(y * rows.width + x), rows.width - x, sum);
            }
            unit += V;
        }
    }
}
