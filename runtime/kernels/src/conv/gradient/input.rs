//! The gradient of a convolution's image.

use super::{check, coordinates, depthwise};
use crate::conv::{ConvShape, ConvWeight, conv};
use crate::gemm::{Epilogue, Matrix, PackedRhs, PanelOrder, Rows, RowsProduct};
use crate::scratch::with_scratch;
use crate::threads::{SharedMut, parallel_for};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use kiln_types::Windows;

/// Numbers that are looked at together.
const LOOK: usize = 4096;

/// The gradient of the image `[batch, spatial…, in]` of a convolution, from the result's `[batch, spatial…, out]` and the
/// weights `[out, in / groups, kernel…]`.
///
/// # Panics
/// When a slice does not have the shape's size.
pub fn conv_input_gradient(shape: &ConvShape, gradient: &[f32], weight: &[f32], out: &mut [f32]) {
    check(shape, out.len(), gradient.len(), weight.len());
    if gradient.is_empty() {
        return out.fill(0.0);
    }
    by_products(shape, gradient, weight, out);
    // Products multiply weights with zeros where no window reaches a pixel, which an infinite one makes NaN of.
    if any(out, |x| x.is_nan()) && any(weight, |w| !w.is_finite()) {
        match depthwise::suits(shape) {
            true => depthwise::input_gradient(shape, gradient, weight, out),
            false => reached(shape, gradient, weight, out),
        }
    }
}

/// Whether something holds for any number.
fn any(numbers: &[f32], is: impl Fn(f32) -> bool + Sync) -> bool {
    let found = AtomicBool::new(false);
    parallel_for(numbers.len().div_ceil(LOOK), LOOK / 10, |range| {
        let end = numbers.len().min(range.end * LOOK);
        // Without an early end, so that vectors are compared.
        if numbers[range.start * LOOK..end].iter().fold(false, |any, &x| any | is(x)) {
            found.store(true, Ordering::Relaxed);
        }
    });
    found.into_inner()
}

/// The gradient pixel by pixel, of the windows that reach it alone.
fn reached(shape: &ConvShape, gradient: &[f32], weight: &[f32], out: &mut [f32]) {
    let ((ic, oc), w) = (shape.group_channels(), &shape.windows);
    let taps = w.kernel_len();
    let window = |axis: usize, at: usize, tap: usize| {
        let ahead = (at + w.padding[axis].0).checked_sub(tap * w.dilation[axis])?;
        let window = ahead / w.stride[axis];
        (ahead.is_multiple_of(w.stride[axis]) && window < w.output[axis]).then_some(window)
    };
    let shared = SharedMut::new(out);
    let work = shape.in_channels * oc * taps / w.stride.iter().product::<usize>() + 20;
    parallel_for(shape.batch * w.input_len(), work, |pixels| {
        for pixel in pixels {
            // SAFETY: each pixel is its own.
            let to = unsafe { shared.slice(pixel * shape.in_channels..(pixel + 1) * shape.in_channels) };
            to.fill(0.0);
            let (image, at) = (pixel / w.input_len(), coordinates(pixel % w.input_len(), w.input));
            for tap in 0..taps {
                let element = coordinates(tap, w.kernel);
                let [z, y, x] = [0, 1, 2].map(|axis| window(axis, at[axis], element[axis]));
                let (Some(z), Some(y), Some(x)) = (z, y, x) else { continue };
                let from = ((image * w.output[0] + z) * w.output[1] + y) * w.output[2] + x;
                let gradient = &gradient[from * shape.out_channels..][..shape.out_channels];
                for (o, &gradient) in gradient.iter().enumerate() {
                    let to = &mut to[o / oc * ic..][..ic];
                    let weights = weight[o * ic * taps + tap..].iter().step_by(taps);
                    to.iter_mut().zip(weights).for_each(|(to, weight)| *to += gradient * weight);
                }
            }
        }
    });
}

/// See [`conv_input_gradient`].
fn by_products(shape: &ConvShape, gradient: &[f32], weight: &[f32], out: &mut [f32]) {
    if let Some(turned) = turned_around(shape) {
        return with_scratch(weight.len(), |filters| {
            turned_weights(shape, weight, filters);
            conv(&turned, gradient, ConvWeight::Plain(filters), None, None, false, out);
        });
    }
    if depthwise::suits(shape) {
        return depthwise::input_gradient(shape, gradient, weight, out);
    }
    let phases: [Vec<Phase>; 3] = [0, 1, 2].map(|axis| phases(&shape.windows, axis));
    for z in &phases[0] {
        for y in &phases[1] {
            for x in &phases[2] {
                Part { shape, phases: [z, y, x] }.run(gradient, weight, out);
            }
        }
    }
}

/// The convolution of the gradient that yields the image's, if the windows' step is 1.
fn turned_around(shape: &ConvShape) -> Option<ConvShape> {
    let w = &shape.windows;
    if w.stride != [1; 3] {
        return None;
    }
    let mut padding = [(0, 0); 3];
    for axis in 0..3 {
        let reach = w.dilation[axis] * (w.kernel[axis] - 1);
        let before = reach.checked_sub(w.padding[axis].0)?;
        // As many results as the image has pixels.
        padding[axis] = (before, (w.input[axis] + reach).checked_sub(w.output[axis] + before)?);
    }
    let windows = Windows::new(&w.output, &w.kernel, &w.stride, &padding, &w.dilation, false);
    let (in_channels, out_channels) = (shape.out_channels, shape.in_channels);
    let turned = ConvShape { windows, in_channels, out_channels, ..shape.clone() };
    (!turned.takes_channels_first()).then_some(turned)
}

/// `[in, out / groups, kernel…]` with the kernel turned around.
fn turned_weights(shape: &ConvShape, weight: &[f32], turned: &mut [f32]) {
    let ((ic, oc), taps) = (shape.group_channels(), shape.windows.kernel_len());
    let to = SharedMut::new(turned);
    parallel_for(shape.groups * ic, oc * taps, |range| {
        for i in range {
            let group = i / ic;
            // SAFETY: each input channel has its own part.
            let to = unsafe { to.slice(i * oc * taps..(i + 1) * oc * taps) };
            for (o, to) in to.chunks_exact_mut(taps).enumerate() {
                let from = &weight[((group * oc + o) * ic + i % ic) * taps..][..taps];
                to.iter_mut().zip(from.iter().rev()).for_each(|(to, from)| *to = *from);
            }
        }
    });
}

/// The pixels of one place within a step, along one axis: `first`, `first + stride`, ….
struct Phase {
    first: usize,
    count: usize,
    /// Elements of the kernel that meet them, each with the window that meets the first pixel; the next pixel meets the
    /// next window.
    taps: Vec<(usize, isize)>,
}

fn phases(w: &Windows, axis: usize) -> Vec<Phase> {
    let (stride, input) = (w.stride[axis] as isize, w.input[axis]);
    let phase = |first: usize| {
        let tap = |k: usize| {
            let ahead = (first + w.padding[axis].0) as isize - (k * w.dilation[axis]) as isize;
            (ahead.rem_euclid(stride) == 0).then_some((k, ahead / stride))
        };
        Phase {
            first,
            count: (input - first).div_ceil(w.stride[axis]),
            taps: (0..w.kernel[axis]).filter_map(tap).collect(),
        }
    };
    (0..w.stride[axis].min(input)).map(phase).collect()
}

/// The pixels of one place within a step, along all axes.
struct Part<'a> {
    shape: &'a ConvShape,
    phases: [&'a Phase; 3],
}

/// One element of the kernel: which it is, and the window that meets the first pixel.
struct Tap {
    element: usize,
    window: [isize; 3],
}

impl Part<'_> {
    fn taps(&self) -> Vec<Tap> {
        let [z, y, x] = self.phases;
        let [_, height, width] = self.shape.windows.kernel;
        let mut taps = Vec::with_capacity(z.taps.len() * y.taps.len() * x.taps.len());
        for (kz, oz) in &z.taps {
            for (ky, oy) in &y.taps {
                for (kx, ox) in &x.taps {
                    taps.push(Tap { element: (kz * height + ky) * width + kx, window: [*oz, *oy, *ox] });
                }
            }
        }
        taps
    }

    fn run(&self, gradient: &[f32], weight: &[f32], out: &mut [f32]) {
        let shape = self.shape;
        let ((ic, oc), elements) = (shape.group_channels(), shape.windows.kernel_len());
        let counts = self.phases.map(|phase| phase.count);
        let rows = shape.batch * counts.iter().product::<usize>();
        let taps = self.taps();
        let whole = shape.windows.stride == [1; 3];
        let depth = taps.len() * oc;
        for group in 0..shape.groups {
            let packed = with_scratch(depth * ic, |filters| {
                for (tap, filters) in taps.iter().zip(filters.chunks_exact_mut((oc * ic).max(1))) {
                    for (o, filters) in filters.chunks_exact_mut(ic).enumerate() {
                        let from = weight[(group * oc + o) * ic * elements + tap.element..].iter();
                        filters.iter_mut().zip(from.step_by(elements)).for_each(|(to, from)| *to = *from);
                    }
                }
                PackedRhs::once(Matrix::row_major(filters, ic), depth, ic)
            });
            let gather = |rows: Range<usize>, depth: Range<usize>, to: *mut f32| {
                // SAFETY: the product gives room for what it asks for, and asks for what there is.
                unsafe { self.gather(&taps, gradient, group * oc, rows, depth, to) }
            };
            let epilogue = Epilogue::default();
            let product = |c: &SharedMut<'_, f32>, c_start, c_step| {
                let a = Rows::Gather(&gather);
                let (order, epilogue) = (PanelOrder::Forwards, &epilogue);
                RowsProduct { m: rows, a, b: &packed, c, c_start, c_step, adds: false, order, epilogue }
                    .run();
            };
            if whole {
                product(&SharedMut::new(out), group * ic, shape.in_channels);
            } else {
                with_scratch(rows * ic, |sums| {
                    product(&SharedMut::new(sums), 0, ic);
                    self.spread(sums, group * ic, out);
                });
            }
            packed.recycle();
        }
    }

    /// Writes the gradient of the windows that meet some pixels: for each pixel, the channels of each element's window, 0
    /// where there is none.
    ///
    /// # Safety
    /// Pixels and depth lie inside; there is room for them at `to`.
    unsafe fn gather(
        &self,
        taps: &[Tap],
        gradient: &[f32],
        channel: usize,
        rows: Range<usize>,
        depth: Range<usize>,
        to: *mut f32,
    ) {
        let (shape, output) = (self.shape, self.shape.windows.output);
        let (_, oc) = shape.group_channels();
        let counts = self.phases.map(|phase| phase.count);
        let pixels: usize = counts.iter().product();
        let mut to = to;
        for row in rows {
            let (image, at) = (row / pixels, coordinates(row % pixels, counts));
            for t in depth.start / oc..depth.end.div_ceil(oc) {
                let channels = depth.start.max(t * oc) - t * oc..depth.end.min((t + 1) * oc) - t * oc;
                let mut pixel = image;
                let mut inside = true;
                for axis in 0..3 {
                    let window = at[axis] as isize + taps[t].window[axis];
                    inside &= window >= 0 && window < output[axis] as isize;
                    pixel = pixel.wrapping_mul(output[axis]).wrapping_add(window as usize);
                }
                let count = channels.len();
                // SAFETY: a pixel inside has these channels; the caller gives room.
                unsafe {
                    if inside {
                        let from =
                            &gradient[pixel * shape.out_channels + channel + channels.start..][..count];
                        core::ptr::copy_nonoverlapping(from.as_ptr(), to, count);
                    } else {
                        core::ptr::write_bytes(to, 0, count);
                    }
                    to = to.add(count);
                }
            }
        }
    }

    /// Writes the pixels to where they stand in the image.
    fn spread(&self, sums: &[f32], channel: usize, out: &mut [f32]) {
        let (shape, w) = (self.shape, &self.shape.windows);
        let (ic, _) = shape.group_channels();
        let [depth, height, width] = self.phases.map(|phase| phase.count);
        let out = SharedMut::new(out);
        parallel_for(shape.batch * depth * height, width * ic / 4 + 10, |lines| {
            for line in lines {
                let (image, z, y) = (line / (depth * height), line / height % depth, line % height);
                let place = |axis: usize, at: usize| self.phases[axis].first + at * w.stride[axis];
                let start = ((image * w.input[0] + place(0, z)) * w.input[1] + place(1, y)) * w.input[2];
                for x in 0..width {
                    let at = (start + place(2, x)) * shape.in_channels + channel;
                    // SAFETY: each pixel of each part is another one.
                    let to = unsafe { out.slice(at..at + ic) };
                    to.copy_from_slice(&sums[(line * width + x) * ic..][..ic]);
                }
            }
        });
    }
}
