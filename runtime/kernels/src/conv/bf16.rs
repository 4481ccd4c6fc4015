//! Convolutions of operands rounded to bf16, as products: the image is rounded once, and its windows are gathered as rows when the product wants them.
//! Where pairs of bf16 are multiplied, 3x3 kernels go Winograd's way (`winograd/rounded.rs`).

use super::winograd::{self, RoundedFilters};
use super::{ConvShape, ConvWay, End};
use crate::consumed::{Consumed, KEPT, in_parts};
use crate::gemm::{
    Bf16Product, Bf16Results, Bf16Rows, Bias, Epilogue, Matrix, PackedBf16, STEPS, WindowRows, copy_rows,
    f32_of, multiplies_tiles, round_rows, round_slice,
};
use crate::scratch::with_scratch;
use crate::threads::{SharedMut, parallel_chunks};
use alloc::vec::Vec;
use core::ops::Range;
use kiln_types::{Activation, bf16};
use smallvec::SmallVec;

/// Runs of a window for which no memory is asked: pixels of 7x7, and more.
const INLINE: usize = 64;

/// What is wrong with planes elsewhere than where [`ConvShape::takes_planes`].
const PLANES: &str = "images of this convolution have their channels last";

/// Numbers that a thread rounds or widens at a time.
const PIECE: usize = 4096;

/// Numbers of an image.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'a> {
    /// As they are.
    Single(&'a [f32]),
    /// Rounded before.
    Rounded(&'a [bf16]),
    /// As they are, with the channels first: `[batch, in, spatial…]`. For what [`ConvShape::takes_planes`].
    Planes(&'a [f32]),
}

/// Where numbers of an image go.
#[derive(Debug)]
pub enum NumbersMut<'a> {
    /// As they are.
    Single(&'a mut [f32]),
    /// Rounded.
    Rounded(&'a mut [bf16]),
}

impl<'a> Numbers<'a> {
    fn len(&self) -> usize {
        match self {
            Self::Single(x) | Self::Planes(x) => x.len(),
            Self::Rounded(x) => x.len(),
        }
    }

    /// Rows of a left operand that start at an element, `step` elements apart.
    fn rows(self, start: usize, step: usize) -> Bf16Rows<'a> {
        match self {
            Self::Single(x) => Bf16Rows::Single(&x[start..], step),
            Self::Rounded(x) => Bf16Rows::Rounded(bytemuck::cast_slice(&x[start..]), step),
            Self::Planes(_) => panic!("{PLANES}"),
        }
    }

    /// Writes `n` rounded elements of each of `rows` rows and zeros behind them, as [`round_rows`] does.
    ///
    /// # Safety
    /// The rows lie inside, from the element `start` on and `step` apart, and `to` has room for them.
    unsafe fn write_rows(self, rows: usize, n: usize, (start, step): (usize, usize), to: (*mut u16, usize)) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Single(x) => round_rows(rows, n, (x.as_ptr().add(start), step), to),
                Self::Rounded(x) => copy_rows(rows, n, (x.as_ptr().cast::<u16>().add(start), step), to),
                Self::Planes(_) => panic!("{PLANES}"),
            }
        }
    }

    /// Writes some pixels of an image of so many, rounded; each has `channels` elements.
    fn write(self, image: usize, size: usize, pixels: Range<usize>, channels: usize, to: &mut [u16]) {
        let start = (image * size + pixels.start) * channels;
        match self {
            Self::Single(x) => round_slice(&x[start..start + to.len()], to),
            Self::Rounded(x) => to.copy_from_slice(bytemuck::cast_slice(&x[start..start + to.len()])),
            Self::Planes(x) => {
                let plane =
                    |channel: usize| &x[(image * channels + channel) * size + pixels.start..][..pixels.len()];
                match channels {
                    2 => interleave(core::array::from_fn::<_, 2, _>(plane), to),
                    3 => interleave(core::array::from_fn::<_, 3, _>(plane), to),
                    4 => interleave(core::array::from_fn::<_, 4, _>(plane), to),
                    _ => panic!("{PLANES}"),
                }
            }
        }
    }
}

/// Rounds planes of some pixels into pixels.
fn interleave<const CHANNELS: usize>(planes: [&[f32]; CHANNELS], to: &mut [u16]) {
    const PIXELS: usize = 128;
    for (part, to) in to.chunks_mut(PIXELS * CHANNELS).enumerate() {
        let count = to.len() / CHANNELS;
        let mut rounded = [[0; PIXELS]; CHANNELS];
        for (plane, rounded) in planes.iter().zip(&mut rounded) {
            round_slice(&plane[part * PIXELS..][..count], &mut rounded[..count]);
        }
        for (i, pixel) in to.as_chunks_mut::<CHANNELS>().0.iter_mut().enumerate() {
            *pixel = core::array::from_fn(|channel| rounded[channel][i]);
        }
    }
}

impl NumbersMut<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Single(x) => x.len(),
            Self::Rounded(x) => x.len(),
        }
    }
}

/// Rounds numbers to the nearest bf16, halves to even, as convolutions do.
///
/// # Panics
/// When there is not as much room as there are numbers.
pub fn round(from: &[f32], to: &mut [bf16]) {
    assert_eq!(from.len(), to.len(), "as many numbers");
    let to: &mut [u16] = bytemuck::cast_slice_mut(to);
    parallel_chunks(to, PIECE, PIECE / 16, |i, to| round_slice(&from[i * PIECE..][..to.len()], to));
}

/// Rounded numbers as f32.
///
/// # Panics
/// When there is not as much room as there are numbers.
pub fn widen(from: &[bf16], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "as many numbers");
    parallel_chunks(to, PIECE, PIECE / 16, |i, to| {
        from[i * PIECE..].iter().zip(to).for_each(|(from, to)| *to = f32_of(from.to_bits()));
    });
}

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

/// How rounded images lie in memory with their padding, `[batch, spatial…, channels]`: windows then need no bounds.
struct Padded<'a> {
    shape: &'a ConvShape,
    /// Pixels in each dim.
    size: [usize; 3],
    /// Elements of a window that [lie side by side](ConvShape::run).
    run: usize,
    /// Where they lie, from the window's first element on.
    runs: SmallVec<[usize; INLINE]>,
    /// Elements from one run to the next in a row of the product: as many as there are, or filled up to whole blocks.
    run_step: usize,
}

impl<'a> Padded<'a> {
    /// With runs of so many elements filled up.
    fn new(shape: &'a ConvShape, filled_run: usize) -> Self {
        assert!(shape.pads_little(), "padding is far larger than images and results");
        let (w, channels, ic) = (&shape.windows, shape.in_channels, shape.group_channels().0);
        let size = [0, 1, 2].map(|i| w.padding[i].0 + w.input[i] + w.padding[i].1);
        let run = shape.run();
        assert!(
            [run, shape.depth()].contains(&filled_run),
            "the weights were packed for another convolution"
        );
        let run_step = if filled_run == run { filled(shape.depth(), run).1 } else { run };
        let pixels = if run == ic { w.kernel[2] } else { 1 };
        let mut runs = SmallVec::new();
        for (kz, ky) in (0..w.kernel[0]).flat_map(|kz| (0..w.kernel[1]).map(move |ky| (kz, ky))) {
            let line = (kz * w.dilation[0] * size[1] + ky * w.dilation[1]) * size[2];
            runs.extend((0..pixels).map(|kx| (line + kx * w.dilation[2]) * channels));
        }
        Self { shape, size, run, runs, run_step }
    }

    /// Elements of a row of the product.
    fn depth(&self) -> usize {
        self.runs.len() * self.run_step
    }

    /// The bytes from a window's start to each block of [`STEPS`] elements, where windows are whole blocks or weights fill them up: then something else of the
    /// image lies behind a run, which is multiplied with 0.
    fn block_offsets(&self) -> Option<SmallVec<[usize; INLINE]>> {
        let blocks = (0..self.run).step_by(STEPS);
        let offsets = || {
            self.runs.iter().flat_map(|run| blocks.clone().map(move |block| (run + block) * size_of::<u16>()))
        };
        self.run_step.is_multiple_of(STEPS).then(|| offsets().collect())
    }

    /// Where a window (counted over all images) starts.
    fn start(&self, group: usize, row: usize) -> usize {
        let w = &self.shape.windows;
        let [od, oh, ow] = w.output;
        let [n, z, y, x] = [row / (od * oh * ow), row / (oh * ow) % od, row / ow % oh, row % ow];
        self.pixel(n, z, y, x) * self.shape.in_channels + group * self.shape.group_channels().0
    }

    /// The pixel at which the window of a place of the result starts.
    fn pixel(&self, n: usize, z: usize, y: usize, x: usize) -> usize {
        let stride = self.shape.windows.stride;
        let line = (n * self.size[0] + z * stride[0]) * self.size[1] + y * stride[1];
        line * self.size[2] + x * stride[2]
    }

    /// Elements of all images, and of what the last run is filled up with.
    fn len(&self) -> usize {
        self.images() + self.run_step - self.run
    }

    /// Elements of all images.
    fn images(&self) -> usize {
        self.shape.batch * self.size.iter().product::<usize>() * self.shape.in_channels
    }

    /// Rounds images to it.
    fn round(&self, x: Numbers<'_>, to: &mut [u16]) {
        let (w, channels) = (&self.shape.windows, self.shape.in_channels);
        let [depth, height, width] = self.size;
        let line = width * channels;
        let (to, behind) = to.split_at_mut(self.images());
        behind.fill(0);
        parallel_chunks(to, line, line / 16 + 1, |i, to| {
            let (n, z, y) = (i / (depth * height), i / height % depth, i % height);
            let inside =
                |dim: usize, at: usize| at.checked_sub(w.padding[dim].0).filter(|&at| at < w.input[dim]);
            let Some((z, y)) = inside(0, z).zip(inside(1, y)) else { return to.fill(0) };
            let from = (z * w.input[1] + y) * w.input[2];
            let (before, rest) = to.split_at_mut(w.padding[2].0 * channels);
            let (pixels, after) = rest.split_at_mut(w.input[2] * channels);
            before.fill(0);
            x.write(n, w.input_len(), from..from + w.input[2], channels, pixels);
            after.fill(0);
        });
    }

    /// Writes the windows `rows` (counted over all images), `step` elements apart, and zeros behind each up to a multiple of [`STEPS`].
    ///
    /// # Safety
    /// `x` has the size, windows lie inside of it, and `to` has room for them.
    unsafe fn gather(&self, x: &[u16], group: usize, rows: Range<usize>, to: *mut u16, step: usize) {
        // SAFETY: the caller's promise. Few elements are copied where they are asked for, by as many words as hold them.
        unsafe {
            match self.run {
                8 => self.gather_by(x, group, rows, to, step, copy_words::<1>),
                9..=16 => self.gather_by(x, group, rows, to, step, copy_words::<2>),
                17..=24 => self.gather_by(x, group, rows, to, step, copy_words::<3>),
                25..=32 => self.gather_by(x, group, rows, to, step, copy_words::<4>),
                _ => self.gather_by(x, group, rows, to, step, core::ptr::copy_nonoverlapping),
            }
        }
    }

    /// [`Padded::gather`] with what copies a run.
    ///
    /// # Safety
    /// As for [`Padded::gather`]; `copy` copies runs of this length.
    #[inline(always)]
    unsafe fn gather_by(
        &self,
        x: &[u16],
        group: usize,
        rows: Range<usize>,
        to: *mut u16,
        step: usize,
        copy: unsafe fn(*const u16, *mut u16, usize),
    ) {
        let (channels, depth, filling) = (self.shape.in_channels, self.depth(), self.run_step - self.run);
        let (padding, first) = (depth.next_multiple_of(STEPS) - depth, group * self.shape.group_channels().0);
        for_each_line(self.shape, rows, |[n, oz, oy, ox], part| {
            for (col, row) in (ox..).zip(part) {
                // SAFETY: the caller's promise: the window's elements are in the image, and there is room for the row.
                unsafe {
                    let from = x.as_ptr().add(self.pixel(n, oz, oy, col) * channels + first);
                    let to = to.add(row * step);
                    for (i, &run) in self.runs.iter().enumerate() {
                        let to = to.add(i * self.run_step);
                        copy(from.add(run), to, self.run);
                        to.add(self.run).write_bytes(0, filling);
                    }
                    if padding > 0 {
                        to.add(depth).write_bytes(0, padding);
                    }
                }
            }
        });
    }
}

/// Copies `n` elements by so many words of 8, of which the last overlaps the one before it.
///
/// # Safety
/// Both sides hold them and do not overlap; they are as many as the words hold, or up to 7 less, and at least 8.
#[inline(always)]
unsafe fn copy_words<const WORDS: usize>(from: *const u16, to: *mut u16, n: usize) {
    const WORD: usize = size_of::<u128>() / size_of::<u16>();
    for word in 0..WORDS {
        let at = (word * WORD).min(n - WORD);
        // SAFETY: the caller's promise.
        unsafe { to.add(at).cast::<u128>().write_unaligned(from.add(at).cast::<u128>().read_unaligned()) };
    }
}

#[cfg(test)]
mod tests {
    use super::{Numbers, NumbersMut, PackedConvBf16, conv_bf16};
    use crate::conv::{ConvShape, ConvWeight, conv};
    use crate::gemm::{noise, with_all_instructions};
    use kiln_types::{Activation, ConvOptions, bf16};

    fn rounded(x: &[f32]) -> Vec<f32> {
        x.iter().map(|&x| bf16::from_f32(x).to_f32()).collect()
    }

    /// `[batch, channels, pixels]` with the channels last.
    fn channels_last(x: &[f32], batch: usize, channels: usize) -> Vec<f32> {
        let pixels = x.len() / batch / channels;
        let at = |i: usize| {
            x[(i / (pixels * channels) * channels + i % channels) * pixels + i / channels % pixels]
        };
        (0..x.len()).map(at).collect()
    }

    #[test]
    fn it_is_the_convolution_of_rounded_operands() {
        let options = |stride: usize, padding: (usize, usize), dilation: usize, groups: usize| ConvOptions {
            stride: [stride; 2].into(),
            padding: [padding; 2].into(),
            dilation: [dilation; 2].into(),
            groups,
        };
        let cases = [
            ([2, 3, 12, 13], [33, 3, 5, 5], options(2, (2, 1), 1, 1)),
            ([1, 3, 15, 14], [32, 3, 7, 7], options(2, (3, 2), 1, 1)),
            ([2, 4, 9, 9], [33, 4, 2, 2], options(2, (0, 1), 1, 1)),
            ([1, 10, 9, 9], [33, 10, 3, 3], options(2, (1, 0), 1, 1)),
            ([1, 40, 9, 9], [37, 40, 1, 1], options(1, (0, 0), 1, 1)),
            ([2, 40, 9, 8], [34, 40, 1, 1], options(2, (0, 0), 1, 1)),
            ([1, 160, 9, 8], [160, 80, 1, 1], options(3, (0, 0), 1, 2)),
            ([1, 40, 7, 8], [34, 40, 1, 1], options(2, (1, 0), 1, 1)),
            ([1, 33, 10, 11], [35, 33, 3, 3], options(1, (1, 1), 1, 1)),
            ([1, 64, 7, 7], [64, 64, 3, 3], options(1, (2, 2), 2, 1)),
            ([1, 160, 6, 6], [160, 80, 3, 3], options(1, (1, 1), 1, 2)),
            // Lines of whole halves of tiles.
            ([2, 32, 5, 14], [40, 32, 3, 3], options(1, (1, 1), 1, 1)),
            ([1, 64, 9, 30], [33, 64, 3, 5], options(2, (1, 0), 1, 1)),
            ([1, 64, 6, 22], [35, 64, 3, 3], options(1, (2, 0), 2, 1)),
            ([1, 192, 3, 20], [160, 96, 3, 3], options(1, (1, 1), 1, 2)),
            // Runs that are filled up to blocks: lines of the kernel, channels of a pixel; of windows that are read where they lie, and that are put together.
            ([1, 3, 33, 32], [34, 3, 7, 7], options(2, (3, 3), 1, 1)),
            ([2, 8, 5, 20], [33, 8, 3, 3], options(1, (1, 1), 1, 1)),
            ([1, 24, 6, 12], [33, 24, 3, 3], options(1, (2, 2), 2, 1)),
            ([1, 24, 6, 17], [33, 24, 3, 3], options(1, (0, 1), 2, 1)),
            ([1, 160, 5, 12], [96, 80, 3, 3], options(1, (1, 1), 1, 2)),
        ];
        for (x_dims, w_dims, options) in cases {
            let shape = ConvShape::new(&x_dims, &w_dims, &options);
            assert!(shape.is_product());
            let x = rounded(&noise(x_dims.iter().product(), 1));
            let (weight, bias) = (noise(w_dims.iter().product(), 2), noise(w_dims[0], 3));
            let last = channels_last(&x, x_dims[0], x_dims[1]);
            let mut want = vec![0.0; shape.output_dims().iter().product()];
            let mut got = want.clone();
            let activation = Some(Activation::Relu);
            let given = if shape.takes_channels_first() { &x } else { &last };
            let exact = rounded(&weight);
            conv(&shape, given, ConvWeight::Plain(&exact), Some(&bias), activation, false, &mut want);
            // It rounds what is not rounded.
            let off: Vec<f32> = last.iter().map(|x| x * (1.0 + 1e-4)).collect();
            let packed = PackedConvBf16::once(&shape, &weight);
            let off = Numbers::Single(&off);
            conv_bf16(&shape, off, &packed, Some(&bias), activation, false, NumbersMut::Single(&mut got));
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let near = (got - want).abs() <= 2e-4 * (1.0 + want.abs());
                assert!(near, "{x_dims:?} {w_dims:?}: element {i} is {got}, not {want}");
            }
            // What was positive is added before the activation.
            let once = got.clone();
            conv_bf16(&shape, off, &packed, Some(&bias), None, true, NumbersMut::Single(&mut got));
            conv_bf16(&shape, off, &packed, Some(&bias), None, false, NumbersMut::Single(&mut want));
            for (i, ((sum, once), plain)) in got.iter().zip(&once).zip(&want).enumerate() {
                let expected = once + plain;
                assert!((sum - expected).abs() <= 1e-5 * (1.0 + expected.abs()), "{x_dims:?}: {i}: {sum}");
            }
        }
    }

    /// Whether numbers were rounded before makes no difference, and results are those that would be rounded afterwards.
    #[test]
    fn rounded_numbers_are_taken_and_yielded() {
        let options = |stride: usize, padding: usize, groups: usize| ConvOptions {
            stride: [stride; 2].into(),
            padding: [(padding, padding); 2].into(),
            dilation: [1; 2].into(),
            groups,
        };
        let cases = [
            // Rows that are read where they lie, with some at the end that are copied; rows that share places of a cache; rows that are copied as they have no whole blocks.
            ([1, 64, 9, 9], [40, 64, 1, 1], options(1, 0, 1)),
            ([1, 64, 7, 7], [33, 64, 1, 1], options(1, 0, 1)),
            ([2, 1024, 4, 5], [64, 1024, 1, 1], options(1, 0, 1)),
            ([1, 40, 25, 26], [37, 40, 1, 1], options(1, 0, 1)),
            ([1, 160, 9, 8], [160, 80, 1, 1], options(1, 0, 2)),
            ([1, 256, 9, 8], [192, 128, 1, 1], options(1, 0, 2)),
            ([2, 40, 9, 8], [34, 40, 1, 1], options(2, 0, 1)),
            ([1, 33, 10, 11], [35, 33, 3, 3], options(1, 1, 1)),
            ([1, 64, 15, 14], [70, 64, 3, 3], options(2, 1, 1)),
            // Lines of whole halves of tiles: windows that are read where they lie, an odd number of halves, sums in several parts, groups.
            ([1, 32, 5, 14], [40, 32, 3, 3], options(1, 1, 1)),
            ([2, 64, 28, 28], [33, 64, 3, 3], options(2, 1, 1)),
            ([1, 128, 4, 28], [70, 128, 3, 3], options(1, 1, 1)),
            ([1, 192, 3, 20], [160, 96, 3, 3], options(1, 1, 2)),
            // Runs that are filled up.
            ([1, 3, 33, 32], [34, 3, 7, 7], options(2, 3, 1)),
            ([1, 3, 30, 30], [34, 3, 7, 7], options(2, 3, 1)),
            // Planes, of more pixels in a line than are rounded at a time.
            ([2, 3, 4, 150], [8, 3, 3, 3], options(2, 1, 1)),
            ([2, 2, 4, 5], [8, 2, 1, 1], options(1, 1, 1)),
            ([1, 4, 5, 5], [8, 4, 2, 2], options(1, 0, 1)),
            ([2, 24, 6, 12], [33, 24, 3, 3], options(1, 1, 1)),
        ];
        with_all_instructions(|level, instructions| {
            for (x_dims, w_dims, options) in &cases {
                let shape = ConvShape::new(x_dims, w_dims, options);
                let x: Vec<bf16> =
                    noise(x_dims.iter().product(), 1).into_iter().map(bf16::from_f32).collect();
                let (weight, bias) = (noise(w_dims.iter().product(), 2), noise(w_dims[0], 3));
                let packed = PackedConvBf16::once(&shape, &weight);
                let wide: Vec<f32> = x.iter().map(|x| x.to_f32()).collect();
                for activation in [None, Some(Activation::Relu), Some(Activation::Silu)] {
                    let first: Vec<bf16> = noise(shape.output_dims().iter().product(), 4)
                        .into_iter()
                        .map(bf16::from_f32)
                        .collect();
                    for adds in [false, true] {
                        let mut want: Vec<f32> = first.iter().map(|x| x.to_f32()).collect();
                        let mut single = want.clone();
                        let mut both = first.clone();
                        let run = |x: Numbers<'_>, out: NumbersMut<'_>| {
                            conv_bf16(&shape, x, &packed, Some(&bias), activation, adds, out);
                        };
                        run(Numbers::Single(&wide), NumbersMut::Single(&mut want));
                        run(Numbers::Rounded(&x), NumbersMut::Single(&mut single));
                        let what =
                            format!("{level:?} {instructions:?} {x_dims:?} {w_dims:?} {activation:?} {adds}");
                        assert!(single == want, "{what}");
                        if shape.takes_planes() {
                            single.iter_mut().zip(&first).for_each(|(y, x)| *y = x.to_f32());
                            let (pixels, channels) = (x_dims[2] * x_dims[3], x_dims[1]);
                            let at = |i: usize| {
                                i / (pixels * channels) * pixels * channels
                                    + i % pixels * channels
                                    + i / pixels % channels
                            };
                            let planes: Vec<f32> = (0..wide.len()).map(|i| wide[at(i)]).collect();
                            run(Numbers::Planes(&planes), NumbersMut::Single(&mut single));
                            assert!(single == want, "{what}: of planes");
                        }
                        run(Numbers::Rounded(&x), NumbersMut::Rounded(&mut both));
                        for (i, (got, want)) in both.iter().zip(&want).enumerate() {
                            // A sum of another order may round to the neighbour.
                            let (got, near) = (got.to_f32(), bf16::from_f32(*want).to_f32());
                            let off = (got - near).abs() <= near.abs() / 128.0;
                            assert!(
                                got == near || (adds || activation.is_some()) && off,
                                "{what}: {i}: {got}, not {want}"
                            );
                        }
                    }
                }
            }
        });
    }

    /// A filled run at an image's end reads what lies behind it, which was another image's before.
    #[test]
    fn what_lies_behind_an_image_is_a_number() {
        let options = ConvOptions {
            stride: [2; 2].into(),
            padding: [(3, 2); 2].into(),
            dilation: [1; 2].into(),
            groups: 1,
        };
        with_all_instructions(|level, instructions| {
            let of_height = |height| ConvShape::new(&[1, 3, height, 31], &[16, 3, 7, 7], &options);
            let (shape, taller) = (of_height(31), of_height(33));
            let packed = PackedConvBf16::new(&shape, &noise(shape.weight_len(), 1));
            let run = |shape: &ConvShape, x: &[f32]| {
                let mut out = vec![0.0; shape.output_dims().iter().product()];
                let (x, to) = (Numbers::Single(x), NumbersMut::Single(&mut out));
                conv_bf16(shape, x, &packed, None, None, false, to);
                out
            };
            assert!(run(&taller, &[f32::NAN; 3 * 33 * 31]).iter().all(|x| x.is_nan()));
            let out = run(&shape, &noise(3 * 31 * 31, 2));
            assert!(out.iter().all(|x| x.is_finite()), "{level:?} {instructions:?}");
        });
    }

    #[test]
    fn images_of_three_dims_and_dilated_lines_are_read_where_they_lie() {
        with_all_instructions(|level, instructions| {
            let options = ConvOptions {
                stride: [1, 2, 2].into(),
                padding: [(1, 1), (0, 2), (2, 1)].into_iter().collect(),
                dilation: [1, 2, 1].into(),
                groups: 1,
            };
            let (x_dims, w_dims) = ([2, 5, 4, 9, 10], [33, 5, 2, 3, 3]);
            let shape = ConvShape::new(&x_dims, &w_dims, &options);
            // Numbers that bf16 holds, and sums that f32 holds.
            let whole = |len, seed| noise(len, seed).iter().map(|x| (x * 8.0).round()).collect::<Vec<f32>>();
            let (x, weight) = (whole(x_dims.iter().product(), 1), whole(w_dims.iter().product(), 2));
            let mut want = vec![0.0; shape.output_dims().iter().product()];
            let mut got = want.clone();
            conv(&shape, &x, ConvWeight::Plain(&weight), None, None, false, &mut want);
            let (packed, x) = (PackedConvBf16::new(&shape, &weight), Numbers::Single(&x));
            conv_bf16(&shape, x, &packed, None, None, false, NumbersMut::Single(&mut got));
            assert!(got == want, "{level:?} {instructions:?}");
        });
    }

    #[test]
    fn padding_without_bounds_is_not_copied() {
        for size in [1 << 20, 1 << (usize::BITS / 2 + 8), 1 << (usize::BITS - 2)] {
            // Windows of the padding's size apart: few see anything.
            let options = ConvOptions {
                stride: [size; 2].into(),
                padding: [(size, size / 2); 2].into(),
                dilation: [1; 2].into(),
                groups: 1,
            };
            let (x, weight) = (noise(2 * 40, 1), noise(3 * 40 * 9, 2));
            let shape = ConvShape::new(&[1, 40, 2, 1], &[3, 40, 3, 3], &options);
            assert!(!shape.is_product() && !shape.is_faster_rounded());
            let mut out = vec![7.0; shape.output_dims().iter().product()];
            conv(&shape, &x, ConvWeight::Plain(&weight), None, None, false, &mut out);
            // The second window of each dim begins at the image's first pixel.
            assert!(out.iter().any(|&x| x != 0.0) && out.iter().all(|&x| x != 7.0), "{out:?}");
            let shape = ConvShape::new(&[1, 3, 2, 1], &[3, 3, 3, 3], &options);
            assert!(!shape.takes_channels_first());
        }
    }
}
