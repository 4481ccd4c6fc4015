//! Rounds of sorts.

use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::sort::SortStep;
use kiln_tensor::DType;

pub fn steps(dtype: DType) -> [Template; 2] {
    [true, false].map(|descending| SortStep { dtype, descending }.into())
}
