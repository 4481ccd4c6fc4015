//! Kiln's runtime: what code that Kiln generated is written against, and what hand-written modules are made of.
//!
//! - [`tensor`]: `Tensor<B, D, K>` over a [`Backend`](tensor::backend::Backend), and [`backend`]: the backends.
//! - [`module`]: modules and their parameters; [`config`]: their hyperparameters.
//! - [`nn`]: layers and losses.
//! - [`record`]: how the state of a module is stored.
//! - `weights` (feature `pytorch` or `safetensors`): modules from the checkpoints of other frameworks.
//!
//! The API has the form of Burn's (0.20): with `burn = { package = "kiln", … }` in the manifest, programs written for
//! it compile as they are. `use kiln::prelude::*` brings in what most programs need.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;
// The derives write paths that begin with the runtime's name, here as everywhere.
extern crate self as kiln;

pub mod backend;
mod checkpoints;
pub mod config;
#[cfg(feature = "std")]
pub mod golden;
pub mod input;
pub mod module;
pub mod nn;
pub mod prelude;
pub mod record;
#[cfg(feature = "weights")]
pub mod weights;

pub use kiln_tensor as tensor;
pub use kiln_tensor::Tensor;
/// What the derives' output needs of serde.
pub use serde;
