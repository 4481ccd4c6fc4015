//! Windows as columns.

use super::display::layer_display;
use crate::config::Config;
use crate::module::Module;
use crate::tensor::{Tensor, backend::Backend, module};

/// Configuration of [`Unfold4d`].
#[derive(Config, Debug)]
pub struct Unfold4dConfig {
    /// Size of the window.
    pub kernel_size: [usize; 2],
    /// Step of the window.
    #[config(default = "[1, 1]")]
    pub stride: [usize; 2],
    /// Distance between window elements.
    #[config(default = "[1, 1]")]
    pub dilation: [usize; 2],
    /// Zeros around the input.
    #[config(default = "[0, 0]")]
    pub padding: [usize; 2],
}

/// Lays the windows of an image out as columns.
#[derive(Module, Clone, Debug)]
#[module(custom_display)]
pub struct Unfold4d {
    /// Size of the window.
    pub kernel_size: [usize; 2],
    /// Step of the window.
    pub stride: [usize; 2],
    /// Distance between window elements.
    pub dilation: [usize; 2],
    /// Zeros around the input.
    pub padding: [usize; 2],
}

impl Unfold4dConfig {
    /// The layer.
    pub fn init(&self) -> Unfold4d {
        Unfold4d {
            kernel_size: self.kernel_size,
            stride: self.stride,
            dilation: self.dilation,
            padding: self.padding,
        }
    }
}

impl Unfold4d {
    /// `[batch, channels, height, width]` to `[batch, channels · kernel, positions]`.
    pub fn forward<B: Backend>(&self, input: Tensor<B, 4>) -> Tensor<B, 3> {
        module::unfold4d(input, self.kernel_size, self.stride, self.padding, self.dilation)
    }
}

layer_display!(Unfold4d, |layer| {
    "kernel_size" => alloc::format!("{:?}", layer.kernel_size),
    "stride" => alloc::format!("{:?}", layer.stride),
    "dilation" => alloc::format!("{:?}", layer.dilation),
    "padding" => alloc::format!("{:?}", layer.padding),
});
