//! Softmax and cross-entropy as one.

use super::wide_of;
use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::cross_entropy::CrossEntropy;
use kiln_gpu::runtime::Subgroups;
use kiln_tensor::DType;

pub fn losses(dtype: DType) -> [Template; 2] {
    [(true, 2, 256), (false, 0, 8)].map(|(weighted, ignored, lanes)| {
        let (wide, index, smooth) = (wide_of(dtype), DType::I32, weighted);
        let subgroups = Subgroups::None;
        CrossEntropy { dtype, wide, index, weighted, smooth, ignored, lanes, subgroups }.into()
    })
}
