//! Depthwise convolutions of bytes.

mod numbers;
#[cfg(target_arch = "x86_64")]
mod products;

use super::Zeros;
use super::epilogue::{Columns, Out, Output};
use super::pack::{Bytes, unsigned_zero};
use super::tile::COLS;
use crate::conv::{ConvShape, PackedConv};
use crate::size::elements;
use alloc::vec::Vec;

/// Weights of a depthwise convolution, packed.
#[derive(Clone, Debug)]
pub struct PackedQuantizedDepthwise(Way);

/// How products are computed.
#[derive(Clone, Debug)]
enum Way {
    /// Those of a channel with each other, as floats.
    Numbers(PackedConv),
    /// Four at once.
    #[cfg(target_arch = "x86_64")]
    Products(products::Taps),
}

impl PackedQuantizedDepthwise {
    /// Packs weights `[channels, 1, kernel…]`, less their zero points, of which there is one or one a channel. All sums must be integers that
    /// f32 holds.
    ///
    /// # Panics
    /// When `weight` does not have the shape's weight dims, or a sum may be more than that.
    pub fn new(shape: &ConvShape, weight: Bytes<'_>, zeros: Zeros<'_>) -> Self {
        let taps = shape.windows.kernel_len();
        zeros.check(shape.out_channels);
        let less_zero = |(at, byte): (usize, i32)| byte.wrapping_sub(zeros.at(at / taps));
        let weight: Vec<i32> = match weight {
            Bytes::U8(bytes) => bytes.iter().map(|&byte| byte.into()).enumerate().map(less_zero).collect(),
            Bytes::I8(bytes) => bytes.iter().map(|&byte| byte.into()).enumerate().map(less_zero).collect(),
        };
        assert_eq!(weight.len(), shape.weight_len(), "the weights do not have the convolution's shape");
        let largest = weight.iter().map(|weight| weight.unsigned_abs() as usize).max().unwrap_or(0);
        let sum = taps.saturating_mul(255).saturating_mul(largest);
        assert!(
            sum <= 1 << f32::MANTISSA_DIGITS,
            "a sum of {taps} products may be {sum}, more than f32 counts to"
        );
        #[cfg(target_arch = "x86_64")]
        if let Some(taps) = products::Taps::new(shape, &weight) {
            return Self(Way::Products(taps));
        }
        let numbers: Vec<f32> = weight.iter().map(|&weight| weight as f32).collect();
        Self(Way::Numbers(PackedConv::new(shape, &numbers)))
    }
}

/// The convolution of `x - x_zero`, each channel for itself, or what becomes of its sums, whose columns are the channels.
///
/// `x` is `[batch, spatial…, channels]` and `out` likewise, both contiguous; the border is zero points.
///
/// # Panics
/// When a slice does not have the shape's size, a byte of `x` cannot be `x_zero`, the weights are another convolution's, or
/// [`ConvShape::is_depthwise_by_lines`] does not hold.
pub fn quantized_depthwise(
    shape: &ConvShape,
    x: Bytes<'_>,
    x_zero: i32,
    weight: &PackedQuantizedDepthwise,
    out: Output<'_>,
) {
    assert!(shape.is_depthwise_by_lines(), "a depthwise convolution in one or two dims");
    let (w, channels) = (&shape.windows, shape.out_channels);
    let (x, flip) = x.unsigned();
    assert_eq!(x.len(), elements(&[shape.batch, w.input_len(), channels]), "the images' size");
    let Ok(zero) = u8::try_from(unsigned_zero(x_zero, flip)) else {
        panic!("no byte is the zero point {x_zero}");
    };
    let out = Out::new(out, elements(&[shape.batch, w.output_len(), channels]), channels);
    let convolution = Convolution { shape, x, flip, zero, out: &out };
    match &weight.0 {
        Way::Numbers(weight) => numbers::depthwise(&convolution, weight),
        #[cfg(target_arch = "x86_64")]
        Way::Products(taps) => products::depthwise(&convolution, taps),
    }
}

/// What is to be computed.
#[derive(Clone, Copy)]
struct Convolution<'a> {
    shape: &'a ConvShape,
    x: &'a [u8],
    /// What is flipped in each byte of the images, so that they are unsigned.
    flip: u8,
    /// The zero point of these.
    zero: u8,
    out: &'a Out<'a>,
}

impl Convolution<'_> {
    /// What the channels need, a panel after the other.
    fn panels(&self) -> Vec<Columns> {
        let channels = self.shape.out_channels;
        let panels = (0..channels).step_by(COLS);
        panels.map(|first| self.out.columns(first, COLS.min(channels - first))).collect()
    }
}
