//! Quantized values: floats on a grid of few steps.
//!
//! A quantized tensor computes as its dequantized values do, and that is how Kiln holds it: as floats that lie on the
//! grid of their scheme. So every operation takes it, on every backend; it is not smaller than before.

use crate::backend::{Backend, Primitive};
use crate::check::ensure;
use crate::minifloat::power_of_two;
use crate::trace::elementwise;
use crate::{CompareOp, DType, Float, Minifloat, ReduceOp, Tensor, Traced, erased};

/// The integers that a quantized value can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QuantValue {
    /// 8 bits, -128 to 127.
    #[default]
    Q8F,
    /// 8 bits, -127 to 127.
    Q8S,
    /// 4 bits, -8 to 7.
    Q4F,
    /// 4 bits, -7 to 7.
    Q4S,
    /// 2 bits, -2 to 1.
    Q2F,
    /// 2 bits, -1 to 1.
    Q2S,
}

impl QuantValue {
    /// The least and the greatest integer.
    pub const fn range(self) -> (f32, f32) {
        match self {
            QuantValue::Q8F => (-128.0, 127.0),
            QuantValue::Q8S => (-127.0, 127.0),
            QuantValue::Q4F => (-8.0, 7.0),
            QuantValue::Q4S => (-7.0, 7.0),
            QuantValue::Q2F => (-2.0, 1.0),
            QuantValue::Q2S => (-1.0, 1.0),
        }
    }
}

/// Which elements share a scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QuantLevel {
    /// All.
    #[default]
    Tensor,
    /// So many that follow each other in row-major order; their number divides the tensor's.
    Block(usize),
}

/// How values map to integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QuantMode {
    /// By a scale; 0 stays 0.
    #[default]
    Symmetric,
}

/// How a tensor is quantized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QuantScheme {
    /// The integers.
    pub value: QuantValue,
    /// Which elements share a scale.
    pub level: QuantLevel,
    /// How values map to integers.
    pub mode: QuantMode,
}

impl QuantScheme {
    /// With other integers.
    #[must_use]
    pub const fn with_value(mut self, value: QuantValue) -> Self {
        self.value = value;
        self
    }

    /// With other groups of elements that share a scale.
    #[must_use]
    pub const fn with_level(mut self, level: QuantLevel) -> Self {
        self.level = level;
        self
    }

    /// With another mapping.
    #[must_use]
    pub const fn with_mode(mut self, mode: QuantMode) -> Self {
        self.mode = mode;
        self
    }
}

/// How values map to integers, as Burn 0.18 calls it.
pub type QuantizationMode = QuantMode;

/// The integers of a [`QuantizationScheme`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuantizationType {
    /// 8 bits, -127 to 127.
    QInt8,
}

/// How a tensor is quantized, as Burn 0.18 spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuantizationScheme {
    /// One scale for the whole tensor.
    PerTensor(QuantizationMode, QuantizationType),
}

impl From<QuantizationScheme> for QuantScheme {
    fn from(scheme: QuantizationScheme) -> Self {
        match scheme {
            QuantizationScheme::PerTensor(mode, QuantizationType::QInt8) => {
                Self { value: QuantValue::Q8S, level: QuantLevel::Tensor, mode }
            }
        }
    }
}

/// How the range of a tensor's values is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Calibration {
    /// From the smallest to the largest value there is.
    #[default]
    MinMax,
}

/// The range of values, one pair for each group that shares a scale.
#[derive(Clone, Debug)]
pub struct CalibrationRange<B: Backend> {
    /// The smallest.
    pub min: Tensor<B, 1>,
    /// The largest.
    pub max: Tensor<B, 1>,
}

/// The parameters of a quantization.
#[derive(Clone, Debug)]
pub struct QuantizationParameters<B: Backend> {
    /// The distance between neighbours on the grid, for each group that shares one.
    pub scales: Tensor<B, 1>,
}

/// The elements as `[groups, size]`.
fn in_groups<B: Backend>(op: &str, values: B::Primitive, level: QuantLevel) -> B::Primitive {
    let count = values.shape().num_elements();
    let size = match level {
        QuantLevel::Tensor => count,
        QuantLevel::Block(size) => size,
    };
    ensure!(
        size > 0 && count.is_multiple_of(size),
        op,
        "{} elements are not blocks of {size}",
        values.shape().num_elements()
    );
    B::reshape(values, [count / size, size].into())
}

/// The range of a tensor's values.
///
/// # Panics
/// When the tensor is empty, or its elements are not whole blocks.
pub fn compute_range<B: Backend, const D: usize>(
    scheme: &(impl Into<QuantScheme> + Clone),
    tensor: &Tensor<B, D>,
    calibration: &Calibration,
) -> CalibrationRange<B> {
    let Calibration::MinMax = calibration;
    let scheme: QuantScheme = scheme.clone().into();
    let groups = in_groups::<B>("compute_range", tensor.primitive().clone(), scheme.level);
    let extreme = |op| {
        let folded = erased::reduce::<B>(op, groups.clone(), &[1]);
        let count = folded.dims()[0];
        Tensor::<B, 1, Float>::wrap(B::reshape(folded, [count].into()))
    };
    CalibrationRange { min: extreme(ReduceOp::Min), max: extreme(ReduceOp::Max) }
}

/// The parameters that map a range to the scheme's integers.
pub fn compute_q_params<B: Backend>(
    scheme: &(impl Into<QuantScheme> + Clone),
    range: CalibrationRange<B>,
) -> QuantizationParameters<B> {
    let scheme: QuantScheme = scheme.clone().into();
    let QuantMode::Symmetric = scheme.mode;
    let (low, high) = scheme.value.range();
    let scales = range.min.abs().max_pair(range.max.abs()).mul_scalar(2.0).div_scalar(high - low);
    // A group of zeros: any scale will do but 0, by which values are divided.
    let zero = scales.clone().equal_elem(0.0);
    QuantizationParameters { scales: scales.mask_fill(zero, 1.0) }
}

impl<B: Backend, const D: usize> Tensor<B, D> {
    /// The tensor on the grid of a scheme: each element the nearest multiple of its scale that the scheme's integers
    /// reach. See [`quantization`](crate::quantization).
    ///
    /// # Panics
    /// When the elements are not whole blocks, or the number of scales is not that of the blocks.
    pub fn quantize(
        self,
        scheme: &(impl Into<QuantScheme> + Clone),
        qparams: QuantizationParameters<B>,
    ) -> Self {
        let scheme: QuantScheme = scheme.clone().into();
        let shape = self.shape();
        let groups =
            Tensor::<B, 2, Float>::wrap(in_groups::<B>("quantize", self.into_backend(), scheme.level));
        let (count, scales) = (groups.dims()[0], qparams.scales);
        ensure!(scales.dims() == [count], "quantize", "{} scales for {count} groups", scales.dims()[0]);
        let scales = scales.reshape([count, 1]);
        let (low, high) = scheme.value.range();
        let steps = groups.div(scales.clone()).round().clamp(low, high);
        steps.mul(scales).reshape(shape)
    }

    /// The tensor on the grid of a scheme, whose scales come from its own smallest and largest values.
    ///
    /// # Panics
    /// When the tensor is empty, or its elements are not whole blocks.
    pub fn quantize_dynamic(self, scheme: &(impl Into<QuantScheme> + Clone)) -> Self {
        let range = compute_range(scheme, &self, &Calibration::MinMax);
        let qparams = compute_q_params(scheme, range);
        self.quantize(scheme, qparams)
    }

    /// The values of a quantized tensor as ordinary floats, which they are already.
    pub fn dequantize(self) -> Self {
        self
    }

    /// The nearest values of a format of few bits, in a tensor of its [dtype](Minifloat::dtype): halves go to the value whose last bit is 0, and what is beyond the
    /// greatest is the greatest. See [`Minifloat::round`].
    pub fn round_to(self, format: Minifloat) -> Self {
        rounded(self, format, true)
    }

    /// [`round_to`](Self::round_to), where what is beyond the greatest is infinite, or no number if the format has no infinity. One that has only
    /// numbers yields the greatest all the same.
    pub fn round_to_or_overflow(self, format: Minifloat) -> Self {
        rounded(self, format, false)
    }
}

/// [`Minifloat::round`] of each element. All that is multiplied by is a power of two, so that only rounding rounds.
fn rounded<B: Backend, const D: usize>(x: Tensor<B, D>, format: Minifloat, saturate: bool) -> Tensor<B, D> {
    let dtype = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    elementwise([x], |[x]| {
        let x = x.cast(dtype);
        let [step, per_step] = steps(x.clone(), format, dtype);
        let steps = x.clone() * per_step;
        let whole = if format == Minifloat::E8M0Fnu { steps.ceil() } else { steps.round() };
        let (nearest, greatest) = (whole * step, format.greatest());
        let [above, below] = match format.overflow() {
            Some(overflow) if !saturate => [overflow, -overflow],
            _ => [greatest, -greatest],
        };
        let is_above = nearest.clone().greater(greatest);
        let is_below = nearest.clone().lower(-greatest);
        let mut y = nearest.mask_fill(is_above, above).mask_fill(is_below, below);
        if format.overflow().is_none() {
            y = y.mask_fill(x.is_nan(), 0.0);
        }
        if format == Minifloat::E8M0Fnu {
            let least = power_of_two(format.least_exponent());
            let is_less = y.clone().lower(least);
            y = y.mask_fill(is_less, least);
        } else if !format.has_negative_zero() {
            let is_zero = y.clone().equal(0.0);
            y = y.mask_fill(is_zero, 0.0);
        }
        y.cast(format.dtype())
    })
}

/// How far the values of a format are apart near a number, and the inverse of that: powers of two, found bit by bit of their exponents.
fn steps(x: Traced, format: Minifloat, dtype: DType) -> [Traced; 2] {
    let number = |number: f64| Traced::constant(number, dtype);
    let (least, greatest) = (format.least_exponent(), format.greatest_exponent());
    // Below the least normal number they are as far apart as above it.
    let mut magnitude = x.abs().max_pair(number(power_of_two(least)));
    let mantissa_bits = format.mantissa_bits() as i32;
    let [mut step, mut per_step] = [-mantissa_bits, mantissa_bits].map(power_of_two).map(number);
    let above = halvings(greatest).map(|exponent| (exponent, CompareOp::GreaterEqual, exponent));
    let below = halvings(-least).map(|exponent| (-exponent, CompareOp::Lower, 1 - exponent));
    for (exponent, is_off, bound) in above.chain(below) {
        let is_off = magnitude.clone().compare(is_off, number(power_of_two(bound)));
        let by = |exponent| number(1.0).mask_where(is_off.clone(), number(power_of_two(exponent)));
        magnitude = magnitude * by(-exponent);
        step = step * by(exponent);
        per_step = per_step * by(-exponent);
    }
    [step, per_step]
}

/// The powers of two of which exponents up to this are sums, the largest first.
fn halvings(exponent: i32) -> impl Iterator<Item = i32> {
    let bits = i32::BITS - exponent.leading_zeros();
    (0..bits).rev().map(|bit| 1 << bit)
}
