//! Muon.

use super::decay::WeightDecayConfig;
use super::momentum::{Momentum, MomentumConfig, MomentumState};
use super::{initialize, state_follows};
use crate::clipping::{scaled, sum_of_squares};
use crate::{GradientClippingConfig, LearningRate, SimpleOptimizer};
use kiln_core::Tensor;
use kiln_core::config::Config;
use kiln_core::record::Record;
use kiln_core::tensor::backend::Backend;
use std::marker::PhantomData;

/// How the learning rate follows from a matrix's size.
#[derive(Config, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdjustLrFn {
    /// `√max(1, outputs / inputs)` (Jordan et al. 2024).
    #[default]
    Original,
    /// `0.2 √max(inputs, outputs)`: steps as large as AdamW's (Liu et al., "Muon is Scalable for LLM Training", 2025).
    MatchRmsAdamW,
}

/// Config of [`Muon`].
#[derive(Config, Debug)]
pub struct MuonConfig {
    /// The penalty is the part of a parameter that a step of learning rate 1 takes away.
    pub weight_decay: Option<WeightDecayConfig>,
    /// Momentum; without dampening it is that of `torch.optim.Muon`, which has none. What dampening changes is how much the
    /// first gradient weighs, which it leaves alone, and how far Nesterov's form looks ahead.
    #[config(default = "MomentumConfig { momentum: 0.95, dampening: 0.0, nesterov: true }")]
    pub momentum: MomentumConfig,
    /// Coefficients of the Newton-Schulz iteration, chosen for speed near 0 (Jordan et al. 2024).
    #[config(default = "(3.4445, -4.775, 2.0315)")]
    pub ns_coefficients: (f32, f32, f32),
    /// Rounds of the Newton-Schulz iteration.
    #[config(default = 5)]
    pub ns_steps: usize,
    /// The least that a matrix is divided by: its norm, where that is not smaller.
    #[config(default = 1e-7)]
    pub epsilon: f32,
    /// How the learning rate follows from a matrix's size.
    #[config(default = "AdjustLrFn::Original")]
    pub adjust_lr_fn: AdjustLrFn,
    /// Bounds on gradients.
    pub grad_clipping: Option<GradientClippingConfig>,
}

/// Momentum whose matrices are made orthogonal (Jordan et al. 2024), as in `torch.optim.Muon`, computed in the
/// parameters' own precision, but for the norm, which f16 may not hold.
///
/// A matrix is taken as `[inputs, outputs]`, as the weight of [`Linear`](kiln_core::nn::Linear) is: a network is stepped as in
/// PyTorch, whose weights are the other way round. (Burn takes it for PyTorch's, so that its steps differ where the learning
/// rate follows from which is larger, [`AdjustLrFn::Original`].)
///
/// For matrices alone: biases, embeddings and the last layer belong to another optimizer
/// ([`GradientsParams::from_params`](crate::GradientsParams::from_params)).
#[derive(Clone, Copy, Debug)]
pub struct Muon<B: Backend> {
    momentum: Momentum,
    weight_decay: f64,
    ns_coefficients: (f32, f32, f32),
    ns_steps: usize,
    epsilon: f32,
    adjust_lr_fn: AdjustLrFn,
    backend: PhantomData<fn() -> B>,
}

impl<B: Backend> From<&MuonConfig> for Muon<B> {
    fn from(config: &MuonConfig) -> Self {
        let &MuonConfig { ns_coefficients, ns_steps, epsilon, adjust_lr_fn, .. } = config;
        let momentum = config.momentum.init();
        let weight_decay = config.weight_decay.as_ref().map_or(0.0, |decay| decay.penalty.into());
        Self {
            momentum,
            weight_decay,
            ns_coefficients,
            ns_steps,
            epsilon,
            adjust_lr_fn,
            backend: PhantomData,
        }
    }
}

initialize!(MuonConfig, Muon<B::InnerBackend>);

/// What [`Muon`] remembers of a parameter.
#[derive(Record, Clone, Debug)]
pub struct MuonState<B: Backend, const D: usize> {
    momentum: MomentumState<B, D>,
}

impl<B: Backend, const D: usize> MuonState<B, D> {
    fn each(self, change: impl Fn(Tensor<B, D>) -> Tensor<B, D>) -> Self {
        Self { momentum: self.momentum.each(change) }
    }
}

impl<B: Backend> Muon<B> {
    /// The nearest matrix with orthogonal rows or columns, roughly, by a Newton-Schulz iteration.
    fn orthogonal<const D: usize>(&self, matrix: Tensor<B, D>) -> Tensor<B, D> {
        let (a, b, c) = self.ns_coefficients;
        let [rows, columns] = [matrix.dims()[D - 2], matrix.dims()[D - 1]];
        let is_tall = rows > columns;
        let mut x = if is_tall { matrix.swap_dims(D - 2, D - 1) } else { matrix };
        let norm = sum_of_squares(x.clone()).sqrt().clamp_min(self.epsilon);
        x = scaled(x, norm.recip());
        for _ in 0..self.ns_steps {
            let gram = x.clone().matmul(x.clone().swap_dims(D - 2, D - 1));
            let polynomial = gram.clone() * b + gram.clone().matmul(gram) * c;
            x = x.clone() * a + polynomial.matmul(x);
        }
        if is_tall { x.swap_dims(D - 2, D - 1) } else { x }
    }

    fn adjusted(&self, lr: LearningRate, [inputs, outputs]: [usize; 2]) -> LearningRate {
        let (inputs, outputs) = (inputs as f64, outputs as f64);
        match self.adjust_lr_fn {
            AdjustLrFn::Original => lr * (outputs / inputs).max(1.0).sqrt(),
            AdjustLrFn::MatchRmsAdamW => lr * 0.2 * inputs.max(outputs).sqrt(),
        }
    }
}

impl<B: Backend> SimpleOptimizer<B> for Muon<B> {
    type State<const D: usize> = MuonState<B, D>;

    /// # Panics
    /// For what is not a matrix.
    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        assert!(
            D == 2,
            "Muon steps matrices, and this parameter has rank {D}: give it to another optimizer, with \
             `GradientsParams::from_params`"
        );
        let (direction, momentum) = self.momentum.transform(grad, state.map(|state| state.momentum));
        let sizes = [direction.dims()[0], direction.dims()[1]];
        let direction = self.orthogonal(direction) * self.adjusted(lr, sizes);
        let tensor = tensor * (1.0 - lr * self.weight_decay) - direction;
        (tensor, Some(MuonState { momentum }))
    }

    state_follows!();
}
