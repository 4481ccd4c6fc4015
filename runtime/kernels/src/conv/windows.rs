//! The windows of an image as the right operand of a matrix product: a column a window, a row an element of the kernel.

use super::ConvShape;
use super::image::{SLACK, pad_channel, padded_size};
use crate::gemm::Part;
use crate::scratch::with_scratch;
use crate::simd::dispatched;
use crate::threads::{SharedMut, parallel_for};
use alloc::vec::Vec;

/// Where the rows and columns of the operand lie in a padded image.
pub(super) struct Windows<'a> {
    shape: &'a ConvShape,
    padded: [usize; 3],
    /// Position of each kernel element, from the window's first element on.
    rows: Vec<usize>,
}

/// Windows side by side in one row of the result.
#[derive(Clone, Copy, Default)]
struct Segment {
    /// The first window's first element, in the image.
    from: usize,
    /// The first window's column in the panel.
    to: usize,
    /// Number of windows.
    len: usize,
}

/// A panel has at most this many columns.
const COLUMNS: usize = 32;

impl<'a> Windows<'a> {
    /// The windows of a convolution.
    pub fn new(shape: &'a ConvShape) -> Self {
        let padded = padded_size(shape.input, shape.padding);
        let [kd, kh, kw] = shape.kernel;
        let mut rows = Vec::with_capacity(shape.depth());
        for c in 0..shape.in_channels / shape.groups {
            for (z, y, x) in (0..kd * kh * kw).map(|k| (k / (kh * kw), k / kw % kh, k % kw)) {
                let [z, y, x] = [z * shape.dilation[0], y * shape.dilation[1], x * shape.dilation[2]];
                rows.push(((c * padded[0] + z) * padded[1] + y) * padded[2] + x);
            }
        }
        Self { shape, padded, rows }
    }

    /// Pads an image and lends the function that writes the panels of its windows.
    pub fn of(&self, image: &[f32], parallel: bool, body: impl FnOnce(&(dyn Fn(Part, *mut f32) + Sync))) {
        let channel: usize = self.padded.iter().product();
        let input: usize = self.shape.input.iter().product();
        let channels = self.shape.in_channels / self.shape.groups;
        with_scratch(channels * channel + SLACK, |space| {
            let (image_space, slack) = space.split_at_mut(channels * channel);
            slack.fill(0.0);
            let to = SharedMut::new(image_space);
            let pad = |range: core::ops::Range<usize>| {
                for c in range {
                    // SAFETY: channels are disjoint.
                    let to = unsafe { to.slice(c * channel..(c + 1) * channel) };
                    let from = &image[c * input..(c + 1) * input];
                    pad_channel(from, self.shape.input, self.shape.padding, false, to);
                }
            };
            if parallel {
                parallel_for(channels, channel / 4 + 1, pad);
            } else {
                pad(0..channels);
            }
            let space = &*space;
            body(&|part, to| self.fill(space, part, to));
        });
    }

    /// Writes one panel.
    fn fill(&self, image: &[f32], part: Part, to: *mut f32) {
        let mut segments = [Segment::default(); COLUMNS];
        let mut count = 0;
        let [_, oh, ow] = self.shape.output;
        let stride = self.shape.stride;
        let mut column = part.cols.start;
        while column < part.cols.end {
            let (z, y, x) = (column / (oh * ow), column / ow % oh, column % ow);
            let len = (ow - x).min(part.cols.end - column);
            let from = (z * stride[0] * self.padded[1] + y * stride[1]) * self.padded[2] + x * stride[2];
            segments[count] = Segment { from, to: column - part.cols.start, len };
            count += 1;
            column += len;
        }
        let rows = &self.rows[part.depth];
        // SAFETY: windows lie inside of the padded image, vectors reach at most `SLACK` beyond it; the panel has room
        // for as many rows of `width`.
        unsafe {
            match stride[2] {
                1 | 2 => {
                    copy_segments(image.as_ptr(), rows, &segments[..count], stride[2] == 2, part.width, to)
                }
                step => {
                    for (l, row) in rows.iter().enumerate() {
                        for segment in &segments[..count] {
                            for i in 0..segment.len {
                                *to.add(l * part.width + segment.to + i) =
                                    image[row + segment.from + i * step];
                            }
                        }
                    }
                }
            }
        }
    }
}

dispatched! {
    /// `to[l · width + segment.to + i] = image[rows[l] + segment.from + i]`, or `… + 2 i]` when `every_second`. May write
    /// anything behind a segment, up to `width`.
    ///
    /// # Safety
    /// Segments lie in the image, behind which are [`SLACK`] more elements; `to` has room for `rows.len() · width`.
    unsafe fn copy_segments<S>(
        s,
        image: *const f32,
        rows: &[usize],
        segments: &[Segment],
        every_second: bool,
        width: usize,
        to: *mut f32,
    ) {
        if let ([segment], false) = (segments, every_second)
            && segment.len == width
            && width == 2 * S::LANES
        {
            for (l, row) in rows.iter().enumerate() {
                let (from, to) = (image.add(row + segment.from), to.add(l * width));
                s.store(to, s.load(from));
                s.store(to.add(S::LANES), s.load(from.add(S::LANES)));
            }
            return;
        }
        for (l, row) in rows.iter().enumerate() {
            let (from, to) = (image.add(*row), to.add(l * width));
            for segment in segments {
                let mut i = 0;
                while i < segment.len {
                    let at = segment.to + i;
                    let x = if every_second {
                        s.load_even(from.add(segment.from + 2 * i))
                    } else {
                        s.load(from.add(segment.from + i))
                    };
                    s.store_up_to(to.add(at), width - at, x);
                    i += S::LANES;
                }
            }
        }
    }
}
