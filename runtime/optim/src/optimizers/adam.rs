//! Adam and AdamW.

use super::decay::{WeightDecay, WeightDecayConfig};
use super::{bias_correction, initialize, state_follows};
use crate::{GradientClippingConfig, LearningRate, SimpleOptimizer};
use kiln_core::Tensor;
use kiln_core::config::Config;
use kiln_core::record::Record;
use kiln_core::tensor::backend::Backend;
use kiln_core::tensor::{Traced, elementwise_all};

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
    /// Decay only the elements that move towards 0 anyway: those whose sign is that of the gradients' average (Chen et al.,
    /// "Cautious Weight Decay", 2025).
    #[config(default = false)]
    pub cautious_weight_decay: bool,
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
    cautious: bool,
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
        let &AdamWConfig { beta_1, beta_2, epsilon, amsgrad, weight_decay, cautious_weight_decay, .. } =
            config;
        let moments = Moments { beta_1, beta_2, epsilon, amsgrad };
        Self { moments, weight_decay, cautious: cautious_weight_decay }
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
    fn each(self, change: impl Fn(Tensor<B, D>) -> Tensor<B, D>) -> Self {
        Self {
            time: self.time,
            moment_1: change(self.moment_1),
            moment_2: change(self.moment_2),
            max_moment_2: self.max_moment_2.map(change),
        }
    }
}

/// How a parameter is pulled towards 0.
#[derive(Clone, Copy, Debug)]
enum Decay {
    /// In the gradient: `penalty · parameter` is added to it.
    Gradient(f64),
    /// Beside it: the parameter is multiplied by this.
    Parameter(f64),
    /// Beside it, but only where parameter and average have one sign.
    Cautious(f64),
}

impl Moments {
    /// The parameter after a step and the state, computed in one pass. Numbers are the program's parameters, so that it is one
    /// program for all steps.
    fn step<B: Backend, const D: usize>(
        &self,
        lr: LearningRate,
        decay: Decay,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<AdamState<B, D>>,
    ) -> (Tensor<B, D>, AdamState<B, D>) {
        let time = state.as_ref().map_or(0, |state| state.time).saturating_add(1);
        let number = |x: f64| Traced::parameter(x);
        // Averages begin at 0, which nobody has to make.
        let blend = |rate: f32, old: Option<Traced>, new: Traced| {
            let new = new * number(1.0 - f64::from(rate));
            match old {
                Some(old) => old * number(rate.into()) + new,
                None => new,
            }
        };
        let moments = |theta: &Traced, grad: Traced, first: Option<Traced>, second: Option<Traced>| {
            let grad = match decay {
                Decay::Gradient(penalty) => grad + theta.clone() * number(penalty),
                Decay::Parameter(_) | Decay::Cautious(_) => grad,
            };
            let second = blend(self.beta_2, second, grad.clone() * grad.clone());
            (blend(self.beta_1, first, grad), second)
        };
        let [of_first, of_second] = [self.beta_1, self.beta_2].map(|rate| bias_correction(rate, time));
        let moved = |theta: Traced, first: Traced, squares: Traced| {
            let root = squares.sqrt() * number(1.0 / of_second.sqrt()) + number(self.epsilon.into());
            let theta = match decay {
                Decay::Gradient(_) => theta,
                Decay::Parameter(kept) => theta * number(kept),
                Decay::Cautious(kept) => {
                    let differ = theta
                        .clone()
                        .greater_equal_elem(0.0)
                        .not_equal(first.clone().greater_equal_elem(0.0));
                    (theta.clone() * number(kept)).mask_where(differ, theta)
                }
            };
            theta - first / root * number(lr / of_first)
        };
        let plain = |theta: Traced, grad: Traced, first: Option<Traced>, second: Option<Traced>| {
            let (first, second) = moments(&theta, grad, first, second);
            [moved(theta, first.clone(), second.clone()), first, second]
        };
        let with_largest = |[theta, grad, first, second, largest]: [Traced; 5]| {
            let (first, second) = moments(&theta, grad, Some(first), Some(second));
            let largest = largest.max_pair(second.clone());
            [moved(theta, first.clone(), largest.clone()), first, second, largest]
        };
        let (tensor, moment_1, moment_2, max_moment_2) = match state {
            None => {
                let [tensor, first, second] =
                    elementwise_all([tensor, grad], |[theta, grad]| plain(theta, grad, None, None));
                let largest = self.amsgrad.then(|| second.clone());
                (tensor, first, second, largest)
            }
            Some(AdamState { moment_1, moment_2, max_moment_2, .. }) if self.amsgrad => {
                let largest = max_moment_2.unwrap_or_else(|| moment_2.zeros_like());
                let operands = [tensor, grad, moment_1, moment_2, largest];
                let [tensor, first, second, largest] = elementwise_all(operands, with_largest);
                (tensor, first, second, Some(largest))
            }
            Some(AdamState { moment_1, moment_2, .. }) => {
                let operands = [tensor, grad, moment_1, moment_2];
                let [tensor, first, second] = elementwise_all(operands, |[theta, grad, first, second]| {
                    plain(theta, grad, Some(first), Some(second))
                });
                (tensor, first, second, None)
            }
        };
        (tensor, AdamState { time, moment_1, moment_2, max_moment_2 })
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
        let decay = match self.weight_decay {
            Some(decay) => Decay::Gradient(decay.penalty()),
            None => Decay::Parameter(1.0),
        };
        let (tensor, state) = self.moments.step(lr, decay, tensor, grad, state);
        (tensor, Some(state))
    }

    state_follows!();
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
        let kept = 1.0 - lr * f64::from(self.weight_decay);
        let decay = if self.cautious { Decay::Cautious(kept) } else { Decay::Parameter(kept) };
        let (tensor, state) = self.moments.step(lr, decay, tensor, grad, state);
        (tensor, Some(state))
    }

    state_follows!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ndarray::NdArray;

    /// A damaged record may say so: averages of so many steps need no correction.
    #[test]
    fn steps_are_counted_to_the_last_number() {
        let ones = || Tensor::<NdArray<f64>, 1>::ones([2], &Default::default());
        let moments = Moments { beta_1: 0.9, beta_2: 0.999, epsilon: 0.0, amsgrad: false };
        let state = AdamState { time: usize::MAX, moment_1: ones(), moment_2: ones(), max_moment_2: None };
        let (tensor, state) = moments.step(0.5, Decay::Parameter(1.0), ones(), ones(), Some(state));
        assert_eq!(state.time, usize::MAX);
        let values: Vec<f64> = tensor.into_data().to_vec().expect("f64");
        assert!(values.iter().all(|value| (value - 0.5).abs() < 1e-6), "{values:?}");
    }
}
