//! Lion.

use super::{initialize, moving_average, state_follows};
use crate::{GradientClippingConfig, LearningRate, SimpleOptimizer};
use kiln_core::Tensor;
use kiln_core::config::Config;
use kiln_core::record::Record;
use kiln_core::tensor::backend::Backend;

/// Config of [`Lion`].
#[derive(Config, Debug)]
pub struct LionConfig {
    /// How much of the momentum is in a step.
    #[config(default = 0.9)]
    pub beta_1: f32,
    /// How much of the momentum stays.
    #[config(default = 0.99)]
    pub beta_2: f32,
    /// The part of a parameter that a step of learning rate 1 takes away.
    #[config(default = 0.0)]
    pub weight_decay: f32,
    /// Bounds on gradients.
    pub grad_clipping: Option<GradientClippingConfig>,
}

/// Steps of one size along the sign of a momentum (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023,
/// program 1).
#[derive(Clone, Copy, Debug)]
pub struct Lion {
    beta_1: f32,
    beta_2: f32,
    weight_decay: f32,
}

impl From<&LionConfig> for Lion {
    fn from(config: &LionConfig) -> Self {
        let &LionConfig { beta_1, beta_2, weight_decay, .. } = config;
        Self { beta_1, beta_2, weight_decay }
    }
}

initialize!(LionConfig, Lion);

/// What [`Lion`] remembers of a parameter.
#[derive(Record, Clone, Debug)]
pub struct LionState<B: Backend, const D: usize> {
    momentum: Tensor<B, D>,
}

impl<B: Backend, const D: usize> LionState<B, D> {
    fn each(self, change: impl Fn(Tensor<B, D>) -> Tensor<B, D>) -> Self {
        Self { momentum: change(self.momentum) }
    }
}

impl<B: Backend> SimpleOptimizer<B> for Lion {
    type State<const D: usize> = LionState<B, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        let momentum = state.map(|state| state.momentum);
        let direction = moving_average(self.beta_1, momentum.clone(), grad.clone()).sign();
        let momentum = moving_average(self.beta_2, momentum, grad);
        let tensor = tensor * (1.0 - lr * f64::from(self.weight_decay)) - direction * lr;
        (tensor, Some(LionState { momentum }))
    }

    state_follows!();
}
