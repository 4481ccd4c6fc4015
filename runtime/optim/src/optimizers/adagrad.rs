//! AdaGrad.

use super::decay::{WeightDecay, WeightDecayConfig, decayed};
use super::{initialize, state_follows};
use crate::{GradientClippingConfig, LearningRate, SimpleOptimizer};
use kiln_core::Tensor;
use kiln_core::config::Config;
use kiln_core::record::Record;
use kiln_core::tensor::backend::Backend;

/// Config of [`AdaGrad`].
#[derive(Config, Debug)]
pub struct AdaGradConfig {
    /// How fast the learning rate falls: `lr / (1 + steps · lr_decay)`.
    #[config(default = 0.0)]
    pub lr_decay: f64,
    /// Added to the denominator.
    #[config(default = 1e-5)]
    pub epsilon: f32,
    /// A penalty on large parameters.
    pub weight_decay: Option<WeightDecayConfig>,
    /// Bounds on gradients.
    pub grad_clipping: Option<GradientClippingConfig>,
}

/// Gradients over the root of all their squares (Duchi et al. 2011), as in `torch.optim.Adagrad`.
#[derive(Clone, Copy, Debug)]
pub struct AdaGrad {
    lr_decay: f64,
    epsilon: f32,
    weight_decay: Option<WeightDecay>,
}

impl From<&AdaGradConfig> for AdaGrad {
    fn from(config: &AdaGradConfig) -> Self {
        let &AdaGradConfig { lr_decay, epsilon, .. } = config;
        let weight_decay = config.weight_decay.as_ref().map(WeightDecayConfig::init);
        Self { lr_decay, epsilon, weight_decay }
    }
}

initialize!(AdaGradConfig, AdaGrad);

/// What [`AdaGrad`] remembers of a parameter.
#[derive(Record, Clone, Debug)]
pub struct AdaGradState<B: Backend, const D: usize> {
    time: usize,
    sum: Tensor<B, D>,
}

impl<B: Backend, const D: usize> AdaGradState<B, D> {
    fn each(self, change: impl Fn(Tensor<B, D>) -> Tensor<B, D>) -> Self {
        Self { sum: change(self.sum), ..self }
    }
}

impl<B: Backend> SimpleOptimizer<B> for AdaGrad {
    type State<const D: usize> = AdaGradState<B, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        let grad = decayed(self.weight_decay, grad, &tensor);
        let square = grad.clone() * grad.clone();
        let (time, sum) = match state {
            Some(state) => (state.time.saturating_add(1), state.sum + square),
            None => (1, square),
        };
        let rate = lr / (1.0 + (time - 1) as f64 * self.lr_decay);
        let tensor = tensor - grad / (sum.clone().sqrt() + self.epsilon) * rate;
        (tensor, Some(AdaGradState { time, sum }))
    }

    state_follows!();
}
