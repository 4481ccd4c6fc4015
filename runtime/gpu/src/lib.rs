//! What Kiln's GPU backends share.
//!
//! - [`language`]: a small language in which kernels are written once, and its printers.
//! - [`kernels`]: the kernels and the code that launches them.
//! - [`Operand`], [`Parameter`]: what users' own kernels are given.
//! - [`memory`], [`promise`]: the pool of buffers and waiting for a device, as runtimes need them.
//! - [`kept`]: files for later starts.
//! - [`tuning`]: which of several ways to do the same were fastest on a device, where they are timed.
//! - [`statistics`]: counters of what a device was asked to do.
//! - [`runtime`]: what a kind of GPU does for them. A backend is [`Gpu`] over a runtime.
//!
//! Tensors are views of counted memory; what only looks at a tensor differently (permutations, slices, broadcasts) copies
//! nothing. Arithmetic on positions wraps at 32 bits, so tensors have less than 2^31 elements; views that are only reduced have less than 2^32.
#![forbid(unsafe_code)]

mod backend;
pub mod kept;
pub mod kernels;
pub mod language;
pub mod memory;
mod operand;
mod parameter;
pub mod promise;
pub mod runtime;
pub mod statistics;
mod tensor;
pub mod tuning;

pub use backend::Gpu;
pub use operand::{Operand, TensorProblem};
pub use parameter::Parameter;
pub use tensor::GpuTensor;
