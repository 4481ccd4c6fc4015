//! Gradients by CUDA's kernels, which the host's compiler made: derivatives of every operation against differences on the CPU.

#![cfg(target_os = "linux")]

mod host;

use kiln_autodiff::Autodiff;
use kiln_autodiff::checkpoint::BalancedCheckpointing;
use kiln_backend_tests::derivatives::{Single, Views};
use kiln_ndarray::NdArray;

type Cuda = kiln_cuda::Cuda;
/// A tape over a tape.
type Second = Autodiff<Autodiff<Cuda>>;
type Recomputing = Autodiff<Cuda, BalancedCheckpointing>;

kiln_backend_tests::derivatives!(single: Single<Second, Recomputing, Autodiff<NdArray<f64>>>);
kiln_backend_tests::derivatives!(views: Views<Cuda>);
