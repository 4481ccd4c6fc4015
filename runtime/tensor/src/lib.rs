//! Kiln's tensors: the [`Backend`](backend::Backend) trait and `Tensor<B, D, K>` over it.
//!
//! A `Tensor` method is one thin call into its backend (design, law 10): checks that give good messages, then the
//! backend's rank-erased primitive. Fused operations have default bodies in `compose`, built from the small ones, so
//! every backend, and `Autodiff` over it, has them.
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod activation;
mod api;
mod args;
pub mod backend;
mod check;
pub mod classes;
pub mod compose;
mod erased;
pub mod grid;
pub mod linalg;
pub mod loss;
pub mod module;
pub mod ops;
pub mod quantization;
mod trace;
pub mod tree;

pub use api::*;
pub use args::{AsIndex, BroadcastArgs, MovedimArgs, PadArg, Padding, ReshapeArgs, Slice, SliceArg};
pub use trace::{Operand, Traced, elementwise, elementwise_all, record};

pub use kiln_types::*;

/// How scattered values meet those already there, under Burn's name.
pub type IndexingUpdateOp = ScatterOp;

/// A backend's device, under Burn's name.
pub type Device<B> = <B as backend::Backend>::Device;

/// Conversions of single numbers, where Burn keeps them.
pub mod cast {
    pub use kiln_types::ToElement;
}

/// The dims and the dtype of a backend's tensor, under Burn's name.
pub use backend::Primitive as TensorMetadata;
