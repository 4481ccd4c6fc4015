//! Convolution and transposed convolution, 1 to 3 spatial dims.
//!
//! Convolutions have the channels of images and results last, `[batch, spatial…, channels]`: the channels of a pixel are a
//! row that vectors read and write whole, however small the images are. A convolution is then a product of the windows' rows
//! with the weights. Rows of a 1x1 kernel lie in the image; others are gathered when the product wants them (`gather`), never
//! all at once. Images of few channels are taken with their channels first (`planes`). A depthwise
//! convolution needs no product (`depthwise`), nor does one of many small groups (`grouped`), a 3x3 kernel fewer multiplications (`winograd`). A depthwise convolution of what a 1x1
//! kernel yields may be computed together with it (`pointwise_depthwise`). Transposed convolutions have channels first.

mod bands;
mod bf16;
mod depthwise;
mod gather;
mod gradient;
mod grouped;
mod lines;
mod planes;
mod pointwise_depthwise;
mod shape;
mod transposed;
mod winograd;

pub(crate) use bands::Bands;
pub use bf16::{Numbers, NumbersMut, PackedConvBf16, RoundedWay, conv_bf16, round, widen};
pub(crate) use depthwise::Depthwise;
pub use gradient::{conv_input_gradient, conv_weight_gradient};
pub use pointwise_depthwise::{ConvLayer, pointwise_depthwise};
pub use shape::{ConvShape, ConvTransposeShape};
pub use transposed::conv_transpose;

use crate::bounds::Bounds;
use crate::consumed::{Consumed, KEPT};
use crate::gemm::{Bias, Epilogue, Matrix, PackedRhs, PanelOrder, Rows, RowsProduct};
use crate::scratch::{self, Aligned};
use crate::threads::SharedMut;
use alloc::vec::Vec;
use kiln_types::Activation;

/// Weights of a convolution in the order in which the kernels read them, made once.
#[derive(Clone, Debug)]
pub struct PackedConv {
    of: Filters,
    way: ConvWay,
    weights: Packed,
}

/// What of a convolution decides where its weights lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Filters {
    in_channels: usize,
    out_channels: usize,
    groups: usize,
    kernel: [usize; 3],
}

impl Filters {
    fn of(shape: &ConvShape) -> Self {
        let &ConvShape { in_channels, out_channels, groups, ref windows, .. } = shape;
        Self { in_channels, out_channels, groups, kernel: windows.kernel }
    }
}

#[derive(Clone, Debug)]
enum Packed {
    /// `[kernel…, out]`.
    Depthwise(Aligned),
    /// See [`grouped`].
    Grouped(Aligned),
    /// One right operand a group, `[kernel… · in / groups, out / groups]`; for images that come with their channels first,
    /// `[in · kernel…, out]`.
    Groups(Vec<PackedRhs>),
    /// Transformed, or to be.
    Winograd(winograd::Filters),
}

/// The way in which a convolution is computed, which decides the order of its packed weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvWay {
    /// Each channel for itself.
    Depthwise,
    /// Each of many groups of few channels for itself.
    Grouped,
    /// A product of the windows with the weights, row by row of the result: images come with their channels first.
    Planes,
    /// A product of the windows with the weights.
    Rows,
    /// Winograd's algorithm.
    Winograd,
}

impl ConvShape {
    /// The way in which [`conv`] computes this convolution.
    pub fn way(&self) -> ConvWay {
        if depthwise::suits(self) {
            ConvWay::Depthwise
        } else if grouped::suits(self) {
            ConvWay::Grouped
        } else if planes::suit(self) {
            ConvWay::Planes
        } else if winograd::suits(self) {
            ConvWay::Winograd
        } else {
            ConvWay::Rows
        }
    }

    /// Whether [`conv`] can add to what its output holds.
    pub fn adds(&self) -> bool {
        !matches!(self.way(), ConvWay::Depthwise | ConvWay::Grouped)
    }

    /// Whether [`conv`] takes this convolution's images with their channels first.
    pub fn takes_channels_first(&self) -> bool {
        self.way() == ConvWay::Planes
    }
}

impl PackedConv {
    /// The depthwise convolution of a shape of one result for each channel, to be computed row by row.
    ///
    /// # Panics
    /// When the weights were packed for another convolution.
    pub(crate) fn depthwise<'a>(&'a self, shape: &'a ConvShape) -> Depthwise<'a> {
        assert_eq!(self.of, Filters::of(shape), "the weights were packed for another convolution");
        let Packed::Depthwise(weight) = &self.weights else { panic!("weights of a depthwise convolution") };
        Depthwise::new(shape, weight, &End { bias: None, activation: None, adds: false })
    }

    /// Packs weights `[out, in / groups, kernel…]`.
    ///
    /// # Panics
    /// When `weight` does not have the shape's weight dims.
    pub fn new(shape: &ConvShape, weight: &[f32]) -> Self {
        Self::consuming(shape, weight, KEPT)
    }

    /// [`PackedConv::new`] of weights that are read part by part, if they are many.
    ///
    /// # Panics
    /// When `weight` does not have the shape's weight dims.
    pub fn consuming(shape: &ConvShape, weight: &[f32], consumed: Consumed<'_>) -> Self {
        Self::of_way(shape, shape.way(), weight, Aligned::lasting, consumed)
    }

    /// Packs weights that serve only one convolution: never transformed, so that those that train round as the direct sum does.
    fn once(shape: &ConvShape, weight: &[f32]) -> Self {
        let way = match shape.way() {
            ConvWay::Winograd => ConvWay::Rows,
            way => way,
        };
        Self::of_way(shape, way, weight, scratch::take, KEPT)
    }

    /// Leaves its memory to others.
    fn recycle(self) {
        match self.weights {
            Packed::Depthwise(_) | Packed::Grouped(_) | Packed::Winograd(_) => {}
            Packed::Groups(operands) => operands.into_iter().for_each(PackedRhs::recycle),
        }
    }

    /// For a given way, with right operands in memory that `space` gives.
    fn of_way(
        shape: &ConvShape,
        way: ConvWay,
        weight: &[f32],
        space: fn(usize) -> Aligned,
        consumed: Consumed<'_>,
    ) -> Self {
        assert_eq!(weight.len(), shape.weight_len(), "the weights do not have the convolution's shape");
        let ((ic, oc), taps) = (shape.group_channels(), shape.windows.kernel_len());
        let depth = ic * taps;
        let groups = |pack: &dyn Fn(&[f32], Consumed<'_>) -> PackedRhs| {
            let group = |i: usize| {
                let start = i * oc * depth;
                pack(&weight[start..start + oc * depth], &|part| {
                    consumed(start + part.start..start + part.end);
                })
            };
            Packed::Groups((0..shape.groups).map(group).collect())
        };
        let as_they_are = |group: &[f32], consumed: Consumed<'_>| {
            PackedRhs::of(Matrix::row_major(group, depth).transposed(), depth, oc, space, consumed)
        };
        let weights = match way {
            ConvWay::Depthwise => {
                let mut aligned = Aligned::lasting(weight.len());
                exchange(weight, shape.out_channels, taps, &mut aligned);
                Packed::Depthwise(aligned)
            }
            ConvWay::Grouped => Packed::Grouped(grouped::packed(shape, weight)),
            ConvWay::Winograd => Packed::Winograd(winograd::Filters::new(shape, weight, consumed)),
            ConvWay::Planes => groups(&as_they_are),
            ConvWay::Rows if taps == 1 => groups(&as_they_are),
            // The elements of a window follow each other as in the image.
            ConvWay::Rows => {
                groups(&|group, consumed| PackedRhs::of_filters(group, ic, taps, oc, space, consumed))
            }
        };
        Self { of: Filters::of(shape), way, weights }
    }
}

/// A matrix of some rows and columns with both exchanged.
fn exchange(matrix: &[f32], rows: usize, cols: usize, to: &mut [f32]) {
    for col in 0..cols {
        for row in 0..rows {
            to[col * rows + row] = matrix[row * cols + col];
        }
    }
}

/// The weights of a convolution.
#[derive(Clone, Copy, Debug)]
pub enum ConvWeight<'a> {
    /// `[out, in / groups, kernel…]`, contiguous. What serves once is not transformed: [`ConvWay::Rows`] stands in for
    /// [`ConvWay::Winograd`].
    Plain(&'a [f32]),
    /// Packed, for a shape of the same [`ConvShape::way`] that differs at most in the batch and the size of the images.
    Packed(&'a PackedConv),
}

/// `out = activation(x ∗ weight + bias)`, or `out = activation(x ∗ weight + bias + out)` if it `adds`, which not every way does
/// ([`ConvShape::adds`]).
///
/// `x` is `[batch, spatial…, in]` (`[batch, in, spatial…]` if [`ConvShape::takes_channels_first`]), `bias` `[out]` and `out`
/// `[batch, spatial…, out]`, all contiguous. Winograd's algorithm, which packed weights
/// may take, computes squares of results together: what is not finite in
/// one of their windows makes all of them NaN.
///
/// # Panics
/// When a slice does not have the shape's size, or what cannot add should.
pub fn conv(
    shape: &ConvShape,
    x: &[f32],
    weight: ConvWeight<'_>,
    bias: Option<&[f32]>,
    activation: Option<Activation>,
    adds: bool,
    out: &mut [f32],
) {
    shape.check(x, bias, out);
    assert!(!adds || shape.adds(), "a convolution of this kind does not add to its output");
    if out.is_empty() {
        return;
    }
    let end = End { bias, activation, adds };
    match weight {
        ConvWeight::Plain(weight) => {
            let packed = PackedConv::once(shape, weight);
            run(shape, x, &packed, &end, out);
            packed.recycle();
        }
        ConvWeight::Packed(packed) => {
            assert_eq!(packed.way, shape.way(), "the weights were packed for another way");
            run(shape, x, packed, &end, out);
        }
    }
}

/// The convolution in the way for which the weights were packed.
fn run(shape: &ConvShape, x: &[f32], packed: &PackedConv, end: &End<'_>, out: &mut [f32]) {
    assert_eq!(packed.of, Filters::of(shape), "the weights were packed for another convolution");
    match &packed.weights {
        Packed::Depthwise(weight) => depthwise::depthwise(shape, x, weight, end, out),
        Packed::Grouped(weight) => grouped::grouped(shape, x, weight, end, out),
        Packed::Winograd(filters) => winograd::winograd(shape, x, filters, end, out),
        Packed::Groups(groups) => {
            if let (ConvWay::Planes, [weight]) = (packed.way, groups.as_slice()) {
                return planes::planes(shape, x, weight, end, out);
            }
            products(shape, x, groups, end, out);
        }
    }
}

/// What happens to the result on its way out.
struct End<'a> {
    bias: Option<&'a [f32]>,
    activation: Option<Activation>,
    /// Whether what the output held is added before the activation.
    adds: bool,
}

impl End<'_> {
    fn bounds(&self) -> Bounds {
        Bounds::of(self.activation)
    }
}

/// One product a group: all windows' rows with the group's weights.
fn products(shape: &ConvShape, x: &[f32], groups: &[PackedRhs], end: &End<'_>, out: &mut [f32]) {
    let m = shape.batch * shape.windows.output_len();
    let (ic, oc) = shape.group_channels();
    let out = SharedMut::new(out);
    for (group, b) in groups.iter().enumerate() {
        assert_eq!(b.dims(), (shape.depth(), oc), "the weights were packed for another convolution");
        let epilogue = Epilogue {
            bias: end.bias.map_or(Bias::None, |bias| Bias::PerColumn(&bias[group * oc..(group + 1) * oc])),
            residual: None,
            activation: end.activation,
        };
        let run = |a: Rows<'_>| {
            let (c_start, c_step) = (group * oc, shape.out_channels);
            let (adds, order, epilogue) = (end.adds, PanelOrder::Forwards, &epilogue);
            RowsProduct { m, a, b, c: &out, c_start, c_step, adds, order, epilogue }.run();
        };
        if shape.windows.are_points() {
            run(Rows::InPlace(&x[group * ic..], shape.in_channels));
        } else {
            // SAFETY: `x` was checked, and the product gives room for what it asks for.
            run(Rows::Gather(&|rows, depth, to| unsafe { gather::gather(shape, x, group, rows, depth, to) }));
        }
    }
}

#[cfg(test)]
mod tests;
