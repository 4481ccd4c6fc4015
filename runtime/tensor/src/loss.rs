//! Losses as functions of tensors.

use crate::backend::Backend;
use crate::{Tensor, activation};

/// The mean cross-entropy between the softmax of `logits` along the last dim and `target_probs` of the same dims, in nats.
pub fn cross_entropy_with_logits<B: Backend, const D: usize>(
    logits: Tensor<B, D>,
    target_probs: Tensor<B, D>,
) -> Tensor<B, 1> {
    let products = activation::log_softmax(logits, D - 1) * target_probs;
    products.sum_dim(D - 1).mean().neg()
}
