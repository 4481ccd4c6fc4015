//! Dropout.

use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::dropout::Dropout;
use kiln_tensor::DType;

pub fn dropouts(dtypes: &[DType]) -> Vec<Template> {
    dtypes.iter().map(|&dtype| Dropout { dtype }.into()).collect()
}
