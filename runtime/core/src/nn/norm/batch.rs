//! Batch normalization.

use crate::config::Config;
use crate::module::{Module, Param, RunningState};
use crate::nn::{Initializer, display::layer_display};
use crate::tensor::{Tensor, backend::Backend, module};

/// Configuration of [`BatchNorm`].
#[derive(Config, Debug)]
pub struct BatchNormConfig {
    /// Number of channels.
    pub num_features: usize,
    /// Added to the variance.
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Weight of a new batch in the running statistics.
    #[config(default = 0.1)]
    pub momentum: f64,
}

/// Mean 0 and variance 1 over each channel, then scale and shift (Ioffe & Szegedy 2015).
///
/// On a backend that records gradients it uses the batch's statistics and updates the running ones; elsewhere, or when it is
/// frozen ([`Module::freeze`], [`Module::no_grad`]), it uses the running ones.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct BatchNorm<B: Backend> {
    /// Scale, `[num_features]`.
    pub gamma: Param<Tensor<B, 1>>,
    /// Shift, `[num_features]`.
    pub beta: Param<Tensor<B, 1>>,
    /// Mean over past batches, `[num_features]`.
    pub running_mean: RunningState<Tensor<B, 1>>,
    /// Unbiased variance over past batches, `[num_features]`.
    pub running_var: RunningState<Tensor<B, 1>>,
    /// Weight of a new batch in the running statistics.
    pub momentum: f64,
    /// Added to the variance.
    pub epsilon: f64,
}

impl BatchNormConfig {
    /// A layer that scales by 1, shifts by 0, with running statistics of 0 and 1.
    pub fn init<B: Backend>(&self, device: &B::Device) -> BatchNorm<B> {
        let shape = [self.num_features];
        BatchNorm {
            gamma: Initializer::Ones.init(shape, device),
            beta: Initializer::Zeros.init(shape, device),
            running_mean: RunningState::from_param(Initializer::Zeros.init(shape, device)),
            running_var: RunningState::from_param(Initializer::Ones.init(shape, device)),
            momentum: self.momentum,
            epsilon: self.epsilon,
        }
    }
}

impl<B: Backend> BatchNorm<B> {
    /// `[batch, num_features, …]`, same shape.
    pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        let (mean, variance) = if B::ad_enabled() && !self.running_mean.is_frozen() {
            self.batch_statistics(input.clone())
        } else {
            // A module that computes in 16 bits may keep its statistics in 32.
            [&self.running_mean, &self.running_var].map(|state| state.value().cast(input.dtype())).into()
        };
        module::batch_norm(input, self.gamma.val(), self.beta.val(), mean, variance, self.epsilon)
    }

    /// Mean and biased variance of the batch per channel; moves the running statistics towards them.
    fn batch_statistics<const D: usize>(&self, input: Tensor<B, D>) -> (Tensor<B, 1>, Tensor<B, 1>) {
        let channels = input.dims()[1];
        let rows = input.swap_dims(0, 1).reshape([channels as i32, -1]);
        let count = rows.dims()[1] as f64;
        let mean = rows.clone().mean_dim(1);
        let variance = (rows - mean.clone()).powf_scalar(2.0).mean_dim(1).reshape([channels]);
        let mean = mean.reshape([channels]);
        let step = |running: Tensor<B, 1>, new: Tensor<B, 1>| {
            let new = new.detach().cast(running.dtype());
            running * (1.0 - self.momentum) + new * self.momentum
        };
        let unbiased = variance.clone() * (count / (count - 1.0).max(1.0));
        self.running_mean.update(step(self.running_mean.value_sync(), mean.clone()));
        self.running_var.update(step(self.running_var.value_sync(), unbiased));
        (mean, variance)
    }
}

layer_display!(BatchNorm<B>, |layer| {
    "num_features" => layer.gamma.lazy_shape()[0],
    "momentum" => layer.momentum,
    "epsilon" => layer.epsilon,
});
