//! Dropout.

use super::display::layer_display;
use crate::config::Config;
use crate::module::Module;
use crate::tensor::{Tensor, backend::Backend, module};

/// Configuration of [`Dropout`].
#[derive(Config, Debug)]
pub struct DropoutConfig {
    /// Probability of zeroing an element.
    pub prob: f64,
}

/// Zeros elements at random while training and scales the others by `1 / (1 - prob)` (Srivastava et al. 2014).
///
/// It does nothing on a backend that records no gradients.
#[derive(Module, Clone, Debug)]
#[module(custom_display)]
pub struct Dropout {
    /// Probability of zeroing an element.
    pub prob: f64,
}

impl DropoutConfig {
    /// The layer.
    pub fn init(&self) -> Dropout {
        assert!(
            (0.0..=1.0).contains(&self.prob),
            "dropout: the probability {} is not between 0 and 1",
            self.prob
        );
        Dropout { prob: self.prob }
    }
}

impl Dropout {
    /// Same shape.
    pub fn forward<B: Backend, const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        if !B::ad_enabled() || self.prob == 0.0 {
            return input;
        }
        module::dropout(input, self.prob)
    }
}

layer_display!(Dropout, |layer| { "prob" => layer.prob });
