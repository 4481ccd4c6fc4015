//! The suite on the CPU backend, with other default dtypes.

use kiln_ndarray::NdArray;
use kiln_tensor::{bf16, f16};

kiln_backend_tests::suite!(short_integers: NdArray<f32, i32>);
kiln_backend_tests::suite!(double: NdArray<f64>, tensors);
kiln_backend_tests::suite!(half: NdArray<f16, i32>, tensors gradients);
kiln_backend_tests::suite!(brain: NdArray<bf16>, tensors);
