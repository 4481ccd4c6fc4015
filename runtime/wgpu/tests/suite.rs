//! The numeric suite of backends on a GPU.

use kiln_tensor::f16;
use kiln_wgpu::Wgpu;

kiln_backend_tests::suite!(single: Wgpu);
kiln_backend_tests::suite!(half: Wgpu<f16>, tensors gradients);
