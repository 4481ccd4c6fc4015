//! Stochastic gradient descent.

use super::decay::{WeightDecay, WeightDecayConfig};
use super::momentum::{Momentum, MomentumConfig, MomentumState};
use super::{initialize, state_follows};
use crate::{GradientClippingConfig, LearningRate, SimpleOptimizer};
use kiln_core::Tensor;
use kiln_core::config::Config;
use kiln_core::record::Record;
use kiln_core::tensor::backend::Backend;
use kiln_core::tensor::{Traced, elementwise, elementwise_all};
use std::marker::PhantomData;

/// Config of [`Sgd`].
#[derive(Config, Debug)]
pub struct SgdConfig {
    /// A penalty on large parameters.
    pub weight_decay: Option<WeightDecayConfig>,
    /// Momentum.
    pub momentum: Option<MomentumConfig>,
    /// Bounds on gradients.
    pub gradient_clipping: Option<GradientClippingConfig>,
}

/// `θ ← θ - lr · g`, with weight decay, momentum, dampening and Nesterov's form as in `torch.optim.SGD`.
#[derive(Clone, Copy, Debug)]
pub struct Sgd<B: Backend> {
    momentum: Option<Momentum>,
    weight_decay: Option<WeightDecay>,
    backend: PhantomData<fn() -> B>,
}

impl<B: Backend> From<&SgdConfig> for Sgd<B> {
    fn from(config: &SgdConfig) -> Self {
        Self {
            momentum: config.momentum.as_ref().map(MomentumConfig::init),
            weight_decay: config.weight_decay.as_ref().map(WeightDecayConfig::init),
            backend: PhantomData,
        }
    }
}

initialize!(SgdConfig, Sgd<B::InnerBackend>, gradient_clipping);

/// What [`Sgd`] remembers of a parameter.
#[derive(Record, Clone, Debug)]
pub struct SgdState<B: Backend, const D: usize> {
    momentum: Option<MomentumState<B, D>>,
}

impl<B: Backend, const D: usize> SgdState<B, D> {
    fn each(self, change: impl Fn(Tensor<B, D>) -> Tensor<B, D>) -> Self {
        Self { momentum: self.momentum.map(|momentum| momentum.each(change)) }
    }
}

impl<B: Backend> SimpleOptimizer<B> for Sgd<B> {
    type State<const D: usize> = SgdState<B, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        // One pass; numbers are the program's parameters, so that it is one program for all steps.
        let number = |x: f64| Traced::parameter(x);
        let decayed = |theta: &Traced, grad: Traced| match self.weight_decay {
            Some(decay) => grad + theta.clone() * number(decay.penalty()),
            None => grad,
        };
        let Some(momentum) = &self.momentum else {
            let tensor = elementwise([tensor, grad], |[theta, grad]| {
                let grad = decayed(&theta, grad);
                theta - grad * number(lr)
            });
            return (tensor, None);
        };
        let step = |theta: Traced, grad: Traced, velocity: Option<Traced>| {
            let (direction, velocity) = momentum.traced(decayed(&theta, grad), velocity);
            [theta - direction * number(lr), velocity]
        };
        let [tensor, velocity] = match state.and_then(|state| state.momentum) {
            Some(MomentumState { velocity }) => {
                elementwise_all([tensor, grad, velocity], |[theta, grad, velocity]| {
                    step(theta, grad, Some(velocity))
                })
            }
            None => elementwise_all([tensor, grad], |[theta, grad]| step(theta, grad, None)),
        };
        (tensor, Some(SgdState { momentum: Some(MomentumState { velocity }) }))
    }

    state_follows!();
}
