//! Convolutions of images with few channels, which come first: the channels of a pixel would fill no vector, so neighbouring windows are the rows
//! of a product whose elements are read where they lie, one plane of the image after the other.
//!
//! A band of lines is copied with its padding, so that windows need no bounds; it stays in the first-level cache for the rows that see it.

use super::{ConvShape, End};
use crate::gemm::{Bias, Epilogue, PackedRhs, PanelOrder, Rows, RowsProduct};
use crate::scratch::with_scratch;
use crate::threads::{SharedMut, parallel_for};
use smallvec::SmallVec;

/// Most channels of images that are taken with their channels first.
const FEW: usize = 4;
/// Rows of the result for which lines are copied at a time.
const ROWS: usize = 4;

/// Elements of a window for which no memory is asked: 3 channels of 7x7, and more.
const INLINE: usize = 256;

/// Whether this file's way is the one for a convolution.
pub(super) fn suit(shape: &ConvShape) -> bool {
    let few = shape.groups == 1 && (1..=FEW).contains(&shape.in_channels);
    few && !shape.windows.are_points() && shape.windows.stride[2] <= 2 && shape.pads_little()
}

/// The result of a convolution; `x` is `[batch, in, spatial…]`, `weight` `[in · kernel…, out]`.
pub(super) fn planes(shape: &ConvShape, x: &[f32], weight: &PackedRhs, end: &End<'_>, out: &mut [f32]) {
    let [_, oh, ow] = shape.windows.output;
    let (slices, bands) = (shape.batch * shape.windows.output[0], oh.div_ceil(ROWS));
    let planes = Planes::new(shape);
    let bias = end.bias.map_or(Bias::None, Bias::PerColumn);
    let epilogue = Epilogue { bias, residual: None, activation: end.activation };
    let work = ROWS * ow * shape.depth() * shape.out_channels / 100 + 1;
    let out = SharedMut::new(out);
    parallel_for(slices * bands, work, |range| {
        with_scratch(planes.len(), |band| {
            for i in range {
                let (slice, first) = (i / bands, i % bands * ROWS);
                let rows = first..oh.min(first + ROWS);
                planes.copy(x, slice, rows.clone(), band);
                for (j, row) in rows.enumerate() {
                    let a = Rows::Windows {
                        image: &band[j * shape.windows.stride[1] * planes.width..],
                        step: shape.windows.stride[2],
                        offsets: &planes.offsets,
                    };
                    let (c_start, c_step) =
                        ((slice * oh + row) * ow * shape.out_channels, shape.out_channels);
                    RowsProduct {
                        m: ow,
                        a,
                        b: weight,
                        c: &out,
                        c_start,
                        c_step,
                        adds: end.adds,
                        order: PanelOrder::Forwards,
                        epilogue: &epilogue,
                    }
                    .run();
                }
            }
        });
    });
}

/// How a band of lines lies in memory: `[in, kernel's depth, line, pixel]`.
struct Planes<'a> {
    shape: &'a ConvShape,
    /// Lines of a plane in a band.
    lines: usize,
    /// Pixels of a line with its padding.
    width: usize,
    /// Where each element of a window lies, from its first on.
    offsets: SmallVec<[usize; INLINE]>,
}

impl<'a> Planes<'a> {
    fn new(shape: &'a ConvShape) -> Self {
        let w = &shape.windows;
        let lines = (ROWS.min(w.output[1]) - 1) * w.stride[1] + (w.kernel[1] - 1) * w.dilation[1] + 1;
        let width = w.padding[2].0 + w.input[2] + w.padding[2].1;
        let [kd, kh, kw] = w.kernel;
        let mut offsets = SmallVec::new();
        for plane in 0..shape.in_channels * kd {
            for (y, x) in (0..kh * kw).map(|k| (k / kw, k % kw)) {
                offsets.push((plane * lines + y * w.dilation[1]) * width + x * w.dilation[2]);
            }
        }
        Self { shape, lines, width, offsets }
    }

    /// Elements of a band.
    fn len(&self) -> usize {
        self.shape.in_channels * self.shape.windows.kernel[0] * self.lines * self.width
    }

    /// Copies the lines that some rows of a slice of the result see; slices are counted over all images.
    fn copy(&self, x: &[f32], slice: usize, rows: core::ops::Range<usize>, band: &mut [f32]) {
        let w = &self.shape.windows;
        let [depth, height, width] = w.input;
        let (image, oz) = (slice / w.output[0], slice % w.output[0]);
        let seen = (rows.len() - 1) * w.stride[1] + (w.kernel[1] - 1) * w.dilation[1] + 1;
        let first = rows.start * w.stride[1];
        for (plane, to) in band.chunks_exact_mut(self.lines * self.width).enumerate() {
            let (channel, kz) = (plane / w.kernel[0], plane % w.kernel[0]);
            let z = w.position(0, oz, kz);
            for (line, to) in to.chunks_exact_mut(self.width).take(seen).enumerate() {
                let y = (first + line).checked_sub(w.padding[1].0).filter(|&y| y < height);
                let Some((z, y)) = z.zip(y) else {
                    to.fill(0.0);
                    continue;
                };
                let from = (((image * self.shape.in_channels + channel) * depth + z) * height + y) * width;
                let (before, rest) = to.split_at_mut(w.padding[2].0);
                let (inside, after) = rest.split_at_mut(width);
                before.fill(0.0);
                inside.copy_from_slice(&x[from..from + width]);
                after.fill(0.0);
            }
        }
    }
}
