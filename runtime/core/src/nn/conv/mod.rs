//! Convolutions and transposed convolutions.

mod deformed;
mod quantized;
mod transposed;

pub use deformed::{DeformConv2d, DeformConv2dConfig};
pub use quantized::{
    QuantizedConv1d, QuantizedConv1dConfig, QuantizedConv2d, QuantizedConv2dConfig, QuantizedConv3d,
    QuantizedConv3dConfig,
};
pub use transposed::{
    ConvTranspose1d, ConvTranspose1dConfig, ConvTranspose2d, ConvTranspose2dConfig, ConvTranspose3d,
    ConvTranspose3dConfig,
};

use super::{Initializer, PaddingConfig1d, PaddingConfig2d, PaddingConfig3d, display::layer_display};
use crate::config::Config;
use crate::module::{Ignored, Module, Param};
use crate::tensor::{Activation, ConvOptions, Tensor, backend::Backend, module};

/// Burn has plain numbers where a 1-D layer has one spatial dim, arrays elsewhere.
trait Spatial<const N: usize> {
    fn array(self) -> [usize; N];
}

impl Spatial<1> for usize {
    fn array(self) -> [usize; 1] {
        [self]
    }
}

impl<const N: usize> Spatial<N> for [usize; N] {
    fn array(self) -> [usize; N] {
        self
    }
}

macro_rules! conv {
    (
        $layer:ident, $config:ident, $padding:ident = $valid:tt, $rank:literal, $dims:literal, $size:ty, $one:tt,
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
            /// Zeros around the input.
            #[config(default = $valid)]
            pub padding: $padding,
            /// Whether a bias is added.
            #[config(default = true)]
            pub bias: bool,
            /// How the parameters start.
            #[config(default = "crate::nn::layer_initializer()")]
            pub initializer: Initializer,
        }

        #[doc = concat!("Convolution over ", $what, ".")]
        #[derive(Module, Debug)]
        #[module(custom_display)]
        pub struct $layer<B: Backend> {
            /// `[channels_out, channels_in / groups, kernel…]`.
            pub weight: Param<Tensor<B, $dims>>,
            /// `[channels_out]`.
            pub bias: Option<Param<Tensor<B, 1>>>,
            /// Step of the window.
            pub stride: $size,
            /// Size of the kernel.
            pub kernel_size: $size,
            /// Distance between kernel elements.
            pub dilation: $size,
            /// Number of channel groups.
            pub groups: usize,
            /// Zeros around the input.
            pub padding: Ignored<$padding>,
        }

        impl $config {
            /// A layer whose parameters are initialized when first used.
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
                let kernel = Spatial::array(self.kernel_size);
                let mut shape = [$out, $in / self.groups, 1, 1, 1];
                shape[2..2 + $rank].copy_from_slice(&kernel);
                let window = kernel.iter().product::<usize>();
                let fan_in = Some($in / self.groups * window);
                let fan_out = Some($out / self.groups * window);
                let weight = self.initializer.init_with(&shape[..2 + $rank], fan_in, fan_out, device);
                let bias = || self.initializer.init_with([$out], fan_in, fan_out, device);
                $layer {
                    weight,
                    bias: self.bias.then(bias),
                    stride: self.stride,
                    kernel_size: self.kernel_size,
                    dilation: self.dilation,
                    groups: self.groups,
                    padding: Ignored(self.padding),
                }
            }
        }

        impl<B: Backend> $layer<B> {
            /// `[batch, channels_in, spatial…]` to `[batch, channels_out, spatial…]`.
            pub fn forward(&self, input: Tensor<B, $dims>) -> Tensor<B, $dims> {
                let options = self.options(&input);
                module::conv(input, self.weight.val(), self.bias.as_ref().map(Param::val), options)
            }

            /// `forward` with an activation applied on the way out.
            pub fn forward_activated(&self, input: Tensor<B, $dims>, activation: Activation) -> Tensor<B, $dims> {
                let (weight, bias) = (self.weight.val(), self.bias.as_ref().map(Param::val));
                let options = self.options(&input);
                module::conv_activated(input, weight, bias, activation, options)
            }

            /// `activation(forward(input) + residual)`: the residual has the result's shape.
            pub fn forward_added(
                &self,
                input: Tensor<B, $dims>,
                residual: Tensor<B, $dims>,
                activation: Option<Activation>,
            ) -> Tensor<B, $dims> {
                let (weight, bias) = (self.weight.val(), self.bias.as_ref().map(Param::val));
                let options = self.options(&input);
                module::conv_added(input, weight, bias, residual, activation, options)
            }

            fn options(&self, input: &Tensor<B, $dims>) -> ConvOptions {
                let (stride, dilation) = (Spatial::array(self.stride), Spatial::array(self.dilation));
                let kernel = Spatial::array(self.kernel_size);
                let size: [usize; $dims] = input.dims();
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

conv!(
    Conv1d, Conv1dConfig, PaddingConfig1d = "PaddingConfig1d::Valid", 1, 3, usize, "1", "`[batch, channels, length]`",
    [channels_in, channels_out] from |config: &Conv1dConfig| [config.channels_in, config.channels_out],
    {
        /// Channels of the input.
        pub channels_in: usize,
        /// Channels of the output.
        pub channels_out: usize,
    }
);
conv!(
    Conv2d, Conv2dConfig, PaddingConfig2d = "PaddingConfig2d::Valid", 2, 4, [usize; 2], "[1, 1]", "`[batch, channels, height, width]`",
    [channels_in, channels_out] from |config: &Conv2dConfig| config.channels,
    {
        /// Channels of the input and the output.
        pub channels: [usize; 2],
    }
);
conv!(
    Conv3d, Conv3dConfig, PaddingConfig3d = "PaddingConfig3d::Valid", 3, 5, [usize; 3], "[1, 1, 1]",
    "`[batch, channels, depth, height, width]`",
    [channels_in, channels_out] from |config: &Conv3dConfig| config.channels,
    {
        /// Channels of the input and the output.
        pub channels: [usize; 2],
    }
);
