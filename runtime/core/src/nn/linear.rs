//! Fully connected layer.

use super::{Initializer, display::layer_display};
use crate::config::Config;
use crate::module::{Module, Param};
use crate::tensor::{Activation, Tensor, backend::Backend, module};

/// Configuration of [`Linear`].
#[derive(Config, Debug)]
pub struct LinearConfig {
    /// Size of the last dim of the input.
    pub d_input: usize,
    /// Size of the last dim of the output.
    pub d_output: usize,
    /// Whether a bias is added.
    #[config(default = true)]
    pub bias: bool,
    /// How the parameters start.
    #[config(default = "crate::nn::layer_initializer()")]
    pub initializer: Initializer,
    /// How the weight lies in a record.
    #[config(default = "LinearLayout::Row")]
    pub layout: LinearLayout,
}

/// How a [`Linear`]'s weight lies in a record. In memory it is `[d_input, d_output]` either way.
#[derive(Config, Debug, Copy, PartialEq)]
pub enum LinearLayout {
    /// `[d_input, d_output]`, row-major.
    Row,
    /// `[d_output, d_input]`, row-major: PyTorch's.
    Col,
}

/// `y = x · weight + bias` over the last dim.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Linear<B: Backend> {
    /// `[d_input, d_output]`.
    pub weight: Param<Tensor<B, 2>>,
    /// `[d_output]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
}

impl LinearConfig {
    /// A layer whose parameters are initialized when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Linear<B> {
        let (fan_in, fan_out) = (Some(self.d_input), Some(self.d_output));
        let bias = || self.initializer.init_with([self.d_output], fan_in, fan_out, device);
        let weight = self.initializer.init_with([self.d_input, self.d_output], fan_in, fan_out, device);
        let weight = match self.layout {
            LinearLayout::Row => weight,
            LinearLayout::Col => weight.save_mapper(Tensor::transpose).load_mapper(Tensor::transpose),
        };
        Linear { weight, bias: self.bias.then(bias) }
    }
}

impl<B: Backend> Linear<B> {
    /// `[…, d_input]` to `[…, d_output]`; rank 1 is one row.
    pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        match self.weight.low_rank() {
            None => self.compute(input, None),
            Some(pair) => {
                let added = pair.linear(input.clone());
                self.compute(input, None) + added
            }
        }
    }

    /// [`Linear::forward`] with an activation applied on the way out.
    pub fn forward_activated<const D: usize>(
        &self,
        input: Tensor<B, D>,
        activation: Activation,
    ) -> Tensor<B, D> {
        if self.weight.low_rank().is_some() {
            return crate::tensor::activation::apply(activation, self.forward(input));
        }
        self.compute(input, Some(activation))
    }

    /// Without what a low-rank pair of the weight adds.
    fn compute<const D: usize>(&self, input: Tensor<B, D>, activation: Option<Activation>) -> Tensor<B, D> {
        module::linear_with(input, self.weight.value(), self.bias.as_ref().map(Param::value), activation)
    }
}

layer_display!(Linear<B>, |layer| {
    "d_input" => layer.weight.lazy_shape()[0],
    "d_output" => layer.weight.lazy_shape()[1],
    "bias" => layer.bias.is_some(),
});
