//! The GPU backend on [`wgpu`]: Vulkan, Metal, DX12, and WebGPU in browsers.
//!
//! [`Wgpu`] is [`kiln_gpu::Gpu`] over [`WgpuRuntime`]. A device is opened when it is first used; [`init`] does that at a time of
//! the caller's choice, and says why where there is none.
//!
//! Kernels are recorded as operations ask for them and submitted together, at the latest when something is read. Buffers come
//! from a pool, so that a forward pass that ran before allocates nothing; neither pipelines nor bind groups are made twice.
//!
//! Of several kernels that do the same a device runs the one that is usually the fastest. Where [`tune`] asks for it, or the variable
//! `KILN_TUNE` is 1, it times them once for each class of sizes, which waits for the device, and keeps what it found in a file for later
//! processes: in the folder that `KILN_WGPU_CACHE` names, or the user's for such. Never in a browser.
//!
//! A user's own kernel is a [`WgslKernel`], which takes part in all of that.
#![forbid(unsafe_code)]

mod context;
mod device;
mod kernel;
mod memory;
mod read;
mod runtime;
mod statistics;

pub use device::{InitError, WgpuDevice, init, init_async, submit, tune};
pub use kernel::{KernelError, Launch, LaunchProblem, TensorProblem, WgslKernel};
pub use kiln_gpu::Parameter;
pub use memory::{Buffer, Memory};
pub use runtime::WgpuRuntime;
pub use statistics::{Statistics, statistics};

/// The backend's tensor.
pub type WgpuTensor = kiln_gpu::GpuTensor<WgpuRuntime>;

/// The backend; `F` and `I` are the dtypes that float and int tensors get by default.
///
/// It holds f32, i32, i64, u32, u64 and bool, f16 where the adapter does, and f64 where it has floats and integers of 64 bits. Where it has
/// no such integers (as in browsers), kernels compute with pairs of words: as exactly, in more steps. Narrower integers are held as `I`,
/// other floats as f32 ([`supports`](kiln_tensor::backend::Backend::supports)); data that these do not hold are refused with a message
/// that names dtype and number. An integer divided by 0 is 0 here, where a CPU stops.
pub type Wgpu<F = f32, I = i64> = kiln_gpu::Gpu<WgpuRuntime, F, I>;
