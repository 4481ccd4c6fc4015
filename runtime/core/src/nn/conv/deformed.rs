//! Convolution whose kernel elements are moved.

use crate::config::Config;
use crate::module::{Ignored, Module, Param};
use crate::nn::{Initializer, PaddingConfig2d, display::layer_display};
use crate::tensor::module::{DeformConvOptions, deform_conv2d};
use crate::tensor::{Tensor, backend::Backend};

/// Configuration of [`DeformConv2d`].
#[derive(Config, Debug)]
pub struct DeformConv2dConfig {
    /// Channels of the input and of the output.
    pub channels: [usize; 2],
    /// Size of the kernel.
    pub kernel_size: [usize; 2],
    /// Step of the window.
    #[config(default = "[1, 1]")]
    pub stride: [usize; 2],
    /// Distance between kernel elements.
    #[config(default = "[1, 1]")]
    pub dilation: [usize; 2],
    /// Number of channel groups.
    #[config(default = "1")]
    pub weight_groups: usize,
    /// Number of channel groups with offsets of their own.
    #[config(default = "1")]
    pub offset_groups: usize,
    /// Zeros around the input, the same before and after.
    #[config(default = "PaddingConfig2d::Valid")]
    pub padding: PaddingConfig2d,
    /// Whether a bias is added.
    #[config(default = true)]
    pub bias: bool,
    /// How the parameters start.
    #[config(default = "crate::nn::layer_initializer()")]
    pub initializer: Initializer,
}

/// Convolution over two spatial dims whose kernel elements are moved by offsets, and weighted by a mask.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct DeformConv2d<B: Backend> {
    /// `[channels_out, channels_in / weight_groups, kernel…]`.
    pub weight: Param<Tensor<B, 4>>,
    /// `[channels_out]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// Step of the window.
    pub stride: [usize; 2],
    /// Size of the kernel.
    pub kernel_size: [usize; 2],
    /// Distance between kernel elements.
    pub dilation: [usize; 2],
    /// Number of channel groups.
    pub weight_groups: usize,
    /// Number of channel groups with offsets of their own.
    pub offset_groups: usize,
    /// Zeros around the input.
    pub padding: Ignored<PaddingConfig2d>,
}

impl DeformConv2dConfig {
    /// A layer whose parameters are initialized when first used.
    ///
    /// # Panics
    /// When the channels cannot be divided into the groups.
    pub fn init<B: Backend>(&self, device: &B::Device) -> DeformConv2d<B> {
        let [channels_in, channels_out] = self.channels;
        let groups = self.weight_groups;
        assert!(
            groups > 0 && channels_in.is_multiple_of(groups) && channels_out.is_multiple_of(groups),
            "DeformConv2d: {channels_in} and {channels_out} channels cannot be divided into {groups} groups"
        );
        let [rows, columns] = self.kernel_size;
        let fan_in = Some(channels_in / groups * rows * columns);
        let fan_out = Some(channels_out / groups * rows * columns);
        let shape = [channels_out, channels_in / groups, rows, columns];
        let bias = || self.initializer.init_with([channels_out], fan_in, fan_out, device);
        DeformConv2d {
            weight: self.initializer.init_with(shape, fan_in, fan_out, device),
            bias: self.bias.then(bias),
            stride: self.stride,
            kernel_size: self.kernel_size,
            dilation: self.dilation,
            weight_groups: groups,
            offset_groups: self.offset_groups,
            padding: Ignored(self.padding),
        }
    }
}

impl<B: Backend> DeformConv2d<B> {
    /// `[batch, channels_in, height, width]` to `[batch, channels_out, rows, columns]`; `offset` is
    /// `[batch, offset_groups · kernel · 2, rows, columns]`, `mask` `[batch, offset_groups · kernel, rows, columns]`.
    ///
    /// # Panics
    /// When the padding is not the same before and after.
    pub fn forward(
        &self,
        input: Tensor<B, 4>,
        offset: Tensor<B, 4>,
        mask: Option<Tensor<B, 4>>,
    ) -> Tensor<B, 4> {
        let [_, _, height, width] = input.dims();
        let padding = self.padding.0.resolve(
            "DeformConv2d",
            &[height, width],
            &self.kernel_size,
            &self.dilation,
            &self.stride,
        );
        assert!(
            padding.iter().all(|(before, after)| before == after),
            "DeformConv2d: the padding {padding:?} is not the same before and after"
        );
        let options = DeformConvOptions {
            stride: self.stride,
            padding: [padding[0].0, padding[1].0],
            dilation: self.dilation,
            weight_groups: self.weight_groups,
            offset_groups: self.offset_groups,
        };
        deform_conv2d(input, offset, self.weight.val(), mask, self.bias.as_ref().map(Param::val), options)
    }
}

layer_display!(DeformConv2d<B>, |layer| {
    "stride" => alloc::format!("{:?}", layer.stride),
    "kernel_size" => alloc::format!("{:?}", layer.kernel_size),
    "dilation" => alloc::format!("{:?}", layer.dilation),
    "weight_groups" => layer.weight_groups,
    "offset_groups" => layer.offset_groups,
    "padding" => layer.padding,
});
