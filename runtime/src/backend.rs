//! The backends.

#[cfg(feature = "ndarray")]
pub use kiln_ndarray as ndarray;
#[cfg(feature = "ndarray")]
pub use kiln_ndarray::NdArray;
