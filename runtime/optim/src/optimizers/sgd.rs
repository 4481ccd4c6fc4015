//! Stochastic gradient descent.

use super::decay::{WeightDecay, WeightDecayConfig, decayed};
use super::initialize;
use super::momentum::{Momentum, MomentumConfig, MomentumState};
use crate::{GradientClippingConfig, LearningRate, SimpleOptimizer};
use kiln_core::Tensor;
use kiln_core::config::Config;
use kiln_core::record::Record;
use kiln_core::tensor::Device;
use kiln_core::tensor::backend::Backend;
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

impl<B: Backend> SimpleOptimizer<B> for Sgd<B> {
    type State<const D: usize> = SgdState<B, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        let grad = decayed(self.weight_decay, grad, &tensor);
        let Some(momentum) = &self.momentum else { return (tensor - grad * lr, None) };
        let (direction, velocity) = momentum.transform(grad, state.and_then(|state| state.momentum));
        (tensor - direction * lr, Some(SgdState { momentum: Some(velocity) }))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device<B>) -> Self::State<D> {
        SgdState { momentum: state.momentum.map(|state| state.to_device(device)) }
    }
}
