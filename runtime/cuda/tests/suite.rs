//! The numeric suite of backends, on kernels that the host's compiler made.

#![cfg(target_os = "linux")]

mod host;

use kiln_cuda::Cuda;
use kiln_tensor::f16;

kiln_backend_tests::suite!(single: Cuda);
kiln_backend_tests::suite!(half: Cuda<f16>, tensors gradients);
