//! Convolution and transposed convolution, 1 to 3 spatial dims, `[batch, channels, spatial…]` in and out.

mod shape;

pub(crate) use shape::spatial;
pub use shape::{ConvShape, ConvTransposeShape};

use crate::elementwise::activation_of;
use alloc::{vec, vec::Vec};
use kiln_types::Activation;

/// Weights of a convolution in the order in which the kernels read them, made once.
#[derive(Clone, Debug)]
pub struct PackedConv {
    data: Vec<f32>,
}

impl PackedConv {
    /// Packs weights `[out, in / groups, kernel…]`.
    ///
    /// # Panics
    /// When `weight` does not have the shape's weight dims.
    pub fn new(shape: &ConvShape, weight: &[f32]) -> Self {
        assert_eq!(weight.len(), shape.weight_len(), "the weights do not have the convolution's shape");
        Self { data: weight.to_vec() }
    }
}

/// The weights of a convolution.
#[derive(Clone, Copy, Debug)]
pub enum ConvWeight<'a> {
    /// `[out, in / groups, kernel…]`, contiguous.
    Plain(&'a [f32]),
    /// Packed.
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
    let weight = match weight {
        ConvWeight::Plain(weight) => weight,
        ConvWeight::Packed(packed) => &packed.data,
    };
    assert_eq!(weight.len(), shape.weight_len(), "the weights do not have the convolution's shape");
    let [id, ih, iw] = shape.input;
    let [od, oh, ow] = shape.output;
    let [kd, kh, kw] = shape.kernel;
    let (ic, oc) = (shape.in_channels / shape.groups, shape.out_channels / shape.groups);
    for i in 0..out.len() {
        let (x0, y0, z0) = (i % ow, i / ow % oh, i / (ow * oh) % od);
        let (c, n) = (i / (ow * oh * od) % shape.out_channels, i / (ow * oh * od * shape.out_channels));
        let mut sum = bias.map_or(0.0, |bias| bias[c]);
        for k in 0..ic * kd * kh * kw {
            let (kx, ky, kz, kc) = (k % kw, k / kw % kh, k / (kw * kh) % kd, k / (kw * kh * kd));
            let at = |o: usize, k: usize, axis: usize, size: usize| {
                let p = o * shape.stride[axis] + k * shape.dilation[axis];
                p.checked_sub(shape.padding[axis].0).filter(|&p| p < size)
            };
            if let (Some(z), Some(y), Some(x1)) = (at(z0, kz, 0, id), at(y0, ky, 1, ih), at(x0, kx, 2, iw)) {
                let channel = n * shape.in_channels + c / oc * ic + kc;
                sum += x[((channel * id + z) * ih + y) * iw + x1] * weight[c * ic * kd * kh * kw + k];
            }
        }
        sum += residual.map_or(0.0, |residual| residual[i]);
        out[i] = activation.map_or(sum, |activation| activation_of(activation, sum));
    }
}

/// Transposed convolution: `x` is `[batch, in, spatial…]`, `weight` `[in, out / groups, kernel…]`, `bias` `[out]`,
/// `out` `[batch, out, spatial…]`, all contiguous.
///
/// # Panics
/// When a slice does not have the shape's size.
pub fn conv_transpose(
    shape: &ConvTransposeShape,
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    out: &mut [f32],
) {
    shape.check(x, weight, bias, out);
    let [id, ih, iw] = shape.input;
    let [od, oh, ow] = shape.output;
    let [kd, kh, kw] = shape.kernel;
    let (ic, oc) = (shape.in_channels / shape.groups, shape.out_channels / shape.groups);
    let pixels = od * oh * ow;
    let biases = bias.map_or_else(|| vec![0.0; shape.out_channels], <[f32]>::to_vec);
    for (i, channel) in out.chunks_mut(pixels.max(1)).enumerate() {
        channel.fill(biases[i % shape.out_channels]);
    }
    for (i, &value) in x.iter().enumerate() {
        let (x0, y0, z0) = (i % iw, i / iw % ih, i / (iw * ih) % id);
        let (c, n) = (i / (iw * ih * id) % shape.in_channels, i / (iw * ih * id * shape.in_channels));
        for k in 0..oc * kd * kh * kw {
            let (kx, ky, kz, kc) = (k % kw, k / kw % kh, k / (kw * kh) % kd, k / (kw * kh * kd));
            let at = |p: usize, k: usize, axis: usize, size: usize| {
                let p = p * shape.stride[axis] + k * shape.dilation[axis];
                p.checked_sub(shape.padding[axis].0).filter(|&p| p < size)
            };
            if let (Some(z), Some(y), Some(x1)) = (at(z0, kz, 0, od), at(y0, ky, 1, oh), at(x0, kx, 2, ow)) {
                let channel = n * shape.out_channels + c / ic * oc + kc;
                out[((channel * od + z) * oh + y) * ow + x1] += value * weight[c * oc * kd * kh * kw + k];
            }
        }
    }
}
