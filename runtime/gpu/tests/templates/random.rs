//! Random numbers.

use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::random::{Draw, Random};
use kiln_tensor::DType;

pub fn randoms(all: &[(Draw, DType)]) -> Vec<Template> {
    all.iter().map(|&(draw, dtype)| Random { draw, dtype, salted: false }.into()).collect()
}

/// Those that a captured graph draws.
pub fn salted(dtype: DType) -> Vec<Template> {
    [Draw::Unit, Draw::Normal].map(|draw| Random { draw, dtype, salted: true }.into()).into()
}
