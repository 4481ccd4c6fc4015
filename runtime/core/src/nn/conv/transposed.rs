//! Transposed convolutions.

use super::Spatial;
use crate::config::Config;
use crate::module::{Module, Param};
use crate::nn::{Initializer, display::layer_display};
use crate::tensor::{ConvTransposeOptions, Tensor, backend::Backend, module};

macro_rules! conv_transpose {
    ($layer:ident, $config:ident, $rank:literal, $dims:literal, $size:ty, $one:tt, $zero:tt, $what:literal) => {
        #[doc = concat!("Configuration of [`", stringify!($layer), "`].")]
        #[derive(Config, Debug)]
        pub struct $config {
            /// Channels of the input and the output.
            pub channels: [usize; 2],
            /// Size of the kernel.
            pub kernel_size: $size,
            /// Step between kernel placements in the output.
            #[config(default = $one)]
            pub stride: $size,
            /// Distance between kernel elements.
            #[config(default = $one)]
            pub dilation: $size,
            /// Number of channel groups.
            #[config(default = "1")]
            pub groups: usize,
            /// Rows cut off on both sides of the full result.
            #[config(default = $zero)]
            pub padding: $size,
            /// Rows added at the end of the result.
            #[config(default = $zero)]
            pub padding_out: $size,
            /// Whether a bias is added.
            #[config(default = true)]
            pub bias: bool,
            /// How the parameters start.
            #[config(default = "crate::nn::layer_initializer()")]
            pub initializer: Initializer,
        }

        #[doc = concat!("Transposed convolution over ", $what, ".")]
        #[derive(Module, Debug)]
        #[module(custom_display)]
        pub struct $layer<B: Backend> {
            /// `[channels_in, channels_out / groups, kernel…]`.
            pub weight: Param<Tensor<B, $dims>>,
            /// `[channels_out]`.
            pub bias: Option<Param<Tensor<B, 1>>>,
            /// Step between kernel placements in the output.
            pub stride: $size,
            /// Size of the kernel.
            pub kernel_size: $size,
            /// Distance between kernel elements.
            pub dilation: $size,
            /// Number of channel groups.
            pub groups: usize,
            /// Rows cut off on both sides of the full result.
            pub padding: $size,
            /// Rows added at the end of the result.
            pub padding_out: $size,
            /// Channels of the input and the output.
            pub channels: [usize; 2],
        }

        impl $config {
            /// A layer whose parameters are initialized when first used.
            ///
            /// # Panics
            /// When the channels cannot be divided into the groups.
            pub fn init<B: Backend>(&self, device: &B::Device) -> $layer<B> {
                let [channels_in, channels_out] = self.channels;
                assert!(
                    self.groups > 0 && channels_in % self.groups == 0 && channels_out % self.groups == 0,
                    concat!(stringify!($layer), ": {} and {} channels cannot be divided into {} groups"),
                    channels_in, channels_out, self.groups
                );
                let kernel = Spatial::array(self.kernel_size);
                let mut shape = [channels_in, channels_out / self.groups, 1, 1, 1];
                shape[2..2 + $rank].copy_from_slice(&kernel);
                // PyTorch takes the fan from the weight's second dim, whatever it means.
                let fan_in = Some(channels_out / self.groups * kernel.iter().product::<usize>());
                let weight = self.initializer.init_with(&shape[..2 + $rank], fan_in, None, device);
                let bias = || self.initializer.init_with([channels_out], fan_in, None, device);
                $layer {
                    weight,
                    bias: self.bias.then(bias),
                    stride: self.stride,
                    kernel_size: self.kernel_size,
                    dilation: self.dilation,
                    groups: self.groups,
                    padding: self.padding,
                    padding_out: self.padding_out,
                    channels: self.channels,
                }
            }
        }

        impl<B: Backend> $layer<B> {
            /// `[batch, channels_in, spatial…]` to `[batch, channels_out, spatial…]`.
            pub fn forward(&self, input: Tensor<B, $dims>) -> Tensor<B, $dims> {
                let options = ConvTransposeOptions {
                    stride: Spatial::array(self.stride).into(),
                    padding: Spatial::array(self.padding).iter().map(|&p| (p, p)).collect(),
                    output_padding: Spatial::array(self.padding_out).into(),
                    dilation: Spatial::array(self.dilation).into(),
                    groups: self.groups,
                };
                module::conv_transpose(input, self.weight.val(), self.bias.as_ref().map(Param::val), options)
            }
        }

        layer_display!($layer<B>, |layer| {
            "ch_in" => layer.channels[0],
            "ch_out" => layer.channels[1],
            "stride" => alloc::format!("{:?}", layer.stride),
            "kernel_size" => alloc::format!("{:?}", layer.kernel_size),
            "dilation" => alloc::format!("{:?}", layer.dilation),
            "groups" => layer.groups,
            "padding" => alloc::format!("{:?}", layer.padding),
            "padding_out" => alloc::format!("{:?}", layer.padding_out),
        });
    };
}

conv_transpose!(ConvTranspose1d, ConvTranspose1dConfig, 1, 3, usize, "1", "0", "`[batch, channels, length]`");
conv_transpose!(
    ConvTranspose2d,
    ConvTranspose2dConfig,
    2,
    4,
    [usize; 2],
    "[1, 1]",
    "[0, 0]",
    "`[batch, channels, height, width]`"
);
conv_transpose!(
    ConvTranspose3d,
    ConvTranspose3dConfig,
    3,
    5,
    [usize; 3],
    "[1, 1, 1]",
    "[0, 0, 0]",
    "`[batch, channels, depth, height, width]`"
);
