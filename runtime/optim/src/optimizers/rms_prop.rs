//! RMSProp.

use super::decay::{WeightDecay, WeightDecayConfig, decayed};
use super::momentum::{Momentum, MomentumState};
use super::{initialize, moving_average, state_follows};
use crate::{GradientClippingConfig, LearningRate, SimpleOptimizer};
use kiln_core::Tensor;
use kiln_core::config::Config;
use kiln_core::record::Record;
use kiln_core::tensor::backend::Backend;

/// Config of [`RmsProp`].
#[derive(Config, Debug)]
pub struct RmsPropConfig {
    /// How much of the squared gradients' average stays.
    #[config(default = 0.99)]
    pub alpha: f32,
    /// Momentum of the scaled gradients; 0 for none.
    #[config(default = 0.9)]
    pub momentum: f32,
    /// Added to the denominator.
    #[config(default = 1e-5)]
    pub epsilon: f32,
    /// Divide by the standard deviation, not by the root of the squares.
    #[config(default = false)]
    pub centered: bool,
    /// A penalty on large parameters.
    pub weight_decay: Option<WeightDecayConfig>,
    /// Bounds on gradients.
    pub grad_clipping: Option<GradientClippingConfig>,
}

/// Gradients over the root of their mean square (Tieleman & Hinton 2012), as in `torch.optim.RMSprop`.
#[derive(Clone, Copy, Debug)]
pub struct RmsProp {
    alpha: f32,
    epsilon: f32,
    centered: bool,
    momentum: Option<Momentum>,
    weight_decay: Option<WeightDecay>,
}

impl From<&RmsPropConfig> for RmsProp {
    fn from(config: &RmsPropConfig) -> Self {
        let &RmsPropConfig { alpha, epsilon, centered, .. } = config;
        Self {
            alpha,
            epsilon,
            centered,
            momentum: (config.momentum > 0.0).then(|| Momentum::plain(config.momentum.into())),
            weight_decay: config.weight_decay.as_ref().map(WeightDecayConfig::init),
        }
    }
}

initialize!(RmsPropConfig, RmsProp);

/// What [`RmsProp`] remembers of a parameter.
#[derive(Record, Clone, Debug)]
pub struct RmsPropState<B: Backend, const D: usize> {
    square: Tensor<B, D>,
    mean: Option<Tensor<B, D>>,
    momentum: Option<MomentumState<B, D>>,
}

impl<B: Backend, const D: usize> RmsPropState<B, D> {
    fn each(self, change: impl Fn(Tensor<B, D>) -> Tensor<B, D>) -> Self {
        Self {
            square: change(self.square),
            mean: self.mean.map(&change),
            momentum: self.momentum.map(|momentum| momentum.each(&change)),
        }
    }
}

impl<B: Backend> SimpleOptimizer<B> for RmsProp {
    type State<const D: usize> = RmsPropState<B, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        let grad = decayed(self.weight_decay, grad, &tensor);
        let (square, mean, velocity) = match state {
            Some(state) => (Some(state.square), state.mean, state.momentum),
            None => (None, None, None),
        };
        let square = moving_average(self.alpha, square, grad.clone() * grad.clone());
        let mean = self.centered.then(|| moving_average(self.alpha, mean, grad.clone()));
        let spread = match &mean {
            Some(mean) => square.clone() - mean.clone() * mean.clone(),
            None => square.clone(),
        };
        let direction = grad / (spread.sqrt() + self.epsilon);
        let (direction, momentum) = match &self.momentum {
            Some(momentum) => {
                let (direction, velocity) = momentum.transform(direction, velocity);
                (direction, Some(velocity))
            }
            None => (direction, None),
        };
        (tensor - direction * lr, Some(RmsPropState { square, mean, momentum }))
    }

    state_follows!();
}
