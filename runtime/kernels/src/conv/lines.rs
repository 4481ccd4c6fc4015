//! The lines of images that windows see, and the rows of results.

use super::ConvShape;
use crate::scratch::{self, Aligned};
use crate::threads::{self, parallel_for};

/// A line of an image that a window sees, and the line of the kernel: positions of their first elements.
pub(super) type Line = [usize; 2];

/// f32 in the space of a [`Line`].
const LEN: usize = size_of::<Line>() / size_of::<f32>();

/// For each row of the result, the lines of the image that its windows see, with the lines of the kernel.
pub(super) struct Lines {
    /// A run for each row: how many lines there are, those, and room for as many as the kernel has. In working space, which is used again.
    space: Aligned,
    /// Lines in a run, with the first.
    step: usize,
}

impl Lines {
    /// In images of so many channels, and kernels of so many numbers for each element.
    pub fn of(shape: &ConvShape, channels: usize, numbers: usize) -> Self {
        let w = &shape.windows;
        let step = 1 + w.kernel[0] * w.kernel[1];
        let rows = shape.batch * w.output[0] * w.output[1];
        let mut lines = Self { space: scratch::take(rows * step * LEN), step };
        let all: &mut [Line] = bytemuck::cast_slice_mut(&mut lines.space[..rows * step * LEN]);
        for (row, to) in all.chunks_exact_mut(step).enumerate() {
            let (n, oz, oy) =
                (row / (w.output[0] * w.output[1]), row / w.output[1] % w.output[0], row % w.output[1]);
            let mut count = 0;
            for (kz, ky) in (0..w.kernel[0]).flat_map(|kz| (0..w.kernel[1]).map(move |ky| (kz, ky))) {
                if let (Some(z), Some(y)) = (w.position(0, oz, kz), w.position(1, oy, ky)) {
                    let line = ((n * w.input[0] + z) * w.input[1] + y) * w.input[2] * channels;
                    count += 1;
                    to[count] = [line, (kz * w.kernel[1] + ky) * w.kernel[2] * numbers];
                }
            }
            to[0][0] = count;
        }
        lines
    }

    /// Those of a row, counted over all images.
    pub fn row(&self, row: usize) -> &[Line] {
        let run: &[Line] = bytemuck::cast_slice(&self.space[row * self.step * LEN..][..self.step * LEN]);
        &run[1..=run[0][0]]
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        scratch::give(core::mem::replace(&mut self.space, Aligned::new(0)));
    }
}

/// Rows for each thread from which on threads have rows of their own: fewer could not be shared out evenly.
const ROWS: usize = 4;

/// Calls `body` with each row of a result, counted over all images, and each strip of its channels; `work` is the cost of a call in nanoseconds.
///
/// A thread has rows of its own, which are where it finds and leaves them in its caches when other operations do likewise; channels where there
/// are few rows. It computes a strip in all of its rows before the next.
pub(super) fn for_each_strip(rows: usize, strips: usize, work: usize, body: impl Fn(usize, usize) + Sync) {
    let threads = threads::sharing();
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
