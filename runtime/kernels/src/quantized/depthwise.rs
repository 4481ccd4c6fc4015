//! Depthwise convolutions by the kernels of floats, which hold sums of a few products of bytes exactly.

use super::epilogue::{Columns, Out, Output};
use super::pack::Bytes;
use super::tile::{COLS, ROWS};
use crate::conv::{Bands, ConvShape, PackedConv};
use crate::scratch::with_scratch;
use crate::simd::dispatched;
use crate::size::elements;
use alloc::vec::Vec;
use core::ops::Range;

/// The convolution of `x - x_zero`, each channel for itself, with weights less their zero points, or what becomes of its sums, whose columns are the
/// channels. All sums must be integers that f32 holds.
///
/// `x` is `[batch, spatial…, channels]` and `out` likewise, both contiguous.
///
/// # Panics
/// When a slice does not have the shape's size, the weights are another convolution's, or [`ConvShape::is_depthwise_by_lines`] does not hold.
pub fn quantized_depthwise(
    shape: &ConvShape,
    x: Bytes<'_>,
    x_zero: i32,
    weight: &PackedConv,
    out: Output<'_>,
) {
    assert!(shape.is_depthwise_by_lines(), "a depthwise convolution in one or two dims");
    let (w, channels) = (&shape.windows, shape.out_channels);
    let depthwise = weight.depthwise(shape);
    let (bytes, flip) = x.unsigned();
    assert_eq!(bytes.len(), elements(&[shape.batch, w.input_len(), channels]), "the images' size");
    let out = Out::new(out, elements(&[shape.batch, w.output_len(), channels]), channels);
    let panels = (0..channels).step_by(COLS);
    let panels: Vec<Columns> = panels.map(|first| out.columns(first, COLS.min(channels - first))).collect();
    let zero = x_zero.wrapping_add(i32::from(flip)) as f32;
    let bring = |image: usize, lines: Range<usize>, to: &mut [f32]| {
        let line = w.input[2] * channels;
        let from = &bytes[(image * w.input[1] + lines.start) * line..][..lines.len() * line];
        // SAFETY: slices.
        unsafe { numbers(from, flip, zero, to) };
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
    let work = depthwise.row_work() * lines + (bytes.len() + lines * row_len) / 16;
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
