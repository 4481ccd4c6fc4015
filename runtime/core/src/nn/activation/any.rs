//! Any activation, chosen at run time.

use super::{
    Gelu, HardSigmoid, HardSigmoidConfig, HardSwish, LeakyRelu, LeakyReluConfig, PRelu, PReluConfig, Relu,
    Sigmoid, Softplus, SoftplusConfig, SwiGlu, SwiGluConfig, Tanh,
};
use crate::config::Config;
use crate::module::Module;
use crate::tensor::{Activation as Function, Tensor, backend::Backend};

/// Configuration of [`Activation`].
#[derive(Config, Debug)]
#[non_exhaustive]
pub enum ActivationConfig {
    /// [`Gelu`].
    Gelu,
    /// [`PRelu`].
    PRelu(PReluConfig),
    /// [`Relu`].
    Relu,
    /// [`LeakyRelu`].
    LeakyRelu(LeakyReluConfig),
    /// [`SwiGlu`].
    SwiGlu(SwiGluConfig),
    /// [`Sigmoid`].
    Sigmoid,
    /// [`Tanh`].
    Tanh,
    /// [`HardSigmoid`].
    HardSigmoid(HardSigmoidConfig),
    /// [`HardSwish`].
    HardSwish,
    /// [`Softplus`].
    Softplus(SoftplusConfig),
}

/// One of the activation layers.
#[derive(Module, Debug)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "one value a layer; boxing would change the record")]
pub enum Activation<B: Backend> {
    /// [`Gelu`].
    Gelu(Gelu),
    /// [`PRelu`].
    PRelu(PRelu<B>),
    /// [`Relu`].
    Relu(Relu),
    /// [`LeakyRelu`].
    LeakyRelu(LeakyRelu),
    /// [`SwiGlu`].
    SwiGlu(SwiGlu<B>),
    /// [`Sigmoid`].
    Sigmoid(Sigmoid),
    /// [`Tanh`].
    Tanh(Tanh),
    /// [`HardSigmoid`].
    HardSigmoid(HardSigmoid),
    /// [`HardSwish`].
    HardSwish(HardSwish),
    /// [`Softplus`].
    Softplus(Softplus),
}

impl ActivationConfig {
    /// The layer.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Activation<B> {
        match self {
            ActivationConfig::Gelu => Activation::Gelu(Gelu),
            ActivationConfig::PRelu(config) => Activation::PRelu(config.init(device)),
            ActivationConfig::Relu => Activation::Relu(Relu),
            ActivationConfig::LeakyRelu(config) => Activation::LeakyRelu(config.init()),
            ActivationConfig::SwiGlu(config) => Activation::SwiGlu(config.init(device)),
            ActivationConfig::Sigmoid => Activation::Sigmoid(Sigmoid),
            ActivationConfig::Tanh => Activation::Tanh(Tanh),
            ActivationConfig::HardSigmoid(config) => Activation::HardSigmoid(config.init()),
            ActivationConfig::HardSwish => Activation::HardSwish(HardSwish),
            ActivationConfig::Softplus(config) => Activation::Softplus(config.init()),
        }
    }
}

impl<B: Backend> Activation<B> {
    /// The function, if it is one that operations apply on their way.
    pub(crate) fn function(&self) -> Option<Function> {
        match self {
            Activation::Gelu(_) => Some(Function::Gelu),
            Activation::Relu(_) => Some(Function::Relu),
            Activation::LeakyRelu(layer) => Some(Function::LeakyRelu { slope: layer.negative_slope }),
            Activation::Sigmoid(_) => Some(Function::Sigmoid),
            Activation::Tanh(_) => Some(Function::Tanh),
            Activation::HardSigmoid(layer) => {
                Some(Function::HardSigmoid { alpha: layer.alpha, beta: layer.beta })
            }
            Activation::HardSwish(_) => Some(Function::HardSwish),
            Activation::Softplus(layer) => (layer.beta == 1.0).then_some(Function::Softplus),
            Activation::PRelu(_) | Activation::SwiGlu(_) => None,
        }
    }

    /// Same shape, except for [`SwiGlu`].
    pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        match self {
            Activation::Gelu(layer) => layer.forward(input),
            Activation::PRelu(layer) => layer.forward(input),
            Activation::Relu(layer) => layer.forward(input),
            Activation::LeakyRelu(layer) => layer.forward(input),
            Activation::SwiGlu(layer) => layer.forward(input),
            Activation::Sigmoid(layer) => layer.forward(input),
            Activation::Tanh(layer) => layer.forward(input),
            Activation::HardSigmoid(layer) => layer.forward(input),
            Activation::HardSwish(layer) => layer.forward(input),
            Activation::Softplus(layer) => layer.forward(input),
        }
    }
}
