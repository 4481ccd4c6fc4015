//! The suite on backends that have only what they must.

use kiln_backend_tests::required::{Narrow, Required};
use kiln_ndarray::NdArray;

kiln_backend_tests::suite!(every_dtype: Required<NdArray>);
kiln_backend_tests::suite!(few_dtypes: Required<NdArray<f32, i32>, Narrow>, tensors gradients);
