//! Gradients on a GPU: derivatives of every operation against differences on the CPU, and the suite where operations are recorded.

use kiln_autodiff::Autodiff;
use kiln_autodiff::checkpoint::BalancedCheckpointing;
use kiln_backend_tests::derivatives::{Single, Views};
use kiln_ndarray::NdArray;

type Wgpu = kiln_wgpu::Wgpu;
/// A tape over a tape.
type Second = Autodiff<Autodiff<Wgpu>>;
type Recomputing = Autodiff<Wgpu, BalancedCheckpointing>;

kiln_backend_tests::derivatives!(single: Single<Second, Recomputing, Autodiff<NdArray<f64>>>);
kiln_backend_tests::derivatives!(views: Views<Wgpu>);
kiln_backend_tests::suite!(recorded: Autodiff<Wgpu>, tensors gradients);
