//! The lines of images that windows see, and the rows of results.

use super::ConvShape;
use crate::threads::{self, parallel_for};
use alloc::vec::Vec;

/// For each row of the result, the lines of the image that its windows see, with the lines of the kernel: positions of
/// their first elements.
pub(super) struct Lines {
    all: Vec<(usize, usize)>,
    /// Where each row's lines end.
    ends: Vec<usize>,
}

impl Lines {
    /// In images of so many channels, and kernels of so many numbers for each element.
    pub fn of(shape: &ConvShape, channels: usize, numbers: usize) -> Self {
        let w = &shape.windows;
        let mut lines = Self { all: Vec::new(), ends: Vec::new() };
        for n in 0..shape.batch {
            for (oz, oy) in (0..w.output[0] * w.output[1]).map(|i| (i / w.output[1], i % w.output[1])) {
                for (kz, ky) in (0..w.kernel[0] * w.kernel[1]).map(|k| (k / w.kernel[1], k % w.kernel[1])) {
                    if let (Some(z), Some(y)) = (w.position(0, oz, kz), w.position(1, oy, ky)) {
                        let line = ((n * w.input[0] + z) * w.input[1] + y) * w.input[2] * channels;
                        lines.all.push((line, (kz * w.kernel[1] + ky) * w.kernel[2] * numbers));
                    }
                }
                lines.ends.push(lines.all.len());
            }
        }
        lines
    }

    /// Those of a row, counted over all images.
    pub fn row(&self, row: usize) -> &[(usize, usize)] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.all[start..self.ends[row]]
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
