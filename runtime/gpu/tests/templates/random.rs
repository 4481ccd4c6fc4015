//! Random numbers.

use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::random::{Draw, Random};
use kiln_tensor::DType;

pub fn randoms(all: &[(Draw, DType)]) -> Vec<Template> {
    all.iter().map(|&(draw, dtype)| Random { draw, dtype }.into()).collect()
}
