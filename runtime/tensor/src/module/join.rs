//! Joining tensors.

use crate::backend::Backend;
use crate::{AsIndex, Tensor, TensorKind, check, erased};

/// Joins tensors, of which there are as many as are written, along an existing dim; [`Tensor::cat`] takes a list of any length.
///
/// # Panics
/// When there are no tensors, or another dim differs.
#[track_caller]
pub fn cat<B: Backend, const D: usize, K: TensorKind<B>, const N: usize>(
    tensors: [Tensor<B, D, K>; N],
    dim: impl AsIndex,
) -> Tensor<B, D, K> {
    let dim = check::dim("cat", dim.as_index(), D);
    Tensor::wrap(erased::cat::<B>(&tensors.map(Tensor::into_backend), dim))
}
