//! Noise.

use super::display::layer_display;
use crate::config::Config;
use crate::module::Module;
use crate::tensor::{Distribution, Tensor, backend::Backend};

/// Configuration of [`GaussianNoise`].
#[derive(Config, Debug)]
pub struct GaussianNoiseConfig {
    /// Standard deviation of what is added.
    pub std: f64,
}

/// Adds normally distributed noise of mean 0 while training.
///
/// It does nothing on a backend that records no gradients.
#[derive(Module, Clone, Debug)]
#[module(custom_display)]
pub struct GaussianNoise {
    /// Standard deviation of what is added.
    pub std: f64,
}

impl GaussianNoiseConfig {
    /// The layer.
    ///
    /// # Panics
    /// When the standard deviation is negative or no number.
    pub fn init(&self) -> GaussianNoise {
        assert!(self.std >= 0.0, "GaussianNoise: the standard deviation {} is negative", self.std);
        GaussianNoise { std: self.std }
    }
}

impl GaussianNoise {
    /// Same shape.
    pub fn forward<B: Backend, const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        if !B::ad_enabled() || self.std == 0.0 {
            return input;
        }
        let noise = input.random_like(Distribution::Normal(0.0, self.std));
        input + noise
    }
}

layer_display!(GaussianNoise, |layer| { "std" => layer.std });
