//! The tensor suite on the CPU backend.

mod suite;

suite::run_on!(kiln_ndarray::NdArray);
