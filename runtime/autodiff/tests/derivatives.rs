//! Derivatives of every operation against differences.

use kiln_autodiff::Autodiff;
use kiln_autodiff::checkpoint::BalancedCheckpointing;
use kiln_backend_tests::derivatives::{Exact, Single, Views};
use kiln_ndarray::NdArray;

/// A tape over a tape.
type Second<B> = Autodiff<Autodiff<B>>;
type Recomputing<B> = Autodiff<B, BalancedCheckpointing>;
type F64 = NdArray<f64>;
type F32 = NdArray<f32>;

kiln_backend_tests::derivatives!(exact: Exact<Second<F64>, Recomputing<F64>>);
kiln_backend_tests::derivatives!(single: Single<Second<F32>, Recomputing<F32>, Autodiff<F64>>);
kiln_backend_tests::derivatives!(views: Views<F32>);
