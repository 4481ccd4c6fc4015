//! Batch normalization.

use crate::config::Config;
use crate::module::{Module, Param, RunningState};
use crate::nn::{Initializer, display::layer_display};
use crate::tensor::{Tensor, Traced, backend::Backend, elementwise_all, module};

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
        let (gamma, beta) = (self.gamma.val(), self.beta.val());
        if !B::ad_enabled() || self.running_mean.is_frozen() {
            // A module that computes in 16 bits may keep its statistics in 32.
            let [mean, variance] = [&self.running_mean, &self.running_var].map(|state| state.value());
            return module::batch_norm(input, gamma, beta, mean, variance, self.epsilon);
        }
        let dims = input.dims();
        let (output, mean, variance) = module::batch_norm_train(input, gamma, beta, self.epsilon);
        let count = dims.iter().product::<usize>() as f64 / dims[1].max(1) as f64;
        // Nothing has no mean.
        if count > 0.0 {
            self.observe(mean.detach(), variance.detach(), count / (count - 1.0).max(1.0));
        }
        output
    }

    /// Moves the running statistics towards those of a batch, whose variance is unbiased by a factor; in one pass.
    fn observe(&self, mean: Tensor<B, 1>, variance: Tensor<B, 1>, unbiased: f64) {
        let running = [self.running_mean.value_sync(), self.running_var.value_sync()];
        let dtypes = [running[0].dtype(), running[1].dtype()];
        let wide = mean.dtype();
        let [running_mean, running_var] = running;
        let operands = [running_mean, running_var, mean, variance];
        let [mean, variance] = elementwise_all(operands, |[running_mean, running_var, mean, variance]| {
            let step = |running: Traced, new: Traced| {
                running.cast(wide) * Traced::parameter(1.0 - self.momentum)
                    + new * Traced::parameter(self.momentum)
            };
            let variance = variance * Traced::parameter(unbiased);
            [step(running_mean, mean).cast(dtypes[0]), step(running_var, variance).cast(dtypes[1])]
        });
        self.running_mean.update(mean);
        self.running_var.update(variance);
    }
}

layer_display!(BatchNorm<B>, |layer| {
    "num_features" => layer.gamma.lazy_shape()[0],
    "momentum" => layer.momentum,
    "epsilon" => layer.epsilon,
});
