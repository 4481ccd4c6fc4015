//! The suite on a backend that records gradients, where there are none and where everything is tracked.

use kiln_autodiff::Autodiff;
use kiln_autodiff::checkpoint::BalancedCheckpointing;
use kiln_ndarray::NdArray;

kiln_backend_tests::suite!(constants: Autodiff<NdArray>);
kiln_backend_tests::suite!(recomputing: Autodiff<NdArray<f32, i32>, BalancedCheckpointing>);
