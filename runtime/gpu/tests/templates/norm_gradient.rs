//! Gradients of norms of rows.

use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::norm_gradient::NormGradient;
use kiln_gpu::runtime::Subgroups;
use kiln_tensor::DType;

/// Rows of which each is a workgroup's, with nothing after.
pub fn plain(centered: bool, dtype: DType, lanes: u32) -> NormGradient {
    NormGradient {
        centered,
        dtype,
        lanes,
        rows: 1,
        kept: None,
        subgroups: Subgroups::None,
        epilogues: Vec::new(),
    }
}

pub fn gradients(dtype: DType) -> [Template; 3] {
    [
        NormGradient { kept: Some(3), ..plain(true, dtype, 256) }.into(),
        plain(true, dtype, 8).into(),
        plain(false, dtype, 8).into(),
    ]
}
