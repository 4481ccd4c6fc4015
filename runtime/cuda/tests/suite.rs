//! The numeric suite of backends, on kernels that the host's compiler made.

#![cfg(target_os = "linux")]

mod host;

use kiln_cuda::Cuda;
use kiln_tensor::{bf16, f16};

kiln_backend_tests::suite!(single: Cuda, primitives tensors gradients beside);
kiln_backend_tests::suite!(half: Cuda<f16>, tensors pytorch);
kiln_backend_tests::suite!(brain: Cuda<bf16>, tensors);
kiln_backend_tests::suite!(double: Cuda<f64, i64>, positions tensors pytorch);
kiln_backend_tests::suite!(short_integers: Cuda<f32, i16>, tensors);
