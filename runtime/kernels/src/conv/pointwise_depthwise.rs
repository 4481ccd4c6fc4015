//! A 1x1 convolution and the depthwise one that reads its result, band by band: of the image between them only a band of lines is ever
//! there, which the one leaves in the second-level cache for the other. An image that is larger than that would be written to memory
//! and read back, which takes longer than computing it.

use super::depthwise::Depthwise;
use super::{ConvShape, ConvWay, End, Filters, Packed, PackedConv};
use crate::gemm::{Bias, Epilogue, PanelOrder, Rows, RowsProduct};
use crate::scratch::with_scratch;
use crate::threads::{self, SharedMut, parallel_for};
use core::ops::Range;
use kiln_types::Activation;

/// Elements of images from which on they are not made whole: more than half of a second-level cache of 1 MiB.
const LARGE: usize = 160 * 1024;
/// Elements of a band: half of a second-level cache of 1 MiB.
const BAND: usize = 128 * 1024;
/// Ranges of lines for each thread, if they share few lines.
const RANGES: usize = 2;

/// A convolution with packed weights.
#[derive(Clone, Copy, Debug)]
pub struct ConvLayer<'a> {
    /// Its geometry.
    pub shape: &'a ConvShape,
    /// Its weights.
    pub weight: &'a PackedConv,
    /// What is added to the channels.
    pub bias: Option<&'a [f32]>,
    /// What is applied last.
    pub activation: Option<Activation>,
}

impl<'a> ConvLayer<'a> {
    fn end(&self) -> End<'a> {
        End { bias: self.bias, activation: self.activation, adds: false }
    }
}

impl ConvShape {
    /// Whether a depthwise convolution of this one's result had better be computed together with it: a 1x1 convolution to large
    /// images.
    pub fn suits_bands(&self) -> bool {
        let results = self.batch * self.out_channels * self.windows.output_len();
        self.way() == ConvWay::Rows
            && self.groups == 1
            && self.windows.are_points()
            && self.windows.input[0] == 1
            && results >= LARGE
    }

    /// Whether [`pointwise_depthwise`] had better compute this convolution of another's result. That may depend on the number of threads.
    pub fn follows_in_bands(&self, points: &ConvShape) -> bool {
        // Each thread has a range of lines, and computes what it shares with the next.
        let shared = (threads::sharing() - 1) * self.shared_lines();
        self.is_depthwise_of(points) && 4 * shared <= self.batch * self.windows.input[1]
    }

    /// Whether [`pointwise_depthwise`] can compute this convolution of another's result.
    fn is_depthwise_of(&self, points: &ConvShape) -> bool {
        let w = &self.windows;
        let one_plane = (w.input[0], w.kernel[0], w.output[0]) == (1, 1, 1);
        // Products of a single row sum in an order of their own.
        let some_rows = w.input[2] > 1;
        self.way() == ConvWay::Depthwise
            && self.in_channels == self.out_channels
            && one_plane
            && some_rows
            && (self.batch, self.in_channels, self.windows.input)
                == (points.batch, points.out_channels, points.windows.output)
    }

    /// Lines of the image that two neighbouring windows see. Two ranges of lines that are computed apart both need them.
    fn shared_lines(&self) -> usize {
        let w = &self.windows;
        ((w.kernel[1] - 1) * w.dilation[1] + 1).saturating_sub(w.stride[1])
    }
}

/// `out = depthwise(points(x))`, to the bit what [`conv`](super::conv) yields for both, one after the other.
///
/// # Panics
/// When a slice does not have its shape's size, when `points` is no 1x1 convolution in one group, or the other no depthwise convolution
/// of its result in two dims, with one result for each channel.
pub fn pointwise_depthwise(points: &ConvLayer<'_>, depthwise: &ConvLayer<'_>, x: &[f32], out: &mut [f32]) {
    let (Packed::Groups(operands), Packed::Depthwise(weight)) =
        (&points.weight.weights, &depthwise.weight.weights)
    else {
        panic!("weights of a 1x1 and a depthwise convolution, not {points:?} and {depthwise:?}");
    };
    let between = points.shape.batch * points.shape.out_channels * points.shape.windows.output_len();
    points.shape.check_sizes(x.len(), points.bias, between);
    depthwise.shape.check_sizes(between, depthwise.bias, out.len());
    assert!(points.shape.way() == ConvWay::Rows && points.shape.windows.are_points(), "a 1x1 convolution");
    assert!(depthwise.shape.is_depthwise_of(points.shape), "a depthwise convolution of the other's result");
    assert_eq!(
        depthwise.weight.of,
        Filters::of(depthwise.shape),
        "the weights were packed for another convolution"
    );
    let [operand] = operands.as_slice() else { panic!("a 1x1 convolution in one group") };
    assert_eq!(
        operand.dims(),
        (points.shape.in_channels, points.shape.out_channels),
        "weights of another shape"
    );
    let bands = Bands {
        epilogue: &Epilogue {
            bias: points.bias.map_or(Bias::None, Bias::PerColumn),
            residual: None,
            activation: points.activation,
        },
        operand,
        x,
        depthwise: Depthwise::new(depthwise.shape, weight, &depthwise.end()),
        shape: depthwise.shape,
        inputs: points.shape.in_channels,
        out: &SharedMut::new(out),
    };
    bands.run();
}

/// Both convolutions, as one range of lines needs them.
struct Bands<'a> {
    x: &'a [f32],
    /// Channels of `x`.
    inputs: usize,
    /// Of the 1x1 convolution.
    operand: &'a crate::gemm::PackedRhs,
    epilogue: &'a Epilogue<'a>,
    depthwise: Depthwise<'a>,
    /// That of the depthwise convolution.
    shape: &'a ConvShape,
    out: &'a SharedMut<'a, f32>,
}

impl Bands<'_> {
    fn run(&self) {
        let w = &self.shape.windows;
        let (lines, height) = (self.shape.batch * w.output[1], w.output[1]);
        let ranges = match threads::sharing() {
            1 => 1,
            threads => {
                let seen = self.shape.batch * w.input[1];
                let few_shared = 1 + seen / (8 * self.shape.shared_lines()).max(1);
                (threads * RANGES).min(few_shared).max(threads).min(lines)
            }
        };
        let points = w.input_len() * self.inputs * self.shape.out_channels / 100;
        let work = (points * self.shape.batch + self.depthwise.row_work() * lines) / ranges.max(1) + 1;
        parallel_for(ranges, work, |jobs| {
            let at = |job: usize| lines * job / ranges;
            let mut lines = at(jobs.start)..at(jobs.end);
            while !lines.is_empty() {
                // No further than the image.
                let (image, first) = (lines.start / height, lines.start % height);
                let end = height.min(first + lines.len());
                self.lines(image, first..end);
                lines.start += end - first;
            }
        });
    }

    /// The lines of the image between the convolutions that a line of the result sees.
    fn seen(&self, line: usize) -> Range<usize> {
        let w = &self.shape.windows;
        let first = line * w.stride[1];
        let clip = |position: usize| position.saturating_sub(w.padding[1].0).min(w.input[1]);
        clip(first)..clip(first + (w.kernel[1] - 1) * w.dilation[1] + 1)
    }

    /// Computes some lines of an image of the result.
    fn lines(&self, image: usize, lines: Range<usize>) {
        let (w, channels) = (&self.shape.windows, self.shape.out_channels);
        let line = w.input[2] * channels;
        let at_once = (w.kernel[1] - 1) * w.dilation[1] + w.stride[1];
        let room = (BAND / line.max(1)).max(at_once).min(self.seen(lines.start).start.abs_diff(w.input[1]));
        with_scratch(room * line, |band| {
            // The lines that are in the band.
            let mut there = 0..0usize;
            let mut next = lines.start;
            while next < lines.end {
                let first = self.seen(next).start;
                let fits = |&line: &usize| self.seen(line).end <= first + room;
                let end = (next..lines.end).take_while(fits).last().map_or(next + 1, |last| last + 1);
                let wanted = first..self.seen(end - 1).end.max(first);
                let kept = there.end.saturating_sub(first).min(there.len());
                band.copy_within((there.len() - kept) * line..there.len() * line, 0);
                self.points(image, first + kept..wanted.end, &mut band[kept * line..]);
                there = wanted;
                self.rows(image, next..end, &band[..there.len() * line], there.start);
                next = end;
            }
        });
    }

    /// The 1x1 convolution for some lines of an image.
    fn points(&self, image: usize, lines: Range<usize>, to: &mut [f32]) {
        let w = &self.shape.windows;
        let x = &self.x[(image * w.input[1] + lines.start) * w.input[2] * self.inputs..];
        RowsProduct {
            m: lines.len() * w.input[2],
            a: Rows::InPlace(x, self.inputs),
            b: self.operand,
            c: &SharedMut::new(to),
            c_start: 0,
            c_step: self.shape.out_channels,
            adds: false,
            order: PanelOrder::Forwards,
            epilogue: self.epilogue,
        }
        .run_here();
    }

    /// The depthwise convolution for some lines of an image, of a band whose first line is the image's `first`.
    fn rows(&self, image: usize, lines: Range<usize>, band: &[f32], first: usize) {
        let (w, channels) = (&self.shape.windows, self.shape.out_channels);
        // Where all images would begin if the band lay among them.
        let images = band.as_ptr().wrapping_sub((image * w.input[1] + first) * w.input[2] * channels);
        for strip in self.depthwise.strips() {
            for line in lines.clone() {
                let row = image * w.output[1] + line;
                // SAFETY: the lines that the row sees are in the band; each row of the result is computed once.
                unsafe {
                    let out = self.out.ptr(row * w.output[2] * channels);
                    self.depthwise.fill(images, row, strip.clone(), out);
                }
            }
        }
    }
}
