//! Normalization over the last dim.

use crate::config::Config;
use crate::module::{Module, Param};
use crate::nn::{Initializer, display::layer_display};
use crate::tensor::{Tensor, backend::Backend, module};

/// Configuration of [`LayerNorm`].
#[derive(Config, Debug)]
pub struct LayerNormConfig {
    /// Size of the last dim.
    pub d_model: usize,
    /// Added to the variance.
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Whether a bias is added.
    #[config(default = true)]
    pub bias: bool,
}

/// Mean 0 and variance 1 over the last dim, then scale and shift (Ba, Kiros & Hinton 2016).
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct LayerNorm<B: Backend> {
    /// Scale, `[d_model]`.
    pub gamma: Param<Tensor<B, 1>>,
    /// Shift, `[d_model]`.
    pub beta: Option<Param<Tensor<B, 1>>>,
    /// Added to the variance.
    epsilon: f64,
}

impl LayerNormConfig {
    /// A layer that scales by 1 and shifts by 0.
    pub fn init<B: Backend>(&self, device: &B::Device) -> LayerNorm<B> {
        LayerNorm {
            gamma: Initializer::Ones.init([self.d_model], device),
            beta: self.bias.then(|| Initializer::Zeros.init([self.d_model], device)),
            epsilon: self.epsilon,
        }
    }
}

impl<B: Backend> LayerNorm<B> {
    /// `[…, d_model]`, same shape.
    pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        module::layer_norm(input, self.gamma.val(), self.beta.as_ref().map(Param::val), self.epsilon)
    }
}

layer_display!(LayerNorm<B>, |layer| {
    "d_model" => layer.gamma.lazy_shape()[0],
    "epsilon" => layer.epsilon,
});

/// Configuration of [`RmsNorm`].
#[derive(Config, Debug)]
pub struct RmsNormConfig {
    /// Size of the last dim.
    pub d_model: usize,
    /// Added to the mean square.
    #[config(default = 1e-5)]
    pub epsilon: f64,
}

/// Root mean square 1 over the last dim, then scale (Zhang & Sennrich 2019).
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct RmsNorm<B: Backend> {
    /// Scale, `[d_model]`.
    pub gamma: Param<Tensor<B, 1>>,
    /// Added to the mean square.
    pub epsilon: f64,
}

impl RmsNormConfig {
    /// A layer that scales by 1.
    ///
    /// # Panics
    /// When `epsilon` is not positive.
    pub fn init<B: Backend>(&self, device: &B::Device) -> RmsNorm<B> {
        assert!(self.epsilon > 0.0, "RmsNorm: epsilon must be positive, got {}", self.epsilon);
        RmsNorm { gamma: Initializer::Ones.init([self.d_model], device), epsilon: self.epsilon }
    }
}

impl<B: Backend> RmsNorm<B> {
    /// `[…, d_model]`, same shape.
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        module::rms_norm(x, self.gamma.val(), self.epsilon)
    }
}

layer_display!(RmsNorm<B>, |layer| {
    "d_model" => layer.gamma.lazy_shape()[0],
    "epsilon" => layer.epsilon,
});
