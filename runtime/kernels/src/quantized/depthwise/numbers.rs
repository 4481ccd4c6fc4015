//! Depthwise convolutions of bytes by the kernels of floats, which hold sums of a few products of bytes exactly.

use super::Convolution;
use crate::conv::{Bands, PackedConv};
use crate::quantized::tile::{COLS, ROWS};
use crate::scratch::with_scratch;
use crate::simd::dispatched;
use core::ops::Range;

/// Computes it. All sums must be integers that f32 holds.
pub(super) fn depthwise(of: &Convolution<'_>, weight: &PackedConv) {
    let Convolution { shape, x, flip, zero, out } = *of;
    let (w, channels) = (&shape.windows, shape.out_channels);
    let depthwise = weight.depthwise(shape);
    let panels = of.panels();
    let bring = |image: usize, lines: Range<usize>, to: &mut [f32]| {
        let line = w.input[2] * channels;
        let from = &x[(image * w.input[1] + lines.start) * line..][..lines.len() * line];
        // SAFETY: slices.
        unsafe { numbers(from, flip, zero as f32, to) };
    };
    let row_len = w.output[2] * channels;
    let compute = |image: usize, lines: Range<usize>, images: *const f32| {
        with_scratch(row_len, |sums| {
            for line in lines {
                let row = image * w.output[1] + line;
                for strip in depthwise.strips() {
                    // SAFETY: the lines that the row sees are there.
                    unsafe { depthwise.fill(images, row, strip, sums.as_mut_ptr()) };
                }
                for (panel, columns) in panels.iter().enumerate() {
                    let first = panel * COLS;
                    for pixel in (0..w.output[2]).step_by(ROWS) {
                        let mut tile = [[0; COLS]; ROWS];
                        let tile = &mut tile[..ROWS.min(w.output[2] - pixel)];
                        // SAFETY: slices; sums are integers that `i32` has. Each row of the result is computed once.
                        unsafe {
                            integers(&sums[pixel * channels + first..], channels, columns.count, tile);
                            out.write(tile, columns, row * row_len + pixel * channels + first, channels);
                        }
                    }
                }
            }
        });
    };
    let lines = shape.batch * w.output[1];
    let work = depthwise.row_work() * lines + (x.len() + lines * row_len) / 16;
    Bands { shape, work, bring: &bring, compute: &compute }.run();
}

dispatched! {
    /// Bytes less their zero point.
    unsafe fn numbers<S>(_s, bytes: &[u8], flip: u8, zero: f32, to: &mut [f32]) {
        for (to, &byte) in to.iter_mut().zip(bytes) {
            *to = f32::from(byte ^ flip) - zero;
        }
    }
}

dispatched! {
    /// The first `count` numbers of rows, `step` behind each other, as the integers that they are.
    ///
    /// # Safety
    /// An `i32` has each.
    unsafe fn integers<S>(_s, numbers: &[f32], step: usize, count: usize, to: &mut [[i32; COLS]]) {
        for (row, to) in to.iter_mut().enumerate() {
            let numbers = &numbers[row * step..][..count];
            // A length that is known makes vectors of the loop.
            match <&[f32; COLS]>::try_from(numbers) {
                Ok(numbers) => to.iter_mut().zip(numbers).for_each(|(to, x)| *to = x.to_int_unchecked()),
                Err(_) => to.iter_mut().zip(numbers).for_each(|(to, x)| *to = x.to_int_unchecked()),
            }
        }
    }
}
