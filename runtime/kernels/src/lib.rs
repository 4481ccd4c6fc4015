//! Kiln's CPU kernels: plain slices in, plain slices out.
//!
//! Nothing here knows tensors. A kernel takes slices with a geometry (dims, strides, a `…Shape` struct), checks the
//! slices' bounds once at its entry, panics with the reason when they do not fit, and computes. Kernels split their
//! work over [`threads`] where it is large enough to pay, and pick the widest instruction set of the machine at run
//! time (at compile time without `std`).
//!
//! | module | holds |
//! | --- | --- |
//! | [`gemm`] | matrix products with epilogues, packed operands, batches |
//! | [`conv`] | convolution and transposed convolution, gradients of the first |
//! | [`quantized`] | matrix products and convolutions of 8-bit integers |
//! | [`pool`] | pooling and its gradients |
//! | [`elementwise`] | unary, binary, activations, elementwise programs |
//! | [`reduce`] | reductions and arg-reductions along an axis |
//! | [`softmax`], [`norm`] | softmax, layer, group, batch and RMS normalization |
//! | [`cross_entropy`] | softmax and cross-entropy as one, with the gradient |
//! | [`dropout`] | dropout from a key |
//! | [`batch_norm`] | batch normalization in training |
//! | [`attention`], [`rnn`] | fused attention, recurrent layers through time and back |
//! | [`distance`] | distances between rows |
//! | [`resize`] | resizing of an axis |
//! | [`scan`] | running reductions along an axis |
//! | [`sort`] | sorting, and the first of what would be sorted |
//! | [`tree`] | decision trees |
//! | [`copy`], [`join`] | strided copies, row selection, joins |
//! | [`threads`] | how many threads, and the loop over them |
//! | [`memory`] | aligned memory on large pages |
//! | [`peak`] | loops that tell what a machine can do |
#![cfg_attr(not(feature = "std"), no_std)]
#![allow(clippy::needless_range_loop, reason = "kernels walk several arrays with one index")]

extern crate alloc;

pub mod attention;
pub mod batch_norm;
mod bounds;
mod consumed;
pub mod conv;
pub mod convert;
pub mod copy;
pub mod cross_entropy;
pub mod distance;
pub mod dropout;
pub mod elementwise;
#[cfg(feature = "std")]
mod environment;
pub mod gemm;
mod in_out;
pub mod join;
mod math;
pub mod memory;
pub mod norm;
pub mod peak;
pub mod pool;
pub mod quantized;
pub mod reduce;
pub mod resize;
pub mod rnn;
pub mod scan;
mod scratch;
mod simd;
mod size;
pub mod softmax;
pub mod sort;
pub mod threads;
pub mod tree;
mod walk;

pub use consumed::Consumed;
pub use in_out::InOut;
pub use kiln_types::Windows;
