//! The windows of an image with few channels, which come first: the channels of a pixel would fill no vector, but
//! neighbouring windows' elements do.
//!
//! Channels are padded, so that windows need no bounds; then the panels of a product's left operand are written when they
//! are wanted: for each element of the kernel, those of neighbouring windows side by side.

use super::ConvShape;
use crate::gemm::Part;
use crate::scratch::with_scratch;
use crate::simd::dispatched;
use crate::threads::parallel_chunks;
use alloc::vec::Vec;

/// Most channels of images that are taken with their channels first.
const FEW: usize = 4;
/// Elements behind a padded image that vectors may read.
const SLACK: usize = 64;

/// Whether this file's way is the one for a convolution.
pub(super) fn suit(shape: &ConvShape) -> bool {
    let few = shape.groups == 1 && shape.in_channels <= FEW;
    few && !shape.windows.are_points() && shape.windows.stride[2] <= 2
}

/// Where the elements of the operand lie in a padded image.
pub(super) struct Planes<'a> {
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

impl<'a> Planes<'a> {
    /// The windows of a convolution.
    pub fn new(shape: &'a ConvShape) -> Self {
        let w = &shape.windows;
        let padded: [usize; 3] = core::array::from_fn(|i| w.input[i] + w.padding[i].0 + w.padding[i].1);
        let [kd, kh, kw] = w.kernel;
        let mut rows = Vec::with_capacity(shape.depth());
        for c in 0..shape.in_channels {
            for (z, y, x) in (0..kd * kh * kw).map(|k| (k / (kh * kw), k / kw % kh, k % kw)) {
                let [z, y, x] = [z * w.dilation[0], y * w.dilation[1], x * w.dilation[2]];
                rows.push(((c * padded[0] + z) * padded[1] + y) * padded[2] + x);
            }
        }
        Self { shape, padded, rows }
    }

    /// Pads an image and lends the function that writes panels: a part's columns are windows.
    pub fn of(&self, image: &[f32], body: impl FnOnce(&(dyn Fn(Part, *mut f32) + Sync))) {
        let channel: usize = self.padded.iter().product();
        let channels = self.shape.in_channels;
        with_scratch(channels * channel + SLACK, |space| {
            let (image_space, slack) = space.split_at_mut(channels * channel);
            slack.fill(0.0);
            let input = self.shape.windows.input_len();
            parallel_chunks(image_space, channel.max(1), channel / 4 + 1, |c, to| {
                self.pad(&image[c * input..(c + 1) * input], to);
            });
            let space = &*space;
            body(&|part, to| self.fill(space, part, to));
        });
    }

    /// Copies one channel into its padded place, with zeros around it.
    fn pad(&self, from: &[f32], to: &mut [f32]) {
        let w = &self.shape.windows;
        let [_, rows, cols] = w.input;
        if w.padding != [(0, 0); 3] {
            to.fill(0.0);
        }
        for (i, row) in from.chunks(cols.max(1)).enumerate() {
            let (z, y) = (i / rows + w.padding[0].0, i % rows + w.padding[1].0);
            let start = (z * self.padded[1] + y) * self.padded[2] + w.padding[2].0;
            to[start..start + cols].copy_from_slice(row);
        }
    }

    /// Writes one panel.
    fn fill(&self, image: &[f32], part: Part, to: *mut f32) {
        let mut segments = [Segment::default(); COLUMNS];
        let mut count = 0;
        let [_, oh, ow] = self.shape.windows.output;
        let stride = self.shape.windows.stride;
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
            let every_second = stride[2] == 2;
            copy_segments(image.as_ptr(), rows, &segments[..count], every_second, part.width, to);
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
