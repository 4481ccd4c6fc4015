//! Sums of what arrives at the rows of a table.

use super::wide_of;
use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::embedding::EmbeddingGradient;
use kiln_gpu::runtime::Subgroups;
use kiln_tensor::DType;

pub fn gradients(dtype: DType, index: DType) -> [Template; 2] {
    let subgroups = Subgroups::None;
    [dtype, wide_of(dtype)].map(|result| EmbeddingGradient { dtype, result, index, subgroups }.into())
}
