//! Lookup table.

use super::{Initializer, display::layer_display};
use crate::config::Config;
use crate::module::{Module, Param};
use crate::tensor::{Int, Tensor, backend::Backend, module};

/// Configuration of [`Embedding`].
#[derive(Config, Debug)]
pub struct EmbeddingConfig {
    /// Number of vectors.
    pub n_embedding: usize,
    /// Size of each vector.
    pub d_model: usize,
    /// How the vectors start.
    #[config(default = "Initializer::Normal { mean: 0.0, std: 1.0 }")]
    pub initializer: Initializer,
}

/// A table of vectors, looked up by index.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Embedding<B: Backend> {
    /// `[n_embedding, d_model]`.
    pub weight: Param<Tensor<B, 2>>,
}

impl EmbeddingConfig {
    /// A table that is initialized when first used.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Embedding<B> {
        Embedding { weight: self.initializer.init([self.n_embedding, self.d_model], device) }
    }
}

impl<B: Backend> Embedding<B> {
    /// `[batch, seq]` to `[batch, seq, d_model]`.
    pub fn forward(&self, input: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        module::embedding(self.weight.val(), input)
    }
}

layer_display!(Embedding<B>, |layer| {
    "n_embedding" => layer.weight.lazy_shape()[0],
    "d_model" => layer.weight.lazy_shape()[1],
});
