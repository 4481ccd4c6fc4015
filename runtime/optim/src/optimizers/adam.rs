//! Adam and AdamW.

use super::decay::{WeightDecay, WeightDecayConfig, decayed};
use super::{bias_correction, initialize, moving_average};
use crate::{GradientClippingConfig, LearningRate, SimpleOptimizer};
use kiln_core::Tensor;
use kiln_core::config::Config;
use kiln_core::record::Record;
use kiln_core::tensor::Device;
use kiln_core::tensor::backend::Backend;

/// Config of [`Adam`].
#[derive(Config, Debug)]
pub struct AdamConfig {
    /// How much of the gradients' average stays.
    #[config(default = 0.9)]
    pub beta_1: f32,
    /// How much of the squared gradients' average stays.
    #[config(default = 0.999)]
    pub beta_2: f32,
    /// Added to the denominator.
    #[config(default = 1e-5)]
    pub epsilon: f32,
    /// Divide by the largest average so far (AMSGrad).
    #[config(default = false)]
    pub amsgrad: bool,
    /// A penalty on large parameters.
    pub weight_decay: Option<WeightDecayConfig>,
    /// Bounds on gradients.
    pub grad_clipping: Option<GradientClippingConfig>,
}

impl AdamConfig {
    /// The same as [`AdamConfig::with_weight_decay`], as one edition of the spec calls it.
    #[must_use]
    pub fn with_weight_decay_config(self, weight_decay: Option<WeightDecayConfig>) -> Self {
        self.with_weight_decay(weight_decay)
    }
}

/// Config of [`AdamW`].
#[derive(Config, Debug)]
pub struct AdamWConfig {
    /// How much of the gradients' average stays.
    #[config(default = 0.9)]
    pub beta_1: f32,
    /// How much of the squared gradients' average stays.
    #[config(default = 0.999)]
    pub beta_2: f32,
    /// Added to the denominator.
    #[config(default = 1e-5)]
    pub epsilon: f32,
    /// The part of a parameter that a step of learning rate 1 takes away.
    #[config(default = 1e-4)]
    pub weight_decay: f32,
    /// Divide by the largest average so far (AMSGrad).
    #[config(default = false)]
    pub amsgrad: bool,
    /// Bounds on gradients.
    pub grad_clipping: Option<GradientClippingConfig>,
}

/// Averages of gradients and of their squares (Kingma & Ba 2015), with AMSGrad's maximum (Reddi et al. 2018).
#[derive(Clone, Copy, Debug)]
struct Moments {
    beta_1: f32,
    beta_2: f32,
    epsilon: f32,
    amsgrad: bool,
}

/// Adam, as in `torch.optim.Adam`.
#[derive(Clone, Copy, Debug)]
pub struct Adam {
    moments: Moments,
    weight_decay: Option<WeightDecay>,
}

/// Adam with weight decay beside the gradient, not in it (Loshchilov & Hutter 2019), as in `torch.optim.AdamW`.
#[derive(Clone, Copy, Debug)]
pub struct AdamW {
    moments: Moments,
    weight_decay: f32,
}

impl From<&AdamConfig> for Adam {
    fn from(config: &AdamConfig) -> Self {
        let &AdamConfig { beta_1, beta_2, epsilon, amsgrad, .. } = config;
        Self {
            moments: Moments { beta_1, beta_2, epsilon, amsgrad },
            weight_decay: config.weight_decay.as_ref().map(WeightDecayConfig::init),
        }
    }
}

impl From<&AdamWConfig> for AdamW {
    fn from(config: &AdamWConfig) -> Self {
        let &AdamWConfig { beta_1, beta_2, epsilon, amsgrad, weight_decay, .. } = config;
        Self { moments: Moments { beta_1, beta_2, epsilon, amsgrad }, weight_decay }
    }
}

initialize!(AdamConfig, Adam);
initialize!(AdamWConfig, AdamW);

/// What [`Adam`] and [`AdamW`] remember of a parameter.
#[derive(Record, Clone, Debug)]
pub struct AdamState<B: Backend, const D: usize> {
    time: usize,
    moment_1: Tensor<B, D>,
    moment_2: Tensor<B, D>,
    max_moment_2: Option<Tensor<B, D>>,
}

impl<B: Backend, const D: usize> AdamState<B, D> {
    fn on_device(self, device: &B::Device) -> Self {
        Self {
            time: self.time,
            moment_1: self.moment_1.to_device(device),
            moment_2: self.moment_2.to_device(device),
            max_moment_2: self.max_moment_2.map(|moment| moment.to_device(device)),
        }
    }
}

impl Moments {
    /// The direction to go and the state after it.
    fn update<B: Backend, const D: usize>(
        &self,
        grad: Tensor<B, D>,
        state: Option<AdamState<B, D>>,
    ) -> (Tensor<B, D>, AdamState<B, D>) {
        let (time, moment_1, moment_2, max_moment_2) = match state {
            Some(state) => (state.time, Some(state.moment_1), Some(state.moment_2), state.max_moment_2),
            None => (0, None, None, None),
        };
        let time = time + 1;
        let moment_1 = moving_average(self.beta_1, moment_1, grad.clone());
        let moment_2 = moving_average(self.beta_2, moment_2, grad.clone() * grad);
        let max_moment_2 = self.amsgrad.then(|| match max_moment_2 {
            Some(largest) => largest.max_pair(moment_2.clone()),
            None => moment_2.clone(),
        });
        let squares = max_moment_2.clone().unwrap_or_else(|| moment_2.clone());
        let root = squares.sqrt() / bias_correction(self.beta_2, time).sqrt();
        let direction = moment_1.clone() / bias_correction(self.beta_1, time) / (root + self.epsilon);
        (direction, AdamState { time, moment_1, moment_2, max_moment_2 })
    }
}

impl<B: Backend> SimpleOptimizer<B> for Adam {
    type State<const D: usize> = AdamState<B, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        let grad = decayed(self.weight_decay, grad, &tensor);
        let (direction, state) = self.moments.update(grad, state);
        (tensor - direction * lr, Some(state))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device<B>) -> Self::State<D> {
        state.on_device(device)
    }
}

impl<B: Backend> SimpleOptimizer<B> for AdamW {
    type State<const D: usize> = AdamState<B, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        let tensor = tensor * (1.0 - lr * f64::from(self.weight_decay));
        let (direction, state) = self.moments.update(grad, state);
        (tensor - direction * lr, Some(state))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device<B>) -> Self::State<D> {
        state.on_device(device)
    }
}
