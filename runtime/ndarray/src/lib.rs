//! The CPU backend of Kiln: [`NdArray`] implements [`Backend`](kiln_tensor::backend::Backend) on plain memory.
//!
//! A tensor is a reference-counted block of bytes, a dtype and a [`Layout`](kiln_tensor::backend::Layout) (shape, strides, offset), all known at run
//! time. Shape operations make views; arithmetic writes into its operand's memory when it holds the last reference;
//! freed memory goes back to a pool. Storage may also be a slice of a memory-mapped record, which is never copied when
//! its alignment suits.
//!
//! The `ndarray` crate is not used, despite the name (which is the one users know this backend by): its arrays have
//! their element type and often their rank in the Rust type, and here both are properties of the value.
//!
//! Dtypes: data movement works on element sizes (four instantiations). `f32` runs on the kernels of `kiln-kernels`.
//! Arithmetic on the others is compiled for `f64`, `i64`, `i32`, `u64` and `u8`, rarer operations for fewer; what is not
//! among them is widened and narrowed back, which is exact for integers (wrapping included) and rounds once per
//! operation for `f16` and `bf16` (which become `f32`).
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[macro_use]
mod dispatch;
mod backend;
mod compute;
#[cfg(feature = "std")]
mod kept;
mod ops;
mod order;
mod rows;
mod storage;
mod sync;
mod tensor;
mod view;

pub use backend::{NdArray, NdArrayDevice};
pub use kiln_kernels::threads::{set_threads, threads};
pub use tensor::NdArrayTensor;
