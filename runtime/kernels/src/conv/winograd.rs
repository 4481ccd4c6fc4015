//! 3x3 convolutions by Winograd's algorithm F(4x4, 3x3): a square of 4x4 results takes 36 multiplications instead of 144.
//!
//! `Y = Aᵀ [(G g Gᵀ) ⊙ (Bᵀ d B)] A` for a square `d` of 6x6 pixels and a filter `g` (`transforms`). Summed over the channels, the
//! products of one of the 36 places are a matrix product of the squares with the filters, so a convolution is: squares
//! transformed, 36 products, results transformed back. Few filters are transformed once, when they are packed; many when they are used (`filters`).
//! An infinity or a NaN spreads over the results of its square, as NaN.
//!
//! Squares round two to three times as much as the direct sum, which inference does not see. Steps of a training add up
//! and decide at kinks (of ReLU, of max pooling) by the last digits, so weights that serve once, as those that train do, are
//! not transformed.

mod filters;
mod rounded;
mod transforms;

pub(super) use filters::Filters;
pub(super) use rounded::{RoundedFilters, suits_rounded, winograd_rounded};

use super::{ConvShape, End};
use crate::bounds::Bounds;
use crate::gemm::{
    Bias, Epilogue, Matrix, PackedRhs, PanelOrder, Rows, RowsProduct, panel_cols, panel_product,
};
use crate::math::{Map, map_rows};
use crate::scratch::with_scratch;
use crate::threads::{self, SharedMut, parallel_for};
use core::ops::Range;
use filters::Panels;
use transforms::{Results, Seen, TransformPixels, TransformSums, transform_pixels, transform_sums};

/// Side of a square of results.
const SIDE: usize = 4;
/// Side of the square of pixels that they see.
const SEEN: usize = SIDE + 2;
/// Places in it: so many products there are.
const PLACES: usize = SEEN * SEEN;

/// Elements that a block of squares has at most, before and after the products: half of a second-level cache of 1 MiB.
const BLOCK: usize = 128 * 1024;
/// Squares in a block at least: each block reads all filters.
const SQUARES: usize = 28;
/// Steps of the depth for which the filters of a panel are transformed at a time: about 300 KB of them.
const STEPS: usize = 64;

/// Whether this file's way is the one for a convolution.
pub(super) fn suits(shape: &ConvShape) -> bool {
    // Transforming pays when each transformed element is used often; filters, four times as large as before, must be used
    // by some squares.
    is_square(shape) && shape.in_channels >= 16 && shape.out_channels >= 16 && squares(shape) >= 12
}

/// Whether it is a convolution with a 3x3 kernel that sees every pixel as the next.
fn is_square(shape: &ConvShape) -> bool {
    let w = &shape.windows;
    let plain = shape.groups == 1 && w.stride == [1; 3] && w.dilation == [1; 3];
    plain && w.kernel == [1, 3, 3] && w.padding[0] == (0, 0)
}

/// Squares of results in all images.
pub(super) fn squares(shape: &ConvShape) -> usize {
    Squares::of(shape, SIDE).count
}

/// How the images' results are cut into squares.
struct Squares {
    /// Side of a square of results.
    side: usize,
    rows: usize,
    cols: usize,
    /// In all images.
    count: usize,
}

impl Squares {
    fn of(shape: &ConvShape, side: usize) -> Self {
        let [depth, height, width] = shape.windows.output;
        let (rows, cols) = (height.div_ceil(side), width.div_ceil(side));
        Self { side, rows, cols, count: shape.batch * depth * rows * cols }
    }

    /// Image, and first row and column, of a square.
    fn place(&self, square: usize) -> (usize, usize, usize) {
        let in_image = square % (self.rows * self.cols);
        (square / (self.rows * self.cols), in_image / self.cols * self.side, in_image % self.cols * self.side)
    }
}

/// The images and their results.
struct Images<'a> {
    shape: &'a ConvShape,
    squares: Squares,
    x: &'a [f32],
    end: &'a End<'a>,
    out: SharedMut<'a, f32>,
}

impl Images<'_> {
    /// A square's pixels, transformed: `to[place · step + channel]`.
    ///
    /// # Safety
    /// `to` has room for all channels at each place; the transform is of squares of this size.
    unsafe fn transform_pixels(&self, transform: TransformPixels, square: usize, to: *mut f32, step: usize) {
        let (image, row, col) = self.squares.place(square);
        let w = &self.shape.windows;
        let ([_, height, width], side) = (w.input, self.squares.side + 2);
        let ((above, _), (before, _)) = (w.padding[1], w.padding[2]);
        // Of the square's rows and columns, those that lie in the image.
        let inside = |first: usize, padding: usize, size: usize| {
            padding.saturating_sub(first).min(side)..(size + padding).saturating_sub(first).min(side)
        };
        let seen = Seen {
            rows: inside(row, above, height),
            cols: inside(col, before, width),
            line: width * self.shape.in_channels,
            channels: self.shape.in_channels,
        };
        // Where the first pixel would be, perhaps in the padding.
        let first = (row as isize - above as isize) * width as isize + col as isize - before as isize;
        let first = (image * height * width) as isize + first;
        let from = self.x.as_ptr().wrapping_offset(first * self.shape.in_channels as isize);
        // SAFETY: pixels inside lie in the image; the rest is the caller's promise.
        unsafe { transform(&seen, from, to, step) };
    }

    /// Some channels of a square's results from their sums at each place, `sums[place · step + channel]`.
    ///
    /// # Safety
    /// Nobody else writes these results; the transform is of squares of this size.
    unsafe fn transform_sums(
        &self,
        transform: TransformSums,
        square: usize,
        channels: Range<usize>,
        sums: &[f32],
        step: usize,
    ) {
        let (image, row, col) = self.squares.place(square);
        let ([_, height, width], side) = (self.shape.windows.output, self.squares.side);
        let pixel = self.shape.out_channels;
        let start = ((image * height + row) * width + col) * pixel + channels.start;
        let Bounds { low, high, rest } = self.end.bounds();
        let results = Results {
            rows: side.min(height - row),
            cols: side.min(width - col),
            line: width * pixel,
            pixel,
            channels: channels.len(),
            bias: self.end.bias.map(|bias| &bias[channels]),
            adds: self.end.adds,
            low,
            high,
        };
        // SAFETY: the square lies in the result, which is the caller's to write here.
        unsafe {
            let to = self.out.ptr(start);
            transform(&results, sums.as_ptr(), step, to);
            if let Some(activation) = rest {
                for line in 0..results.rows {
                    let to = to.add(line * results.line);
                    map_rows(Map::Activation(activation), to, pixel, results.cols, results.channels);
                }
            }
        }
    }
}

/// The result of a convolution.
pub(super) fn winograd(shape: &ConvShape, x: &[f32], filters: &Filters, end: &End<'_>, out: &mut [f32]) {
    let squares = Squares::of(shape, SIDE);
    let (ic, oc) = (shape.in_channels, shape.out_channels);
    filters.check(ic, oc);
    let most = (BLOCK / (PLACES * (ic + oc))).max(SQUARES);
    // As many blocks for each thread, unless there are few squares: each block reads all filters, and transforms them if they are many.
    let (threads, blocks) = (threads::sharing(), squares.count.div_ceil(most));
    let even = blocks.next_multiple_of(threads);
    let apart = match filters {
        Filters::Transformed(_) => squares.count / even >= SQUARES / 2,
        Filters::Plain(_) => blocks >= 2 * threads,
    };
    // Otherwise each block is shared out itself.
    let blocks = if apart { even } else { blocks };
    let count = squares.count;
    let images = Images { shape, squares, x, end, out: SharedMut::new(out) };
    let job = Job { images, filters };
    // Of one size, to one square.
    let one = |i: usize| job.block(count * i / blocks..count * (i + 1) / blocks);
    if apart {
        let work = PLACES * count / blocks * ic * oc / 100 + 1;
        parallel_for(blocks, work, |range| range.for_each(one));
    } else {
        (0..blocks).for_each(one);
    }
}

/// Elements from one place's matrix to the next: not a multiple of 2 KiB, so that a square's elements do not meet in few
/// places of the cache.
fn place_step(len: usize) -> usize {
    if len.is_multiple_of(512) { len + 16 } else { len }
}

/// What all blocks share.
struct Job<'a> {
    images: Images<'a>,
    filters: &'a Filters,
}

impl Job<'_> {
    /// Some squares from their pixels to their results.
    fn block(&self, range: Range<usize>) {
        let (ic, count) = (self.images.shape.in_channels, range.len());
        let step = place_step(count * ic);
        with_scratch(PLACES * step, |pixels| {
            let seen = SharedMut::new(pixels);
            parallel_for(count, PLACES * ic / 4 + 1, |part| {
                for i in part {
                    // SAFETY: each square has its own row in each place's matrix.
                    unsafe {
                        let to = seen.ptr(i * ic);
                        self.images.transform_pixels(transform_pixels, range.start + i, to, step);
                    }
                }
            });
            let pixels = Pixels { places: pixels, step, squares: range };
            match self.filters {
                Filters::Transformed(operands) => self.products(&pixels, operands),
                Filters::Plain(panels) => {
                    let work = PLACES * count * ic * panel_cols() / 100 + 1;
                    parallel_for(panels.count(), work, |part| {
                        part.for_each(|i| self.panel(&pixels, panels, i))
                    });
                }
            }
        });
    }

    /// The results of some squares with transformed filters.
    fn products(&self, pixels: &Pixels<'_>, filters: &[PackedRhs]) {
        let (ic, oc, count) =
            (self.images.shape.in_channels, self.images.shape.out_channels, pixels.squares.len());
        let step = place_step(count * oc);
        with_scratch(PLACES * step, |sums| {
            let shared = SharedMut::new(sums);
            parallel_for(PLACES, count * ic * oc / 100 + 1, |part| {
                for place in part {
                    let epilogue = Epilogue { bias: Bias::None, residual: None, activation: None };
                    let a = Rows::InPlace(pixels.place(place), ic);
                    let (b, c, c_start) = (&filters[place], &shared, place * step);
                    let (order, epilogue) = (PanelOrder::Forwards, &epilogue);
                    RowsProduct { m: count, a, b, c, c_start, c_step: oc, adds: false, order, epilogue }
                        .run();
                }
            });
            let sums = &*sums;
            parallel_for(count, PLACES * oc / 4 + 1, |part| {
                for i in part {
                    // SAFETY: squares of the result are disjoint.
                    unsafe {
                        let (square, sums) = (pixels.squares.start + i, &sums[i * oc..]);
                        self.images.transform_sums(transform_sums, square, 0..oc, sums, step);
                    }
                }
            });
        });
    }

    /// The results of some squares in the channels of one panel, whose filters are transformed a few steps of the depth at a time: they stay in the
    /// second-level cache until they are used.
    fn panel(&self, pixels: &Pixels<'_>, panels: &Panels, panel: usize) {
        let (ic, count, cols) = (self.images.shape.in_channels, pixels.squares.len(), panel_cols());
        let (filter_step, sum_step) = (place_step(STEPS * cols), place_step(count * cols));
        with_scratch(PLACES * (filter_step + sum_step), |space| {
            let (filters, sums) = space.split_at_mut(PLACES * filter_step);
            for first in (0..ic).step_by(STEPS) {
                let steps = first..ic.min(first + STEPS);
                panels.transform(panel, steps.clone(), filters, filter_step);
                for place in 0..PLACES {
                    let a = Matrix::row_major(&pixels.place(place)[first..], ic);
                    let filters = (&filters[place * filter_step..], steps.len(), cols);
                    let sums = (&mut sums[place * sum_step..][..sum_step], cols);
                    panel_product(count, a, filters, sums, first > 0);
                }
            }
            let channels = panel * cols..self.images.shape.out_channels.min((panel + 1) * cols);
            for i in 0..count {
                let sums = &sums[i * cols..];
                // SAFETY: panels and squares of the result are disjoint.
                unsafe {
                    let (square, channels) = (pixels.squares.start + i, channels.clone());
                    self.images.transform_sums(transform_sums, square, channels, sums, sum_step);
                }
            }
        });
    }
}

/// The transformed pixels of some squares.
struct Pixels<'a> {
    /// `[place, square, channel]`.
    places: &'a [f32],
    /// Elements from one place's matrix to the next.
    step: usize,
    squares: Range<usize>,
}

impl Pixels<'_> {
    /// The matrix of one place, and what is behind it.
    fn place(&self, place: usize) -> &[f32] {
        &self.places[place * self.step..]
    }
}
