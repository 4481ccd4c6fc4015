//! Convolution, pooling and resizing.

use super::{T, taken, taken_with_bias};
use crate::checkpoint::CheckpointStrategy;
use crate::operation::Operation;
use crate::tensor::AutodiffTensor;
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{
    ConvOptions, ConvTransposeOptions, InterpolateOptions, PoolOp, PoolOptions, ReduceOp, Shape,
};

/// The operands of a layer as a list.
fn operands<B: Backend>(
    x: AutodiffTensor<B>,
    weight: AutodiffTensor<B>,
    bias: Option<AutodiffTensor<B>>,
) -> Vec<AutodiffTensor<B>> {
    [x, weight].into_iter().chain(bias).collect()
}

/// The gradient of a bias along the channels: the sum over everything else.
fn of_bias<B: Backend>(gradient: T<B>, shape: &Shape) -> T<B> {
    let axes: Vec<usize> = (0..gradient.dims().len()).filter(|&axis| axis != 1).collect();
    B::reshape(B::reduce(ReduceOp::Sum, gradient, &axes), shape.clone())
}

pub(crate) fn conv<B: Backend, C: CheckpointStrategy>(
    x: AutodiffTensor<B>,
    weight: AutodiffTensor<B>,
    bias: Option<AutodiffTensor<B>>,
    options: &ConvOptions,
) -> AutodiffTensor<B> {
    let (options, back) = (options.clone(), options.clone());
    let forward = move |operands: Vec<T<B>>| {
        let (x, weight, bias) = taken_with_bias(operands);
        B::conv(x, weight, bias, &options)
    };
    let operation = Operation::new("conv", operands(x, weight, bias)).keep_for(0, 1).keep_for(1, 0);
    operation.run::<C>(forward, move |context| {
        let (gradient, shapes) = (&context.gradient, &context.shapes);
        // The input's is last: what is done with it, a sum with those of other uses or an activation's gradient, follows at once.
        let of_weight = context.wanted[1]
            .then(|| B::conv_weight_gradient(context.operand(0), gradient.clone(), &shapes[1], &back));
        let bias = context.wanted.get(2);
        let of_bias = bias.map(|wanted| wanted.then(|| of_bias::<B>(gradient.clone(), &shapes[2])));
        let of_x = context.wanted[0]
            .then(|| B::conv_input_gradient(gradient.clone(), context.operand(1), &shapes[0], &back));
        [of_x, of_weight].into_iter().chain(of_bias).collect()
    })
}

pub(crate) fn conv_transpose<B: Backend, C: CheckpointStrategy>(
    x: AutodiffTensor<B>,
    weight: AutodiffTensor<B>,
    bias: Option<AutodiffTensor<B>>,
    options: &ConvTransposeOptions,
) -> AutodiffTensor<B> {
    let (options, back) = (options.clone(), options.clone());
    let forward = move |operands: Vec<T<B>>| {
        let (x, weight, bias) = taken_with_bias(operands);
        B::conv_transpose(x, weight, bias, &options)
    };
    let operation = Operation::new("conv_transpose", operands(x, weight, bias)).keep_for(0, 1).keep_for(1, 0);
    operation.run::<C>(forward, move |context| {
        let (gradient, shapes) = (&context.gradient, &context.shapes);
        // As for a convolution, the input's is last.
        let of_weight = context.wanted[1].then(|| {
            B::conv_transpose_weight_gradient(context.operand(0), gradient.clone(), &shapes[1], &back)
        });
        let bias = context.wanted.get(2);
        let of_bias = bias.map(|wanted| wanted.then(|| of_bias::<B>(gradient.clone(), &shapes[2])));
        let of_x = context.wanted[0].then(|| {
            B::conv_transpose_input_gradient(gradient.clone(), context.operand(1), &shapes[0], &back)
        });
        [of_x, of_weight].into_iter().chain(of_bias).collect()
    })
}

pub(crate) fn pool<B: Backend, C: CheckpointStrategy>(
    op: PoolOp,
    x: AutodiffTensor<B>,
    options: &PoolOptions,
) -> AutodiffTensor<B> {
    let (options, back) = (options.clone(), options.clone());
    let forward = move |operands: Vec<T<B>>| {
        let [x] = taken(operands);
        B::pool(op, x, &options)
    };
    Operation::new("pool", vec![x]).keep(0).keep_result().run::<C>(forward, move |context| {
        let (x, output) = (context.operand(0), context.result());
        vec![Some(B::pool_gradient(op, context.gradient, x, output, &back))]
    })
}

pub(crate) fn max_pool_with_indices<B: Backend, C: CheckpointStrategy>(
    x: AutodiffTensor<B>,
    options: &PoolOptions,
) -> (AutodiffTensor<B>, AutodiffTensor<B>) {
    let (maxima, positions) = B::max_pool_with_indices(x.primitive.clone(), options);
    let (back, options) = (positions.clone(), options.clone());
    let forward = move |_: Vec<T<B>>| maxima.clone();
    let pooled = Operation::new("max_pool_with_indices", vec![x]).run::<C>(forward, move |context| {
        vec![Some(B::max_pool_gradient(context.gradient, back, &context.shapes[0], &options))]
    });
    (pooled, AutodiffTensor::constant(positions))
}

pub(crate) fn adaptive_avg_pool<B: Backend, C: CheckpointStrategy>(
    x: AutodiffTensor<B>,
    output_size: &[usize],
) -> AutodiffTensor<B> {
    let size = output_size.to_vec();
    let forward = move |operands: Vec<T<B>>| {
        let [x] = taken(operands);
        B::adaptive_avg_pool(x, &size)
    };
    Operation::new("adaptive_avg_pool", vec![x]).run::<C>(forward, |context| {
        vec![Some(B::adaptive_avg_pool_gradient(context.gradient, &context.shapes[0]))]
    })
}

pub(crate) fn interpolate<B: Backend, C: CheckpointStrategy>(
    x: AutodiffTensor<B>,
    options: &InterpolateOptions,
) -> AutodiffTensor<B> {
    let (options, back) = (options.clone(), options.clone());
    let forward = move |operands: Vec<T<B>>| {
        let [x] = taken(operands);
        B::interpolate(x, &options)
    };
    Operation::new("interpolate", vec![x]).run::<C>(forward, move |context| {
        vec![Some(B::interpolate_gradient(context.gradient, &context.shapes[0], &back))]
    })
}
