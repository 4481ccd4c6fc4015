//! Muon.

use super::{initialize, moving_average};
use crate::{GradientClippingConfig, LearningRate, SimpleOptimizer};
use kiln_core::Tensor;
use kiln_core::config::Config;
use kiln_core::record::Record;
use kiln_core::tensor::Device;
use kiln_core::tensor::backend::Backend;

/// How the learning rate follows from a matrix's size.
#[derive(Config, Copy, Debug, PartialEq, Eq)]
pub enum AdjustLr {
    /// `√max(1, rows / columns)` (Jordan et al. 2024).
    Original,
    /// `0.2 √max(rows, columns)`: steps as large as AdamW's (Liu et al., "Muon is Scalable for LLM Training", 2025).
    MatchRmsAdamW,
}

/// Config of [`Muon`].
#[derive(Config, Debug)]
pub struct MuonConfig {
    /// How much of the momentum stays.
    #[config(default = 0.95)]
    pub momentum: f32,
    /// Look ahead along the momentum.
    #[config(default = true)]
    pub nesterov: bool,
    /// The part of a parameter that a step of learning rate 1 takes away.
    #[config(default = 0.1)]
    pub weight_decay: f32,
    /// Rounds of the Newton-Schulz iteration.
    #[config(default = 5)]
    pub ns_steps: usize,
    /// Added to the norm that a matrix is divided by.
    #[config(default = 1e-7)]
    pub epsilon: f32,
    /// How the learning rate follows from a matrix's size.
    #[config(default = "AdjustLr::Original")]
    pub adjust_lr: AdjustLr,
    /// Bounds on gradients.
    pub grad_clipping: Option<GradientClippingConfig>,
}

/// Momentum whose matrices are made orthogonal (Jordan et al. 2024), as in `torch.optim.Muon`, computed in the
/// parameters' own precision.
///
/// For matrices alone: biases, embeddings and the last layer belong to another optimizer
/// ([`GradientsParams::from_params`](crate::GradientsParams::from_params)).
#[derive(Clone, Copy, Debug)]
pub struct Muon {
    momentum: f32,
    nesterov: bool,
    weight_decay: f32,
    ns_steps: usize,
    epsilon: f32,
    adjust_lr: AdjustLr,
}

impl From<&MuonConfig> for Muon {
    fn from(config: &MuonConfig) -> Self {
        let &MuonConfig { momentum, nesterov, weight_decay, ns_steps, epsilon, adjust_lr, .. } = config;
        Self { momentum, nesterov, weight_decay, ns_steps, epsilon, adjust_lr }
    }
}

initialize!(MuonConfig, Muon);

/// What [`Muon`] remembers of a parameter.
#[derive(Record, Clone, Debug)]
pub struct MuonState<B: Backend, const D: usize> {
    momentum: Tensor<B, D>,
}

impl Muon {
    /// The nearest matrix with orthogonal rows or columns, roughly: a Newton-Schulz iteration whose coefficients are
    /// chosen for speed near 0 (Jordan et al. 2024).
    fn orthogonal<B: Backend, const D: usize>(&self, matrix: Tensor<B, D>) -> Tensor<B, D> {
        const COEFFICIENTS: (f32, f32, f32) = (3.4445, -4.7750, 2.0315);
        let (a, b, c) = COEFFICIENTS;
        let [rows, columns] = [matrix.dims()[D - 2], matrix.dims()[D - 1]];
        let is_tall = rows > columns;
        let mut x = if is_tall { matrix.swap_dims(D - 2, D - 1) } else { matrix };
        let norm = (x.clone() * x.clone()).sum().sqrt().clamp_min(self.epsilon);
        x = x / norm.reshape([1; D]);
        for _ in 0..self.ns_steps {
            let gram = x.clone().matmul(x.clone().swap_dims(D - 2, D - 1));
            let polynomial = gram.clone() * b + gram.clone().matmul(gram) * c;
            x = x.clone() * a + polynomial.matmul(x);
        }
        if is_tall { x.swap_dims(D - 2, D - 1) } else { x }
    }

    fn adjusted(&self, lr: LearningRate, rows: usize, columns: usize) -> LearningRate {
        let (rows, columns) = (rows as f64, columns as f64);
        match self.adjust_lr {
            AdjustLr::Original => lr * (rows / columns).max(1.0).sqrt(),
            AdjustLr::MatchRmsAdamW => lr * 0.2 * rows.max(columns).sqrt(),
        }
    }
}

impl<B: Backend> SimpleOptimizer<B> for Muon {
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
        let momentum = moving_average(self.momentum, state.map(|state| state.momentum), grad.clone());
        let direction = match self.nesterov {
            true => moving_average(self.momentum, Some(momentum.clone()), grad),
            false => momentum.clone(),
        };
        let (rows, columns) = (direction.dims()[0], direction.dims()[1]);
        let direction = self.orthogonal(direction) * self.adjusted(lr, rows, columns);
        let tensor = tensor * (1.0 - lr * f64::from(self.weight_decay)) - direction;
        (tensor, Some(MuonState { momentum }))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device<B>) -> Self::State<D> {
        MuonState { momentum: state.momentum.to_device(device) }
    }
}
