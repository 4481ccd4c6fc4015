//! The suite on the CPU backend, with its usual dtypes.

use kiln_ndarray::NdArray;

kiln_backend_tests::suite!(usual: NdArray);
