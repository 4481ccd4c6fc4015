//! Layers of quantized integers.

use super::{Initializer, display::layer_display};
use crate::config::Config;
use crate::module::{Ignored, Module, Param, ParamId};
use crate::tensor::module::{
    QuantizedInput, QuantizedWeight, dequantize, fake_quantize, quantize, quantized_add, quantized_linear,
    quantized_mul, requantized_linear,
};
use crate::tensor::{Activation, DType, Int, Tensor, backend::Backend};

/// Configuration of [`QuantizedLinear`].
#[derive(Config, Debug)]
pub struct QuantizedLinearConfig {
    /// Size of the last dim of the input.
    pub d_input: usize,
    /// Size of the last dim of the output.
    pub d_output: usize,
    /// Whether a bias is added.
    #[config(default = true)]
    pub bias: bool,
    /// Whether weights are bytes without a sign.
    #[config(default = false)]
    pub unsigned: bool,
    /// Whether each output has a scale (and zero point) of its own.
    #[config(default = false)]
    pub per_channel: bool,
    /// Whether another integer than 0 is the weight's 0.
    #[config(default = false)]
    pub weight_zero_point: bool,
    /// Whether another integer than 0 is the input's 0; nothing of an input that tells its zero point.
    #[config(default = "None")]
    pub input_zero_point: Option<DType>,
    /// Whether the bias is integers, which are added to the sums.
    #[config(default = false)]
    pub integer_bias: bool,
    /// The integers that the layer yields; nothing where it yields floats.
    #[config(default = "None")]
    pub output_zero_point: Option<DType>,
}

/// `y = (x - x_zero) · (weight - weight_zero) · scale + bias` over the last dim: products of integers, which stand for numbers under scales.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct QuantizedLinear<B: Backend> {
    /// Integers, `[d_input, d_output]`.
    pub weight: Param<Tensor<B, 2, Int>>,
    /// The integers that are the weight's 0: `[1]` or `[d_output]`.
    pub weight_zero_point: Option<Param<Tensor<B, 1, Int>>>,
    /// The weight's scale, times that of an input which does not tell its own, by that of an output of integers: `[1]` or `[d_output]`.
    pub scale: Param<Tensor<B, 1>>,
    /// `[d_output]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// The integer that is the input's 0, of an input which does not tell its own: `[1]`.
    pub input_zero_point: Option<Param<Tensor<B, 1, Int>>>,
    /// What is added to the sums: `[d_output]`.
    pub integer_bias: Option<Param<Tensor<B, 1, Int>>>,
    /// The integer that is the output's 0: `[1]`.
    pub output_zero_point: Option<Param<Tensor<B, 1, Int>>>,
    /// The integers that the layer yields.
    pub output_dtype: Ignored<Option<DType>>,
}

impl QuantizedLinearConfig {
    /// A layer whose integers are to be loaded.
    pub fn init<B: Backend>(&self, device: &B::Device) -> QuantizedLinear<B> {
        let dtype = if self.unsigned { DType::U8 } else { DType::I8 };
        let scales = if self.per_channel { self.d_output } else { 1 };
        let integers = |count: usize, dtype: DType| integers(count, dtype, device);
        let weight = Tensor::<B, 2, Int>::empty([self.d_input, self.d_output], (device, dtype));
        QuantizedLinear {
            weight: Param::initialized(ParamId::new(), weight),
            weight_zero_point: self.weight_zero_point.then(|| integers(scales, dtype)),
            scale: Initializer::Ones.init([scales], device),
            bias: (self.bias && !self.integer_bias).then(|| Initializer::Zeros.init([self.d_output], device)),
            input_zero_point: self.input_zero_point.map(|dtype| integers(1, dtype)),
            integer_bias: self.integer_bias.then(|| integers(self.d_output, DType::I32)),
            output_zero_point: self.output_zero_point.map(|dtype| integers(1, dtype)),
            output_dtype: Ignored(self.output_zero_point),
        }
    }
}

/// Integers that are to be loaded.
pub(super) fn integers<B: Backend>(
    count: usize,
    dtype: DType,
    device: &B::Device,
) -> Param<Tensor<B, 1, Int>> {
    Param::initialized(ParamId::new(), Tensor::empty([count], (device, dtype)))
}

impl<B: Backend> QuantizedLinear<B> {
    /// `[…, d_input]` to `[…, d_output]`, of rank 2 or more. The input is floats, what [`quantize_dynamic`] makes of them, or
    /// integers under a scale that the layer's own holds.
    ///
    /// [`quantize_dynamic`]: crate::tensor::module::quantize_dynamic
    pub fn forward<const D: usize>(&self, input: impl Into<QuantizedInput<B, D>>) -> Tensor<B, D> {
        self.compute(input.into(), None, None)
    }

    /// [`QuantizedLinear::forward`] with an activation applied on the way out.
    pub fn forward_activated<const D: usize>(
        &self,
        input: impl Into<QuantizedInput<B, D>>,
        activation: Activation,
    ) -> Tensor<B, D> {
        self.compute(input.into(), None, Some(activation))
    }

    /// [`QuantizedLinear::forward`], plus a residual, with an activation or without.
    pub fn forward_added<const D: usize>(
        &self,
        input: impl Into<QuantizedInput<B, D>>,
        residual: Tensor<B, D>,
        activation: Option<Activation>,
    ) -> Tensor<B, D> {
        self.compute(input.into(), Some(residual), activation)
    }

    /// The integers that stand for the result.
    ///
    /// # Panics
    /// Without an output zero point.
    pub fn forward_quantized<const D: usize>(
        &self,
        input: impl Into<QuantizedInput<B, D>>,
    ) -> Tensor<B, D, Int> {
        self.requantize(input.into(), None)
    }

    /// [`QuantizedLinear::forward_quantized`] of what an activation makes of the result; it is applied to steps of the output.
    ///
    /// # Panics
    /// Without an output zero point.
    pub fn forward_quantized_activated<const D: usize>(
        &self,
        input: impl Into<QuantizedInput<B, D>>,
        activation: Activation,
    ) -> Tensor<B, D, Int> {
        self.requantize(input.into(), Some(activation))
    }

    fn compute<const D: usize>(
        &self,
        input: QuantizedInput<B, D>,
        residual: Option<Tensor<B, D>>,
        activation: Option<Activation>,
    ) -> Tensor<B, D> {
        let input = input.or_zero_point(self.input_zero_point.as_ref().map(Param::val));
        quantized_linear(input, self.weight(), residual, activation)
    }

    fn requantize<const D: usize>(
        &self,
        input: QuantizedInput<B, D>,
        activation: Option<Activation>,
    ) -> Tensor<B, D, Int> {
        let input = input.or_zero_point(self.input_zero_point.as_ref().map(Param::val));
        let (Some(zero), Some(dtype)) = (&self.output_zero_point, self.output_dtype.0) else {
            panic!("QuantizedLinear: it yields floats, for want of an output zero point")
        };
        requantized_linear(input, self.weight(), activation, zero.val(), dtype)
    }

    fn weight(&self) -> QuantizedWeight<B, 2> {
        QuantizedWeight {
            weight: self.weight.val(),
            zero_point: self.weight_zero_point.as_ref().map(Param::val),
            scale: self.scale.val(),
            bias: self.bias.as_ref().map(Param::val),
            integer_bias: self.integer_bias.as_ref().map(Param::val),
        }
    }
}

layer_display!(QuantizedLinear<B>, |layer| {
    "d_input" => layer.weight.lazy_shape()[0],
    "d_output" => layer.weight.lazy_shape()[1],
    "bias" => layer.bias.is_some() || layer.integer_bias.is_some(),
});

/// Configuration of [`Quantizer`].
#[derive(Config, Debug)]
pub struct QuantizerConfig {
    /// Whether numbers are divided by a scale; else they are in steps already.
    #[config(default = true)]
    pub scale: bool,
    /// The integers.
    #[config(default = "DType::U8")]
    pub dtype: DType,
}

/// Integers for numbers, and back: `(integer - zero_point) · scale`, with a scale and a zero point that were measured.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Quantizer<B: Backend> {
    /// What integers are multiplied by: `[1]`.
    pub scale: Option<Param<Tensor<B, 1>>>,
    /// The integer that is 0: `[1]`.
    pub zero_point: Param<Tensor<B, 1, Int>>,
    /// The integers, which a device may hold in others.
    pub dtype: Ignored<DType>,
}

impl QuantizerConfig {
    /// A quantizer whose zero point is to be loaded.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Quantizer<B> {
        let zero_point = Tensor::<B, 1, Int>::empty([1], (device, self.dtype));
        Quantizer {
            scale: self.scale.then(|| Initializer::Ones.init([1], device)),
            zero_point: Param::initialized(ParamId::new(), zero_point),
            dtype: Ignored(self.dtype),
        }
    }
}

impl<B: Backend> Quantizer<B> {
    /// The integers for numbers.
    pub fn quantize<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D, Int> {
        quantize(x, self.scale.as_ref().map(Param::val), self.zero_point.val(), self.dtype.0)
    }

    /// The numbers that integers stand for, of their shape.
    ///
    /// # Panics
    /// Without a scale.
    pub fn dequantize<const D: usize>(&self, x: Tensor<B, D, Int>) -> Tensor<B, D> {
        dequantize(x, self.known_scale(), self.zero_point.val())
    }

    /// The numbers that the integers for numbers stand for, of their shape.
    ///
    /// # Panics
    /// Without a scale.
    pub fn fake_quantize<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        fake_quantize(x, self.known_scale(), self.zero_point.val(), self.dtype.0)
    }

    fn known_scale(&self) -> Tensor<B, 1> {
        let Some(scale) = &self.scale else {
            panic!("Quantizer: it takes steps, for want of a scale, and integers stand for numbers under one")
        };
        scale.val()
    }
}

layer_display!(Quantizer<B>, |layer| { "scale" => layer.scale.is_some() });

/// Configuration of [`QuantizedAdd`].
#[derive(Config, Debug)]
pub struct QuantizedAddConfig {
    /// The integers.
    #[config(default = "DType::U8")]
    pub dtype: DType,
}

/// Adds what integers stand for, and yields integers: `round(lhs · lhs_scale + rhs · rhs_scale + offset)`.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct QuantizedAdd<B: Backend> {
    /// How many steps of the result a step of the left side is: `[1]`.
    pub lhs_scale: Param<Tensor<B, 1>>,
    /// How many a step of the right side is: `[1]`.
    pub rhs_scale: Param<Tensor<B, 1>>,
    /// The zero point of the result, less what the scales make of those of both sides: `[1]`.
    pub offset: Param<Tensor<B, 1>>,
    /// The integers, which a device may hold in others.
    pub dtype: Ignored<DType>,
}

impl QuantizedAddConfig {
    /// A sum whose scales are to be loaded.
    pub fn init<B: Backend>(&self, device: &B::Device) -> QuantizedAdd<B> {
        QuantizedAdd {
            lhs_scale: Initializer::Ones.init([1], device),
            rhs_scale: Initializer::Ones.init([1], device),
            offset: Initializer::Zeros.init([1], device),
            dtype: Ignored(self.dtype),
        }
    }
}

impl<B: Backend> QuantizedAdd<B> {
    /// The sum of integers, as integers of the layer's dtype; shapes broadcast.
    ///
    /// # Panics
    /// When the shapes do not fit.
    pub fn forward<const D: usize>(
        &self,
        lhs: Tensor<B, D, Int>,
        rhs: Tensor<B, D, Int>,
    ) -> Tensor<B, D, Int> {
        quantized_add(lhs, rhs, self.lhs_scale.val(), self.rhs_scale.val(), self.offset.val(), self.dtype.0)
    }
}

layer_display!(QuantizedAdd<B>, |_layer| {});

/// Configuration of [`QuantizedMul`].
#[derive(Config, Debug)]
pub struct QuantizedMulConfig {
    /// The integers.
    #[config(default = "DType::U8")]
    pub dtype: DType,
}

/// Multiplies what integers stand for, and yields integers: `round((lhs - lhs_zero_point) · (rhs - rhs_zero_point) · scale + zero_point)`.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct QuantizedMul<B: Backend> {
    /// The integer that is the left side's 0: `[1]`.
    pub lhs_zero_point: Param<Tensor<B, 1, Int>>,
    /// The integer that is the right side's 0: `[1]`.
    pub rhs_zero_point: Param<Tensor<B, 1, Int>>,
    /// The integer that is the result's 0: `[1]`.
    pub zero_point: Param<Tensor<B, 1, Int>>,
    /// How many steps of the result a product of a step of both sides is: `[1]`.
    pub scale: Param<Tensor<B, 1>>,
    /// The integers, which a device may hold in others.
    pub dtype: Ignored<DType>,
}

impl QuantizedMulConfig {
    /// A product whose scale and zero points are to be loaded.
    pub fn init<B: Backend>(&self, device: &B::Device) -> QuantizedMul<B> {
        QuantizedMul {
            lhs_zero_point: integers(1, self.dtype, device),
            rhs_zero_point: integers(1, self.dtype, device),
            zero_point: integers(1, self.dtype, device),
            scale: Initializer::Ones.init([1], device),
            dtype: Ignored(self.dtype),
        }
    }
}

impl<B: Backend> QuantizedMul<B> {
    /// The product of integers, as integers of the layer's dtype; shapes broadcast.
    ///
    /// # Panics
    /// When the shapes do not fit.
    pub fn forward<const D: usize>(
        &self,
        lhs: Tensor<B, D, Int>,
        rhs: Tensor<B, D, Int>,
    ) -> Tensor<B, D, Int> {
        let zeros = [&self.lhs_zero_point, &self.rhs_zero_point, &self.zero_point].map(Param::val);
        quantized_mul(lhs, rhs, zeros, self.scale.val(), self.dtype.0)
    }
}

layer_display!(QuantizedMul<B>, |_layer| {});
