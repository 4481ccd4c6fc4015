//! Gradients over any backend: [`Autodiff<B>`] is a [`Backend`](kiln_tensor::backend::Backend) that computes on `B` and
//! remembers what led to each tensor, so that [`Tensor::backward`](kiln_tensor::Tensor::backward) can go back
//! (reverse-mode automatic differentiation).
//!
//! - [`tape`](NodeRef): tensors hold their nodes, nodes those of their operands; a backward pass visits them by
//!   descending id, and frees what each had saved.
//! - [`checkpoint`]: what is saved, and what is computed again.
//! - `derivative`: what elementwise operations do to gradients, as formulas; `program` turns whole elementwise programs
//!   into those of their gradients.
//! - `rules`: the operations, a file a family. Fused operations are composed of others where an operand is tracked, unless
//!   their gradients are operations of the backend; where none is, they are the inner backend's own.
//! - [`ops`]: gradients of operations that are defined elsewhere.
//!
//! Where no operand of an operation is tracked, it costs what it costs on `B`.
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod backend;
pub mod checkpoint;
mod derivative;
mod gradients;
mod operation;
pub mod ops;
mod program;
mod rules;
mod tape;
mod tensor;

pub use backend::Autodiff;
pub use gradients::Gradients;
pub use tape::{Node, NodeId, NodeRef};
pub use tensor::AutodiffTensor;

/// [`NodeId`], under its older name.
pub type NodeID = NodeId;

/// [`Gradients`], where Burn keeps them.
pub mod grads {
    pub use crate::Gradients;
}
