//! AdaMax.

use super::decay::{WeightDecay, WeightDecayConfig, decayed};
use super::{bias_correction, initialize, moving_average, state_follows};
use crate::{GradientClippingConfig, LearningRate, SimpleOptimizer};
use kiln_core::Tensor;
use kiln_core::config::Config;
use kiln_core::record::Record;
use kiln_core::tensor::backend::Backend;

/// Config of [`AdaMax`].
#[derive(Config, Debug)]
pub struct AdaMaxConfig {
    /// How much of the gradients' average stays.
    #[config(default = 0.9)]
    pub beta_1: f32,
    /// How much of the largest gradient stays.
    #[config(default = 0.999)]
    pub beta_2: f32,
    /// Added to the gradient's size.
    #[config(default = 1e-8)]
    pub epsilon: f32,
    /// A penalty on large parameters.
    pub weight_decay: Option<WeightDecayConfig>,
    /// Bounds on gradients.
    pub grad_clipping: Option<GradientClippingConfig>,
}

/// Adam with the infinity norm (Kingma & Ba 2015, section 7.1), as in `torch.optim.Adamax`.
#[derive(Clone, Copy, Debug)]
pub struct AdaMax {
    beta_1: f32,
    beta_2: f32,
    epsilon: f32,
    weight_decay: Option<WeightDecay>,
}

impl From<&AdaMaxConfig> for AdaMax {
    fn from(config: &AdaMaxConfig) -> Self {
        let &AdaMaxConfig { beta_1, beta_2, epsilon, .. } = config;
        let weight_decay = config.weight_decay.as_ref().map(WeightDecayConfig::init);
        Self { beta_1, beta_2, epsilon, weight_decay }
    }
}

initialize!(AdaMaxConfig, AdaMax);

/// What [`AdaMax`] remembers of a parameter.
#[derive(Record, Clone, Debug)]
pub struct AdaMaxState<B: Backend, const D: usize> {
    time: usize,
    moment: Tensor<B, D>,
    largest: Tensor<B, D>,
}

impl<B: Backend, const D: usize> AdaMaxState<B, D> {
    fn each(self, change: impl Fn(Tensor<B, D>) -> Tensor<B, D>) -> Self {
        Self { time: self.time, moment: change(self.moment), largest: change(self.largest) }
    }
}

impl<B: Backend> SimpleOptimizer<B> for AdaMax {
    type State<const D: usize> = AdaMaxState<B, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        let grad = decayed(self.weight_decay, grad, &tensor);
        let (time, moment, largest) = match state {
            Some(state) => (state.time.saturating_add(1), Some(state.moment), Some(state.largest)),
            None => (1, None, None),
        };
        let moment = moving_average(self.beta_1, moment, grad.clone());
        let size = grad.abs() + self.epsilon;
        let largest = match largest {
            Some(largest) => (largest * self.beta_2).max_pair(size),
            None => size,
        };
        let rate = lr / bias_correction(self.beta_1, time);
        let tensor = tensor - moment.clone() / largest.clone() * rate;
        (tensor, Some(AdaMaxState { time, moment, largest }))
    }

    state_follows!();
}
