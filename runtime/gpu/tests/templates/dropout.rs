//! Dropout.

use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::dropout::Dropout;
use kiln_tensor::DType;

pub fn dropouts(dtypes: &[DType], salted: bool) -> Vec<Template> {
    dtypes.iter().map(|&dtype| Dropout { dtype, salted }.into()).collect()
}
