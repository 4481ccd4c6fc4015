//! Attention in training.

use crate::backend::{Backend, Primitive};
use crate::compose::attention::{scale_of, scores};
use crate::compose::calc::{T, add, mul, mul_scalar, reshape, sub, swapped, to_dtype, wide};
use crate::{AttentionOptions, DType, FullyMasked, ReduceOp, Scalar, Shape, UnaryOp, trace};
use alloc::vec::Vec;

/// What attention keeps in training: its operands, its result, and what the shares were divided by.
#[derive(Clone, Debug)]
pub struct AttentionTrained<P> {
    /// Queries.
    pub q: P,
    /// Keys.
    pub k: P,
    /// Values.
    pub v: P,
    /// The mask, bool or added.
    pub mask: Option<P>,
    /// The result.
    pub output: P,
    /// The logarithm of the sum of the exponentials of each query's scores, `[batch, heads, queries, 1]`; of floats of 16 bits in f32.
    pub log_sum: P,
}

/// Gradients of attention.
#[derive(Clone, Debug)]
pub struct AttentionGradients<P> {
    /// Of the queries.
    pub q: P,
    /// Of the keys.
    pub k: P,
    /// Of the values.
    pub v: P,
    /// Of an added mask, where it was asked for.
    pub mask: Option<P>,
}

/// A mask that is added, in another dtype.
fn mask_in<B: Backend>(mask: Option<T<B>>, dtype: DType) -> Option<T<B>> {
    mask.map(|mask| if mask.dtype().is_float() { to_dtype::<B>(mask, dtype) } else { mask })
}

/// Default of [`Backend::attention_train`]. What floats of 16 bits would round too coarsely, shares and their sums, is computed in f32.
pub fn attention_train<B: Backend>(
    q: T<B>,
    k: T<B>,
    v: T<B>,
    mask: Option<T<B>>,
    options: &AttentionOptions,
) -> AttentionTrained<T<B>> {
    let (dtype, wide) = (q.dtype(), wide(q.dtype()));
    let [wide_q, wide_k, wide_v] = [&q, &k, &v].map(|x| to_dtype::<B>(x.clone(), wide));
    let computed = scores::<B>(wide_q, wide_k, mask_in::<B>(mask.clone(), wide), options);
    let largest = B::reduce(ReduceOp::Max, computed.scores.clone(), &[3]);
    let exponentials = B::unary(UnaryOp::Exp, sub::<B>(computed.scores.clone(), largest.clone()));
    let sum = B::unary(UnaryOp::Log, B::reduce(ReduceOp::Sum, exponentials, &[3]));
    let log_sum = add::<B>(largest, sum);
    let output = to_dtype::<B>(computed.attended(wide_v), dtype);
    AttentionTrained { q, k, v, mask, output, log_sum }
}

/// Default of [`Backend::attention_gradient`]: the shares are computed again.
pub fn attention_gradient<B: Backend>(
    gradient: T<B>,
    trained: AttentionTrained<T<B>>,
    options: &AttentionOptions,
    of_mask: bool,
) -> AttentionGradients<T<B>> {
    let AttentionTrained { q, k, v, mask, output, log_sum } = trained;
    let (dtype, wide) = (q.dtype(), wide(q.dtype()));
    let mask_dtype = mask.as_ref().map(Primitive::dtype);
    let [gradient, q, k, v, output, log_sum] =
        [gradient, q, k, v, output, log_sum].map(|x| to_dtype::<B>(x, wide));
    let mask = mask_in::<B>(mask, wide);
    let [batch, heads, queries, size] = q.shape().dims();
    let [_, key_heads, keys, _] = k.shape().dims();
    let value_size = v.shape()[3];
    // Queries that share a key head lie under each other.
    let rows = heads / key_heads.max(1) * queries;
    let scale = scale_of(options, size);

    let mask_shape = mask.as_ref().filter(|mask| mask.dtype().is_float()).map(Primitive::shape);
    let computed = scores::<B>(q.clone(), k.clone(), mask, options);
    let [mut shares] =
        trace::run::<B, 2, 1>([computed.scores, log_sum], |[score, sum]| [(score - sum).exp()]);
    let mean = options.fully_masked == Some(FullyMasked::Mean);
    // Queries without any key, whose shares are the same whatever the scores are.
    let mut constant = Vec::new();
    if let Some(empty) = computed.empty {
        // For the mean, the scores are equal already.
        if !mean {
            shares = B::mask_fill(shares, empty.clone(), Scalar::Int(0));
        }
        constant.push(empty);
    }
    if let Some(hidden) = &computed.hidden {
        shares = B::mask_fill(shares, hidden.clone(), Scalar::Int(0));
        if mean {
            let empty = B::reduce(ReduceOp::All, hidden.clone(), &[3]);
            shares = B::mask_fill(shares, empty.clone(), Scalar::Float(1.0 / keys as f64));
            constant.push(empty);
        }
    }
    let flow = B::reduce(ReduceOp::Sum, mul::<B>(gradient.clone(), output), &[3]);
    let gradient = reshape::<B>(gradient, &[batch, key_heads, rows, value_size]);
    let turned = |t: T<B>| B::permute(t, &swapped(4, 2, 3));
    let by_key = |t: T<B>| reshape::<B>(t, &[batch, key_heads, rows, keys]);
    let of_values = B::matmul(turned(by_key(shares.clone())), gradient.clone());
    let of_shares = reshape::<B>(B::matmul(gradient, turned(v)), &[batch, heads, queries, keys]);
    let operands = [shares, of_shares, flow];
    let [of_scores] = trace::run::<B, 3, 1>(operands, |[share, gradient, flow]| [share * (gradient - flow)]);
    // Nor does anything flow to what is hidden, whose value may be whatever it is.
    let without_flow = constant.into_iter().chain(computed.hidden);
    let of_scores = without_flow.fold(of_scores, |x, mask| B::mask_fill(x, mask, Scalar::Int(0)));

    let mask = mask_shape.filter(|_| of_mask).map(|shape| summed_to::<B>(of_scores.clone(), &shape));
    let of_products = match (options.softcap, computed.capped) {
        // cap · tanh(x / cap)
        (Some(cap), Some(capped)) => {
            let [result] = trace::run::<B, 2, 1>([of_scores, capped], |[gradient, y]| {
                let tanh = y * (1.0 / cap);
                [gradient * (1.0 - tanh.clone() * tanh)]
            });
            result
        }
        _ => of_scores,
    };
    let of_products = by_key(mul_scalar::<B>(of_products, scale));
    let q = reshape::<B>(q, &[batch, key_heads, rows, size]);
    let of_queries = reshape::<B>(B::matmul(of_products.clone(), k), &[batch, heads, queries, size]);
    let [q, k, v] =
        [of_queries, B::matmul(turned(of_products), q), of_values].map(|x| to_dtype::<B>(x, dtype));
    let mask = mask.zip(mask_dtype).map(|(mask, dtype)| to_dtype::<B>(mask, dtype));
    AttentionGradients { q, k, v, mask }
}

/// Sums over what an operand of this shape was broadcast along.
fn summed_to<B: Backend>(x: T<B>, shape: &Shape) -> T<B> {
    let lead = x.shape().rank() - shape.rank();
    let axes: Vec<usize> =
        (0..x.shape().rank()).filter(|&axis| axis < lead || shape[axis - lead] != x.shape()[axis]).collect();
    let sum = if axes.is_empty() { x } else { B::reduce(ReduceOp::Sum, x, &axes) };
    reshape::<B>(sum, &shape.dims)
}
