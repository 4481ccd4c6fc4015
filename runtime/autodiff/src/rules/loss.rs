//! Losses.

use super::T;
use crate::checkpoint::CheckpointStrategy;
use crate::operation::Operation;
use crate::tensor::AutodiffTensor;
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::backend::Backend;
use kiln_tensor::compose::{CrossEntropyOptions, CrossEntropyTrained};

pub(crate) fn cross_entropy<B: Backend, C: CheckpointStrategy>(
    logits: AutodiffTensor<B>,
    targets: T<B>,
    weights: Option<T<B>>,
    options: &CrossEntropyOptions,
) -> AutodiffTensor<B> {
    if !logits.is_tracked() {
        return AutodiffTensor::constant(B::cross_entropy(logits.primitive, targets, weights, options));
    }
    let trained = B::cross_entropy_train(logits.primitive.clone(), targets.clone(), weights.clone(), options);
    let CrossEntropyTrained { losses, largest, log_sum } = trained;
    let options = options.clone();
    let forward = move |_: Vec<T<B>>| losses.clone();
    Operation::new("cross_entropy", vec![logits]).keep(0).run::<C>(forward, move |mut context| {
        // Nobody else may need the logits: their memory becomes the gradient's.
        let (logits, kept) = (context.take_operand(0), (largest, log_sum));
        let gradient = context.gradient;
        vec![Some(B::cross_entropy_gradient(gradient, logits, targets, weights, kept, &options))]
    })
}
