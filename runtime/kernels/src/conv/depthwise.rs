//! Convolutions in which each channel of the result sees one channel: vectors of channels, no product.

mod tile;

use super::lines::Lines;
use super::{ConvShape, End};
use crate::math::{Map, map_rows};
use crate::scratch::with_scratch;
use crate::threads::{SharedMut, parallel_for};
use core::ops::Range;
use core::ptr::null;
use tile::{Kernels, Tile};

/// Whether this file's way is the one for a convolution.
pub(super) fn suits(shape: &ConvShape) -> bool {
    shape.groups > 1 && shape.in_channels == shape.groups
}

/// Channels that are computed for all rows before the next ones: few enough that the lines of the image that a row sees
/// are still in the first-level cache for the next row.
const STRIP: usize = 32;

/// The result of a depthwise convolution; `weight` is `[kernel…, out]`.
pub(super) fn depthwise(shape: &ConvShape, x: &[f32], weight: &[f32], end: &End<'_>, out: &mut [f32]) {
    let times = shape.out_channels / shape.in_channels;
    if times == 1 {
        return one_each(shape, x, weight, end, out);
    }
    // Several results a channel: each sees a channel of its own, a copy.
    with_scratch(x.len() * times, |copies| {
        for (copies, &x) in copies.chunks_mut(times).zip(x) {
            copies.fill(x);
        }
        one_each(shape, copies, weight, end, out);
    });
}

/// [`depthwise`] for as many channels in the result as in the image.
fn one_each(shape: &ConvShape, x: &[f32], weight: &[f32], end: &End<'_>, out: &mut [f32]) {
    let (w, channels) = (&shape.windows, shape.out_channels);
    let [od, oh, ow] = w.output;
    let (low, high, rest) = end.bounds();
    let (rows, strips) = (shape.batch * od * oh, channels.div_ceil(STRIP));
    let (lines, kernels) = (Lines::of(shape, channels, channels), Kernels::of_windows(w));
    let work = ow * STRIP.min(channels) * w.kernel_len() / 20 + 20;
    let out = SharedMut::new(out);
    parallel_for(rows * strips, work, |range| {
        for i in range {
            let (row, first) = (i % rows, i / rows * STRIP);
            let strip = first..channels.min(first + STRIP);
            let to = row * ow * channels;
            let lines = lines.row(row);
            let job = Row { shape, x, weight, lines, bias: end.bias, low, high };
            // SAFETY: lines lie in the image, kernel elements in the weights; strips of the result's rows are disjoint.
            unsafe {
                job.fill(&kernels, strip.clone(), out.ptr(to));
                if let Some(activation) = rest {
                    map_rows(Map::Activation(activation), out.ptr(to + first), channels, ow, strip.len());
                }
            }
        }
    });
}

/// One row of the result.
struct Row<'a> {
    shape: &'a ConvShape,
    x: &'a [f32],
    weight: &'a [f32],
    /// See [`Lines`].
    lines: &'a [(usize, usize)],
    bias: Option<&'a [f32]>,
    low: f32,
    high: f32,
}

impl Row<'_> {
    /// Computes some channels of the row, which is at `out`.
    ///
    /// # Safety
    /// The row's lines lie in the image and the weights; `out` holds the row.
    unsafe fn fill(&self, kernels: &Kernels, channels: Range<usize>, out: *mut f32) {
        let (w, all) = (&self.shape.windows, self.shape.out_channels);
        let mut x = 0;
        while x < w.output[2] {
            let count = kernels.windows(w.output[2] - x);
            let first = (x * w.stride[2]) as isize - w.padding[2].0 as isize;
            let last = first + ((count - 1) * w.stride[2] + (w.kernel[2] - 1) * w.dilation[2]) as isize;
            let inside = first >= 0 && last < w.input[2] as isize;
            let mut c = channels.start;
            while c < channels.end {
                let (kernel, lanes) = kernels.of(count, inside, channels.end - c);
                let at = x * all + c;
                // SAFETY: the caller's promise.
                unsafe {
                    kernel(&Tile {
                        lines: self.lines,
                        x: self.x.as_ptr().add(c),
                        weight: self.weight.as_ptr().add(c),
                        channels: all,
                        first,
                        step: w.stride[2],
                        taps: w.kernel[2],
                        dilation: w.dilation[2],
                        width: w.input[2],
                        lanes,
                        bias: self.bias.map_or(null(), |bias| bias[c..].as_ptr()),
                        low: self.low,
                        high: self.high,
                        out: out.add(at),
                    });
                }
                c += lanes;
            }
            x += count;
        }
    }
}
