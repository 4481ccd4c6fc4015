//! Convolutions in which each channel of the result sees one channel: vectors of channels, no product.

mod tile;

use super::lines::{Line, Lines, for_each_strip};
use super::{ConvShape, End};
use crate::bounds::Bounds;
use crate::math::{Map, map_rows};
use crate::scratch::with_scratch;
use crate::threads::{SharedMut, parallel_chunks};
use core::ops::Range;
use core::ptr::null;
use kiln_types::Activation;
use tile::{Kernels, Tile};

/// Whether this file's way is the one for a convolution.
pub(super) fn suits(shape: &ConvShape) -> bool {
    shape.groups > 1 && shape.in_channels == shape.groups
}

/// Channels that are computed for all rows before the next ones at least: few enough that the lines of the image that a row sees
/// are still in the first-level cache for the next row.
const STRIP: usize = 32;
/// Elements of the image that a thread copies at a time, where channels are repeated.
const COPIED: usize = 4096;

/// The result of a depthwise convolution; `weight` is `[kernel…, out]`.
pub(super) fn depthwise(shape: &ConvShape, x: &[f32], weight: &[f32], end: &End<'_>, out: &mut [f32]) {
    let times = shape.out_channels / shape.in_channels;
    if times == 1 {
        return one_each(shape, x, weight, end, out);
    }
    // Several results a channel: each sees a channel of its own, a copy.
    with_scratch(x.len() * times, |copies| {
        parallel_chunks(copies, COPIED * times, COPIED * times / 4, |piece, to| {
            let from = &x[piece * COPIED..][..to.len() / times];
            match times {
                2 => repeat::<2>(from, to),
                3 => repeat::<3>(from, to),
                4 => repeat::<4>(from, to),
                _ => to.chunks_exact_mut(times).zip(from).for_each(|(to, &x)| to.fill(x)),
            }
        });
        one_each(shape, copies, weight, end, out);
    });
}

/// Writes each element `N` times: a number that is known makes vectors of the loop.
fn repeat<const N: usize>(from: &[f32], to: &mut [f32]) {
    for (to, &x) in to.as_chunks_mut::<N>().0.iter_mut().zip(from) {
        *to = [x; N];
    }
}

/// [`depthwise`] for as many channels in the result as in the image.
fn one_each(shape: &ConvShape, x: &[f32], weight: &[f32], end: &End<'_>, out: &mut [f32]) {
    let [od, oh, ow] = shape.windows.output;
    let job = Depthwise::new(shape, weight, end);
    let (rows, strips) = (shape.batch * od * oh, shape.out_channels.div_ceil(job.strip));
    let work = job.row_work() / strips + 20;
    let out = SharedMut::new(out);
    for_each_strip(rows, strips, work, |row, strip| {
        // SAFETY: lines lie in the image, kernel elements in the weights; strips of the result's rows are disjoint.
        unsafe { job.fill(x.as_ptr(), row, job.strip(strip), out.ptr(row * ow * shape.out_channels)) };
    });
}

/// A depthwise convolution of as many channels in the result as in the image, to be computed row by row.
pub(crate) struct Depthwise<'a> {
    shape: &'a ConvShape,
    weight: &'a [f32],
    lines: Lines,
    kernels: Kernels,
    /// Channels that are computed for all rows before the next ones.
    strip: usize,
    bias: Option<&'a [f32]>,
    low: f32,
    high: f32,
    /// The activation that is left after the bounds.
    rest: Option<Activation>,
}

impl<'a> Depthwise<'a> {
    pub(super) fn new(shape: &'a ConvShape, weight: &'a [f32], end: &End<'a>) -> Self {
        let Bounds { low, high, rest } = end.bounds();
        let (channels, kernels) = (shape.out_channels, Kernels::of_windows(&shape.windows));
        let lines = Lines::of(shape, channels, channels);
        let w = &shape.windows;
        let seen = (w.kernel[0] * w.kernel[1]).saturating_mul(w.input[2]).max(1);
        let most = (kernels.seen() / seen).max(STRIP);
        let strip = channels.div_ceil(channels.div_ceil(most).max(1)).next_multiple_of(STRIP).max(STRIP);
        Self { shape, weight, lines, kernels, strip, bias: end.bias, low, high, rest }
    }

    /// The cost of a row in nanoseconds, roughly.
    pub fn row_work(&self) -> usize {
        let w = &self.shape.windows;
        w.output[2] * self.shape.out_channels * w.kernel_len() / 20
    }

    /// The channels of strips, one after the other.
    pub fn strips(&self) -> impl Iterator<Item = Range<usize>> + use<'_> {
        (0..self.shape.out_channels.div_ceil(self.strip)).map(|i| self.strip(i))
    }

    fn strip(&self, i: usize) -> Range<usize> {
        i * self.strip..self.shape.out_channels.min((i + 1) * self.strip)
    }

    /// Computes some channels of a row of the result, counted over all images, which is at `out`.
    ///
    /// # Safety
    /// The lines that the row sees lie where they would if the images began at `x`; `out` holds the row.
    pub unsafe fn fill(&self, x: *const f32, row: usize, channels: Range<usize>, out: *mut f32) {
        let (width, all) = (self.shape.windows.output[2], self.shape.out_channels);
        // SAFETY: the caller's promise.
        unsafe {
            self.sums(x, self.lines.row(row), channels.clone(), out);
            if let Some(activation) = self.rest {
                map_rows(Map::Activation(activation), out.add(channels.start), all, width, channels.len());
            }
        }
    }

    /// [`Depthwise::fill`] without the activation that is left.
    ///
    /// # Safety
    /// As for [`Depthwise::fill`].
    unsafe fn sums(&self, image: *const f32, lines: &[Line], channels: Range<usize>, out: *mut f32) {
        let (w, all) = (&self.shape.windows, self.shape.out_channels);
        let mut x = 0;
        while x < w.output[2] {
            let count = self.kernels.windows(w.output[2] - x);
            let first = (x * w.stride[2]) as isize - w.padding[2].0 as isize;
            let last = first + ((count - 1) * w.stride[2] + (w.kernel[2] - 1) * w.dilation[2]) as isize;
            let inside = first >= 0 && last < w.input[2] as isize;
            let mut c = channels.start;
            while c < channels.end {
                let (kernel, tiles, lanes) = self.kernels.of(count, inside, channels.end - c);
                let at = x * all + c;
                // SAFETY: the caller's promise.
                unsafe {
                    kernel(&Tile {
                        count: tiles,
                        lines,
                        x: image.wrapping_add(c),
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
                c += tiles * lanes;
            }
            x += count;
        }
    }
}
