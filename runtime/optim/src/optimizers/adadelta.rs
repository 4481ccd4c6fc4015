//! AdaDelta.

use super::decay::{WeightDecay, WeightDecayConfig, decayed};
use super::{initialize, moving_average, state_follows};
use crate::{GradientClippingConfig, LearningRate, SimpleOptimizer};
use kiln_core::Tensor;
use kiln_core::config::Config;
use kiln_core::record::Record;
use kiln_core::tensor::backend::Backend;

/// Config of [`AdaDelta`].
#[derive(Config, Debug)]
pub struct AdaDeltaConfig {
    /// How much of the averages stays.
    #[config(default = 0.9)]
    pub rho: f32,
    /// Added below both roots.
    #[config(default = 1e-6)]
    pub epsilon: f32,
    /// A penalty on large parameters.
    pub weight_decay: Option<WeightDecayConfig>,
    /// Bounds on gradients.
    pub grad_clipping: Option<GradientClippingConfig>,
}

/// Steps in the parameter's own unit (Zeiler 2012), as in `torch.optim.Adadelta`.
#[derive(Clone, Copy, Debug)]
pub struct AdaDelta {
    rho: f32,
    epsilon: f32,
    weight_decay: Option<WeightDecay>,
}

impl From<&AdaDeltaConfig> for AdaDelta {
    fn from(config: &AdaDeltaConfig) -> Self {
        let &AdaDeltaConfig { rho, epsilon, .. } = config;
        let weight_decay = config.weight_decay.as_ref().map(WeightDecayConfig::init);
        Self { rho, epsilon, weight_decay }
    }
}

initialize!(AdaDeltaConfig, AdaDelta);

/// What [`AdaDelta`] remembers of a parameter.
#[derive(Record, Clone, Debug)]
pub struct AdaDeltaState<B: Backend, const D: usize> {
    /// Average of squared gradients.
    square: Tensor<B, D>,
    /// Average of squared steps.
    steps: Tensor<B, D>,
}

impl<B: Backend, const D: usize> AdaDeltaState<B, D> {
    fn each(self, change: impl Fn(Tensor<B, D>) -> Tensor<B, D>) -> Self {
        Self { square: change(self.square), steps: change(self.steps) }
    }
}

impl<B: Backend> SimpleOptimizer<B> for AdaDelta {
    type State<const D: usize> = AdaDeltaState<B, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        let grad = decayed(self.weight_decay, grad, &tensor);
        let (square, steps) = match state {
            Some(state) => (Some(state.square), state.steps),
            None => (None, grad.zeros_like()),
        };
        let square = moving_average(self.rho, square, grad.clone() * grad.clone());
        let scale = (steps.clone() + self.epsilon).sqrt() / (square.clone() + self.epsilon).sqrt();
        let step = grad * scale;
        let steps = moving_average(self.rho, Some(steps), step.clone() * step.clone());
        (tensor - step * lr, Some(AdaDeltaState { square, steps }))
    }

    state_follows!();
}
