//! Rotary position embeddings.

use crate::Tensor;
use crate::backend::Backend;
use crate::check::ensure;
use alloc::vec;

/// Turns pairs of features by angles that depend on the position: feature `i` and feature `i + size / 2` of the last dim
/// are a point in the plane. `x * cos + (-second half, first half) * sin`; `cos` and `sin` broadcast to `x`.
///
/// # Panics
/// When the last dim is odd, or shapes do not fit.
pub fn rotary<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    cos: Tensor<B, D>,
    sin: Tensor<B, D>,
) -> Tensor<B, D> {
    let size = x.dims().last().copied().unwrap_or(1);
    ensure!(size.is_multiple_of(2), "rotary", "the last dim of {} is not even", x.shape());
    let half = size / 2;
    let first = x.clone().slice_dim(D - 1, 0..half);
    let second = x.clone().slice_dim(D - 1, half..size);
    let turned = Tensor::cat(vec![-second, first], D - 1);
    crate::elementwise([x, cos, turned, sin], |[x, cos, turned, sin]| x * cos + turned * sin)
}
