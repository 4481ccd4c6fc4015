//! The backends.

#[cfg(feature = "autodiff")]
pub use kiln_autodiff as autodiff;
#[cfg(feature = "autodiff")]
pub use kiln_autodiff::Autodiff;
#[cfg(feature = "cuda")]
pub use kiln_cuda as cuda;
#[cfg(feature = "cuda")]
pub use kiln_cuda::{Cuda, CudaDevice};
#[cfg(feature = "ndarray")]
pub use kiln_ndarray as ndarray;
#[cfg(feature = "ndarray")]
pub use kiln_ndarray::NdArray;
#[cfg(feature = "profile")]
pub use kiln_profile as profile;
#[cfg(feature = "wgpu")]
pub use kiln_wgpu as wgpu;
#[cfg(feature = "wgpu")]
pub use kiln_wgpu::Wgpu;
/// [`Wgpu`] where it runs in browsers.
#[cfg(feature = "webgpu")]
pub use kiln_wgpu::Wgpu as WebGpu;
