//! The lines of images that windows see, and the rows of results.

use super::ConvShape;
use crate::threads::{self, parallel_for};
use smallvec::SmallVec;

/// Lines of a window for which no memory is asked.
const INLINE: usize = 8;

/// The lines of the image that the windows in a row of the result see, with the lines of the kernel: positions of their first elements.
pub(super) type RowLines = SmallVec<[(usize, usize); INLINE]>;

/// Where lines of images and kernels are.
pub(super) struct Lines<'a> {
    shape: &'a ConvShape,
    channels: usize,
    numbers: usize,
}

impl<'a> Lines<'a> {
    /// In images of so many channels, and kernels of so many numbers for each element.
    pub fn of(shape: &'a ConvShape, channels: usize, numbers: usize) -> Self {
        Self { shape, channels, numbers }
    }

    /// Those that the windows in a row of the result see; rows are counted over all images.
    pub fn row(&self, row: usize) -> RowLines {
        let w = &self.shape.windows;
        let (n, oz, oy) =
            (row / (w.output[0] * w.output[1]), row / w.output[1] % w.output[0], row % w.output[1]);
        let mut lines = RowLines::new();
        for kz in w.inside(0, oz) {
            for ky in w.inside(1, oy) {
                // Both coordinates lie in the image, so that nothing is subtracted from too little.
                let z = oz * w.stride[0] + kz * w.dilation[0] - w.padding[0].0;
                let y = oy * w.stride[1] + ky * w.dilation[1] - w.padding[1].0;
                let line = ((n * w.input[0] + z) * w.input[1] + y) * w.input[2] * self.channels;
                lines.push((line, (kz * w.kernel[1] + ky) * w.kernel[2] * self.numbers));
            }
        }
        lines
    }
}

/// Rows for each thread from which on threads have rows of their own: fewer could not be shared out evenly.
const ROWS: usize = 4;

/// Calls `body` with each row of a result, counted over all images, and each strip of its channels; `work` is the cost of a call in nanoseconds.
///
/// A thread has rows of its own, which are where it finds and leaves them in its caches when other operations do likewise; channels where there
/// are few rows. It computes a strip in all of its rows before the next.
pub(super) fn for_each_strip(rows: usize, strips: usize, work: usize, body: impl Fn(usize, usize) + Sync) {
    let threads = threads::threads();
    if threads == 1 || rows < ROWS * threads {
        return parallel_for(strips * rows, work, |range| range.for_each(|i| body(i % rows, i / rows)));
    }
    // Windows of neighbouring rows see the same lines: ranges of some rows.
    let ranges = threads * (rows / (3 * threads)).clamp(1, 4);
    let work = work * strips * rows / ranges + 1;
    parallel_for(ranges, work, |part| {
        for i in part {
            for strip in 0..strips {
                (rows * i / ranges..rows * (i + 1) / ranges).for_each(|row| body(row, strip));
            }
        }
    });
}
