//! Convolutions of quantized integers.

use super::Spatial;
use crate::config::Config;
use crate::module::{Ignored, Module, Param, ParamId};
use crate::nn::quantized::integers;
use crate::nn::{Initializer, PaddingConfig1d, PaddingConfig2d, PaddingConfig3d, display::layer_display};
use crate::tensor::backend::Backend;
use crate::tensor::module::{QuantizedInput, QuantizedWeight, quantized_conv, requantized_conv};
use crate::tensor::{Activation, ConvOptions, DType, Int, Tensor};

macro_rules! quantized_conv {
    (
        $layer:ident, $config:ident, $padding:ident = $valid:tt, $dims:literal, $size:ty, $one:tt,
        $what:literal, [$in:ident, $out:ident] from $channels:expr, { $($channel_fields:tt)* }
    ) => {
        #[doc = concat!("Configuration of [`", stringify!($layer), "`].")]
        #[derive(Config, Debug)]
        pub struct $config {
            $($channel_fields)*
            /// Size of the kernel.
            pub kernel_size: $size,
            /// Step of the window.
            #[config(default = $one)]
            pub stride: $size,
            /// Distance between kernel elements.
            #[config(default = $one)]
            pub dilation: $size,
            /// Number of channel groups.
            #[config(default = "1")]
            pub groups: usize,
            /// What stands for 0 around the input.
            #[config(default = $valid)]
            pub padding: $padding,
            /// Whether a bias is added.
            #[config(default = true)]
            pub bias: bool,
            /// Whether weights are bytes without a sign.
            #[config(default = false)]
            pub unsigned: bool,
            /// Whether each output channel has a scale (and zero point) of its own.
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

        #[doc = concat!("Convolution of integers, which stand for numbers under scales, over ", $what, ".")]
        #[derive(Module, Debug)]
        #[module(custom_display)]
        pub struct $layer<B: Backend> {
            /// Integers, `[channels_out, channels_in / groups, kernel…]`.
            pub weight: Param<Tensor<B, $dims, Int>>,
            /// The integers that are the weight's 0: `[1]` or `[channels_out]`.
            pub weight_zero_point: Option<Param<Tensor<B, 1, Int>>>,
            /// The weight's scale, times that of an input which does not tell its own, by that of an output of integers:
            /// `[1]` or `[channels_out]`.
            pub scale: Param<Tensor<B, 1>>,
            /// `[channels_out]`.
            pub bias: Option<Param<Tensor<B, 1>>>,
            /// The integer that is the input's 0, of an input which does not tell its own: `[1]`.
            pub input_zero_point: Option<Param<Tensor<B, 1, Int>>>,
            /// What is added to the sums: `[channels_out]`.
            pub integer_bias: Option<Param<Tensor<B, 1, Int>>>,
            /// The integer that is the output's 0: `[1]`.
            pub output_zero_point: Option<Param<Tensor<B, 1, Int>>>,
            /// The integers that the layer yields.
            pub output_dtype: Ignored<Option<DType>>,
            /// Step of the window.
            pub stride: $size,
            /// Size of the kernel.
            pub kernel_size: $size,
            /// Distance between kernel elements.
            pub dilation: $size,
            /// Number of channel groups.
            pub groups: usize,
            /// What stands for 0 around the input.
            pub padding: Ignored<$padding>,
        }

        impl $config {
            /// A layer whose integers are to be loaded.
            ///
            /// # Panics
            /// When the channels cannot be divided into the groups.
            pub fn init<B: Backend>(&self, device: &B::Device) -> $layer<B> {
                let [$in, $out] = ($channels)(self);
                assert!(
                    self.groups > 0 && $in % self.groups == 0 && $out % self.groups == 0,
                    concat!(stringify!($layer), ": {} and {} channels cannot be divided into {} groups"),
                    $in, $out, self.groups
                );
                let dtype = if self.unsigned { DType::U8 } else { DType::I8 };
                let scales = if self.per_channel { $out } else { 1 };
                let mut shape = [1; $dims];
                shape[..2].copy_from_slice(&[$out, $in / self.groups]);
                shape[2..].copy_from_slice(&Spatial::array(self.kernel_size));
                let weight = Tensor::<B, $dims, Int>::empty(shape, (device, dtype));
                $layer {
                    weight: Param::initialized(ParamId::new(), weight),
                    weight_zero_point: self.weight_zero_point.then(|| integers(scales, dtype, device)),
                    scale: Initializer::Ones.init([scales], device),
                    bias: (self.bias && !self.integer_bias).then(|| Initializer::Zeros.init([$out], device)),
                    input_zero_point: self.input_zero_point.map(|dtype| integers(1, dtype, device)),
                    integer_bias: self.integer_bias.then(|| integers($out, DType::I32, device)),
                    output_zero_point: self.output_zero_point.map(|dtype| integers(1, dtype, device)),
                    output_dtype: Ignored(self.output_zero_point),
                    stride: self.stride,
                    kernel_size: self.kernel_size,
                    dilation: self.dilation,
                    groups: self.groups,
                    padding: Ignored(self.padding),
                }
            }
        }

        impl<B: Backend> $layer<B> {
            /// `[batch, channels_in, spatial…]` to `[batch, channels_out, spatial…]`. The input is floats, what
            /// [`quantize_dynamic`] makes of them, or integers under a scale that the layer's own holds.
            ///
            /// [`quantize_dynamic`]: crate::tensor::module::quantize_dynamic
            pub fn forward(&self, input: impl Into<QuantizedInput<B, $dims>>) -> Tensor<B, $dims> {
                self.compute(input.into(), None, None)
            }

            /// `forward` with an activation applied on the way out.
            pub fn forward_activated(
                &self,
                input: impl Into<QuantizedInput<B, $dims>>,
                activation: Activation,
            ) -> Tensor<B, $dims> {
                self.compute(input.into(), None, Some(activation))
            }

            /// `activation(forward(input) + residual)`: the residual has the result's shape.
            pub fn forward_added(
                &self,
                input: impl Into<QuantizedInput<B, $dims>>,
                residual: Tensor<B, $dims>,
                activation: Option<Activation>,
            ) -> Tensor<B, $dims> {
                self.compute(input.into(), Some(residual), activation)
            }

            /// The integers that stand for the result.
            ///
            /// # Panics
            /// Without an output zero point.
            pub fn forward_quantized(&self, input: impl Into<QuantizedInput<B, $dims>>) -> Tensor<B, $dims, Int> {
                self.requantize(input.into(), None)
            }

            /// `forward_quantized` of what an activation makes of the result; it is applied to steps of the output.
            ///
            /// # Panics
            /// Without an output zero point.
            pub fn forward_quantized_activated(
                &self,
                input: impl Into<QuantizedInput<B, $dims>>,
                activation: Activation,
            ) -> Tensor<B, $dims, Int> {
                self.requantize(input.into(), Some(activation))
            }

            fn compute(
                &self,
                input: QuantizedInput<B, $dims>,
                residual: Option<Tensor<B, $dims>>,
                activation: Option<Activation>,
            ) -> Tensor<B, $dims> {
                let options = self.options(&input.dims());
                let input = input.or_zero_point(self.input_zero_point.as_ref().map(Param::val));
                quantized_conv(input, self.weight(), residual, activation, options)
            }

            fn requantize(
                &self,
                input: QuantizedInput<B, $dims>,
                activation: Option<Activation>,
            ) -> Tensor<B, $dims, Int> {
                let options = self.options(&input.dims());
                let input = input.or_zero_point(self.input_zero_point.as_ref().map(Param::val));
                let (Some(zero), Some(dtype)) = (&self.output_zero_point, self.output_dtype.0) else {
                    panic!(concat!(stringify!($layer), ": it yields floats, for want of an output zero point"))
                };
                requantized_conv(input, self.weight(), activation, zero.val(), dtype, options)
            }

            fn weight(&self) -> QuantizedWeight<B, $dims> {
                QuantizedWeight {
                    weight: self.weight.val(),
                    zero_point: self.weight_zero_point.as_ref().map(Param::val),
                    scale: self.scale.val(),
                    bias: self.bias.as_ref().map(Param::val),
                    integer_bias: self.integer_bias.as_ref().map(Param::val),
                }
            }

            fn options(&self, size: &[usize; $dims]) -> ConvOptions {
                let (stride, dilation) = (Spatial::array(self.stride), Spatial::array(self.dilation));
                let kernel = Spatial::array(self.kernel_size);
                ConvOptions {
                    stride: stride.into(),
                    padding: self.padding.resolve(stringify!($layer), &size[2..], &kernel, &dilation, &stride),
                    dilation: dilation.into(),
                    groups: self.groups,
                }
            }
        }

        layer_display!($layer<B>, |layer| {
            "stride" => alloc::format!("{:?}", layer.stride),
            "kernel_size" => alloc::format!("{:?}", layer.kernel_size),
            "dilation" => alloc::format!("{:?}", layer.dilation),
            "groups" => layer.groups,
            "padding" => alloc::format!("{:?}", layer.padding.0),
        });
    };
}

quantized_conv!(
    QuantizedConv1d, QuantizedConv1dConfig, PaddingConfig1d = "PaddingConfig1d::Valid", 3, usize, "1",
    "`[batch, channels, length]`",
    [channels_in, channels_out] from |config: &QuantizedConv1dConfig| [config.channels_in, config.channels_out],
    {
        /// Channels of the input.
        pub channels_in: usize,
        /// Channels of the output.
        pub channels_out: usize,
    }
);
quantized_conv!(
    QuantizedConv2d, QuantizedConv2dConfig, PaddingConfig2d = "PaddingConfig2d::Valid", 4, [usize; 2], "[1, 1]",
    "`[batch, channels, height, width]`",
    [channels_in, channels_out] from |config: &QuantizedConv2dConfig| config.channels,
    {
        /// Channels of the input and the output.
        pub channels: [usize; 2],
    }
);
quantized_conv!(
    QuantizedConv3d, QuantizedConv3dConfig, PaddingConfig3d = "PaddingConfig3d::Valid", 5, [usize; 3], "[1, 1, 1]",
    "`[batch, channels, depth, height, width]`",
    [channels_in, channels_out] from |config: &QuantizedConv3dConfig| config.channels,
    {
        /// Channels of the input and the output.
        pub channels: [usize; 2],
    }
);
