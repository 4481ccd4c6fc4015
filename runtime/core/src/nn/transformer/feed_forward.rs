//! The feed-forward part of a layer.

use crate::config::Config;
use crate::module::Module;
use crate::nn::{Dropout, DropoutConfig, Gelu, Initializer, Linear, LinearConfig, display::layer_display};
use crate::tensor::{Tensor, backend::Backend};

/// Configuration of [`PositionWiseFeedForward`].
#[derive(Config, Debug)]
pub struct PositionWiseFeedForwardConfig {
    /// Size of input and output.
    pub d_model: usize,
    /// Size between both layers.
    pub d_ff: usize,
    /// Probability of dropping a value between both layers.
    #[config(default = 0.1)]
    pub dropout: f64,
    /// How the parameters start.
    #[config(default = "crate::nn::layer_initializer()")]
    pub initializer: Initializer,
}

/// Two linear layers with GELU between them, over the last dim.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct PositionWiseFeedForward<B: Backend> {
    /// Widens.
    pub linear_inner: Linear<B>,
    /// Narrows.
    pub linear_outer: Linear<B>,
    /// Drops values between them.
    pub dropout: Dropout,
    /// The activation.
    pub gelu: Gelu,
}

impl PositionWiseFeedForwardConfig {
    /// A layer whose parameters are initialized when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> PositionWiseFeedForward<B> {
        let linear = |d_input, d_output| {
            LinearConfig::new(d_input, d_output).with_initializer(self.initializer.clone()).init(device)
        };
        PositionWiseFeedForward {
            linear_inner: linear(self.d_model, self.d_ff),
            linear_outer: linear(self.d_ff, self.d_model),
            dropout: DropoutConfig::new(self.dropout).init(),
            gelu: Gelu::new(),
        }
    }
}

impl<B: Backend> PositionWiseFeedForward<B> {
    /// `[…, d_model]`, same shape.
    pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        let x = self.gelu.forward(self.linear_inner.forward(input));
        self.linear_outer.forward(self.dropout.forward(x))
    }
}

layer_display!(PositionWiseFeedForward<B>, |layer| {
    "d_model" => layer.linear_inner.weight.lazy_shape()[0],
    "d_ff" => layer.linear_inner.weight.lazy_shape()[1],
    "prob" => layer.dropout.prob,
});
