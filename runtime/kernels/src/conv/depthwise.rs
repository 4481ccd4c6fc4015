//! Convolutions in which each channel of the result sees one channel: vectors of channels, no product.

use super::{ConvShape, End};
use crate::math::{Map, map_slice};
use crate::scratch::with_scratch;
use crate::simd::{Simd, dispatched};
use crate::threads::{self, SharedMut, parallel_for};
use alloc::vec::Vec;
use core::ops::Range;
use kiln_types::Activation;

/// Whether this file's way is the one for a convolution.
pub(super) fn suits(shape: &ConvShape) -> bool {
    shape.groups > 1 && shape.in_channels == shape.groups
}

/// Channels that one piece of work has at least, when rows alone are too few to share out.
const CHANNELS: usize = 64;

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
    let (low, high, rest) = match end.activation {
        Some(Activation::Relu) => (0.0, f32::INFINITY, None),
        Some(Activation::Clamp { min, max }) => (min as f32, max as f32, None),
        activation => (f32::NEG_INFINITY, f32::INFINITY, activation),
    };
    let rows = shape.batch * od * oh;
    let strips = match threads::threads() {
        1 => 1,
        threads => (8 * threads).div_ceil(rows).min(channels / CHANNELS).max(1),
    };
    let strip = channels.div_ceil(strips).next_multiple_of(16);
    let strips = channels.div_ceil(strip);
    let work = ow * strip.min(channels) * w.kernel_len() / 20 + 20;
    let out = SharedMut::new(out);
    parallel_for(rows * strips, work, |range| {
        let mut lines = Vec::with_capacity(w.kernel[0] * w.kernel[1]);
        for i in range {
            let (row, strip) = (i / strips, i % strips * strip..channels.min((i % strips + 1) * strip));
            let (n, oz, oy) = (row / (od * oh), row / oh % od, row % oh);
            lines.clear();
            for kz in w.inside(0, oz) {
                for ky in w.inside(1, oy) {
                    let z = oz * w.stride[0] + kz * w.dilation[0] - w.padding[0].0;
                    let y = oy * w.stride[1] + ky * w.dilation[1] - w.padding[1].0;
                    let line = ((n * w.input[0] + z) * w.input[1] + y) * w.input[2] * channels;
                    lines.push((line, (kz * w.kernel[1] + ky) * w.kernel[2] * channels));
                }
            }
            let to = row * ow * channels;
            let job = Row {
                x,
                weight,
                lines: &lines,
                bias: end.bias,
                residual: end.residual.map(|residual| &residual[to..to + ow * channels]),
                low,
                high,
            };
            // SAFETY: lines lie in the image, kernel elements in the weights; strips of the result's rows are disjoint.
            unsafe {
                let to = out.ptr(to);
                fill_row(shape, &job, strip.clone(), to);
                match rest {
                    Some(activation) if strip.len() == channels => {
                        map_slice(Map::Activation(activation), to, to, ow * channels);
                    }
                    Some(activation) => {
                        for to in (0..ow).map(|x| to.add(x * channels + strip.start)) {
                            map_slice(Map::Activation(activation), to, to, strip.len());
                        }
                    }
                    None => {}
                }
            }
        }
    });
}

/// One row of the result.
struct Row<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    /// Lines of the image that the row's windows see, with the lines of the kernel: positions of their first elements.
    lines: &'a [(usize, usize)],
    bias: Option<&'a [f32]>,
    /// What is added, for this row.
    residual: Option<&'a [f32]>,
    low: f32,
    high: f32,
}

dispatched! {
    /// Computes some channels of a row: `out[x · channels + c]`.
    ///
    /// # Safety
    /// The row's lines lie in the image and the weights; `out` holds the row.
    unsafe fn fill_row<S>(s, shape: &ConvShape, row: &Row<'_>, channels: Range<usize>, out: *mut f32) {
        let w = &shape.windows;
        let place = |x: usize| Place {
            first: (x * w.stride[2]) as isize - w.padding[2].0 as isize,
            step: w.stride[2],
            taps: w.kernel[2],
            dilation: w.dilation[2],
            width: w.input[2],
            channels: shape.out_channels,
            out: x * shape.out_channels,
        };
        let (count, mut x) = (w.output[2], 0);
        // Seven windows at a time, which suits the sizes that halving 224 yields, and fills the registers.
        while x + SIDE_BY_SIDE <= count {
            if S::LANES == 16 {
                windows::<S, SIDE_BY_SIDE, 2>(s, row, &place(x), channels.clone(), out);
            } else {
                windows::<S, SIDE_BY_SIDE, 1>(s, row, &place(x), channels.clone(), out);
            }
            x += SIDE_BY_SIDE;
        }
        while x + 3 <= count {
            windows::<S, 3, 2>(s, row, &place(x), channels.clone(), out);
            x += 3;
        }
        while x < count {
            windows::<S, 1, 4>(s, row, &place(x), channels.clone(), out);
            x += 1;
        }
    }
}

/// Windows that are computed at a time.
const SIDE_BY_SIDE: usize = 7;

/// What is read beside the image: as much as the widest piece of a row.
static ZEROS: [f32; 64] = [0.0; 64];

/// Neighbouring windows of a row.
struct Place {
    /// The first window's first pixel in a line of the image; it may lie before it.
    first: isize,
    /// Pixels from one window to the next.
    step: usize,
    /// Elements of a line of the kernel.
    taps: usize,
    /// Pixels from one of them to the next.
    dilation: usize,
    /// Pixels of a line.
    width: usize,
    /// Channels of the image.
    channels: usize,
    /// The first window's result, from the start of the row.
    out: usize,
}

impl Place {
    /// Whether `count` windows lie in the image whole.
    fn is_inside(&self, count: usize) -> bool {
        let last = self.first + ((count - 1) * self.step + (self.taps - 1) * self.dilation) as isize;
        self.first >= 0 && last < self.width as isize
    }
}

/// `T` windows, `V` vectors of channels at a time, then the channels that remain.
#[inline(always)]
unsafe fn windows<S: Simd, const T: usize, const V: usize>(
    s: S,
    row: &Row<'_>,
    place: &Place,
    channels: Range<usize>,
    out: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if place.is_inside(T) {
            pieces::<S, T, V, true>(s, row, place, channels, out);
        } else {
            pieces::<S, T, V, false>(s, row, place, channels, out);
        }
    }
}

/// [`windows`], told whether they lie in the image whole.
#[inline(always)]
unsafe fn pieces<S: Simd, const T: usize, const V: usize, const INSIDE: bool>(
    s: S,
    row: &Row<'_>,
    place: &Place,
    channels: Range<usize>,
    out: *mut f32,
) {
    let mut c = channels.start;
    // SAFETY: the caller's promise.
    unsafe {
        while c + V * S::LANES <= channels.end {
            sums::<S, T, V, INSIDE>(s, row, place, c, V * S::LANES, out);
            c += V * S::LANES;
        }
        while c < channels.end {
            let rest = S::LANES.min(channels.end - c);
            sums::<S, T, 1, INSIDE>(s, row, place, c, rest, out);
            c += rest;
        }
    }
}

/// `T` windows, `V` vectors of channels; with one vector, the first `rest` lanes of it.
#[inline(always)]
unsafe fn sums<S: Simd, const T: usize, const V: usize, const INSIDE: bool>(
    s: S,
    row: &Row<'_>,
    place: &Place,
    c: usize,
    rest: usize,
    out: *mut f32,
) {
    let masked = V == 1 && rest < S::LANES;
    // SAFETY: the caller's promise: channels `c..c + rest` of these windows lie inside of everything, and `ZEROS` is as long.
    unsafe {
        let load = |from: *const f32| if masked { s.load_first(from, rest) } else { s.load(from) };
        let mut sums = [[s.splat(0.0); V]; T];
        for &(line, weight) in row.lines {
            let line = row.x.as_ptr().add(line + c);
            let mut weight = row.weight.as_ptr().add(weight + c);
            let mut pixel = place.first;
            for _ in 0..place.taps {
                let mut weights = [s.splat(0.0); V];
                for v in 0..V {
                    weights[v] = load(weight.add(v * S::LANES));
                }
                for t in 0..T {
                    let at = pixel + (t * place.step) as isize;
                    let from = if INSIDE || (at as usize) < place.width {
                        line.wrapping_offset(at * place.channels as isize)
                    } else {
                        ZEROS.as_ptr()
                    };
                    for v in 0..V {
                        sums[t][v] = s.mul_add(weights[v], load(from.add(v * S::LANES)), sums[t][v]);
                    }
                }
                pixel += place.dilation as isize;
                weight = weight.wrapping_add(place.channels);
            }
        }
        let (low, high) = (s.splat(row.low), s.splat(row.high));
        for v in 0..V {
            let bias = row.bias.map_or(s.splat(0.0), |bias| load(bias.as_ptr().add(c + v * S::LANES)));
            for t in 0..T {
                let at = place.out + t * place.channels + c + v * S::LANES;
                let mut sum = s.add(sums[t][v], bias);
                if let Some(residual) = row.residual {
                    sum = s.add(sum, load(residual.as_ptr().add(at)));
                }
                // The operand order lets NaN through.
                let sum = s.min(high, s.max(low, sum));
                if masked { s.store_first(out.add(at), rest, sum) } else { s.store(out.add(at), sum) }
            }
        }
    }
}
