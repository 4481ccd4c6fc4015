//! Optimizers: how parameters move by their gradients.
//!
//! - [`GradientsParams`]: gradients by parameter, from [`Tensor::backward`](kiln_core::Tensor::backward);
//!   [`GradientsAccumulator`] sums them over several batches, [`GradientsParams::all_reduce`] over several devices.
//! - [`Optimizer`]: takes a module and gradients, yields the module after a step. One is made of a [`SimpleOptimizer`],
//!   which knows a single tensor, by [`OptimizerAdaptor`], which keeps a state for each parameter.
//! - [`ParamGroup`]: several optimizers on one module, by the paths of parameters.
//! - [`mixed_precision`]: computing in 16 bits with weights of 32, and the scaling of losses that f16 needs.
//! - [`lr_scheduler`]: the learning rate of each step.
//!
//! Names and defaults are Burn's (0.20); the formulas are those of PyTorch's `torch.optim`, from the papers that each
//! optimizer names.
#![forbid(unsafe_code)]

mod accumulator;
mod all_reduce;
mod clipping;
mod gradients;
mod groups;
pub mod lr_scheduler;
pub mod mixed_precision;
mod multi;
mod optimizer;
mod optimizers;
mod simple;

pub use accumulator::GradientsAccumulator;
pub use all_reduce::ReduceOperation;
pub use clipping::{GradientClipping, GradientClippingConfig};
pub use gradients::GradientsParams;
pub use groups::ParamGroup;
pub use mixed_precision::{LossScaler, LossScalerConfig, LossScalerRecord, compute_in};
pub use multi::MultiGradientsParams;
pub use optimizer::{AdaptorRecord, OptimizerAdaptor};
pub use optimizers::momentum::MomentumConfig;
pub use optimizers::*;
pub use simple::{Optimizer, SimpleOptimizer};

/// How far a step goes along a gradient.
pub type LearningRate = f64;

/// [`OptimizerAdaptor`], where Burn keeps it.
pub mod adaptor {
    pub use crate::OptimizerAdaptor;
}

/// Clipping of gradients, where Burn keeps it.
pub mod grad_clipping {
    pub use crate::{GradientClipping, GradientClippingConfig};
}

/// Weight decay, where Burn keeps it.
pub mod decay {
    pub use crate::optimizers::decay::{WeightDecay, WeightDecayConfig};
}

/// Momentum, where Burn keeps it.
pub mod momentum {
    pub use crate::optimizers::momentum::{Momentum, MomentumConfig, MomentumState};
}
