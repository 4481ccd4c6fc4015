//! The network.

use kiln::nn::conv::{Conv2d, Conv2dConfig};
use kiln::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig};
use kiln::nn::{Dropout, DropoutConfig, Linear, LinearConfig, Relu};
use kiln::prelude::*;

/// Two convolutions and two linear layers.
#[derive(Module, Debug)]
pub struct Model<B: Backend> {
    conv1: Conv2d<B>,
    conv2: Conv2d<B>,
    pool: AdaptiveAvgPool2d,
    dropout: Dropout,
    linear1: Linear<B>,
    linear2: Linear<B>,
    activation: Relu,
}

/// Sizes of a [`Model`].
#[derive(Config, Debug)]
pub struct ModelConfig {
    num_classes: usize,
    hidden_size: usize,
    #[config(default = "0.25")]
    dropout: f64,
}

impl ModelConfig {
    /// A model with new parameters.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Model<B> {
        Model {
            conv1: Conv2dConfig::new([1, 8], [3, 3]).init(device),
            conv2: Conv2dConfig::new([8, 16], [3, 3]).init(device),
            pool: AdaptiveAvgPool2dConfig::new([4, 4]).init(),
            activation: Relu::new(),
            linear1: LinearConfig::new(16 * 4 * 4, self.hidden_size).init(device),
            linear2: LinearConfig::new(self.hidden_size, self.num_classes).init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
        }
    }
}

impl<B: Backend> Model<B> {
    /// Images `[batch, height, width]` to scores `[batch, classes]`.
    pub fn forward(&self, images: Tensor<B, 3>) -> Tensor<B, 2> {
        let [batch_size, height, width] = images.dims();
        let x = images.reshape([batch_size, 1, height, width]);
        let x = self.activation.forward(self.conv1.forward(x));
        let x = self.activation.forward(self.dropout.forward(self.conv2.forward(x)));
        let x = self.pool.forward(x).reshape([batch_size, 16 * 4 * 4]);
        let x = self.dropout.forward(self.linear1.forward(x));
        self.linear2.forward(self.activation.forward(x))
    }
}
