//! Momentum: steps go on in the direction of earlier ones.

use kiln_core::Tensor;
use kiln_core::config::Config;
use kiln_core::record::Record;
use kiln_core::tensor::Traced;
use kiln_core::tensor::backend::Backend;

/// Config of [`Momentum`].
#[derive(Config, Debug)]
pub struct MomentumConfig {
    /// How much of the velocity stays.
    #[config(default = 0.9)]
    pub momentum: f64,
    /// How much of a gradient does not go into the velocity.
    #[config(default = 0.1)]
    pub dampening: f64,
    /// Look ahead along the velocity (Nesterov, in the form of Sutskever et al. 2013).
    #[config(default = false)]
    pub nesterov: bool,
}

impl MomentumConfig {
    /// Makes it.
    pub fn init(&self) -> Momentum {
        Momentum { momentum: self.momentum, dampening: self.dampening, nesterov: self.nesterov }
    }
}

/// Sums gradients into a velocity.
#[derive(Clone, Copy, Debug)]
pub struct Momentum {
    momentum: f64,
    dampening: f64,
    nesterov: bool,
}

/// The velocity of a parameter.
#[derive(Record, Clone, Debug)]
pub struct MomentumState<B: Backend, const D: usize> {
    pub(super) velocity: Tensor<B, D>,
}

impl<B: Backend, const D: usize> MomentumState<B, D> {
    /// The state on another device.
    pub fn to_device(self, device: &B::Device) -> Self {
        self.each(|velocity| velocity.to_device(device))
    }

    pub(super) fn each(self, change: impl Fn(Tensor<B, D>) -> Tensor<B, D>) -> Self {
        Self { velocity: change(self.velocity) }
    }
}

impl Momentum {
    /// Without dampening, not in Nesterov's form.
    pub(super) fn plain(momentum: f64) -> Self {
        Self { momentum, dampening: 0.0, nesterov: false }
    }

    /// [`Momentum::transform`] within an elementwise program.
    pub(super) fn traced(&self, grad: Traced, velocity: Option<Traced>) -> (Traced, Traced) {
        let number = |x: f64| Traced::parameter(x);
        let velocity = match velocity {
            Some(velocity) => velocity * number(self.momentum) + grad.clone() * number(1.0 - self.dampening),
            None => grad.clone(),
        };
        let direction =
            if self.nesterov { grad + velocity.clone() * number(self.momentum) } else { velocity.clone() };
        (direction, velocity)
    }

    /// The direction to go, and the velocity; the first is the gradient itself.
    pub fn transform<B: Backend, const D: usize>(
        &self,
        grad: Tensor<B, D>,
        state: Option<MomentumState<B, D>>,
    ) -> (Tensor<B, D>, MomentumState<B, D>) {
        let velocity = match state {
            Some(state) => state.velocity * self.momentum + grad.clone() * (1.0 - self.dampening),
            None => grad.clone(),
        };
        let direction =
            if self.nesterov { grad + velocity.clone() * self.momentum } else { velocity.clone() };
        (direction, MomentumState { velocity })
    }
}
