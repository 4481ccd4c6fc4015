//! Products of quantized integers, exact as long as the sums fit 32 bits.

use super::conv::check_conv;
use crate::backend::{Backend, Primitive};
use crate::check::{self, ensure};
pub use crate::compose::ZeroPoint;
use crate::compose::calc::reshape;
use crate::compose::{self, Quantized, Rescale, bounded, integers, whole};
use crate::{Activation, BasicOps, ConvOptions, DType, Dims, Int, Tensor, elementwise};

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
pub fn matmul_integer<B: Backend, const D: usize>(
    lhs: Tensor<B, D, Int>,
    lhs_zero: impl Into<ZeroPoint<B::Primitive>>,
    rhs: Tensor<B, D, Int>,
    rhs_zero: impl Into<ZeroPoint<B::Primitive>>,
) -> Tensor<B, D, Int> {
    let (lhs, rhs) = matmul_operands(lhs, lhs_zero.into(), rhs, rhs_zero.into());
    Tensor::wrap(B::matmul_integer(lhs, rhs))
}

/// The operands of a product, checked.
#[track_caller]
fn matmul_operands<B: Backend, const D: usize>(
    lhs: Tensor<B, D, Int>,
    lhs_zero: ZeroPoint<B::Primitive>,
    rhs: Tensor<B, D, Int>,
    rhs_zero: ZeroPoint<B::Primitive>,
) -> (Quantized<B::Primitive>, Quantized<B::Primitive>) {
    const OP: &str = "matmul_integer";
    check::matmul(lhs.sizes(), rhs.sizes());
    let (lhs, rhs) = (lhs.into_backend(), rhs.into_backend());
    let (lhs, rhs) = (quantized::<B>(OP, lhs, lhs_zero, None), quantized::<B>(OP, rhs, rhs_zero, None));
    for (side, summed) in [(&lhs, D - 1), (&rhs, D - 2)] {
        if let ZeroPoint::Tensor(zero) = &side.zero {
            ensure!(zero.dims()[summed] == 1, OP, "zero points {:?} differ along the sums", zero.dims());
        }
    }
    (lhs, rhs)
}

/// The convolution of `x - x_zero` with `weight - weight_zero`, in 32-bit integers: `weight` is `[out, in / groups, kernel…]`, and the
/// border is zero points.
///
/// The operands are integers of any dtypes. A zero point is a number or a tensor of one; that of the weight may also be a tensor of the
/// weight's rank with one for each of the first dim.
///
/// # Panics
/// When channels, kernel, options and zero points do not fit the input.
pub fn conv_integer<B: Backend, const D: usize>(
    x: Tensor<B, D, Int>,
    x_zero: impl Into<ZeroPoint<B::Primitive>>,
    weight: Tensor<B, D, Int>,
    weight_zero: impl Into<ZeroPoint<B::Primitive>>,
    options: ConvOptions,
) -> Tensor<B, D, Int> {
    let (x, weight) = conv_operands(x, x_zero.into(), weight, weight_zero.into(), &options);
    Tensor::wrap(B::conv_integer(x, weight, &options))
}

/// The operands of a convolution, checked.
#[track_caller]
fn conv_operands<B: Backend, const D: usize>(
    x: Tensor<B, D, Int>,
    x_zero: ZeroPoint<B::Primitive>,
    weight: Tensor<B, D, Int>,
    weight_zero: ZeroPoint<B::Primitive>,
    options: &ConvOptions,
) -> (Quantized<B::Primitive>, Quantized<B::Primitive>) {
    const OP: &str = "conv_integer";
    check_conv(x.sizes(), weight.sizes(), None, options);
    let x = quantized::<B>(OP, x.into_backend(), x_zero, Some(D));
    (x, quantized::<B>(OP, weight.into_backend(), weight_zero, Some(0)))
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
    /// Sizes of the integers.
    pub fn dims(&self) -> [usize; D] {
        self.values.dims()
    }

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
    let operands = [low.into(), scale.clone().into()];
    let zero = Tensor::<B, D, Int>::elementwise(operands, |[low, scale]| {
        (-low / scale).round().activation(bounds).cast(DType::U8)
    });
    let operands = [x.into(), scale.clone().into(), zero.clone().into()];
    let bytes = Tensor::<B, D, Int>::elementwise(operands, |[x, scale, zero]| {
        ((x / scale).round() + zero.cast(dtype)).activation(bounds).cast(DType::U8)
    });
    (bytes, scale.squeeze_dims(&axes), zero.squeeze_dims(&axes))
}

/// The integers that stand for numbers, `round(x / scale) + zero`, as far as a dtype has them; without a scale `x` is in steps already.
pub fn quantize<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    scale: Option<Tensor<B, 1>>,
    zero: Tensor<B, 1, Int>,
    dtype: DType,
) -> Tensor<B, D, Int> {
    let wide = x.dtype();
    let zero = spread::<B, D, _>(zero);
    match scale {
        Some(scale) => {
            let scale = spread::<B, D, _>(scale);
            Tensor::<B, D, Int>::elementwise([x.into(), scale.into(), zero.into()], |[x, scale, zero]| {
                integers("quantize", x / scale.cast(wide), zero, dtype)
            })
        }
        None => Tensor::<B, D, Int>::elementwise([x.into(), zero.into()], |[x, zero]| {
            integers("quantize", x, zero, dtype)
        }),
    }
}

/// The numbers that integers stand for, `(x - zero) · scale`.
pub fn dequantize<B: Backend, const D: usize>(
    x: Tensor<B, D, Int>,
    scale: Tensor<B, 1>,
    zero: Tensor<B, 1, Int>,
) -> Tensor<B, D> {
    let dtype = scale.dtype();
    let (scale, zero) = (spread::<B, D, _>(scale), spread::<B, D, _>(zero));
    Tensor::<B, D>::elementwise([x.into(), scale.into(), zero.into()], |[x, scale, zero]| {
        (x.cast(dtype) - zero.cast(dtype)) * scale
    })
}

/// The numbers that the integers of [`quantize`] stand for: `x` in steps of a scale, as far as a dtype has them.
pub fn fake_quantize<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    scale: Tensor<B, 1>,
    zero: Tensor<B, 1, Int>,
    dtype: DType,
) -> Tensor<B, D> {
    let wide = x.dtype();
    let (scale, zero) = (spread::<B, D, _>(scale), spread::<B, D, _>(zero));
    Tensor::<B, D>::elementwise([x.into(), scale.into(), zero.into()], |[x, scale, zero]| {
        let (scale, zero) = (scale.cast(wide), zero.cast(wide));
        (bounded("fake_quantize", (x / scale.clone()).round() + zero.clone(), dtype) - zero) * scale
    })
}

/// The sum of what integers stand for, as integers of a dtype again, `round(lhs · lhs_scale + rhs · rhs_scale + offset)`: the scales say
/// how many steps of the result a step of each side is, and the offset holds all three zero points.
pub fn quantized_add<B: Backend, const D: usize>(
    lhs: Tensor<B, D, Int>,
    rhs: Tensor<B, D, Int>,
    lhs_scale: Tensor<B, 1>,
    rhs_scale: Tensor<B, 1>,
    offset: Tensor<B, 1>,
    dtype: DType,
) -> Tensor<B, D, Int> {
    let wide = compose::wide(lhs_scale.dtype());
    let [lhs_scale, rhs_scale, offset] =
        [lhs_scale, rhs_scale, offset].map(|number| spread::<B, D, _>(number));
    let operands = [lhs.into(), rhs.into(), lhs_scale.into(), rhs_scale.into(), offset.into()];
    Tensor::<B, D, Int>::elementwise(operands, |[lhs, rhs, lhs_scale, rhs_scale, offset]| {
        let [lhs_scale, rhs_scale, offset] = [lhs_scale, rhs_scale, offset].map(|number| number.cast(wide));
        let steps = lhs.cast(wide) * lhs_scale + (rhs.cast(wide) * rhs_scale + offset);
        whole("quantized_add", steps.round(), dtype)
    })
}

/// The product of what integers stand for, as integers of a dtype again: `round((lhs - lhs_zero) · (rhs - rhs_zero) · scale + zero)`. The
/// scale says how many steps of the result a product of two steps is.
pub fn quantized_mul<B: Backend, const D: usize>(
    lhs: Tensor<B, D, Int>,
    rhs: Tensor<B, D, Int>,
    zeros: [Tensor<B, 1, Int>; 3],
    scale: Tensor<B, 1>,
    dtype: DType,
) -> Tensor<B, D, Int> {
    let wide = compose::wide(scale.dtype());
    let [lhs_zero, rhs_zero, zero] = zeros.map(|zero| spread::<B, D, _>(zero));
    let scale = spread::<B, D, _>(scale);
    let operands = [lhs.into(), rhs.into(), lhs_zero.into(), rhs_zero.into(), zero.into(), scale.into()];
    Tensor::<B, D, Int>::elementwise(operands, |[lhs, rhs, lhs_zero, rhs_zero, zero, scale]| {
        let [lhs, rhs] = [(lhs, lhs_zero), (rhs, rhs_zero)].map(|(x, zero)| x.cast(wide) - zero.cast(wide));
        whole("quantized_mul", (lhs * rhs * scale.cast(wide) + zero.cast(wide)).round(), dtype)
    })
}

/// The weight of a layer of integers, and what becomes of its sums.
#[derive(Clone, Debug)]
pub struct QuantizedWeight<B: Backend, const D: usize> {
    /// Integers: `[in, out]` of a linear layer, `[out, in / groups, kernel…]` of a convolution.
    pub weight: Tensor<B, D, Int>,
    /// What 0 is in the weight, one number or one for each output; 0 without it.
    pub zero_point: Option<Tensor<B, 1, Int>>,
    /// What sums are multiplied by, one number or one for each output.
    pub scale: Tensor<B, 1>,
    /// What is added then, `[out]`.
    pub bias: Option<Tensor<B, 1>>,
    /// What is added to the sums before, `[out]`.
    pub integer_bias: Option<Tensor<B, 1, Int>>,
}

/// What becomes of the sums of a layer of integers, whose outputs lie along an axis.
fn rescale<B: Backend, const D: usize>(
    axis: usize,
    input_scale: Option<Tensor<B, 0>>,
    scale: Tensor<B, 1>,
    bias: Option<Tensor<B, 1>>,
    integer_bias: Option<Tensor<B, 1, Int>>,
    end: End<B, D>,
) -> Rescale<B::Primitive> {
    let (residual, activation, integers) = match end {
        End::Numbers { residual, activation } => (residual, activation, None),
        End::Integers { activation, zero, dtype } => (None, activation, Some((zero, dtype))),
    };
    Rescale {
        scale: along::<B, D, _>(scale, axis).into_backend(),
        input_scale: input_scale.map(|scale| scale.reshape([1; D]).into_backend()),
        integer_bias: integer_bias.map(|bias| along::<B, D, _>(bias, axis).into_backend()),
        bias: bias.map(|bias| along::<B, D, _>(bias, axis).into_backend()),
        residual: residual.map(Tensor::into_backend),
        activation,
        integers: integers.map(|(zero, dtype)| (spread::<B, D, _>(zero).into_backend(), dtype)),
    }
}

/// What a layer of integers yields.
enum End<B: Backend, const D: usize> {
    /// The numbers that its sums stand for, with what is added to them, and an activation.
    Numbers { residual: Option<Tensor<B, D>>, activation: Option<Activation> },
    /// The integers that stand for these, in steps, as far as a dtype has them.
    Integers { activation: Option<Activation>, zero: Tensor<B, 1, Int>, dtype: DType },
}

fn linear<B: Backend, const D: usize>(
    x: QuantizedInput<B, D>,
    weight: QuantizedWeight<B, 2>,
    end: End<B, D>,
) -> B::Primitive {
    let QuantizedInput { values, zero, scale: input_scale } = x;
    let QuantizedWeight { weight, zero_point, scale, bias, integer_bias } = weight;
    let weight_zero = match zero_point {
        Some(zero) => spread::<B, D, _>(zero).into(),
        None => ZeroPoint::Number(0),
    };
    let mut dims = [1; D];
    dims[D - 2..].copy_from_slice(&weight.dims());
    let (lhs, rhs) = matmul_operands(values, zero, weight.reshape(dims), weight_zero);
    B::matmul_integer_rescaled(lhs, rhs, rescale(D - 1, input_scale, scale, bias, integer_bias, end))
}

fn conv<B: Backend, const D: usize>(
    x: QuantizedInput<B, D>,
    weight: QuantizedWeight<B, D>,
    end: End<B, D>,
    options: &ConvOptions,
) -> B::Primitive {
    let QuantizedInput { values, zero, scale: input_scale } = x;
    let QuantizedWeight { weight, zero_point, scale, bias, integer_bias } = weight;
    let weight_zero = match zero_point {
        Some(zero) => along::<B, D, _>(zero, 0).into(),
        None => ZeroPoint::Number(0),
    };
    let (x, weight) = conv_operands(values, zero, weight, weight_zero, options);
    B::conv_integer_rescaled(x, weight, rescale(1, input_scale, scale, bias, integer_bias, end), options)
}

/// A linear layer of integers: the sums of [`matmul_integer`], times the scales of both sides, plus the bias and a residual, then an activation.
///
/// # Panics
/// When the shapes do not fit.
pub fn quantized_linear<B: Backend, const D: usize>(
    x: impl Into<QuantizedInput<B, D>>,
    weight: QuantizedWeight<B, 2>,
    residual: Option<Tensor<B, D>>,
    then: Option<Activation>,
) -> Tensor<B, D> {
    Tensor::wrap(linear(x.into(), weight, End::Numbers { residual, activation: then }))
}

/// [`quantized_linear`] whose scale, and bias, are in steps of the result: the integers `round(y) + zero`, as far as a dtype has them.
///
/// # Panics
/// When the shapes do not fit.
pub fn requantized_linear<B: Backend, const D: usize>(
    x: impl Into<QuantizedInput<B, D>>,
    weight: QuantizedWeight<B, 2>,
    then: Option<Activation>,
    zero: Tensor<B, 1, Int>,
    dtype: DType,
) -> Tensor<B, D, Int> {
    Tensor::wrap(linear(x.into(), weight, End::Integers { activation: then, zero, dtype }))
}

/// A convolution of integers: the sums of [`conv_integer`], times the scales of both sides, plus the bias and a residual, then an activation.
///
/// # Panics
/// When channels, kernel and options do not fit the input.
pub fn quantized_conv<B: Backend, const D: usize>(
    x: impl Into<QuantizedInput<B, D>>,
    weight: QuantizedWeight<B, D>,
    residual: Option<Tensor<B, D>>,
    then: Option<Activation>,
    options: ConvOptions,
) -> Tensor<B, D> {
    Tensor::wrap(conv(x.into(), weight, End::Numbers { residual, activation: then }, &options))
}

/// [`quantized_conv`] whose scale, and bias, are in steps of the result: the integers `round(y) + zero`, as far as a dtype has them.
///
/// # Panics
/// When channels, kernel and options do not fit the input.
pub fn requantized_conv<B: Backend, const D: usize>(
    x: impl Into<QuantizedInput<B, D>>,
    weight: QuantizedWeight<B, D>,
    then: Option<Activation>,
    zero: Tensor<B, 1, Int>,
    dtype: DType,
    options: ConvOptions,
) -> Tensor<B, D, Int> {
    Tensor::wrap(conv(x.into(), weight, End::Integers { activation: then, zero, dtype }, &options))
}

/// One number, or one for each entry of the last dim, of rank `D`.
fn spread<B: Backend, const D: usize, K: BasicOps<B>>(x: Tensor<B, 1, K>) -> Tensor<B, D, K> {
    along(x, D.saturating_sub(1))
}

/// One number, or one for each entry of a dim, of rank `D`.
fn along<B: Backend, const D: usize, K: BasicOps<B>>(x: Tensor<B, 1, K>, axis: usize) -> Tensor<B, D, K> {
    let mut dims = [1; D];
    dims[axis] = x.dims()[0];
    x.reshape(dims)
}
