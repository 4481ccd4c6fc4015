//! Products of matrices.

use super::{T, mul, taken, taken_with_bias};
use crate::checkpoint::CheckpointStrategy;
use crate::operation::Operation;
use crate::tensor::AutodiffTensor;
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::compose::wide;
use kiln_tensor::{BinaryOp, CompareOp, DType, ReduceOp, Scalar, Shape};

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

/// Differences of two matrices' rows that there may be on the way back, each of which then counts as it is.
const MOST_DIFFERENCES: usize = 1 << 24;

/// With `g` the gradient of the distances, that of `x` is `2 Σ g (x - y)`. Where there are too many differences, it is `2 (x Σ g - g y)`, as `torch.cdist`
/// has it: of rows that are far from the middle of `y`, what lies between them is rounded as they are. Where a distance is 0, so is its gradient, whatever comes
/// back: a root's is infinite there.
pub(crate) fn squared_distances<B: Backend, C: CheckpointStrategy>(
    x: AutodiffTensor<B>,
    y: AutodiffTensor<B>,
) -> AutodiffTensor<B> {
    let forward = |operands: Vec<T<B>>| {
        let [x, y] = taken(operands);
        B::squared_distances(x, y)
    };
    Operation::new("squared_distances", vec![x, y]).keep(0).keep(1).keep_result().run::<C>(
        forward,
        |context| {
            let dtype = context.gradient.dtype();
            let cast =
                |tensor: T<B>, to: DType| if tensor.dtype() == to { tensor } else { B::cast(tensor, to) };
            if context.gradient.shape().num_elements() == 0 {
                return vec![None, None];
            }
            let equal = B::compare_scalar(CompareOp::Equal, context.result(), Scalar::Float(0.0));
            let gradient = B::mask_fill(context.gradient.clone(), equal, Scalar::Float(0.0));
            let gradient = B::binary_scalar(BinaryOp::Mul, cast(gradient, wide(dtype)), Scalar::Float(2.0));
            let [x, y] = [0, 1].map(|n| cast(context.operand(n), wide(dtype)));
            let size = context.shapes[0].iter().last().copied().unwrap_or(1);
            let count = gradient.shape().num_elements().saturating_mul(size);
            let of = if count <= MOST_DIFFERENCES { by_differences::<B> } else { by_products::<B> };
            let of_y = context.wanted[1].then(|| of(transposed::<B>(gradient.clone()), y.clone(), x.clone()));
            let of_x = context.wanted[0].then(|| of(gradient.clone(), x, y));
            [of_x, of_y].map(|found| found.map(|found| cast(found, dtype))).into()
        },
    )
}

/// `Σ g (own - other)` over the rows of `other`.
fn by_differences<B: Backend>(gradient: T<B>, own: T<B>, other: T<B>) -> T<B> {
    let rank = own.dims().len();
    let with_axis = |tensor: T<B>, axis: usize| {
        let mut dims: Vec<usize> = tensor.dims().to_vec();
        dims.insert(axis, 1);
        B::reshape(tensor, Shape::from(dims))
    };
    let shape = own.shape();
    let differences = B::binary(BinaryOp::Sub, with_axis(own, rank - 1), with_axis(other, rank - 2));
    let pulls = mul::<B>(differences, with_axis(gradient, rank));
    B::reshape(B::reduce(ReduceOp::Sum, pulls, &[rank - 1]), shape)
}

/// `own Σ g - g other`, both from the middle of `other`.
fn by_products<B: Backend>(gradient: T<B>, own: T<B>, other: T<B>) -> T<B> {
    let rank = own.dims().len();
    let middle = B::reduce(ReduceOp::Mean, other.clone(), &[rank - 2]);
    let [own, other] = [own, other].map(|side| B::binary(BinaryOp::Sub, side, middle.clone()));
    let sums = B::reduce(ReduceOp::Sum, gradient.clone(), &[rank - 1]);
    B::binary(BinaryOp::Sub, mul::<B>(own, sums), B::matmul(gradient, other))
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
