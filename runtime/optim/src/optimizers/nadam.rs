//! NAdam.

use super::decay::{WeightDecay, WeightDecayConfig, decayed};
use super::{bias_correction, initialize, moving_average, state_follows};
use crate::{GradientClippingConfig, LearningRate, SimpleOptimizer};
use kiln_core::Tensor;
use kiln_core::config::Config;
use kiln_core::record::Record;
use kiln_core::tensor::backend::Backend;

/// Config of [`NAdam`].
#[derive(Config, Debug)]
pub struct NAdamConfig {
    /// How much of the gradients' average stays.
    #[config(default = 0.9)]
    pub beta_1: f32,
    /// How much of the squared gradients' average stays.
    #[config(default = 0.999)]
    pub beta_2: f32,
    /// Added to the denominator.
    #[config(default = 1e-8)]
    pub epsilon: f32,
    /// How fast the momentum approaches `beta_1`.
    #[config(default = 0.004)]
    pub momentum_decay: f64,
    /// A penalty on large parameters.
    pub weight_decay: Option<WeightDecayConfig>,
    /// Bounds on gradients.
    pub grad_clipping: Option<GradientClippingConfig>,
}

/// Adam with Nesterov's momentum (Dozat 2016), as in `torch.optim.NAdam`.
#[derive(Clone, Copy, Debug)]
pub struct NAdam {
    beta_1: f32,
    beta_2: f32,
    epsilon: f32,
    momentum_decay: f64,
    weight_decay: Option<WeightDecay>,
}

impl From<&NAdamConfig> for NAdam {
    fn from(config: &NAdamConfig) -> Self {
        let &NAdamConfig { beta_1, beta_2, epsilon, momentum_decay, .. } = config;
        let weight_decay = config.weight_decay.as_ref().map(WeightDecayConfig::init);
        Self { beta_1, beta_2, epsilon, momentum_decay, weight_decay }
    }
}

initialize!(NAdamConfig, NAdam);

/// What [`NAdam`] remembers of a parameter.
#[derive(Record, Clone, Debug)]
pub struct NAdamState<B: Backend, const D: usize> {
    time: usize,
    /// The product of all momenta so far.
    momenta: f64,
    moment_1: Tensor<B, D>,
    moment_2: Tensor<B, D>,
}

impl<B: Backend, const D: usize> NAdamState<B, D> {
    fn each(self, change: impl Fn(Tensor<B, D>) -> Tensor<B, D>) -> Self {
        Self { moment_1: change(self.moment_1), moment_2: change(self.moment_2), ..self }
    }
}

impl NAdam {
    /// The momentum of a step; 0.96 is the paper's.
    fn momentum(&self, time: usize) -> f64 {
        f64::from(self.beta_1) * (1.0 - 0.5 * 0.96_f64.powf(time as f64 * self.momentum_decay))
    }
}

impl<B: Backend> SimpleOptimizer<B> for NAdam {
    type State<const D: usize> = NAdamState<B, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        let grad = decayed(self.weight_decay, grad, &tensor);
        let (time, momenta, moment_1, moment_2) = match state {
            Some(state) => {
                (state.time.saturating_add(1), state.momenta, Some(state.moment_1), Some(state.moment_2))
            }
            None => (1, 1.0, None, None),
        };
        let (now, next) = (self.momentum(time), self.momentum(time.saturating_add(1)));
        let momenta = momenta * now;
        let moment_1 = moving_average(self.beta_1, moment_1, grad.clone());
        let moment_2 = moving_average(self.beta_2, moment_2, grad.clone() * grad.clone());
        let root = (moment_2.clone() / bias_correction(self.beta_2, time)).sqrt() + self.epsilon;
        let along_gradient = grad * (lr * (1.0 - now) / (1.0 - momenta));
        let along_moment = moment_1.clone() * (lr * next / (1.0 - momenta * next));
        let tensor = tensor - (along_gradient + along_moment) / root;
        (tensor, Some(NAdamState { time, momenta, moment_1, moment_2 }))
    }

    state_follows!();
}
