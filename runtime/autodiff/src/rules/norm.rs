//! Softmax and normalizations.

use super::{T, taken, taken_with_bias};
use crate::checkpoint::CheckpointStrategy;
use crate::operation::Operation;
use crate::tensor::AutodiffTensor;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::compose::{BatchNormTrained, NormGradients, NormalizedBatch};
use kiln_tensor::{Activation, BinaryOp, ReduceOp, Shape};

pub(crate) fn softmax<B: Backend, C: CheckpointStrategy>(
    x: AutodiffTensor<B>,
    dim: usize,
) -> AutodiffTensor<B> {
    let forward = move |operands: Vec<T<B>>| {
        let [x] = taken(operands);
        B::softmax(x, dim)
    };
    Operation::new("softmax", vec![x]).keep_result().run::<C>(forward, move |context| {
        let output = context.result();
        vec![Some(B::softmax_gradient(context.gradient, output, dim))]
    })
}

pub(crate) fn log_softmax<B: Backend, C: CheckpointStrategy>(
    x: AutodiffTensor<B>,
    dim: usize,
) -> AutodiffTensor<B> {
    let forward = move |operands: Vec<T<B>>| {
        let [x] = taken(operands);
        B::log_softmax(x, dim)
    };
    Operation::new("log_softmax", vec![x]).keep_result().run::<C>(forward, move |context| {
        let output = context.result();
        vec![Some(B::log_softmax_gradient(context.gradient, output, dim))]
    })
}

/// The gradients of a normalization's operands, of which weight and bias may be absent.
fn listed<P>(found: NormGradients<P>, weight: bool, bias: bool) -> Vec<Option<P>> {
    let mut gradients = vec![Some(found.input)];
    gradients.extend(weight.then_some(Some(found.weight)));
    gradients.extend(bias.then_some(Some(found.bias)));
    gradients
}

pub(crate) fn layer_norm<B: Backend, C: CheckpointStrategy>(
    x: AutodiffTensor<B>,
    weight: AutodiffTensor<B>,
    bias: Option<AutodiffTensor<B>>,
    epsilon: f64,
) -> AutodiffTensor<B> {
    let has_bias = bias.is_some();
    let forward = move |operands: Vec<T<B>>| {
        let (x, weight, bias) = taken_with_bias(operands);
        B::layer_norm(x, weight, bias, epsilon)
    };
    let operands = [x, weight].into_iter().chain(bias).collect();
    Operation::new("layer_norm", operands).keep(0).keep(1).run::<C>(forward, move |context| {
        let (x, weight) = (context.operand(0), context.operand(1));
        listed(B::layer_norm_gradient(context.gradient, x, weight, epsilon), true, has_bias)
    })
}

pub(crate) fn rms_norm<B: Backend, C: CheckpointStrategy>(
    x: AutodiffTensor<B>,
    weight: AutodiffTensor<B>,
    epsilon: f64,
) -> AutodiffTensor<B> {
    let forward = move |operands: Vec<T<B>>| {
        let [x, weight] = taken(operands);
        B::rms_norm(x, weight, epsilon)
    };
    Operation::new("rms_norm", vec![x, weight]).keep(0).keep(1).run::<C>(forward, move |context| {
        let (x, weight) = (context.operand(0), context.operand(1));
        let (of_x, of_weight) = B::rms_norm_gradient(context.gradient, x, weight, epsilon);
        vec![Some(of_x), Some(of_weight)]
    })
}

pub(crate) fn group_norm<B: Backend, C: CheckpointStrategy>(
    x: AutodiffTensor<B>,
    weight: Option<AutodiffTensor<B>>,
    bias: Option<AutodiffTensor<B>>,
    groups: usize,
    epsilon: f64,
) -> AutodiffTensor<B> {
    let (has_weight, has_bias) = (weight.is_some(), bias.is_some());
    let forward = move |operands: Vec<T<B>>| {
        let mut operands = operands.into_iter();
        let Some(x) = operands.next() else { unreachable!("an operation computes on all its operands") };
        let weight = if has_weight { operands.next() } else { None };
        B::group_norm(x, weight, operands.next(), groups, epsilon)
    };
    let operands = [x].into_iter().chain(weight).chain(bias).collect();
    let operation = Operation::new("group_norm", operands).keep(0);
    let operation = if has_weight { operation.keep(1) } else { operation };
    operation.run::<C>(forward, move |context| {
        let weight = has_weight.then(|| context.operand(1));
        let x = context.operand(0);
        let found = B::group_norm_gradient(context.gradient, x, weight, groups, epsilon);
        listed(found, has_weight, has_bias)
    })
}

/// A batch normalization whose result an activation may be applied to, which is differentiated with it: what was normalized is computed again on the way
/// back, and not kept.
pub(crate) struct BatchNormalization<B: Backend> {
    x: AutodiffTensor<B>,
    weight: AutodiffTensor<B>,
    bias: AutodiffTensor<B>,
    mean: T<B>,
    variance: T<B>,
    epsilon: f64,
}

impl<B: Backend> BatchNormalization<B> {
    /// An activation of what was normalized, as an operation on what that was computed of.
    pub(crate) fn activation<C: CheckpointStrategy>(
        &self,
        activation: Activation,
        normalized: T<B>,
    ) -> AutodiffTensor<B> {
        let output = B::activation(activation, normalized);
        let (mean, variance, epsilon) = (self.mean.clone(), self.variance.clone(), self.epsilon);
        let operands = [&self.x, &self.weight, &self.bias].map(AutodiffTensor::clone).to_vec();
        let operation = Operation::new("activation of batch_norm_train", operands).keep(0).keep(1).keep(2);
        operation.run::<C>(
            move |_| output.clone(),
            move |context| {
                let [x, weight, bias] = [0, 1, 2].map(|n| context.operand(n));
                let [mean, variance] = statistics_of::<B>(&x, [mean, variance]);
                let normalized = NormalizedBatch { x, weight, bias, mean, variance };
                let gradient = context.gradient;
                listed(
                    B::batch_norm_activation_gradient(activation, gradient, normalized, epsilon),
                    true,
                    true,
                )
            },
        )
    }
}

/// The statistics are constants: what is made of them, running averages, has no part in a loss.
pub(crate) fn batch_norm_train<B: Backend, C: CheckpointStrategy>(
    x: AutodiffTensor<B>,
    weight: AutodiffTensor<B>,
    bias: AutodiffTensor<B>,
    epsilon: f64,
) -> BatchNormTrained<AutodiffTensor<B>> {
    let trained =
        B::batch_norm_train(x.primitive.clone(), weight.primitive.clone(), bias.primitive.clone(), epsilon);
    let BatchNormTrained { output, mean, variance } = trained;
    let constants = [&mean, &variance].map(|statistic| AutodiffTensor::constant(statistic.clone()));
    let is_tracked = [&x, &weight, &bias].into_iter().any(AutodiffTensor::is_tracked);
    // Where cheap results are computed again, so are activations.
    let fuses = is_tracked && !C::RECOMPUTES && B::fuses_batch_norm_activations(&B::device(&x.primitive));
    let normalization = fuses.then(|| {
        // Of a normalization of a normalization there is no chain.
        let operand = |operand: &AutodiffTensor<B>| AutodiffTensor { normalization: None, ..operand.clone() };
        let [x, weight, bias] = [&x, &weight, &bias].map(operand);
        let (mean, variance) = (mean.clone(), variance.clone());
        Arc::new(BatchNormalization { x, weight, bias, mean, variance, epsilon })
    });
    let forward = move |_: Vec<T<B>>| output.clone();
    let operation = Operation::new("batch_norm_train", vec![x, weight, bias]).keep(0).keep(1);
    let output = operation.run::<C>(forward, move |context| {
        let (x, weight) = (context.operand(0), context.operand(1));
        let [mean, variance] = statistics_of::<B>(&x, [mean, variance]);
        let found = B::batch_norm_gradient(context.gradient, x, weight, mean, variance, epsilon);
        listed(found, true, true)
    });
    let [mean, variance] = constants;
    BatchNormTrained { output: AutodiffTensor { normalization, ..output }, mean, variance }
}

/// The statistics that were found of a batch. For a gradient of a gradient, they have to follow from the batch.
fn statistics_of<B: Backend>(x: &T<B>, found: [T<B>; 2]) -> [T<B>; 2] {
    if B::is_tracked(x) { statistics::<B>(x.clone()).into() } else { found }
}

/// The mean and the variance of each channel, as differentiable operations.
fn statistics<B: Backend>(x: T<B>) -> (T<B>, T<B>) {
    let channels = Shape::from([x.dims()[1]]);
    let axes: Vec<usize> = (0..x.dims().len()).filter(|&axis| axis != 1).collect();
    let mean = B::reduce(ReduceOp::Mean, x.clone(), &axes);
    let centered = B::binary(BinaryOp::Sub, x, mean.clone());
    let square = B::binary(BinaryOp::Mul, centered.clone(), centered);
    let variance = B::reduce(ReduceOp::Mean, square, &axes);
    (B::reshape(mean, channels.clone()), B::reshape(variance, channels))
}

/// Its own gradient: the key says again what is dropped.
pub(crate) fn dropout<B: Backend, C: CheckpointStrategy>(
    x: AutodiffTensor<B>,
    probability: f64,
    key: u64,
) -> AutodiffTensor<B> {
    let forward = move |operands: Vec<T<B>>| {
        let [x] = taken(operands);
        B::dropout(x, probability, key)
    };
    Operation::new("dropout", vec![x])
        .cheap()
        .run::<C>(forward, move |context| vec![Some(B::dropout(context.gradient, probability, key))])
}
