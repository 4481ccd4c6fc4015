//! A 1x1 convolution and the depthwise one that reads its result, band by band.

use super::bands::Bands;
use super::depthwise::Depthwise;
use super::{ConvShape, ConvWay, End, Filters, Packed, PackedConv};
use crate::gemm::{Bias, Epilogue, PanelOrder, Rows, RowsProduct};
use crate::threads::{self, SharedMut};
use core::ops::Range;
use kiln_types::Activation;

/// Elements of images from which on they are not made whole: more than half of a second-level cache of 1 MiB.
const LARGE: usize = 160 * 1024;

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
        // Products of a single row sum in an order of their own.
        let some_rows = self.windows.input[2] > 1;
        self.is_depthwise_by_lines()
            && some_rows
            && (self.batch, self.in_channels, self.windows.input)
                == (points.batch, points.out_channels, points.windows.output)
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
    let epilogue = &Epilogue {
        bias: points.bias.map_or(Bias::None, Bias::PerColumn),
        residual: None,
        activation: points.activation,
    };
    let (w, inputs, channels) =
        (&depthwise.shape.windows, points.shape.in_channels, points.shape.out_channels);
    let bring = |image: usize, lines: Range<usize>, to: &mut [f32]| {
        RowsProduct {
            m: lines.len() * w.input[2],
            a: Rows::InPlace(&x[(image * w.input[1] + lines.start) * w.input[2] * inputs..], inputs),
            b: operand,
            c: &SharedMut::new(to),
            c_start: 0,
            c_step: channels,
            adds: false,
            order: PanelOrder::Forwards,
            epilogue,
        }
        .run_here();
    };
    let shape = depthwise.shape;
    let depthwise = Depthwise::new(shape, weight, &depthwise.end());
    let out = SharedMut::new(out);
    let compute = |image: usize, lines: Range<usize>, images: *const f32| {
        for strip in depthwise.strips() {
            for line in lines.clone() {
                let row = image * w.output[1] + line;
                // SAFETY: the lines that the row sees are there; each row of the result is computed once.
                unsafe { depthwise.fill(images, row, strip.clone(), out.ptr(row * w.output[2] * channels)) };
            }
        }
    };
    let of_points = shape.batch * (w.input_len() * inputs * channels / 100);
    let work = of_points + depthwise.row_work() * shape.batch * w.output[1];
    Bands { shape, work, bring: &bring, compute: &compute }.run();
}
