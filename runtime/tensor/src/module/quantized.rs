//! Products of quantized integers, exact as long as the sums fit 32 bits.

use super::conv::check_conv;
use crate::backend::{Backend, Primitive};
use crate::check::{self, ensure};
pub use crate::compose::ZeroPoint;
use crate::compose::calc::reshape;
use crate::compose::{self, Quantized};
use crate::{Activation, BasicOps, ConvOptions, DType, Dims, Int, Tensor, Traced, elementwise};

impl<T> From<i32> for ZeroPoint<T> {
    fn from(zero: i32) -> Self {
        ZeroPoint::Number(zero)
    }
}

impl<B: Backend, const D: usize> From<Tensor<B, D, Int>> for ZeroPoint<B::Primitive> {
    fn from(zero: Tensor<B, D, Int>) -> Self {
        ZeroPoint::Tensor(zero.into_backend())
    }
}

/// Values with their zero point, which may be one number of any rank, or differ along one dim.
#[track_caller]
fn quantized<B: Backend>(
    op: &str,
    values: B::Primitive,
    zero: ZeroPoint<B::Primitive>,
    varies: Option<usize>,
) -> Quantized<B::Primitive> {
    let zero = match zero {
        ZeroPoint::Number(zero) => ZeroPoint::Number(zero),
        ZeroPoint::Tensor(zero) if zero.shape().num_elements() == 1 => {
            ZeroPoint::Tensor(reshape::<B>(zero, &Dims::repeat(1, values.dims().len())))
        }
        ZeroPoint::Tensor(zero) => {
            let (of, dims) = (values.dims(), zero.dims());
            let fits = |(axis, (&n, &size)): (usize, (&usize, &usize))| {
                n == 1 || (varies.is_none_or(|varies| varies == axis) && n == size)
            };
            let fits = dims.len() == of.len() && dims.iter().zip(of).enumerate().all(fits);
            ensure!(fits, op, "zero points {dims:?} do not fit {of:?}");
            ZeroPoint::Tensor(zero)
        }
    };
    Quantized { values, zero }
}

/// The matrix product of `lhs - lhs_zero` and `rhs - rhs_zero` over the last two dims, in 32-bit integers; the leading dims broadcast.
///
/// The operands are integers of any dtypes. A zero point is a number, a tensor of one, or a tensor of the operand's rank with one for each
/// row of `lhs`, or each column of `rhs`.
///
/// # Panics
/// When the shapes do not fit.
pub fn quantized_matmul<B: Backend, const D: usize>(
    lhs: Tensor<B, D, Int>,
    lhs_zero: impl Into<ZeroPoint<B::Primitive>>,
    rhs: Tensor<B, D, Int>,
    rhs_zero: impl Into<ZeroPoint<B::Primitive>>,
) -> Tensor<B, D, Int> {
    const OP: &str = "quantized_matmul";
    check::matmul(lhs.sizes(), rhs.sizes());
    let (lhs, rhs) = (lhs.into_backend(), rhs.into_backend());
    let (lhs, rhs) =
        (quantized::<B>(OP, lhs, lhs_zero.into(), None), quantized::<B>(OP, rhs, rhs_zero.into(), None));
    for (side, summed) in [(&lhs, D - 1), (&rhs, D - 2)] {
        if let ZeroPoint::Tensor(zero) = &side.zero {
            ensure!(zero.dims()[summed] == 1, OP, "zero points {:?} differ along the sums", zero.dims());
        }
    }
    Tensor::wrap(B::quantized_matmul(lhs, rhs))
}

/// The convolution of `x - x_zero` with `weight - weight_zero`, in 32-bit integers: `weight` is `[out, in / groups, kernel…]`, and the
/// border is zero points.
///
/// The operands are integers of any dtypes. A zero point is a number or a tensor of one; that of the weight may also be a tensor of the
/// weight's rank with one for each of the first dim.
///
/// # Panics
/// When channels, kernel, options and zero points do not fit the input.
pub fn quantized_conv<B: Backend, const D: usize>(
    x: Tensor<B, D, Int>,
    x_zero: impl Into<ZeroPoint<B::Primitive>>,
    weight: Tensor<B, D, Int>,
    weight_zero: impl Into<ZeroPoint<B::Primitive>>,
    options: ConvOptions,
) -> Tensor<B, D, Int> {
    const OP: &str = "quantized_conv";
    check_conv(x.sizes(), weight.sizes(), None, &options);
    let x = quantized::<B>(OP, x.into_backend(), x_zero.into(), Some(D));
    let weight = quantized::<B>(OP, weight.into_backend(), weight_zero.into(), Some(0));
    Tensor::wrap(B::quantized_conv(x, weight, &options))
}

/// What a [`quantized_linear`] layer takes: integers with how they stand for numbers, as far as the layer does not know it.
#[derive(Clone, Debug)]
pub struct QuantizedInput<B: Backend, const D: usize> {
    values: Tensor<B, D, Int>,
    zero: ZeroPoint<B::Primitive>,
    scale: Option<Tensor<B, 0>>,
}

/// Floats, quantized by [`quantize_dynamic`].
impl<B: Backend, const D: usize> From<Tensor<B, D>> for QuantizedInput<B, D> {
    fn from(x: Tensor<B, D>) -> Self {
        quantize_dynamic(x).into()
    }
}

/// Integers whose zero point is 0, under a scale that the layer's own holds.
impl<B: Backend, const D: usize> From<Tensor<B, D, Int>> for QuantizedInput<B, D> {
    fn from(values: Tensor<B, D, Int>) -> Self {
        Self { values, zero: ZeroPoint::Number(0), scale: None }
    }
}

/// Integers with their zero point, under a scale that the layer's own holds.
impl<B: Backend, const D: usize, const Z: usize> From<(Tensor<B, D, Int>, Tensor<B, Z, Int>)>
    for QuantizedInput<B, D>
{
    fn from((values, zero): (Tensor<B, D, Int>, Tensor<B, Z, Int>)) -> Self {
        Self { values, zero: zero.into(), scale: None }
    }
}

/// What [`quantize_dynamic`] yields.
impl<B: Backend, const D: usize> From<(Tensor<B, D, Int>, Tensor<B, 0>, Tensor<B, 0, Int>)>
    for QuantizedInput<B, D>
{
    fn from((values, scale, zero): (Tensor<B, D, Int>, Tensor<B, 0>, Tensor<B, 0, Int>)) -> Self {
        Self { values, zero: zero.into(), scale: Some(scale) }
    }
}

impl<B: Backend, const D: usize> QuantizedInput<B, D> {
    /// With the zero point of a layer, unless it has one.
    #[must_use]
    pub fn or_zero_point(mut self, zero: Option<Tensor<B, 1, Int>>) -> Self {
        if let (ZeroPoint::Number(0), Some(zero)) = (&self.zero, zero) {
            self.zero = zero.into();
        }
        self
    }
}

/// Bytes that stand for numbers, `(byte - zero) · scale`, with the scale and the zero point: those of the data's range, 0 included.
pub fn quantize_dynamic<B: Backend, const D: usize>(
    x: Tensor<B, D>,
) -> (Tensor<B, D, Int>, Tensor<B, 0>, Tensor<B, 0, Int>) {
    let dtype = x.dtype();
    let axes: [usize; D] = core::array::from_fn(|axis| axis);
    let bounds = Activation::Clamp { min: 0.0, max: 255.0 };
    let low = x.clone().min_dims(&axes).clamp_max(0.0);
    let high = x.clone().max_dims(&axes);
    let scale =
        elementwise([high, low.clone()], |[high, low]| (high.activation(Activation::Relu) - low) / 255.0);
    let zero = elementwise([low, scale.clone()], |[low, scale]| (-low / scale).round().activation(bounds));
    let zero = zero.to_int(DType::U8);
    let shift = zero.clone().to_float(dtype);
    let bytes = elementwise([x, scale.clone(), shift], |[x, scale, shift]| {
        ((x / scale).round() + shift).activation(bounds)
    });
    (bytes.to_int(DType::U8), scale.squeeze_dims(&axes), zero.squeeze_dims(&axes))
}

/// The integers that stand for numbers, `round(x / scale) + zero`, as far as the zero point's dtype has them; without a scale `x` is in steps already.
pub fn quantize<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    scale: Option<Tensor<B, 1>>,
    zero: Tensor<B, 1, Int>,
) -> Tensor<B, D, Int> {
    let (dtype, wide) = (zero.dtype(), x.dtype());
    let bounds = match dtype.integers() {
        Some((min, max)) => Activation::Clamp { min: min as f64, max: max as f64 },
        None => check::fail("quantize", format_args!("{dtype} is no dtype of integers")),
    };
    let shift = spread(zero.to_float(wide));
    let steps = match scale {
        Some(scale) => elementwise([x, spread(scale.to_float(wide)), shift], |[x, scale, shift]| {
            ((x / scale).round() + shift).activation(bounds)
        }),
        None => elementwise([x, shift], |[x, shift]| (x.round() + shift).activation(bounds)),
    };
    steps.to_int(dtype)
}

/// The numbers that integers stand for, `(x - zero) · scale`.
pub fn dequantize<B: Backend, const D: usize>(
    x: Tensor<B, D, Int>,
    scale: Tensor<B, 1>,
    zero: Tensor<B, 1, Int>,
) -> Tensor<B, D> {
    let dtype = scale.dtype();
    let shift = spread(zero.to_float(dtype));
    elementwise([x.to_float(dtype), spread(scale), shift], |[x, scale, shift]| (x - shift) * scale)
}

/// The weight of a [`quantized_linear`] layer, and what becomes of its sums.
#[derive(Clone, Debug)]
pub struct QuantizedWeight<B: Backend> {
    /// Integers, `[in, out]`.
    pub weight: Tensor<B, 2, Int>,
    /// What 0 is in the weight, one number or one for each output; 0 without it.
    pub zero_point: Option<Tensor<B, 1, Int>>,
    /// What sums are multiplied by, one number or one for each output.
    pub scale: Tensor<B, 1>,
    /// What is added then, `[out]`.
    pub bias: Option<Tensor<B, 1>>,
}

/// A linear layer of integers: the sums of [`quantized_matmul`], times the scales of both sides, plus the bias and a residual, then an activation.
///
/// # Panics
/// When the shapes do not fit.
pub fn quantized_linear<B: Backend, const D: usize>(
    x: impl Into<QuantizedInput<B, D>>,
    weight: QuantizedWeight<B>,
    residual: Option<Tensor<B, D>>,
    then: Option<Activation>,
) -> Tensor<B, D> {
    let QuantizedInput { values, zero, scale: input_scale } = x.into();
    let QuantizedWeight { weight, zero_point, scale, bias } = weight;
    let dtype = scale.dtype();
    // Sums may be greater than numbers of 16 bits.
    let wide = compose::wide(dtype);
    let weight_zero = match zero_point {
        Some(zero) => spread::<B, D, _>(zero).into(),
        None => ZeroPoint::Number(0),
    };
    let [inputs, outputs] = weight.dims();
    let mut dims = [1; D];
    dims[D - 2..].copy_from_slice(&[inputs, outputs]);
    let sums = quantized_matmul(values, zero, weight.reshape(dims), weight_zero).to_float(wide);
    let scale = spread::<B, D, _>(scale.to_float(wide));
    let scale = match input_scale {
        Some(input) => scale * input.to_float(wide).reshape([1; D]),
        None => scale,
    };
    let bias = bias.map(|bias| spread(bias.to_float(wide)));
    let residual = residual.map(|residual| residual.to_float(wide));
    let finish = |y: Traced| match then {
        Some(activation) => y.activation(activation),
        None => y,
    };
    let y = match (bias, residual) {
        (None, None) => elementwise([sums, scale], |[x, scale]| finish(x * scale)),
        (Some(bias), None) => elementwise([sums, scale, bias], |[x, scale, bias]| finish(x * scale + bias)),
        (None, Some(residual)) => {
            elementwise([sums, scale, residual], |[x, scale, residual]| finish(x * scale + residual))
        }
        (Some(bias), Some(residual)) => {
            elementwise([sums, scale, bias, residual], |[x, scale, bias, residual]| {
                finish(x * scale + bias + residual)
            })
        }
    };
    y.to_float(dtype)
}

/// One number, or one for each entry of the last dim, of rank `D`.
fn spread<B: Backend, const D: usize, K: BasicOps<B>>(x: Tensor<B, 1, K>) -> Tensor<B, D, K> {
    let mut dims = [1; D];
    dims[D - 1] = x.dims()[0];
    x.reshape(dims)
}
