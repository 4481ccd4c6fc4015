//! Gradients of convolutions in which each channel of the result sees one channel of the image: vectors of channels.

use super::coordinates;
use crate::conv::{ConvShape, exchange};
use crate::scratch::with_scratch;
use crate::simd::dispatched;
use crate::threads::{SharedMut, parallel_for};

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

/// Channels of which one job sums all windows.
const STRIP: usize = 16;

/// See [`super::conv_weight_gradient`].
pub(super) fn weight_gradient(shape: &ConvShape, x: &[f32], gradient: &[f32], out: &mut [f32]) {
    let (w, channels, taps) = (&shape.windows, shape.in_channels, shape.windows.kernel_len());
    with_scratch(out.len(), |sums| {
        sums.fill(0.0);
        let shared = SharedMut::new(sums);
        let work = shape.batch * w.output_len() * taps / 2 + 1;
        parallel_for(channels.div_ceil(STRIP), work, |strips| {
            for first in strips.map(|strip| strip * STRIP) {
                // SAFETY: each strip of channels has its own sums.
                unsafe { strip(shape, x, gradient, first, STRIP.min(channels - first), shared.ptr(0)) };
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
        for c in (first..first + count).step_by(S::LANES) {
            let lanes = S::LANES.min(first + count - c);
            for line in 0..shape.batch * w.output[0] * w.output[1] {
                let (image, oz, oy) =
                    (line / (w.output[0] * w.output[1]), line / w.output[1] % w.output[0], line % w.output[1]);
                let g = gradient.as_ptr().add(line * w.output[2] * channels + c);
                for row in 0..w.kernel[0] * w.kernel[1] {
                    let position = w.position(0, oz, row / w.kernel[1]).zip(w.position(1, oy, row % w.kernel[1]));
                    let Some((z, y)) = position else { continue };
                    let pixels = ((image * w.input[0] + z) * w.input[1] + y) * w.input[2];
                    let from = x.as_ptr().wrapping_add(pixels * channels + c);
                    for k in 0..w.kernel[2] {
                        let ahead = k * w.dilation[2];
                        let reaches = |limit: usize| {
                            limit.saturating_sub(ahead).div_ceil(w.stride[2]).min(w.output[2])
                        };
                        let (low, high) = (reaches(w.padding[2].0), reaches(w.padding[2].0 + w.input[2]));
                        let mut sum = s.splat(0.0);
                        for ox in low..high {
                            let at = ox * w.stride[2] + ahead - w.padding[2].0;
                            let x = s.load_up_to(from.add(at * channels), lanes);
                            sum = s.mul_add(x, s.load_up_to(g.add(ox * channels), lanes), sum);
                        }
                        let to = sums.add((row * w.kernel[2] + k) * channels + c);
                        s.store_up_to(to, lanes, s.add(s.load_up_to(to, lanes), sum));
                    }
                }
            }
        }
    }
}
