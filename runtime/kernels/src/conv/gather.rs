//! The windows of images as rows: for each element of the kernel, the channels of the pixel under it, 0 in the padding.

use super::ConvShape;
use crate::simd::{Simd, dispatched};
use core::ops::Range;

dispatched! {
    /// Writes the elements `depth` of the windows `rows` (counted over all images), one window behind the other.
    ///
    /// # Safety
    /// `x` has the shape's size, windows and elements lie inside of it, and `to` has room for them.
    pub(super) unsafe fn gather<S>(
        s,
        shape: &ConvShape,
        x: &[f32],
        group: usize,
        rows: Range<usize>,
        depth: Range<usize>,
        to: *mut f32,
    ) {
        let w = &shape.windows;
        let [_, oh, ow] = w.output;
        let ic = shape.in_channels / shape.groups;
        // A row of the kernel is one run of the image's elements when nothing lies between its pixels.
        let run = w.kernel[2] * ic;
        let dense = w.dilation[2] == 1 && shape.groups == 1;
        for (i, row) in rows.enumerate() {
            let to = to.add(i * depth.len());
            let (n, oz, oy, ox) = (row / (w.output[0] * oh * ow), row / (oh * ow) % w.output[0], row / ow % oh, row % ow);
            let inside = w.inside(2, ox);
            for line in depth.start / run..depth.end.div_ceil(run) {
                let (start, end) = (depth.start.max(line * run), depth.end.min((line + 1) * run));
                let part = start - line * run..end - line * run;
                let to = to.add(start - depth.start);
                let z = w.position(0, oz, line / w.kernel[1]);
                // Only what is in the image has an address: padding is of any size.
                let Some((z, y)) = z.zip(w.position(1, oy, line % w.kernel[1])).filter(|_| !inside.is_empty()) else {
                    zero(s, to, part.len());
                    continue;
                };
                let pixels = x.as_ptr().add(((n * w.input[0] + z) * w.input[1] + y) * w.input[2] * shape.in_channels);
                // Where the window's first element would be, perhaps in the padding.
                let first = (ox * w.stride[2]) as isize - w.padding[2].0 as isize;
                if dense {
                    let from = pixels.wrapping_offset(first * ic as isize);
                    line_of_window(s, from, inside.start * ic..inside.end * ic, part, to);
                    continue;
                }
                for k in part.start / ic..part.end.div_ceil(ic) {
                    let channels = part.start.max(k * ic) - k * ic..part.end.min((k + 1) * ic) - k * ic;
                    let to = to.add(k * ic + channels.start - part.start);
                    if inside.contains(&k) {
                        let pixel = (first + (k * w.dilation[2]) as isize) as usize;
                        let from = pixels.add(pixel * shape.in_channels + group * ic);
                        copy(s, from.add(channels.start), to, channels.len());
                    } else {
                        zero(s, to, channels.len());
                    }
                }
            }
        }
    }
}

/// Copies the elements `part` of a line, of which those not `inside` are 0.
#[inline(always)]
unsafe fn line_of_window<S: Simd>(
    s: S,
    from: *const f32,
    inside: Range<usize>,
    part: Range<usize>,
    to: *mut f32,
) {
    let first = inside.start.clamp(part.start, part.end);
    let end = inside.end.clamp(first, part.end);
    // SAFETY: the caller's promise: `inside` is in the image, `part` in the destination.
    unsafe {
        if first > part.start {
            zero(s, to, first - part.start);
        }
        copy(s, from.wrapping_add(first), to.add(first - part.start), end - first);
        if part.end > end {
            zero(s, to.add(end - part.start), part.end - end);
        }
    }
}

#[inline(always)]
unsafe fn copy<S: Simd>(s: S, from: *const f32, to: *mut f32, n: usize) {
    let mut i = 0;
    // SAFETY: the caller's promise: both sides hold `n` elements.
    unsafe {
        while i + S::LANES <= n {
            s.store(to.add(i), s.load(from.add(i)));
            i += S::LANES;
        }
        if i < n {
            s.store_first(to.add(i), n - i, s.load_first(from.add(i), n - i));
        }
    }
}

#[inline(always)]
unsafe fn zero<S: Simd>(s: S, to: *mut f32, n: usize) {
    for i in (0..n).step_by(S::LANES) {
        // SAFETY: the caller's promise: there is room for `n` elements.
        unsafe { s.store_up_to(to.add(i), n - i, s.splat(0.0)) };
    }
}
