//! Convolutions of operands rounded to bf16, as products: the image is rounded once, and its windows are gathered as rows when the product wants them.
//! Where pairs of bf16 are multiplied, 3x3 kernels go Winograd's way (`winograd/rounded.rs`).

use super::winograd::{self, RoundedFilters};
use super::{ConvShape, ConvWay, End};
use crate::consumed::{Consumed, KEPT, in_parts};
use crate::gemm::{
    Bf16Product, Bf16Results, Bf16Rows, Bias, Epilogue, Matrix, PackedBf16, STEPS, WindowRows,
    multiplies_tiles,
};
use crate::scratch::with_scratch;
use crate::threads::SharedMut;
use alloc::vec::Vec;
use core::ops::Range;
use kiln_types::Activation;
use padded::Padded;

mod numbers;
mod padded;
#[cfg(test)]
mod tests;

pub use numbers::{Numbers, NumbersMut, round, widen};

/// The way in which [`conv_bf16`] computes a convolution with packed weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundedWay {
    /// A product of the windows with the weights.
    Rows {
        /// Elements of a window that are filled up to whole blocks of the product: those that lie side by side, or all.
        run: usize,
    },
    /// Winograd's algorithm.
    Winograd,
}

/// Weights of a convolution, rounded and packed.
#[derive(Clone, Debug)]
pub struct PackedConvBf16 {
    len: usize,
    weights: Packed,
}

#[derive(Clone, Debug)]
enum Packed {
    /// One right operand a group, `[kernel… · in / groups, out / groups]` with runs of so many rows filled up by zeros to whole blocks.
    Groups { run: usize, operands: Vec<PackedBf16> },
    /// Transformed.
    Winograd(RoundedFilters),
}

impl ConvShape {
    /// Whether this machine computes the convolution faster by [`conv_bf16`] than by [`super::conv`], which rounds nothing.
    pub fn is_faster_rounded(&self) -> bool {
        /// Squares from which Winograd's f32 is faster than a product of bf16: filters are then read often enough. Measured on Zen 4.
        const SQUARES: usize = 48;
        /// Channels below which it is about as fast as its smaller squares of bf16, which round more.
        const CHANNELS: usize = 96;
        let narrow = self.in_channels.min(self.out_channels) < CHANNELS;
        let winograd = self.way() == ConvWay::Winograd && winograd::squares(self) >= SQUARES;
        let faster_in_f32 = winograd && (narrow || !winograd::suits_rounded(self));
        self.is_product() && (multiplies_tiles() || !faster_in_f32)
    }

    /// The way in which [`conv_bf16`] computes this convolution with packed weights.
    pub fn rounded_way(&self) -> RoundedWay {
        if winograd::suits_rounded(self) {
            RoundedWay::Winograd
        } else {
            RoundedWay::Rows { run: self.rounded_run() }
        }
    }

    /// Whether [`conv_bf16`] takes images as [`Numbers::Planes`] too: two to four of them, which are copied with their padding in any case.
    pub fn takes_planes(&self) -> bool {
        (2..=4).contains(&self.in_channels) && !self.sees_pixels() && !winograd::suits_rounded(self)
    }

    /// Whether windows are single pixels of the image, which are read without their padding.
    fn sees_pixels(&self) -> bool {
        self.windows.kernel == [1; 3] && self.windows.padding == [(0, 0); 3]
    }

    /// Elements of a window that lie side by side: a row of the kernel when nothing lies between its pixels, else the channels of a pixel.
    fn run(&self) -> usize {
        let (w, ic) = (&self.windows, self.group_channels().0);
        if w.dilation[2] == 1 && self.groups == 1 { w.kernel[2] * ic } else { ic }
    }

    /// See [`RoundedWay::Rows`].
    fn rounded_run(&self) -> usize {
        let (run, depth) = (self.run(), self.depth());
        // Where tiles are multiplied, half as many products again take less time than to put windows together.
        let most = depth.next_multiple_of(STEPS) * 3 / 2;
        let (runs, len) = filled(depth, run);
        if multiplies_tiles() && runs * len <= most { run } else { depth }
    }

    /// Whether [`conv_bf16`] computes this convolution: it is a product of matrices, without small groups, and its padding is no more than is copied.
    pub fn is_product(&self) -> bool {
        match self.way() {
            ConvWay::Depthwise | ConvWay::Grouped => false,
            ConvWay::Planes | ConvWay::Rows | ConvWay::Winograd => self.pads_little(),
        }
    }
}

impl PackedConvBf16 {
    /// Rounds and packs weights `[out, in / groups, kernel…]`.
    ///
    /// # Panics
    /// When `weight` does not have the shape's weight dims.
    pub fn new(shape: &ConvShape, weight: &[f32]) -> Self {
        Self::consuming(shape, weight, KEPT)
    }

    /// [`PackedConvBf16::new`] of weights that are read part by part.
    ///
    /// # Panics
    /// When `weight` does not have the shape's weight dims.
    pub fn consuming(shape: &ConvShape, weight: &[f32], consumed: Consumed<'_>) -> Self {
        match shape.rounded_way() {
            RoundedWay::Winograd => {
                let weights = Packed::Winograd(RoundedFilters::new(shape, weight, consumed));
                Self { len: weight.len(), weights }
            }
            RoundedWay::Rows { run } => Self::groups(shape, run, weight, consumed),
        }
    }

    /// Rounds and packs weights that serve only one convolution: never transformed, so that those that train are rounded as they are.
    ///
    /// # Panics
    /// When `weight` does not have the shape's weight dims.
    pub fn once(shape: &ConvShape, weight: &[f32]) -> Self {
        Self::groups(shape, shape.rounded_run(), weight, KEPT)
    }

    /// Whether [`conv_bf16`] takes and yields [rounded](Numbers::Rounded) numbers with it.
    pub fn takes_rounded(&self) -> bool {
        match self.weights {
            Packed::Groups { .. } => true,
            Packed::Winograd(_) => false,
        }
    }

    /// For products, with runs of so many elements of a window filled up.
    fn groups(shape: &ConvShape, run: usize, weight: &[f32], consumed: Consumed<'_>) -> Self {
        assert_eq!(weight.len(), shape.weight_len(), "the weights do not have the convolution's shape");
        let ((ic, oc), taps) = (shape.group_channels(), shape.windows.kernel_len());
        let depth = shape.depth();
        let (runs, filled_run) = filled(depth, run);
        let filled = runs * filled_run;
        let group = |start: usize| {
            let filters = &weight[start..start + oc * depth];
            with_scratch(oc * filled, |ordered| {
                let shared = SharedMut::new(ordered);
                let order = |outs: Range<usize>| {
                    for out in outs {
                        let filter = &filters[out * depth..(out + 1) * depth];
                        // SAFETY: each filter has its own part.
                        let to = unsafe { shared.slice(out * filled..(out + 1) * filled) };
                        // The elements of a window follow each other as in the image.
                        for (first, to) in
                            (0..taps).step_by(taps / runs).zip(to.chunks_exact_mut(filled_run.max(1)))
                        {
                            let (to, rest) = to.split_at_mut(run);
                            for (tap, to) in (first..).zip(to.chunks_exact_mut(ic)) {
                                to.iter_mut().enumerate().for_each(|(c, to)| *to = filter[c * taps + tap]);
                            }
                            rest.fill(0.0);
                        }
                    }
                };
                in_parts(oc, depth, depth, order, |outs| {
                    consumed(start + outs.start * depth..start + outs.end * depth);
                });
                PackedBf16::new(Matrix::row_major(ordered, filled).transposed(), filled, oc)
            })
        };
        let operands = (0..shape.groups).map(|i| group(i * oc * depth)).collect();
        Self { len: weight.len(), weights: Packed::Groups { run, operands } }
    }
}

/// How many runs a window has, and how many elements there are of each when it is filled up to whole blocks. A whole window is filled up by the product.
fn filled(depth: usize, run: usize) -> (usize, usize) {
    if run == depth { (1, depth) } else { (depth / run, run.next_multiple_of(STEPS)) }
}

/// `out = activation(x ∗ weight + bias)`, or `out = activation(x ∗ weight + bias + out)` if it `adds`, of rounded `x` and weights, for what [`ConvShape::is_product`].
/// Sums, biases and activations are f32, whatever `x` and `out` hold.
///
/// `x` is `[batch, spatial…, in]` unless it is [`Numbers::Planes`], `bias` `[out]` and `out` `[batch, spatial…, out]`, all contiguous. Weights were packed for a shape of the same
/// [`ConvShape::rounded_way`] that differs at most in the batch and the size of the images; Winograd's algorithm and filled runs make NaN of the results beside one
/// whose window is not finite, as [`super::conv`] does. Winograd's takes and yields [`Numbers::Single`] alone.
///
/// # Panics
/// When a slice does not have the shape's size, or padding is far larger than images and results, or the convolution does not take such numbers.
pub fn conv_bf16(
    shape: &ConvShape,
    x: Numbers<'_>,
    weight: &PackedConvBf16,
    bias: Option<&[f32]>,
    activation: Option<Activation>,
    adds: bool,
    out: NumbersMut<'_>,
) {
    shape.check_sizes(x.len(), bias, out.len());
    assert_eq!(weight.len, shape.weight_len(), "the weights do not have the convolution's shape");
    if out.len() == 0 {
        return;
    }
    let end = End { bias, activation, adds };
    match (&weight.weights, x, out) {
        (Packed::Winograd(filters), Numbers::Single(x), NumbersMut::Single(out)) => {
            winograd::winograd_rounded(shape, x, filters, &end, out);
        }
        (Packed::Winograd(_), ..) => panic!("Winograd's algorithm takes and yields numbers as they are"),
        (Packed::Groups { run, operands }, _, NumbersMut::Single(out)) => {
            let out = SharedMut::new(out);
            by_products(shape, x, (*run, operands), &end, Bf16Results::Single(&out));
        }
        (Packed::Groups { run, operands }, _, NumbersMut::Rounded(out)) => {
            let out = SharedMut::new(bytemuck::cast_slice_mut(out));
            by_products(shape, x, (*run, operands), &end, Bf16Results::Rounded(&out));
        }
    }
}

/// [`conv_bf16`] as a product for each group, with filled runs of some elements.
fn by_products(
    shape: &ConvShape,
    x: Numbers<'_>,
    (run, groups): (usize, &[PackedBf16]),
    end: &End<'_>,
    out: Bf16Results<'_>,
) {
    assert_eq!(groups.len(), shape.groups, "the weights were packed for other groups");
    if shape.windows.are_points() {
        let ic = shape.group_channels().0;
        let rows = |group: usize, run: &dyn Fn(Bf16Rows<'_>)| run(x.rows(group * ic, shape.in_channels));
        return products(shape, (shape.depth(), groups), end, out, rows);
    }
    if shape.sees_pixels() {
        return products(shape, (shape.depth(), groups), end, out, |group, run| {
            // SAFETY: the image was checked, and the product gives room for what it asks for.
            run(Bf16Rows::Gather(&|rows, to, step| unsafe { round_pixels(shape, x, group, rows, to, step) }));
        });
    }
    let padded = Padded::new(shape, run);
    with_scratch(padded.len().div_ceil(2), |space| {
        let image = &mut bytemuck::cast_slice_mut::<f32, u16>(space)[..padded.len()];
        padded.round(x, image);
        let image = &*image;
        let offsets = padded.block_offsets();
        products(shape, (padded.depth(), groups), end, out, |group, run| {
            let start = |row| padded.start(group, row);
            let line = (shape.windows.output[2], shape.windows.stride[2] * shape.in_channels);
            let windows = offsets.as_ref().and_then(|offsets| WindowRows::new(image, offsets, line, &start));
            match &windows {
                Some(windows) => run(Bf16Rows::Windows(windows)),
                // SAFETY: the image has its padding, and the product gives room for what it asks for.
                None => run(Bf16Rows::Gather(&|rows, to, step| unsafe {
                    padded.gather(image, group, rows, to, step);
                })),
            }
        });
    });
}

/// One product a group, of the rows that `rows` lends.
fn products(
    shape: &ConvShape,
    (depth, groups): (usize, &[PackedBf16]),
    end: &End<'_>,
    c: Bf16Results<'_>,
    rows: impl Fn(usize, &dyn Fn(Bf16Rows<'_>)),
) {
    let m = shape.batch * shape.windows.output_len();
    let oc = shape.group_channels().1;
    for (group, b) in groups.iter().enumerate() {
        assert_eq!(b.dims(), (depth, oc), "the weights were packed for another convolution");
        let bias = end.bias.map_or(Bias::None, |bias| Bias::PerColumn(&bias[group * oc..(group + 1) * oc]));
        let epilogue = Epilogue { bias, residual: None, activation: end.activation };
        rows(group, &|a| {
            let (c_start, c_step) = (group * oc, shape.out_channels);
            Bf16Product { m, a, b: b.view(), c, c_start, c_step, adds: end.adds, epilogue: &epilogue }.run();
        });
    }
}

/// Calls `body` with each part of a line of the result that is among the windows `rows`: its image, plane, line and first column, and the place of its windows
/// among them.
#[inline(always)]
fn for_each_line(shape: &ConvShape, rows: Range<usize>, body: impl Fn([usize; 4], Range<usize>)) {
    let [od, oh, ow] = shape.windows.output;
    let mut row = rows.start;
    while row < rows.end {
        let (end, at) = ((row - row % ow + ow).min(rows.end), row - rows.start);
        body([row / (od * oh * ow), row / (oh * ow) % od, row / ow % oh, row % ow], at..at + (end - row));
        row = end;
    }
}

/// Rounds the pixels that windows of one pixel see where others lie between them: as [`Padded::gather`] from a rounded image.
///
/// # Safety
/// `x` has the shape's size, pixels lie inside of it, and `to` has room for them.
unsafe fn round_pixels(
    shape: &ConvShape,
    x: Numbers<'_>,
    group: usize,
    rows: Range<usize>,
    to: *mut u16,
    step: usize,
) {
    let (w, channels, ic) = (&shape.windows, shape.in_channels, shape.group_channels().0);
    for_each_line(shape, rows, |[n, z, y, col], part| {
        let line = (n * w.input[0] + z * w.stride[0]) * w.input[1] + y * w.stride[1];
        let pixel = line * w.input[2] + col * w.stride[2];
        // SAFETY: the caller's promise.
        unsafe {
            let from = (pixel * channels + group * ic, w.stride[2] * channels);
            x.write_rows(part.len(), ic, from, (to.add(part.start * step), step));
        }
    });
}
