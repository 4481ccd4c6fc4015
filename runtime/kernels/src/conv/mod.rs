//! Convolution and transposed convolution, 1 to 3 spatial dims, `[batch, channels, spatial…]` in and out.
//!
//! A convolution is a matrix product of the weights with the windows of the image. The windows are written panel by panel
//! when the product wants them (`windows`), never as a whole. A 1x1 kernel needs no windows at all, and a depthwise
//! convolution no product (`depthwise`).

mod depthwise;
mod image;
mod shape;
mod transposed;
mod windows;

pub(crate) use shape::spatial;
pub use shape::{ConvShape, ConvTransposeShape};
pub use transposed::conv_transpose;

use crate::gemm::{Bias, Epilogue, Matrix, PackedLhs, Panels, Part, Product, pack_rhs_panel};
use crate::threads::{self, SharedMut};
use alloc::{borrow::Cow, vec::Vec};
use kiln_types::Activation;
use windows::Windows;

/// Weights of a convolution in the order in which the kernels read them, made once.
#[derive(Clone, Debug)]
pub struct PackedConv {
    len: usize,
    weights: Packed,
}

#[derive(Clone, Debug)]
enum Packed {
    /// As they came, `[out, kernel…]`.
    Depthwise(Vec<f32>),
    /// One left operand a group, `[out / groups, in / groups · kernel]`.
    Groups(Vec<PackedLhs>),
}

impl PackedConv {
    /// Packs weights `[out, in / groups, kernel…]`.
    ///
    /// # Panics
    /// When `weight` does not have the shape's weight dims.
    pub fn new(shape: &ConvShape, weight: &[f32]) -> Self {
        assert_eq!(weight.len(), shape.weight_len(), "the weights do not have the convolution's shape");
        let weights = if depthwise::suits(shape) {
            Packed::Depthwise(weight.to_vec())
        } else {
            let (rows, depth) = (shape.out_channels / shape.groups, shape.depth());
            let group = |i: usize| {
                let weight = &weight[i * rows * depth..(i + 1) * rows * depth];
                PackedLhs::new(Matrix::row_major(weight, depth), rows, depth)
            };
            Packed::Groups((0..shape.groups).map(group).collect())
        };
        Self { len: weight.len(), weights }
    }
}

/// The weights of a convolution.
#[derive(Clone, Copy, Debug)]
pub enum ConvWeight<'a> {
    /// `[out, in / groups, kernel…]`, contiguous.
    Plain(&'a [f32]),
    /// Packed, for a shape that differs at most in the batch and the size of the images.
    Packed(&'a PackedConv),
}

/// `out = activation(x ∗ weight + bias + residual)`.
///
/// `x` is `[batch, in, spatial…]`, `bias` `[out]`, `residual` and `out` `[batch, out, spatial…]`, all contiguous.
///
/// # Panics
/// When a slice does not have the shape's size.
pub fn conv(
    shape: &ConvShape,
    x: &[f32],
    weight: ConvWeight<'_>,
    bias: Option<&[f32]>,
    residual: Option<&[f32]>,
    activation: Option<Activation>,
    out: &mut [f32],
) {
    shape.check(x, bias, residual, out);
    if out.is_empty() {
        return;
    }
    let end = End { bias, residual, activation };
    let packed = match weight {
        ConvWeight::Plain(weight) if depthwise::suits(shape) => {
            assert_eq!(weight.len(), shape.weight_len(), "the weights do not have the convolution's shape");
            return depthwise::depthwise(shape, x, weight, &end, out);
        }
        ConvWeight::Plain(weight) => Cow::Owned(PackedConv::new(shape, weight)),
        ConvWeight::Packed(packed) => Cow::Borrowed(packed),
    };
    assert_eq!(packed.len, shape.weight_len(), "the weights do not have the convolution's shape");
    match &packed.weights {
        Packed::Depthwise(weight) => depthwise::depthwise(shape, x, weight, &end, out),
        Packed::Groups(groups) => {
            assert_eq!(groups.len(), shape.groups, "the weights were packed for other groups");
            products(shape, x, groups, &end, out);
        }
    }
}

/// What happens to the result on its way out.
struct End<'a> {
    bias: Option<&'a [f32]>,
    residual: Option<&'a [f32]>,
    activation: Option<Activation>,
}

impl<'a> End<'a> {
    /// For some channels of one image, whose first element is `start`.
    fn of(&self, channels: core::ops::Range<usize>, start: usize) -> Epilogue<'a> {
        Epilogue {
            bias: self.bias.map_or(Bias::None, |bias| Bias::PerRow(&bias[channels])),
            residual: self.residual.map(|residual| &residual[start..]),
            activation: self.activation,
        }
    }
}

/// One product an image and a group.
fn products(shape: &ConvShape, x: &[f32], groups: &[PackedLhs], end: &End<'_>, out: &mut [f32]) {
    let pixels: usize = shape.output.iter().product();
    let input: usize = shape.input.iter().product();
    let (ic, oc) = (shape.in_channels / shape.groups, shape.out_channels / shape.groups);
    let jobs = shape.batch * shape.groups;
    let work = oc.saturating_mul(pixels).saturating_mul(shape.depth()) / 100 + 1;
    // Many small images are shared out whole; a large one is shared out itself.
    let split_each = jobs < 2 * threads::threads();
    let windows = (!shape.is_pointwise()).then(|| Windows::new(shape));
    let out = SharedMut::new(out);
    let one = |job: usize| {
        let group = job % shape.groups;
        let image = &x[job * ic * input..(job + 1) * ic * input];
        let c_start = job * oc * pixels;
        let epilogue = end.of(group * oc..(group + 1) * oc, c_start);
        let run = |b: Panels<'_>| {
            let product = Product {
                m: oc,
                n: pixels,
                k: shape.depth(),
                a: groups[group].data_for(oc, shape.depth()),
                b,
                c: &out,
                c_start,
                c_step: pixels,
                epilogue: &epilogue,
            };
            if split_each { product.run() } else { product.run_here() }
        };
        match &windows {
            // SAFETY: the image holds `ic` rows of `pixels` elements.
            None => run(Panels::Fill(&|part: Part, to| unsafe {
                pack_rhs_panel(Matrix::row_major(image, pixels), part, to);
            })),
            Some(windows) => windows.of(image, split_each, |fill| run(Panels::Fill(fill))),
        }
    };
    if split_each {
        (0..jobs).for_each(one);
    } else {
        threads::parallel_for(jobs, work, |range| range.for_each(one));
    }
}

#[cfg(test)]
mod tests;
