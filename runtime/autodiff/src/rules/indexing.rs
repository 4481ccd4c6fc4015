//! Elements by index, and sorting.

use super::{T, div, filled, mul, taken};
use crate::checkpoint::CheckpointStrategy;
use crate::operation::{Context, Operation};
use crate::tensor::AutodiffTensor;
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{BinaryOp, CompareOp, Scalar, ScatterOp, Shape};

pub(crate) fn select<B: Backend, C: CheckpointStrategy>(
    tensor: AutodiffTensor<B>,
    dim: usize,
    indices: T<B>,
) -> AutodiffTensor<B> {
    let back = indices.clone();
    let forward = move |operands: Vec<T<B>>| {
        let [tensor] = taken(operands);
        B::select(tensor, dim, indices.clone())
    };
    Operation::new("select", vec![tensor]).accumulate().run::<C>(forward, move |mut context| {
        let (shape, gradient) = (context.shapes.remove(0), context.gradient);
        let sum = match context.present {
            None if dim == 0 => {
                let width = shape[1..].iter().product();
                let lines = B::reshape(gradient, Shape::from([back.dims()[0], width]));
                B::reshape(B::embedding_gradient(lines, back, shape[0]), shape)
            }
            present => {
                let sum = present.unwrap_or_else(|| filled::<B>(shape, 0.0, &gradient));
                B::select_assign(sum, dim, back, gradient, ScatterOp::Add)
            }
        };
        vec![Some(sum)]
    })
}

pub(crate) fn gather<B: Backend, C: CheckpointStrategy>(
    tensor: AutodiffTensor<B>,
    dim: usize,
    indices: T<B>,
) -> AutodiffTensor<B> {
    let back = indices.clone();
    let forward = move |operands: Vec<T<B>>| {
        let [tensor] = taken(operands);
        B::gather(tensor, dim, indices.clone())
    };
    Operation::new("gather", vec![tensor]).accumulate().run::<C>(forward, move |mut context| {
        let (shape, gradient) = (context.shapes.remove(0), context.gradient);
        let sum = context.present.unwrap_or_else(|| filled::<B>(shape, 0.0, &gradient));
        vec![Some(B::scatter(sum, dim, back, gradient, ScatterOp::Add))]
    })
}

/// A row index as one of elements: the same along all other dims of `like`.
fn spread<B: Backend>(indices: T<B>, dim: usize, like: &T<B>) -> T<B> {
    let mut line = vec![1; like.dims().len()];
    line[dim] = indices.dims()[0];
    B::expand(B::reshape(indices, Shape::from(line)), like.shape())
}

pub(crate) fn select_assign<B: Backend, C: CheckpointStrategy>(
    tensor: AutodiffTensor<B>,
    dim: usize,
    indices: T<B>,
    value: AutodiffTensor<B>,
    op: ScatterOp,
) -> AutodiffTensor<B> {
    match op {
        ScatterOp::Add => {
            let back = indices.clone();
            let forward = move |operands: Vec<T<B>>| {
                let [tensor, value] = taken(operands);
                B::select_assign(tensor, dim, indices.clone(), value, op)
            };
            Operation::new("select_assign", vec![tensor, value]).run::<C>(forward, move |context| {
                let gradient = context.gradient;
                let of_tensor = context.wanted[0].then(|| gradient.clone());
                vec![of_tensor, context.wanted[1].then(|| B::select(gradient, dim, back))]
            })
        }
        ScatterOp::Assign | ScatterOp::Mul | ScatterOp::Max | ScatterOp::Min => {
            let indices = spread::<B>(indices, dim, &value.primitive);
            scatter::<B, C>(tensor, dim, indices, value, op)
        }
    }
}

pub(crate) fn scatter<B: Backend, C: CheckpointStrategy>(
    tensor: AutodiffTensor<B>,
    dim: usize,
    indices: T<B>,
    value: AutodiffTensor<B>,
    op: ScatterOp,
) -> AutodiffTensor<B> {
    let back = indices.clone();
    let forward = move |operands: Vec<T<B>>| {
        let [tensor, value] = taken(operands);
        B::scatter(tensor, dim, indices.clone(), value, op)
    };
    let operation = Operation::new("scatter", vec![tensor, value]);
    match op {
        ScatterOp::Add => operation.run::<C>(forward, move |context| {
            let gradient = context.gradient;
            let of_tensor = context.wanted[0].then(|| gradient.clone());
            vec![of_tensor, context.wanted[1].then(|| B::gather(gradient, dim, back))]
        }),
        ScatterOp::Assign => operation.run::<C>(forward, move |context| {
            let gradient = context.gradient;
            let of_tensor = context.wanted[0].then(|| {
                let nothing = filled::<B>(context.shapes[1].clone(), 0.0, &gradient);
                B::scatter(gradient.clone(), dim, back.clone(), nothing, ScatterOp::Assign)
            });
            vec![of_tensor, context.wanted[1].then(|| B::gather(gradient, dim, back))]
        }),
        ScatterOp::Mul => {
            operation.keep(0).keep(1).run::<C>(forward, move |context| products::<B>(context, dim, back))
        }
        ScatterOp::Max | ScatterOp::Min => operation
            .keep(0)
            .keep(1)
            .keep_result()
            .run::<C>(forward, move |context| extremes::<B>(context, dim, back)),
    }
}

/// Gradients of a scattered product. An element's factor is the product of all others at its place, which a division
/// gives unless the element is 0; then it is the product without zeros, if it is the only one.
fn products<B: Backend>(context: Context<B>, dim: usize, indices: T<B>) -> Vec<Option<T<B>>> {
    let (tensor, value, gradient) = (context.operand(0), context.operand(1), context.gradient.clone());
    let of_tensor = context.wanted[0].then(|| {
        let ones = filled::<B>(tensor.shape(), 1.0, &tensor);
        let factors = B::scatter(ones, dim, indices.clone(), value.clone(), ScatterOp::Mul);
        mul::<B>(gradient.clone(), factors)
    });
    let of_value = context.wanted[1].then(|| {
        let zero = B::compare_scalar(CompareOp::Equal, value.clone(), Scalar::Float(0.0));
        let plain = B::mask_fill(value, zero.clone(), Scalar::Float(1.0));
        let product = B::scatter(tensor.clone(), dim, indices.clone(), plain.clone(), ScatterOp::Mul);
        let none = filled::<B>(tensor.shape(), 0.0, &tensor);
        let ones = B::cast(zero, tensor.dtype());
        let zeros = B::gather(
            B::scatter(none, dim, indices.clone(), ones.clone(), ScatterOp::Add),
            dim,
            indices.clone(),
        );
        let others = B::binary(BinaryOp::Sub, zeros, ones);
        let alone = B::compare_scalar(CompareOp::Equal, others, Scalar::Float(0.0));
        let part = div::<B>(B::gather(mul::<B>(gradient, product), dim, indices), plain);
        let nothing = filled::<B>(part.shape(), 0.0, &part);
        B::select_where(alone, part, nothing)
    });
    vec![of_tensor, of_value]
}

/// Gradients of a scattered extreme: all that are the extreme at their place share its gradient.
fn extremes<B: Backend>(context: Context<B>, dim: usize, indices: T<B>) -> Vec<Option<T<B>>> {
    let (tensor, value, result) = (context.operand(0), context.operand(1), context.result());
    let dtype = tensor.dtype();
    let kept = B::cast(B::compare(CompareOp::Equal, tensor, result.clone()), dtype);
    let there = B::gather(result, dim, indices.clone());
    let won = B::cast(B::compare(CompareOp::Equal, value, there), dtype);
    let count = B::scatter(kept.clone(), dim, indices.clone(), won.clone(), ScatterOp::Add);
    let share = div::<B>(context.gradient.clone(), count);
    let of_tensor = context.wanted[0].then(|| mul::<B>(kept, share.clone()));
    let of_value = context.wanted[1].then(|| mul::<B>(won, B::gather(share, dim, indices)));
    vec![of_tensor, of_value]
}

pub(crate) fn sort<B: Backend, C: CheckpointStrategy>(
    tensor: AutodiffTensor<B>,
    dim: usize,
    descending: bool,
) -> (AutodiffTensor<B>, AutodiffTensor<B>) {
    let (values, positions) = B::sort(tensor.primitive.clone(), dim, descending);
    let back = positions.clone();
    let forward = move |_: Vec<T<B>>| values.clone();
    let sorted = Operation::new("sort", vec![tensor]).run::<C>(forward, move |context| {
        let nothing = filled::<B>(context.shapes[0].clone(), 0.0, &context.gradient);
        vec![Some(B::scatter(nothing, dim, back, context.gradient, ScatterOp::Add))]
    });
    (sorted, AutodiffTensor::constant(positions))
}
