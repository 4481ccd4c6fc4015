//! Kiln's runtime: what code that Kiln generated is written against, and what hand-written modules are made of.
//!
//! - [`tensor`]: `Tensor<B, D, K>` over a [`Backend`](tensor::backend::Backend), and [`backend`]: the backends, the
//!   CPU's (feature `ndarray`) and GPUs' (`wgpu`, `cuda`).
//! - [`module`]: modules and their parameters; [`config`]: their hyperparameters.
//! - [`nn`]: layers and losses.
//! - [`record`]: how the state of a module is stored.
//! - `optim` and `data` (feature `autodiff`; the latter alone: `dataset`): optimizers, datasets and loaders; gradients are
//!   [`backend`]'s `Autodiff`.
//! - `train` (feature `train`): the learner and its metrics. The names `TrainStep`, `Learner` and `logger::MetricLogger` are those
//!   of Burn's book; with the feature `burn-0-20` they are those of Burn 0.20, which are in `train::supervised` always.
//! - `data::dataset`: `SqliteDataset` and Hugging Face's local copies (feature `sqlite`), MNIST and images (`vision`), data frames
//!   (`dataframe`).
//! - `serve` (feature `serve`): many callers share the forward passes of one model.
//! - `weights` (feature `pytorch` or `safetensors`): modules from the checkpoints of other frameworks.
//!
//! The API has the form of Burn's (0.20): with `burn = { package = "kiln", … }` in the manifest, programs written for
//! it compile as they are. `use kiln::prelude::*` brings in what most programs need.
//!
//! This crate only re-exports: its parts are crates of their own, of which a program compiles those that its features name.
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "std"), no_std)]

pub mod backend;
pub mod prelude;

#[cfg(feature = "std")]
pub use kiln_core::golden;
#[cfg(feature = "weights")]
pub use kiln_core::weights;
pub use kiln_core::{Tensor, config, input, module, nn, record, serde, tensor};
pub use kiln_core::{from_checkpoints, include_record, no_checkpoints};
#[cfg(feature = "dataset")]
pub use kiln_data as data;
#[cfg(feature = "autodiff")]
pub use kiln_optim as optim;
#[cfg(feature = "autodiff")]
pub use kiln_optim::{grad_clipping, lr_scheduler};
#[cfg(feature = "serve")]
pub use kiln_serve as serve;
#[cfg(all(feature = "train", not(feature = "burn-0-20")))]
pub use kiln_train as train;

/// Training, with the traits of Burn 0.20 where its book has others.
#[cfg(feature = "burn-0-20")]
pub mod train {
    pub use kiln_train::supervised::{Learner, TrainStep};
    pub use kiln_train::*;

    /// Where metrics are logged.
    pub mod logger {
        pub use kiln_train::logger::*;
        pub use kiln_train::supervised::MetricLogger;
    }
}
