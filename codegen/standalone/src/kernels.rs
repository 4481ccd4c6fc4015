//! The kernels as a module, for tests.
#![allow(dead_code, reason = "tests call some of them, others call the rest")]

include!("kernels/products.rs");
include!("kernels/convolution.rs");
include!("kernels/pooling.rs");
include!("kernels/norms.rs");
include!("kernels/axes.rs");
include!("kernels/indexing.rs");
include!("kernels/attention.rs");
include!("kernels/recurrent.rs");
include!("kernels/numbers.rs");

mod tests;
