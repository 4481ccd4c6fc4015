//! 3x3 convolutions by Winograd's algorithm F(4x4, 3x3): a square of 4x4 results takes 36 multiplications instead of 144.
//!
//! `Y = Aᵀ [(G g Gᵀ) ⊙ (Bᵀ d B)] A` for a square `d` of 6x6 pixels and a filter `g` (`transforms`). Summed over the channels, the
//! products of one of the 36 places are a matrix product of the squares with the filters, so a convolution is: squares
//! transformed, 36 products, results transformed back. Filters are transformed once, when they are packed. An infinity or
//! a NaN spreads over the results of its square, as NaN.
//!
//! Squares round two to three times as much as the direct sum, which inference does not see. Steps of a training add up
//! and decide at kinks (of ReLU, of max pooling) by the last digits, so weights that serve once, as those that train do, are
//! not transformed.

mod transforms;

use super::{ConvShape, End};
use crate::gemm::{Bias, Epilogue, PackedRhs, Rows, RowsProduct, packed_place};
use crate::math::{Map, map_rows};
use crate::scratch::with_scratch;
use crate::threads::{self, SharedMut, parallel_for};
use alloc::vec::Vec;
use core::ops::Range;
use kiln_types::Activation;
use transforms::{LINE, Results, Seen, transform_filters, transform_pixels, transform_sums};

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

/// Whether this file's way is the one for a convolution.
pub(super) fn suits(shape: &ConvShape) -> bool {
    let w = &shape.windows;
    let plain = shape.groups == 1 && w.stride == [1; 3] && w.dilation == [1; 3];
    let square = w.kernel == [1, 3, 3] && w.padding[0] == (0, 0);
    // Transforming pays when each transformed element is used often; filters, four times as large as before, must be used
    // by some squares.
    plain && square && shape.in_channels >= 16 && shape.out_channels >= 16 && Squares::of(shape).count >= 12
}

/// The transformed filters, one right operand a place: `[in, out]`. `weight` is `[out, in, 3, 3]`.
pub(super) fn transformed_filters(shape: &ConvShape, weight: &[f32]) -> Vec<PackedRhs> {
    let (ic, oc) = (shape.in_channels, shape.out_channels);
    assert_eq!(weight.len(), ic * oc * 9, "the weights do not have the convolution's shape");
    let mut operands: Vec<PackedRhs> = (0..PLACES).map(|_| PackedRhs::zeros(ic, oc)).collect();
    let shared: Vec<_> = operands.iter_mut().map(|operand| SharedMut::new(operand.elements())).collect();
    let lines = oc.div_ceil(LINE);
    // Neighbouring channels lie beside each other in an operand: a thread writes pages of its own.
    parallel_for(lines * ic, 10 * LINE, |range| {
        for (first, c) in range.map(|i| (i / ic * LINE, i % ic)) {
            let count = LINE.min(oc - first);
            let mut places = [[0.0f32; LINE]; PLACES];
            // SAFETY: the filters lie inside, and there is room for a line at each place.
            unsafe {
                let from = weight.as_ptr().add((first * ic + c) * 9);
                transform_filters(from, ic * 9, count, places.as_mut_ptr().cast(), LINE);
            }
            let mut done = 0;
            while done < count {
                let (at, beside) = packed_place(ic, oc, c, first + done);
                let len = beside.min(count - done);
                for (place, to) in places.iter().zip(&shared) {
                    // SAFETY: each element of the operands is written once.
                    unsafe { to.slice(at..at + len) }.copy_from_slice(&place[done..done + len]);
                }
                done += len;
            }
        }
    });
    drop(shared);
    operands
}

/// How the images' results are cut into squares.
struct Squares {
    rows: usize,
    cols: usize,
    /// In all images.
    count: usize,
}

impl Squares {
    fn of(shape: &ConvShape) -> Self {
        let [depth, height, width] = shape.windows.output;
        let (rows, cols) = (height.div_ceil(SIDE), width.div_ceil(SIDE));
        Self { rows, cols, count: shape.batch * depth * rows * cols }
    }

    /// Image, and first row and column, of a square.
    fn place(&self, square: usize) -> (usize, usize, usize) {
        let in_image = square % (self.rows * self.cols);
        (square / (self.rows * self.cols), in_image / self.cols * SIDE, in_image % self.cols * SIDE)
    }
}

/// The result of a convolution with [`transformed_filters`].
pub(super) fn winograd(shape: &ConvShape, x: &[f32], filters: &[PackedRhs], end: &End<'_>, out: &mut [f32]) {
    let squares = Squares::of(shape);
    let (ic, oc) = (shape.in_channels, shape.out_channels);
    assert!(
        filters.len() == PLACES && filters[0].dims() == (ic, oc),
        "the weights were packed for another convolution"
    );
    let most = (BLOCK / (PLACES * (ic + oc))).max(SQUARES);
    // Blocks of one size.
    let block = squares.count.div_ceil(squares.count.div_ceil(most));
    let blocks = squares.count.div_ceil(block);
    let out = SharedMut::new(out);
    let job = Job { shape, squares: &squares, x, filters, end, out: &out };
    let one = |i: usize| job.block(i * block..squares.count.min((i + 1) * block));
    if blocks >= 2 * threads::threads() {
        let work = PLACES * block * ic * oc / 100 + 1;
        parallel_for(blocks, work, |range| range.for_each(one));
    } else {
        // Each block is shared out itself.
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
    shape: &'a ConvShape,
    squares: &'a Squares,
    x: &'a [f32],
    filters: &'a [PackedRhs],
    end: &'a End<'a>,
    out: &'a SharedMut<'a, f32>,
}

impl Job<'_> {
    /// Some squares from their pixels to their results.
    fn block(&self, range: Range<usize>) {
        let (ic, oc, count) = (self.shape.in_channels, self.shape.out_channels, range.len());
        let (seen_step, sum_step) = (place_step(count * ic), place_step(count * oc));
        with_scratch(PLACES * (seen_step + sum_step), |space| {
            let (pixels, sums) = space.split_at_mut(PLACES * seen_step);
            let seen = SharedMut::new(pixels);
            parallel_for(count, PLACES * ic / 4 + 1, |part| {
                for i in part {
                    // SAFETY: each square has its own row in each place's matrix.
                    unsafe { self.transform_pixels(range.start + i, seen.ptr(i * ic), seen_step) };
                }
            });
            let pixels = &*pixels;
            let shared = SharedMut::new(sums);
            parallel_for(PLACES, count * ic * oc / 100 + 1, |part| {
                for place in part {
                    let epilogue = Epilogue { bias: Bias::None, residual: None, activation: None };
                    let a = Rows::InPlace(&pixels[place * seen_step..][..count * ic], ic);
                    let (b, c, c_start) = (&self.filters[place], &shared, place * sum_step);
                    RowsProduct { m: count, a, b, c, c_start, c_step: oc, adds: false, epilogue: &epilogue }
                        .run();
                }
            });
            let sums = &*sums;
            parallel_for(count, PLACES * oc / 4 + 1, |part| {
                for i in part {
                    // SAFETY: squares of the result are disjoint.
                    unsafe { self.transform_sums(range.start + i, &sums[i * oc..], sum_step) };
                }
            });
        });
    }

    /// A square's pixels, transformed: `to[place · step + channel]`.
    ///
    /// # Safety
    /// `to` has room for all channels at each place.
    unsafe fn transform_pixels(&self, square: usize, to: *mut f32, step: usize) {
        let (image, row, col) = self.squares.place(square);
        let w = &self.shape.windows;
        let [_, height, width] = w.input;
        let ((above, _), (before, _)) = (w.padding[1], w.padding[2]);
        // Of the square's rows and columns, those that lie in the image.
        let inside = |first: usize, padding: usize, size: usize| {
            padding.saturating_sub(first).min(SEEN)..(size + padding).saturating_sub(first).min(SEEN)
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
        unsafe { transform_pixels(&seen, from, to, step) };
    }

    /// A square's results from its sums at each place, `sums[place · step + channel]`.
    ///
    /// # Safety
    /// Nobody else writes this square's results.
    unsafe fn transform_sums(&self, square: usize, sums: &[f32], step: usize) {
        let (image, row, col) = self.squares.place(square);
        let [_, height, width] = self.shape.windows.output;
        let channels = self.shape.out_channels;
        let start = ((image * height + row) * width + col) * channels;
        let (low, high, rest) = match self.end.activation {
            Some(Activation::Relu) => (0.0, f32::INFINITY, None),
            Some(Activation::Clamp { min, max }) => (min as f32, max as f32, None),
            activation => (f32::NEG_INFINITY, f32::INFINITY, activation),
        };
        let results = Results {
            rows: SIDE.min(height - row),
            cols: SIDE.min(width - col),
            line: width * channels,
            channels,
            bias: self.end.bias,
            low,
            high,
        };
        // SAFETY: the square lies in the result, which is the caller's to write here.
        unsafe {
            let to = self.out.ptr(start);
            transform_sums(&results, sums.as_ptr(), step, to);
            if let Some(activation) = rest {
                map_rows(
                    Map::Activation(activation),
                    to,
                    results.line,
                    results.rows,
                    results.cols * channels,
                );
            }
        }
    }
}
