//! Gradients of convolutions in which each channel of the result sees one channel of the image: vectors of channels.

use super::coordinates;
use crate::conv::{ConvShape, exchange};
use crate::scratch::with_scratch;
use crate::simd::{Simd, dispatched};
use crate::size::elements;
use crate::threads::{self, SharedMut, parallel_chunks, parallel_for};
use kiln_types::Windows;

/// Whether this file's way is the one: as many channels in the result as in the image.
pub(super) fn suits(shape: &ConvShape) -> bool {
    shape.groups > 1 && shape.in_channels == shape.groups && shape.out_channels == shape.groups
}

/// See [`super::conv_input_gradient`].
pub(super) fn input_gradient(shape: &ConvShape, gradient: &[f32], weight: &[f32], out: &mut [f32]) {
    let (w, channels) = (&shape.windows, shape.in_channels);
    with_scratch(weight.len(), |filters| {
        exchange(weight, channels, w.kernel_len(), filters);
        let filters = &*filters;
        let out = SharedMut::new(out);
        let work = channels * w.kernel_len() / w.stride.iter().product::<usize>() / 10 + 20;
        parallel_for(shape.batch * w.input_len(), work, |pixels| {
            for pixel in pixels {
                // SAFETY: each pixel is its own; windows with an element there lie inside of the gradient.
                unsafe {
                    let to = out.slice(pixel * channels..(pixel + 1) * channels);
                    input_pixel(shape, gradient, filters, pixel, to);
                }
            }
        });
    });
}

/// The window along an axis whose element `k` is the pixel `at`.
#[inline(always)]
fn window(shape: &ConvShape, axis: usize, at: usize, k: usize) -> Option<usize> {
    let w = &shape.windows;
    let ahead = (at + w.padding[axis].0).checked_sub(k * w.dilation[axis])?;
    let window = ahead / w.stride[axis];
    (ahead.is_multiple_of(w.stride[axis]) && window < w.output[axis]).then_some(window)
}

dispatched! {
    /// The gradient of one pixel: the sum over the windows that it is in.
    ///
    /// # Safety
    /// Gradient and filters (`[kernel…, channels]`) have the shape's size, and `to` has its channels.
    unsafe fn input_pixel<S>(s, shape: &ConvShape, gradient: &[f32], filters: &[f32], pixel: usize, to: &mut [f32]) {
        let (w, channels) = (&shape.windows, shape.in_channels);
        let (image, at) = (pixel / w.input_len(), coordinates(pixel % w.input_len(), w.input));
        to.fill(0.0);
        for z in 0..w.kernel[0] {
            let Some(oz) = window(shape, 0, at[0], z) else { continue };
            for y in 0..w.kernel[1] {
                let Some(oy) = window(shape, 1, at[1], y) else { continue };
                for x in 0..w.kernel[2] {
                    let Some(ox) = window(shape, 2, at[2], x) else { continue };
                    let from = ((image * w.output[0] + oz) * w.output[1] + oy) * w.output[2] + ox;
                    let from = gradient.as_ptr().add(from * channels);
                    let filter = filters.as_ptr().add(((z * w.kernel[1] + y) * w.kernel[2] + x) * channels);
                    let to = to.as_mut_ptr();
                    for c in (0..channels).step_by(S::LANES) {
                        let lanes = S::LANES.min(channels - c);
                        let (g, k) = (s.load_up_to(from.add(c), lanes), s.load_up_to(filter.add(c), lanes));
                        s.store_up_to(to.add(c), lanes, s.mul_add(g, k, s.load_up_to(to.add(c), lanes)));
                    }
                }
            }
        }
    }
}

/// Whether [`weight_gradient`] is the way for the weights' gradient: one channel of the image for each result's, which may share it.
pub(super) fn suits_weights(shape: &ConvShape) -> bool {
    shape.groups > 1 && shape.in_channels == shape.groups
}

/// Channels that lie in one cache line.
const CHANNELS: usize = 16;
/// Sums that stay in the first-level cache beside a line of the image and of the gradient.
const SUMS: usize = 4096;
/// Elements of the image that a thread copies at a time, where channels are repeated.
const COPIED: usize = 4096;

/// See [`super::conv_weight_gradient`].
pub(super) fn weight_gradient(shape: &ConvShape, x: &[f32], gradient: &[f32], out: &mut [f32]) {
    let times = shape.out_channels / shape.in_channels;
    if times == 1 {
        return one_each(shape, x, gradient, out);
    }
    // Several results a channel: each sees a channel of its own, a copy.
    let copied = ConvShape { in_channels: shape.out_channels, groups: shape.out_channels, ..shape.clone() };
    with_scratch(elements(&[x.len(), times]), |copies| {
        parallel_chunks(copies, COPIED * times, COPIED * times / 4, |piece, to| {
            let from = &x[piece * COPIED..][..to.len() / times];
            to.chunks_exact_mut(times).zip(from).for_each(|(to, &x)| to.fill(x));
        });
        one_each(&copied, copies, gradient, out);
    });
}

/// [`weight_gradient`] for as many channels in the result as in the image.
fn one_each(shape: &ConvShape, x: &[f32], gradient: &[f32], out: &mut [f32]) {
    let (w, channels, taps) = (&shape.windows, shape.in_channels, shape.windows.kernel_len());
    with_scratch(out.len(), |sums| {
        sums.fill(0.0);
        let shared = SharedMut::new(sums);
        // Channels of which one job sums all windows, in an order that does not depend on their number: many, as neighbours in memory are
        // read together.
        let most = (SUMS / taps / CHANNELS).max(1) * CHANNELS;
        let size = channels.div_ceil(threads::sharing()).next_multiple_of(CHANNELS).min(most);
        let work = shape.batch * w.output_len() * taps * size.min(channels) / 50 + 1;
        parallel_for(channels.div_ceil(size), work, |strips| {
            for first in strips.map(|strip| strip * size) {
                // SAFETY: each strip of channels has its own sums.
                unsafe { strip(shape, x, gradient, first, size.min(channels - first), shared.ptr(0)) };
            }
        });
        exchange(sums, taps, channels, out);
    });
}

dispatched! {
    /// Adds what all windows say of some channels' weights to `sums`, `[kernel…, channels]`.
    ///
    /// # Safety
    /// Image, gradient and sums have the shape's size, and the channels are among its.
    unsafe fn strip<S>(s, shape: &ConvShape, x: &[f32], gradient: &[f32], first: usize, count: usize, sums: *mut f32) {
        let (w, channels) = (&shape.windows, shape.in_channels);
        for line in 0..shape.batch * w.output[0] * w.output[1] {
            let (image, oz, oy) =
                (line / (w.output[0] * w.output[1]), line / w.output[1] % w.output[0], line % w.output[1]);
            let gradient = gradient.as_ptr().add(line * w.output[2] * channels);
            for row in 0..w.kernel[0] * w.kernel[1] {
                let position = w.position(0, oz, row / w.kernel[1]).zip(w.position(1, oy, row % w.kernel[1]));
                let Some((z, y)) = position else { continue };
                let pixels = ((image * w.input[0] + z) * w.input[1] + y) * w.input[2];
                let x = x.as_ptr().wrapping_add(pixels * channels);
                for c in (first..first + count).step_by(S::LANES) {
                    let lanes = S::LANES.min(first + count - c);
                    let line = Line { w, channels, lanes, x: x.wrapping_add(c), gradient: gradient.add(c) };
                    let (mut k, to) = (0, sums.add(row * w.kernel[2] * channels + c));
                    while k < w.kernel[2] {
                        let to = to.add(k * channels);
                        k += match w.kernel[2] - k {
                            1 => line.add::<S, 1>(s, k, to),
                            2 => line.add::<S, 2>(s, k, to),
                            3 => line.add::<S, 3>(s, k, to),
                            5 => line.add::<S, 5>(s, k, to),
                            _ => line.add::<S, 4>(s, k, to),
                        };
                    }
                }
            }
        }
    }
}

/// A line of windows beside a line of the image that one row of the kernel's elements sees, of some channels.
struct Line<'a> {
    w: &'a Windows,
    channels: usize,
    /// Channels that are looked at, of those in a vector.
    lanes: usize,
    x: *const f32,
    gradient: *const f32,
}

impl Line<'_> {
    /// Adds to the sums of `K` elements from the `k`-th on, and yields their number. Several sums at once, as each addition waits for the
    /// one before it; each in the order of its windows.
    ///
    /// # Safety
    /// Image and gradient hold the line, and there are these elements and their sums, `channels` apart.
    #[inline(always)]
    unsafe fn add<S: Simd, const K: usize>(&self, s: S, k: usize, to: *mut f32) -> usize {
        let (w, lanes) = (self.w, self.lanes);
        let ahead = |tap: usize| (k + tap) * w.dilation[2];
        // The windows whose element lies in the image.
        let reaches: [(usize, usize); K] = core::array::from_fn(|tap| {
            let reaches =
                |limit: usize| limit.saturating_sub(ahead(tap)).div_ceil(w.stride[2]).min(w.output[2]);
            (reaches(w.padding[2].0), reaches(w.padding[2].0 + w.input[2]))
        });
        let low = reaches.iter().fold(0, |low, &(first, _)| low.max(first));
        let high = reaches.iter().fold(w.output[2], |high, &(_, end)| high.min(end)).max(low);
        let mut sums = [s.splat(0.0); K];
        // SAFETY: windows between an element's reaches have it in the image; the rest is the caller's promise.
        unsafe {
            let product = |tap: usize, ox: usize, sum: S::F| {
                let at = ox * w.stride[2] + ahead(tap) - w.padding[2].0;
                let x = s.load_up_to(self.x.add(at * self.channels), lanes);
                s.mul_add(x, s.load_up_to(self.gradient.add(ox * self.channels), lanes), sum)
            };
            for tap in 0..K {
                for ox in reaches[tap].0..reaches[tap].1.min(low) {
                    sums[tap] = product(tap, ox, sums[tap]);
                }
            }
            for ox in low..high {
                for tap in 0..K {
                    sums[tap] = product(tap, ox, sums[tap]);
                }
            }
            for tap in 0..K {
                for ox in reaches[tap].0.max(high)..reaches[tap].1 {
                    sums[tap] = product(tap, ox, sums[tap]);
                }
                let to = to.add(tap * self.channels);
                s.store_up_to(to, lanes, s.add(s.load_up_to(to, lanes), sums[tap]));
            }
        }
        K
    }
}
