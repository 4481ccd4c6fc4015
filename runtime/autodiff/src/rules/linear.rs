//! Products of matrices.

use super::{T, taken, taken_with_bias};
use crate::checkpoint::CheckpointStrategy;
use crate::operation::Operation;
use crate::tensor::AutodiffTensor;
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{ReduceOp, Shape};

/// The last two dims exchanged.
fn transposed<B: Backend>(matrix: T<B>) -> T<B> {
    let rank = matrix.dims().len();
    let mut axes: Vec<usize> = (0..rank).collect();
    axes.swap(rank - 2, rank - 1);
    B::permute(matrix, &axes)
}

pub(crate) fn matmul<B: Backend, C: CheckpointStrategy>(
    lhs: AutodiffTensor<B>,
    rhs: AutodiffTensor<B>,
) -> AutodiffTensor<B> {
    let forward = |operands: Vec<T<B>>| {
        let [lhs, rhs] = taken(operands);
        B::matmul(lhs, rhs)
    };
    Operation::new("matmul", vec![lhs, rhs]).keep_for(0, 1).keep_for(1, 0).run::<C>(forward, |context| {
        let gradient = &context.gradient;
        // That of the left side, an activation most often, is last: what it is added to follows at once.
        let of_rhs = context.wanted[1].then(|| {
            let shared = context.shapes[1].iter().rev().skip(2).all(|&size| size == 1);
            if shared {
                product_over_batch::<B>(context.operand(0), gradient.clone(), &context.shapes[1])
            } else {
                B::matmul(transposed::<B>(context.operand(0)), gradient.clone())
            }
        });
        let of_lhs =
            context.wanted[0].then(|| B::matmul(gradient.clone(), transposed::<B>(context.operand(1))));
        vec![of_lhs, of_rhs]
    })
}

pub(crate) fn grouped_matmul<B: Backend, C: CheckpointStrategy>(
    x: AutodiffTensor<B>,
    weight: AutodiffTensor<B>,
    ends: T<B>,
) -> AutodiffTensor<B> {
    let forward = {
        let ends = ends.clone();
        move |operands: Vec<T<B>>| {
            let [x, weight] = taken(operands);
            B::grouped_matmul(x, weight, ends.clone())
        }
    };
    Operation::new("grouped_matmul", vec![x, weight]).keep_for(0, 1).keep_for(1, 0).run::<C>(
        forward,
        move |context| {
            let gradient = &context.gradient;
            let of_weight = context.wanted[1].then(|| {
                B::grouped_matmul_weight_gradient(gradient.clone(), context.operand(0), ends.clone())
            });
            let of_x = context.wanted[0].then(|| {
                B::grouped_matmul(gradient.clone(), transposed::<B>(context.operand(1)), ends.clone())
            });
            vec![of_x, of_weight]
        },
    )
}

/// `Σ aᵀ g` over all leading dims as one product: a matrix that is shared by a batch gets its gradient at once, not a
/// batch of gradients that would have to be summed.
fn product_over_batch<B: Backend>(a: T<B>, g: T<B>, shape: &Shape) -> T<B> {
    let leading: Vec<usize> = g.dims().iter().rev().skip(2).rev().copied().collect();
    let rows = |matrix: T<B>| {
        let mut dims = leading.clone();
        dims.extend(matrix.dims().iter().rev().take(2).rev());
        let columns = dims.last().copied().unwrap_or(1);
        let rows = dims.iter().rev().skip(1).product();
        let matrix = if matrix.dims() == dims { matrix } else { B::expand(matrix, Shape::from(dims)) };
        B::reshape(matrix, Shape::from([rows, columns]))
    };
    let product = B::matmul(transposed::<B>(rows(a)), rows(g));
    B::reshape(product, shape.clone())
}

/// `x · weight + bias`.
pub(crate) fn linear<B: Backend, C: CheckpointStrategy>(
    x: AutodiffTensor<B>,
    weight: AutodiffTensor<B>,
    bias: Option<AutodiffTensor<B>>,
) -> AutodiffTensor<B> {
    let forward = |operands: Vec<T<B>>| {
        let (x, weight, bias) = taken_with_bias(operands);
        B::linear(x, &weight, bias.as_ref(), None)
    };
    let operands = [x, weight].into_iter().chain(bias).collect();
    let operation = Operation::new("linear", operands).keep_for(0, 1).keep_for(1, 0).accumulate();
    operation.run::<C>(forward, |mut context| {
        let present = context.present.take();
        let gradient = &context.gradient;
        let (of_weight, of_bias) = match (context.wanted[1], context.wanted.get(2) == Some(&true)) {
            (true, true) => {
                let (weight, bias) = B::linear_parameter_gradients(gradient.clone(), context.operand(0));
                (Some(weight), Some(bias))
            }
            (true, false) => {
                let weight =
                    product_over_batch::<B>(context.operand(0), gradient.clone(), &context.shapes[1]);
                (Some(weight), None)
            }
            (false, true) => {
                let leading: Vec<usize> = (0..gradient.dims().len() - 1).collect();
                let sum = B::reduce(ReduceOp::Sum, gradient.clone(), &leading);
                (None, Some(B::reshape(sum, context.shapes[2].clone())))
            }
            (false, false) => (None, None),
        };
        let of_x = context.wanted[0].then(|| {
            let weight = transposed::<B>(context.operand(1));
            match present {
                // What the input has from other uses is added by the product.
                Some(present) => B::linear_added(gradient.clone(), &weight, present),
                None => B::linear(gradient.clone(), &weight, None, None),
            }
        });
        let has_bias = context.shapes.len() > 2;
        [of_x, of_weight].into_iter().chain(has_bias.then_some(of_bias)).collect()
    })
}
