//! The GPU backend on NVIDIA's CUDA.
//!
//! [`Cuda`] is [`kiln_gpu::Gpu`] over [`CudaRuntime`]. Nothing of CUDA is needed to build it, nor to start what is built with it:
//! the driver and the compiler (NVRTC) are looked for when a device is first used, which [`init`] does at a time of the caller's
//! choice, and says what is missing.
//!
//! Kernels are compiled for the device when they are first needed, and kept on disk ([`cache`]), as is what cuBLASLt advises. They run in the order in which
//! operations ask for them; nothing is waited for but by reads. What goes wrong on the device is told by these.
//!
//! Large products go to cuBLASLt and large convolutions to cuDNN 9 where these are found ([`Statistics::library_calls`] counts them), unless the
//! variable [`KILN_CUDA_WITHOUT`](driver::WITHOUT) names them. What they refuse runs on kernels of Kiln's, as all else does.
//!
//! Of several ways to do the same a device goes the one that is usually the fastest. Where [`tune`] asks for it, or the variable `KILN_TUNE` is 1, it times them once for each
//! class of work, and keeps what it found in a file for later processes.
//!
//! A computation whose shapes do not change is [captured](Graph::capture) once and launched as a whole; [`Captured`] does so by itself,
//! for each shape of inputs that it meets, and `CapturedGradients` (feature `autodiff`) for the loss and the gradients of a module.

mod batch;
pub mod cache;
mod captured;
mod context;
mod device;
pub mod driver;
mod graph;
mod kernel;
mod memory;
mod runtime;
mod statistics;

#[cfg(feature = "autodiff")]
pub use captured::CapturedGradients;
pub use captured::{Captured, CapturedError};
pub use device::open_with;
pub use device::{CudaDevice, InitError, init, reopen, set_library_relu, set_tf32, tune};
pub use graph::{CaptureError, Graph, Operand, ReplayError, Tensors};
pub use kernel::{CudaKernel, KernelError, Launch, LaunchProblem, TensorProblem};
pub use kiln_gpu::Parameter;
pub use memory::{Buffer, Memory};
pub use runtime::CudaRuntime;
pub use statistics::{Statistics, statistics};

/// The backend's tensor.
pub type CudaTensor = kiln_gpu::GpuTensor<CudaRuntime>;

/// The backend; `F` and `I` are the dtypes that float and int tensors get by default: as on the CPU, so that a model's positions and counts
/// meet its files' numbers in ONNX's i64.
///
/// It holds every dtype as itself but integers of four bits, which are held in eight. Floats of 16 bits are computed in f32 and rounded as
/// they are written, integers of 8 and 16 bits in 32 and wrap at their own width; f64 and 64-bit integers are computed as they are. An
/// integer divided by 0 is 0 here, where a CPU stops.
pub type Cuda<F = f32, I = i64> = kiln_gpu::Gpu<CudaRuntime, F, I>;
