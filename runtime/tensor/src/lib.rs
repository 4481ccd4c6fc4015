//! Kiln's tensors: the [`Backend`](backend::Backend) trait and `Tensor<B, D, K>` over it.
//!
//! A `Tensor` method is one thin call into its backend (design, law 10): checks that give good messages, then the
//! backend's rank-erased primitive. Fused operations have default bodies in `compose`, built from the small ones, so
//! every backend, and `Autodiff` over it, has them.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

pub mod backend;
pub mod compose;

pub use kiln_types::*;
