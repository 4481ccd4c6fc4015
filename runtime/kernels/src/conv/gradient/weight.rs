//! The gradient of a convolution's weights.

use super::{check, depthwise};
use crate::conv::ConvShape;
use crate::gemm::{Epilogue, Matrix, Panels, Part, Product, pack_lhs_into};
use crate::scratch::with_scratch;
use crate::simd::dispatched;
use crate::threads::{SharedMut, parallel_for};
use alloc::vec::Vec;

/// Windows whose products are added at a time: a few blocks of the product's depth.
const WINDOWS: usize = 1024;

/// The gradient of the weights `[out, in / groups, kernel…]` of a convolution, from its image `[batch, spatial…, in]` and the
/// gradient of its result, `[batch, spatial…, out]`.
///
/// # Panics
/// When a slice does not have the shape's size.
pub fn conv_weight_gradient(shape: &ConvShape, x: &[f32], gradient: &[f32], out: &mut [f32]) {
    check(shape, x.len(), gradient.len(), out.len());
    if x.is_empty() || gradient.is_empty() {
        return out.fill(0.0);
    }
    if depthwise::suits_weights(shape) {
        return depthwise::weight_gradient(shape, x, gradient, out);
    }
    let ((ic, oc), taps) = (shape.group_channels(), shape.windows.kernel_len());
    let (windows, depth) = (shape.batch * shape.windows.output_len(), ic * taps);
    for (group, out) in out.chunks_exact_mut(oc * depth).enumerate() {
        let sums = |sums: &mut [f32]| {
            for start in (0..windows).step_by(WINDOWS) {
                let count = WINDOWS.min(windows - start);
                let columns = &gradient[start * shape.out_channels + group * oc..];
                let columns = Matrix { data: columns, row_stride: 1, col_stride: shape.out_channels };
                with_scratch(oc * count, |a| {
                    pack_lhs_into(columns, oc, count, a);
                    let fill = |part: Part, to: *mut f32| {
                        // SAFETY: the product asks for windows and elements that there are, and gives room for them.
                        unsafe { panel(shape, x, group, start, part, to) }
                    };
                    Product {
                        m: oc,
                        n: depth,
                        k: count,
                        a,
                        b: Panels::Fill(&fill),
                        c: &SharedMut::new(sums),
                        c_start: 0,
                        c_step: depth,
                        adds: start > 0,
                        epilogue: &Epilogue::default(),
                    }
                    .run();
                });
            }
        };
        if taps == 1 {
            sums(out);
        } else {
            with_scratch(oc * depth, |elements_first| {
                sums(elements_first);
                channels_first(elements_first, taps, ic, out);
            });
        }
    }
}

/// `[out, kernel…, in]` as `[out, in, kernel…]`.
fn channels_first(from: &[f32], taps: usize, ic: usize, to: &mut [f32]) {
    let to = SharedMut::new(to);
    parallel_for(from.len() / (taps * ic), taps * ic, |range| {
        for filter in range {
            let at = filter * taps * ic..(filter + 1) * taps * ic;
            let from = &from[at.clone()];
            // SAFETY: filters are disjoint.
            let to = unsafe { to.slice(at) };
            for (c, to) in to.chunks_exact_mut(taps).enumerate() {
                to.iter_mut().enumerate().for_each(|(tap, x)| *x = from[tap * ic + c]);
            }
        }
    });
}

/// Columns of a panel that are neighbouring channels of one element of the kernel.
struct Run {
    /// The element.
    element: [usize; 3],
    /// The first channel.
    channel: usize,
    /// The first column in the panel.
    to: usize,
    len: usize,
}

/// The runs that make up some columns.
fn runs(shape: &ConvShape, part: &Part) -> Vec<Run> {
    let (ic, _) = shape.group_channels();
    let mut runs = Vec::new();
    let mut at = part.cols.start;
    while at < part.cols.end {
        let (tap, channel) = (at / ic, at % ic);
        let len = (ic - channel).min(part.cols.end - at);
        let element = super::coordinates(tap, shape.windows.kernel);
        runs.push(Run { element, channel, to: at - part.cols.start, len });
        at += len;
    }
    runs
}

/// Writes one panel of the windows' rows: a row for each window from `start` on.
///
/// # Safety
/// `x` has the shape's size, windows and columns lie inside, and there is room for the panel.
unsafe fn panel(shape: &ConvShape, x: &[f32], group: usize, start: usize, part: Part, to: *mut f32) {
    let w = &shape.windows;
    let (ic, _) = shape.group_channels();
    let runs = runs(shape, &part);
    let windows = start + part.depth.start..start + part.depth.end;
    let mut first = windows.start;
    while first < windows.end {
        // Windows side by side in one line of the result.
        let (line, ox) = (first / w.output[2], first % w.output[2]);
        let count = (w.output[2] - ox).min(windows.end - first);
        let (image, oz, oy) =
            (line / (w.output[0] * w.output[1]), line / w.output[1] % w.output[0], line % w.output[1]);
        for run in &runs {
            // SAFETY: the panel's rows are the windows.
            let to = unsafe { to.add((first - windows.start) * part.width + run.to) };
            let row = w.position(0, oz, run.element[0]).zip(w.position(1, oy, run.element[1]));
            // The windows whose element lies in the image.
            let ahead = run.element[2] * w.dilation[2];
            let reaches =
                |limit: usize| limit.saturating_sub(ahead).div_ceil(w.stride[2]).clamp(ox, ox + count) - ox;
            let (low, high) = match row {
                Some(_) => (reaches(w.padding[2].0), reaches(w.padding[2].0 + w.input[2])),
                None => (0, 0),
            };
            let (z, y) = row.unwrap_or((0, 0));
            let pixels = ((image * w.input[0] + z) * w.input[1] + y) * w.input[2];
            let column = ((ox + low) * w.stride[2] + ahead).wrapping_sub(w.padding[2].0);
            let from = pixels
                .wrapping_add(column)
                .wrapping_mul(shape.in_channels)
                .wrapping_add(group * ic + run.channel);
            let from = x.as_ptr().wrapping_add(from);
            let step = w.stride[2] * shape.in_channels;
            // SAFETY: windows from `low` to `high` have their element in the image; the panel has all of them.
            unsafe { copy_run(from, step, to, part.width, run.len, count, low, high.max(low)) };
        }
        first += count;
    }
}

dispatched! {
    /// Copies `len` elements to each of the rows `low..high` of `count`, and zeros the others'.
    ///
    /// # Safety
    /// `from` is valid for these rows, `step` apart, and `to` for all, `width` apart.
    unsafe fn copy_run<S>(
        s,
        from: *const f32,
        step: usize,
        to: *mut f32,
        width: usize,
        len: usize,
        count: usize,
        low: usize,
        high: usize,
    ) {
        let mut i = 0;
        while i < len {
            let lanes = S::LANES.min(len - i);
            let zero = s.splat(0.0);
            for row in (0..low).chain(high..count) {
                s.store_up_to(to.add(row * width + i), lanes, zero);
            }
            let mut source = from.wrapping_add(i);
            if lanes == S::LANES {
                for row in low..high {
                    s.store(to.add(row * width + i), s.load(source));
                    source = source.wrapping_add(step);
                }
            } else {
                for row in low..high {
                    s.store_first(to.add(row * width + i), lanes, s.load_first(source, lanes));
                    source = source.wrapping_add(step);
                }
            }
            i += lanes;
        }
    }
}
