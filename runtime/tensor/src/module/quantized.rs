//! Products of quantized integers, exact as long as the sums fit 32 bits.

use super::conv::check_conv;
use crate::backend::{Backend, Primitive};
use crate::check::{self, ensure};
pub use crate::compose::ZeroPoint;
use crate::compose::calc::reshape;
use crate::compose::{self, Quantized};
use crate::trace::run_all;
use crate::{Activation, BasicOps, ConvOptions, DType, Dims, InlineVec, Int, Tensor, Traced, elementwise};

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

/// `round(steps) + zero`, as far as a dtype has it.
#[track_caller]
fn integers(op: &str, steps: Traced, zero: Traced, dtype: DType) -> Traced {
    let zero = match steps.dtype() {
        Some(wide) => zero.cast(wide),
        None => zero,
    };
    whole(op, steps.round() + zero, dtype)
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

/// Whole numbers as integers of a dtype, as far as it has them.
#[track_caller]
fn whole(op: &str, numbers: Traced, dtype: DType) -> Traced {
    bounded(op, numbers, dtype).cast(dtype)
}

/// Numbers as far as a dtype of integers has them.
#[track_caller]
fn bounded(op: &str, numbers: Traced, dtype: DType) -> Traced {
    match dtype.integers() {
        Some((min, max)) => numbers.activation(Activation::Clamp { min: min as f64, max: max as f64 }),
        None => check::fail(op, format_args!("{dtype} is no dtype of integers")),
    }
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

/// What becomes of the sums of a layer of integers.
struct Sums<B: Backend, const D: usize> {
    sums: Tensor<B, D, Int>,
    /// The axis of the outputs.
    axis: usize,
    /// A factor of the scale.
    input_scale: Option<Tensor<B, 0>>,
    scale: Tensor<B, 1>,
    bias: Option<Tensor<B, 1>>,
    integer_bias: Option<Tensor<B, 1, Int>>,
}

impl<B: Backend, const D: usize> Sums<B, D> {
    fn of_linear(x: QuantizedInput<B, D>, weight: QuantizedWeight<B, 2>) -> Self {
        let QuantizedInput { values, zero, scale: input_scale } = x;
        let QuantizedWeight { weight, zero_point, scale, bias, integer_bias } = weight;
        let weight_zero = match zero_point {
            Some(zero) => spread::<B, D, _>(zero).into(),
            None => ZeroPoint::Number(0),
        };
        let mut dims = [1; D];
        dims[D - 2..].copy_from_slice(&weight.dims());
        let sums = quantized_matmul(values, zero, weight.reshape(dims), weight_zero);
        Self { sums, axis: D - 1, input_scale, scale, bias, integer_bias }
    }

    fn of_conv(x: QuantizedInput<B, D>, weight: QuantizedWeight<B, D>, options: ConvOptions) -> Self {
        let QuantizedInput { values, zero, scale: input_scale } = x;
        let QuantizedWeight { weight, zero_point, scale, bias, integer_bias } = weight;
        let weight_zero = match zero_point {
            Some(zero) => along::<B, D, _>(zero, 0).into(),
            None => ZeroPoint::Number(0),
        };
        let sums = quantized_conv(values, zero, weight, weight_zero, options);
        Self { sums, axis: 1, input_scale, scale, bias, integer_bias }
    }

    /// The numbers that they stand for, with what is added to them, and an activation.
    fn numbers(self, residual: Option<Tensor<B, D>>, then: Option<Activation>) -> Tensor<B, D> {
        Tensor::wrap(self.finish(residual.map(Tensor::into_backend), then, None))
    }

    /// The integers that stand for these, in steps, as far as a dtype has them.
    fn integers(self, then: Option<Activation>, zero: Tensor<B, 1, Int>, to: DType) -> Tensor<B, D, Int> {
        Tensor::wrap(self.finish(None, then, Some((zero, to))))
    }

    /// Everything behind the sums is one elementwise program.
    fn finish(
        self,
        residual: Option<B::Primitive>,
        then: Option<Activation>,
        integers_of: Option<(Tensor<B, 1, Int>, DType)>,
    ) -> B::Primitive {
        let Self { sums, axis, input_scale, scale, bias, integer_bias } = self;
        let dtype = scale.dtype();
        let (zero, to) = integers_of.unzip();
        // Sums may be greater than numbers of 16 bits.
        let wide = compose::wide(dtype);
        let mut operands: InlineVec<B::Primitive> =
            [sums.into_backend(), along::<B, D, _>(scale, axis).into_backend()].into_iter().collect();
        let mut place = |operand: Option<B::Primitive>| {
            operand.map(|operand| {
                operands.push(operand);
                operands.len() - 1
            })
        };
        let integer_bias = place(integer_bias.map(|bias| along::<B, D, _>(bias, axis).into_backend()));
        let input_scale = place(input_scale.map(|scale| scale.reshape([1; D]).into_backend()));
        let bias = place(bias.map(|bias| along::<B, D, _>(bias, axis).into_backend()));
        let residual = place(residual);
        let zero = place(zero.map(|zero| spread::<B, D, _>(zero).into_backend()));
        run_all::<B>(operands, |operands| {
            let number = |n: usize| operands[n].clone().cast(wide);
            let sums = match integer_bias {
                Some(n) => operands[0].clone() + operands[n].clone().cast(DType::I32),
                None => operands[0].clone(),
            };
            let scale = match input_scale {
                Some(n) => number(1) * number(n),
                None => number(1),
            };
            let mut y = sums.cast(wide) * scale;
            for n in [bias, residual].into_iter().flatten() {
                y = y + number(n);
            }
            if let Some(activation) = then {
                y = y.activation(activation);
            }
            match (zero, to) {
                (Some(n), Some(to)) => integers("requantized", y, operands[n].clone(), to),
                _ => y.cast(dtype),
            }
        })
    }
}

/// A linear layer of integers: the sums of [`quantized_matmul`], times the scales of both sides, plus the bias and a residual, then an activation.
///
/// # Panics
/// When the shapes do not fit.
pub fn quantized_linear<B: Backend, const D: usize>(
    x: impl Into<QuantizedInput<B, D>>,
    weight: QuantizedWeight<B, 2>,
    residual: Option<Tensor<B, D>>,
    then: Option<Activation>,
) -> Tensor<B, D> {
    Sums::of_linear(x.into(), weight).numbers(residual, then)
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
    Sums::of_linear(x.into(), weight).integers(then, zero, dtype)
}

/// A convolution of integers: the sums of [`quantized_conv`], times the scales of both sides, plus the bias and a residual, then an activation.
///
/// # Panics
/// When channels, kernel and options do not fit the input.
pub fn scaled_conv<B: Backend, const D: usize>(
    x: impl Into<QuantizedInput<B, D>>,
    weight: QuantizedWeight<B, D>,
    residual: Option<Tensor<B, D>>,
    then: Option<Activation>,
    options: ConvOptions,
) -> Tensor<B, D> {
    Sums::of_conv(x.into(), weight, options).numbers(residual, then)
}

/// [`scaled_conv`] whose scale, and bias, are in steps of the result: the integers `round(y) + zero`, as far as a dtype has them.
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
    Sums::of_conv(x.into(), weight, options).integers(then, zero, dtype)
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
