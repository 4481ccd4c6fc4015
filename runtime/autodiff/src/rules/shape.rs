//! Views, and what joins and assigns parts.

use super::{T, filled};
use crate::checkpoint::CheckpointStrategy;
use crate::operation::{Context, Operation};
use crate::tensor::AutodiffTensor;
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::backend::{Backend, Primitive, SliceRange};
use kiln_tensor::{BinaryOp, Shape};

/// An operation on one operand whose way back needs only dims.
fn view<B: Backend, C: CheckpointStrategy>(
    name: &'static str,
    tensor: AutodiffTensor<B>,
    forward: impl Fn(T<B>) -> T<B> + Send + Sync + 'static,
    backward: impl FnOnce(T<B>, Shape) -> T<B> + Send + 'static,
) -> AutodiffTensor<B> {
    let forward = move |operands: Vec<T<B>>| {
        let [tensor] = super::taken(operands);
        forward(tensor)
    };
    Operation::new(name, vec![tensor]).cheap().run::<C>(forward, |mut context: Context<B>| {
        let shape = context.shapes.remove(0);
        vec![Some(backward(context.gradient, shape))]
    })
}

pub(crate) fn reshape<B: Backend, C: CheckpointStrategy>(
    tensor: AutodiffTensor<B>,
    shape: Shape,
) -> AutodiffTensor<B> {
    view::<B, C>("reshape", tensor, move |x| B::reshape(x, shape.clone()), |g, shape| B::reshape(g, shape))
}

pub(crate) fn permute<B: Backend, C: CheckpointStrategy>(
    tensor: AutodiffTensor<B>,
    axes: &[usize],
) -> AutodiffTensor<B> {
    let mut inverse = vec![0; axes.len()];
    for (to, &from) in axes.iter().enumerate() {
        inverse[from] = to;
    }
    let axes = axes.to_vec();
    view::<B, C>("permute", tensor, move |x| B::permute(x, &axes), move |g, _| B::permute(g, &inverse))
}

/// What was broadcast is summed where the gradient is registered.
pub(crate) fn expand<B: Backend, C: CheckpointStrategy>(
    tensor: AutodiffTensor<B>,
    shape: Shape,
) -> AutodiffTensor<B> {
    view::<B, C>("expand", tensor, move |x| B::expand(x, shape.clone()), |g, _| g)
}

pub(crate) fn slice<B: Backend, C: CheckpointStrategy>(
    tensor: AutodiffTensor<B>,
    ranges: &[SliceRange],
) -> AutodiffTensor<B> {
    let (ranges, back) = (ranges.to_vec(), ranges.to_vec());
    let forward = move |operands: Vec<T<B>>| {
        let [tensor] = super::taken(operands);
        B::slice(tensor, &ranges)
    };
    Operation::new("slice", vec![tensor]).cheap().accumulate().run::<C>(forward, move |mut context| {
        let (shape, gradient) = (context.shapes.remove(0), context.gradient);
        let (whole, part) = match context.present {
            Some(sum) => {
                let part = B::binary(BinaryOp::Add, B::slice(sum.clone(), &back), gradient);
                (sum, part)
            }
            None => (filled::<B>(shape, 0.0, &gradient), gradient),
        };
        vec![Some(B::slice_assign(whole, &back, part))]
    })
}

pub(crate) fn slice_assign<B: Backend, C: CheckpointStrategy>(
    tensor: AutodiffTensor<B>,
    ranges: &[SliceRange],
    value: AutodiffTensor<B>,
) -> AutodiffTensor<B> {
    let (ranges, back) = (ranges.to_vec(), ranges.to_vec());
    let forward = move |operands: Vec<T<B>>| {
        let [tensor, value] = super::taken(operands);
        B::slice_assign(tensor, &ranges, value)
    };
    Operation::new("slice_assign", vec![tensor, value]).run::<C>(forward, move |context| {
        let gradient = context.gradient;
        let of_tensor = context.wanted[0].then(|| {
            let nothing = filled::<B>(context.shapes[1].clone(), 0.0, &gradient);
            B::slice_assign(gradient.clone(), &back, nothing)
        });
        vec![of_tensor, context.wanted[1].then(|| B::slice(gradient, &back))]
    })
}

pub(crate) fn cat<B: Backend, C: CheckpointStrategy>(
    tensors: Vec<AutodiffTensor<B>>,
    dim: usize,
) -> AutodiffTensor<B> {
    Operation::new("cat", tensors).run::<C>(
        move |operands| B::cat(&operands, dim),
        move |context| {
            let dims = context.gradient.dims().to_vec();
            let mut start = 0;
            let part = |(shape, wanted): (&Shape, &bool)| {
                let end = start + shape[dim];
                let mut ranges: Vec<SliceRange> = dims.iter().map(|&size| SliceRange::full(size)).collect();
                ranges[dim] = SliceRange { start, end, step: 1 };
                start = end;
                wanted.then(|| B::slice(context.gradient.clone(), &ranges))
            };
            context.shapes.iter().zip(&context.wanted).map(part).collect()
        },
    )
}

pub(crate) fn to_device<B: Backend, C: CheckpointStrategy>(
    tensor: AutodiffTensor<B>,
    device: &B::Device,
) -> AutodiffTensor<B> {
    let (from, to) = (B::device(&tensor.primitive), device.clone());
    let forward = move |operands: Vec<T<B>>| {
        let [tensor] = super::taken(operands);
        B::to_device(tensor, &to)
    };
    Operation::new("to_device", vec![tensor])
        .run::<C>(forward, move |context| vec![Some(B::to_device(context.gradient, &from))])
}
