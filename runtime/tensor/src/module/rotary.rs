//! Rotary position embeddings.

use crate::backend::Backend;
use crate::check::ensure;
use crate::{Tensor, erased, trace};

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
    // The halves become a dim of their own; along it, backwards, lies the other feature of each pair. So all is read where it is.
    let halves = |tensor: Tensor<B, D>| {
        let mut dims = tensor.shape().dims;
        let last = dims.pop().unwrap_or(1);
        dims.extend(if last == 1 { [1, 1] } else { [2, last / 2] });
        B::reshape(tensor.into_backend(), dims.into())
    };
    let shape = x.shape();
    let [x, cos, sin] = [x, cos, sin].map(halves);
    let other = erased::flip::<B>(x.clone(), &[D - 1]);
    let [y] = trace::run::<B, 4, 1>([x, other, cos, sin], |[x, other, cos, sin]| {
        let is_first = x.iota(D - 1).equal_elem(0);
        [x * cos + other.clone().mask_where(is_first, -other) * sin]
    });
    Tensor::from_backend(B::reshape(y, shape))
}
