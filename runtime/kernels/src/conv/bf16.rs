//! Convolutions as products of operands rounded to bf16: the image is rounded once, and its windows are gathered as rows when the product wants them.

use super::{ConvShape, ConvWay, End, winograd};
use crate::consumed::{Consumed, KEPT, in_parts};
use crate::gemm::{
    Bf16Product, Bf16Rows, Bias, Epilogue, Matrix, PackedBf16, STEPS, multiplies_tiles, round_slice,
};
use crate::scratch::with_scratch;
use crate::threads::{SharedMut, parallel_chunks};
use alloc::vec::Vec;
use core::ops::Range;
use kiln_types::Activation;

/// Weights of a convolution, rounded and packed.
#[derive(Clone, Debug)]
pub struct PackedConvBf16 {
    len: usize,
    /// One right operand a group, `[kernel… · in / groups, out / groups]`.
    groups: Vec<PackedBf16>,
}

impl ConvShape {
    /// Whether this machine computes the convolution faster by [`conv_bf16`] than by [`super::conv`], which rounds nothing.
    pub fn is_faster_rounded(&self) -> bool {
        /// Squares from which Winograd's f32 is faster than a product of bf16 pairs, which takes half the time of f32: filters are then read often
        /// enough. Measured on Zen 4.
        const SQUARES: usize = 48;
        let winograd = self.way() == ConvWay::Winograd && winograd::squares(self) >= SQUARES;
        self.is_product() && (multiplies_tiles() || !winograd)
    }

    /// Whether [`conv_bf16`] computes this convolution: it is a product of matrices, without small groups.
    pub fn is_product(&self) -> bool {
        match self.way() {
            ConvWay::Depthwise | ConvWay::Grouped => false,
            ConvWay::Planes | ConvWay::Rows | ConvWay::Winograd => true,
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
        assert_eq!(weight.len(), shape.weight_len(), "the weights do not have the convolution's shape");
        let ((ic, oc), taps) = (shape.group_channels(), shape.windows.kernel_len());
        let depth = shape.depth();
        let group = |start: usize| {
            let filters = &weight[start..start + oc * depth];
            with_scratch(filters.len(), |ordered| {
                let shared = SharedMut::new(ordered);
                let order = |outs: Range<usize>| {
                    for out in outs.map(|i| i * depth..(i + 1) * depth) {
                        let filter = &filters[out.clone()];
                        // SAFETY: each filter has its own part.
                        let to = unsafe { shared.slice(out) };
                        // The elements of a window follow each other as in the image.
                        for (tap, to) in to.chunks_exact_mut(ic).enumerate() {
                            to.iter_mut().enumerate().for_each(|(c, to)| *to = filter[c * taps + tap]);
                        }
                    }
                };
                in_parts(oc, depth, depth, order, |outs| {
                    consumed(start + outs.start * depth..start + outs.end * depth);
                });
                PackedBf16::new(Matrix::row_major(ordered, depth).transposed(), depth, oc)
            })
        };
        let groups = (0..shape.groups).map(|i| group(i * oc * depth));
        Self { len: weight.len(), groups: groups.collect() }
    }
}

/// `out = activation(x ∗ weight + bias)`, or `out = activation(x ∗ weight + bias + out)` if it `adds`, of rounded `x` and weights, for what [`ConvShape::is_product`].
///
/// `x` is `[batch, spatial…, in]`, `bias` `[out]` and `out` `[batch, spatial…, out]`, all contiguous.
///
/// # Panics
/// When a slice does not have the shape's size.
pub fn conv_bf16(
    shape: &ConvShape,
    x: &[f32],
    weight: &PackedConvBf16,
    bias: Option<&[f32]>,
    activation: Option<Activation>,
    adds: bool,
    out: &mut [f32],
) {
    shape.check(x, bias, out);
    assert_eq!(weight.len, shape.weight_len(), "the weights do not have the convolution's shape");
    assert_eq!(weight.groups.len(), shape.groups, "the weights were packed for other groups");
    if out.is_empty() {
        return;
    }
    let end = End { bias, activation, adds };
    if shape.windows.are_points() {
        let ic = shape.group_channels().0;
        let of_group = |group: usize| &x[group * ic..];
        return products(shape, weight, &end, out, |group, run| {
            run(Bf16Rows::Single(of_group(group), shape.in_channels));
        });
    }
    with_scratch(x.len().div_ceil(2), |space| {
        let image = &mut bytemuck::cast_slice_mut::<f32, u16>(space)[..x.len()];
        round_image(x, image);
        let image = &*image;
        products(shape, weight, &end, out, |group, run| {
            // SAFETY: the image has the shape's size, and the product gives room for what it asks for.
            run(Bf16Rows::Gather(&|rows, to, step| unsafe { gather(shape, image, group, rows, to, step) }));
        });
    });
}

fn round_image(x: &[f32], to: &mut [u16]) {
    const PIECE: usize = 16 * 1024;
    parallel_chunks(to, PIECE, PIECE / 16, |i, to| round_slice(&x[i * PIECE..][..to.len()], to));
}

/// One product a group, of the rows that `rows` lends.
fn products(
    shape: &ConvShape,
    weight: &PackedConvBf16,
    end: &End<'_>,
    out: &mut [f32],
    rows: impl Fn(usize, &dyn Fn(Bf16Rows<'_>)),
) {
    let m = shape.batch * shape.windows.output_len();
    let oc = shape.group_channels().1;
    let c = SharedMut::new(out);
    for (group, b) in weight.groups.iter().enumerate() {
        assert_eq!(b.dims(), (shape.depth(), oc), "the weights were packed for another convolution");
        let bias = end.bias.map_or(Bias::None, |bias| Bias::PerColumn(&bias[group * oc..(group + 1) * oc]));
        let epilogue = Epilogue { bias, residual: None, activation: end.activation };
        rows(group, &|a| {
            let (c_start, c_step) = (group * oc, shape.out_channels);
            Bf16Product { m, a, b: b.view(), c: &c, c_start, c_step, adds: end.adds, epilogue: &epilogue }
                .run();
        });
    }
}

/// Writes the windows `rows` (counted over all images), `step` elements apart, and zeros behind each up to a multiple of [`STEPS`].
///
/// # Safety
/// `x` has the shape's size, windows lie inside of it, and `to` has room for them.
unsafe fn gather(shape: &ConvShape, x: &[u16], group: usize, rows: Range<usize>, to: *mut u16, step: usize) {
    let w = &shape.windows;
    let [_, oh, ow] = w.output;
    let (ic, channels) = (shape.group_channels().0, shape.in_channels);
    let (run, depth) = (w.kernel[2] * ic, shape.depth());
    // A row of the kernel is one run of the image's elements when nothing lies between its pixels.
    let dense = w.dilation[2] == 1 && shape.groups == 1;
    for (i, row) in rows.enumerate() {
        let (n, oz, oy, ox) =
            (row / (w.output[0] * oh * ow), row / (oh * ow) % w.output[0], row / ow % oh, row % ow);
        let inside = w.inside(2, ox);
        let first = (ox * w.stride[2]) as isize - w.padding[2].0 as isize;
        // SAFETY: the caller's promise: lines and pixels that are named are in the image, and there is room for the row.
        unsafe {
            let to = to.add(i * step);
            let lines = (0..w.kernel[0]).flat_map(|kz| (0..w.kernel[1]).map(move |ky| (kz, ky)));
            for (line, (kz, ky)) in lines.enumerate() {
                let to = to.add(line * run);
                let Some((z, y)) = w.position(0, oz, kz).zip(w.position(1, oy, ky)) else {
                    zero(to, run);
                    continue;
                };
                let pixels = x.as_ptr().add(((n * w.input[0] + z) * w.input[1] + y) * w.input[2] * channels);
                zero(to, inside.start * ic);
                if dense {
                    let from = pixels.wrapping_offset(first * ic as isize).wrapping_add(inside.start * ic);
                    copy(from, to.add(inside.start * ic), inside.len() * ic);
                } else {
                    for k in inside.clone() {
                        let pixel = first + (k * w.dilation[2]) as isize;
                        let from = pixels.wrapping_offset(pixel * channels as isize).wrapping_add(group * ic);
                        copy(from, to.add(k * ic), ic);
                    }
                }
                zero(to.add(inside.end * ic), run - inside.end * ic);
            }
            zero(to.add(depth), depth.next_multiple_of(STEPS) - depth);
        }
    }
}

/// Zeros `n` elements, mostly none.
///
/// # Safety
/// There is room for them.
#[inline(always)]
unsafe fn zero(to: *mut u16, n: usize) {
    if n > 0 {
        // SAFETY: the caller's promise.
        unsafe { to.write_bytes(0, n) };
    }
}

/// Copies `n` elements; few are copied where they are asked for.
///
/// # Safety
/// Both sides hold them, and do not overlap.
#[inline(always)]
unsafe fn copy(from: *const u16, to: *mut u16, n: usize) {
    // SAFETY: the caller's promise; there are as many elements as a word has, or more.
    unsafe {
        match n {
            8..=64 => copy_words::<u128>(from, to, n),
            4..8 => copy_words::<u64>(from, to, n),
            _ => core::ptr::copy_nonoverlapping(from, to, n),
        }
    }
}

/// Copies `n` elements word by word.
///
/// # Safety
/// Both sides hold them, do not overlap, and hold at least a word.
#[inline(always)]
unsafe fn copy_words<Word>(from: *const u16, to: *mut u16, n: usize) {
    let size = size_of::<Word>() / size_of::<u16>();
    // SAFETY: the caller's promise; the last word overlaps the one before it.
    unsafe {
        let word = |i: usize| {
            to.add(i).cast::<Word>().write_unaligned(from.add(i).cast::<Word>().read_unaligned());
        };
        for i in (0..n - size).step_by(size) {
            word(i);
        }
        word(n - size);
    }
}

#[cfg(test)]
mod tests {
    use super::{PackedConvBf16, conv_bf16};
    use crate::conv::{ConvShape, ConvWeight, conv};
    use crate::gemm::noise;
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
            ([1, 40, 9, 9], [37, 40, 1, 1], options(1, (0, 0), 1, 1)),
            ([2, 40, 9, 8], [34, 40, 1, 1], options(2, (0, 0), 1, 1)),
            ([1, 33, 10, 11], [35, 33, 3, 3], options(1, (1, 1), 1, 1)),
            ([1, 64, 7, 7], [64, 64, 3, 3], options(1, (2, 2), 2, 1)),
            ([1, 160, 6, 6], [160, 80, 3, 3], options(1, (1, 1), 1, 2)),
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
            let packed = PackedConvBf16::new(&shape, &weight);
            conv_bf16(&shape, &off, &packed, Some(&bias), activation, false, &mut got);
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let near = (got - want).abs() <= 2e-4 * (1.0 + want.abs());
                assert!(near, "{x_dims:?} {w_dims:?}: element {i} is {got}, not {want}");
            }
            // What was positive is added before the activation.
            let once = got.clone();
            conv_bf16(&shape, &off, &packed, Some(&bias), None, true, &mut got);
            conv_bf16(&shape, &off, &packed, Some(&bias), None, false, &mut want);
            for (i, ((sum, once), plain)) in got.iter().zip(&once).zip(&want).enumerate() {
                let expected = once + plain;
                assert!((sum - expected).abs() <= 1e-5 * (1.0 + expected.abs()), "{x_dims:?}: {i}: {sum}");
            }
        }
    }
}
