//! Convolutions as products, whose windows are gathered as rows when the product wants them.

use super::epilogue::{Out, Output};
use super::pack::{Bytes, PackedBytes};
use super::{Left, Product, Zeros};
use crate::Windows;
use crate::conv::ConvShape;
use crate::size::elements;
use alloc::{vec, vec::Vec};
use core::ops::Range;

/// Weights of a convolution, packed.
#[derive(Clone, Debug)]
pub struct PackedQuantizedConv {
    /// One right side a group, `[kernel… · in / groups, out / groups]`.
    groups: Vec<PackedBytes>,
}

impl PackedQuantizedConv {
    /// Packs weights `[out, in / groups, kernel…]`.
    ///
    /// # Panics
    /// When `weight` does not have the shape's weight dims.
    pub fn new(shape: &ConvShape, weight: Bytes<'_>) -> Self {
        let (bytes, is_signed) = match weight {
            Bytes::U8(bytes) => (bytes, false),
            Bytes::I8(bytes) => (bytemuck::cast_slice(bytes), true),
        };
        assert_eq!(bytes.len(), shape.weight_len(), "the weights do not have the convolution's shape");
        let ((ic, oc), taps, depth) = (shape.group_channels(), shape.windows.kernel_len(), shape.depth());
        let mut ordered = vec![0_u8; oc * depth];
        let group = |group: usize| {
            // The elements of a window follow each other as in the image.
            for (o, to) in ordered.chunks_exact_mut(depth.max(1)).enumerate() {
                let filter = &bytes[(group * oc + o) * depth..][..depth];
                for (at, to) in to.iter_mut().enumerate() {
                    *to = filter[at % ic * taps + at / ic];
                }
            }
            let ordered = match is_signed {
                true => Bytes::I8(bytemuck::cast_slice(&ordered)),
                false => Bytes::U8(&ordered),
            };
            PackedBytes::new(ordered, [1, depth], depth, oc)
        };
        Self { groups: (0..shape.groups).map(group).collect() }
    }
}

/// The convolution of `x - x_zero` with the weights less their zero points, of which there is one or one an output channel, or what becomes
/// of its sums, whose columns are the output channels.
///
/// `x` is `[batch, spatial…, in]` and `out` `[batch, spatial…, out]`, both contiguous; the border is zero points.
///
/// # Panics
/// When a slice does not have the shape's size, or a byte of `x` cannot be `x_zero`.
pub fn quantized_conv(
    shape: &ConvShape,
    x: Bytes<'_>,
    x_zero: i32,
    weight: &PackedQuantizedConv,
    weight_zeros: Zeros<'_>,
    out: Output<'_>,
) {
    let windows = &shape.windows;
    let border = match x {
        Bytes::U8(_) => u8::try_from(x_zero).ok(),
        Bytes::I8(_) => i8::try_from(x_zero).ok().map(|zero| zero as u8),
    };
    let Some(border) = border else { panic!("no byte is the zero point {x_zero}") };
    let (x, flip) = x.unsigned();
    assert_eq!(x.len(), elements(&[shape.batch, windows.input_len(), shape.in_channels]), "the images' size");
    assert_eq!(weight.groups.len(), shape.groups, "the weights were packed for other groups");
    weight_zeros.check(shape.out_channels);
    let oc = shape.group_channels().1;
    let rows = shape.batch * windows.output_len();
    let out =
        Out::new(out, elements(&[shape.batch, windows.output_len(), shape.out_channels]), shape.out_channels);
    let (ic, channels) = (shape.group_channels().0, shape.in_channels);
    for (group, right) in weight.groups.iter().enumerate() {
        assert_eq!(right.dims(), (shape.depth(), oc), "the weights were packed for another convolution");
        let images = Images { shape, x, border, group };
        let gather = |rows: Range<usize>, to: &mut [u8], step: usize| images.gather(rows, to, step);
        let right_zeros = match weight_zeros {
            Zeros::One(zero) => Zeros::One(zero),
            Zeros::Each(zeros) => Zeros::Each(&zeros[group * oc..][..oc]),
        };
        Product {
            rows,
            left: match windows.are_points() {
                true => Left::InPlace(&x[(group * ic).min(x.len())..], channels),
                false => Left::Gather(&gather),
            },
            flip,
            left_zeros: Zeros::One(x_zero),
            right,
            right_zeros,
            out: &out,
            out_start: group * oc,
            out_step: shape.out_channels,
            out_col: group * oc,
        }
        .run();
    }
}

/// The channels of a group in images, and what stands around them.
struct Images<'a> {
    shape: &'a ConvShape,
    x: &'a [u8],
    border: u8,
    group: usize,
}

impl Images<'_> {
    /// Writes the windows `rows`, counted over all images, `step` bytes apart.
    fn gather(&self, rows: Range<usize>, to: &mut [u8], step: usize) {
        let w = &self.shape.windows;
        let [_, _, width] = w.output;
        let mut row = rows.start;
        while row < rows.end {
            // The windows of one line of the result see the same lines of the image.
            let (line, first) = (row / width, row % width);
            let windows = first..width.min(first + rows.end - row);
            let at = (row - rows.start) * step;
            row += windows.len();
            for of_kernel in 0..w.kernel[0] * w.kernel[1] {
                self.gather_line(line, of_kernel, windows.clone(), &mut to[at..], step);
            }
        }
    }

    /// Writes what windows of one line of the result see under one line of the kernel.
    fn gather_line(&self, line: usize, of_kernel: usize, windows: Range<usize>, to: &mut [u8], step: usize) {
        let &Self { shape, x, border, group } = self;
        let w = &shape.windows;
        let (ic, channels) = (shape.group_channels().0, shape.in_channels);
        let run = w.kernel[2] * ic;
        let at = of_kernel * run;
        let (n, oz, oy) =
            (line / (w.output[0] * w.output[1]), line / w.output[1] % w.output[0], line % w.output[1]);
        let z = w.position(0, oz, of_kernel / w.kernel[1]);
        let Some((z, y)) = z.zip(w.position(1, oy, of_kernel % w.kernel[1])) else {
            for to in to.chunks_mut(step).take(windows.len()) {
                to[at..at + run].fill(border);
            }
            return;
        };
        let pixels = ((n * w.input[0] + z) * w.input[1] + y) * w.input[2] * channels + group * ic;
        // A row of the kernel is one run of the image's elements when nothing lies between its pixels.
        let dense = w.dilation[2] == 1 && shape.groups == 1;
        let whole = whole_windows(w);
        for (ox, to) in windows.zip(to.chunks_mut(step)) {
            let pixel =
                |tap: usize| pixels + (ox * w.stride[2] + tap * w.dilation[2] - w.padding[2].0) * channels;
            if dense && whole.contains(&ox) {
                copy_run(&x[pixel(0)..], &mut to[at..], run);
                continue;
            }
            let (inside, to) = (w.inside(2, ox), &mut to[at..at + run]);
            to[..inside.start * ic].fill(border);
            to[inside.end * ic..].fill(border);
            if inside.is_empty() {
                continue;
            }
            if dense {
                let length = inside.len() * ic;
                to[inside.start * ic..][..length].copy_from_slice(&x[pixel(inside.start)..][..length]);
                continue;
            }
            for tap in inside.clone() {
                to[tap * ic..][..ic].copy_from_slice(&x[pixel(tap)..][..ic]);
            }
        }
    }
}

/// Copies so many bytes. Short runs are a fixed number of bytes where there is room for them: what is too many is written over, or lies
/// behind a row.
fn copy_run(from: &[u8], to: &mut [u8], run: usize) {
    macro_rules! fixed {
        ($($len:literal)*) => {
            $(if run <= $len {
                if let (Some(from), Some(to)) = (from.first_chunk::<$len>(), to.first_chunk_mut::<$len>()) {
                    *to = *from;
                    return;
                }
            })*
        };
    }
    fixed!(16 32 64);
    to[..run].copy_from_slice(&from[..run]);
}

/// The windows of a line that lie in the image whole.
fn whole_windows(w: &Windows) -> Range<usize> {
    let reach = (w.kernel[2] - 1) * w.dilation[2] + 1;
    let last = (w.input[2] + w.padding[2].0).checked_sub(reach).map(|room| room / w.stride[2]);
    w.padding[2].0.div_ceil(w.stride[2])..last.map_or(0, |last| last + 1)
}
