//! The core of Kiln's runtime, below the facade `kiln`, which users depend on and which re-exports all of this.
//!
//! - [`module`]: modules and their parameters; [`config`]: their hyperparameters.
//! - [`nn`]: layers and losses.
//! - [`record`]: how the state of a module is stored.
//! - `weights` (feature `pytorch` or `safetensors`): modules from the checkpoints of other frameworks.
//! - [`input`] and `golden`: what generated source calls beside tensors and layers.
//!
//! It knows no backend, and nothing that only training needs: such crates stand beside it.
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;
// The derives write paths that begin with the runtime's name, here as everywhere.
extern crate self as kiln_core;

mod checkpoints;
pub mod config;
#[cfg(feature = "std")]
pub mod golden;
pub mod input;
pub mod module;
pub mod nn;
pub mod record;
#[cfg(feature = "weights")]
pub mod weights;

pub use kiln_tensor as tensor;
pub use kiln_tensor::Tensor;
/// What the derives' output needs of serde.
pub use serde;
