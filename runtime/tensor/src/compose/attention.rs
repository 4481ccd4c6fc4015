//! Matrix products with what follows them.

use super::calc::{T, add, index_dtype, lead_to_rank, mul_scalar, reshape, swapped};
use crate::backend::{Backend, Primitive};
use crate::{
    Activation, AttentionOptions, BinaryOp, CompareOp, DType, FullyMasked, ReduceOp, Scalar, Shape, UnaryOp,
};
use alloc::vec::Vec;
use num_traits::Float;

/// Default of [`Backend::linear`].
pub fn linear<B: Backend>(
    x: T<B>,
    weight: &T<B>,
    bias: Option<&T<B>>,
    activation: Option<Activation>,
) -> T<B> {
    let mut dims = x.shape().dims;
    let (inputs, outputs) = (weight.shape()[0], weight.shape()[1]);
    let rows = dims.iter().rev().skip(1).product();
    let mut y = B::matmul(reshape::<B>(x, &[rows, inputs]), weight.clone());
    if let Some(bias) = bias {
        y = add::<B>(y, reshape::<B>(bias.clone(), &[1, outputs]));
    }
    if let Some(activation) = activation {
        y = B::activation(activation, y);
    }
    if let Some(last) = dims.last_mut() {
        *last = outputs;
    }
    reshape::<B>(y, &dims)
}

/// Default of [`Backend::linear_parameter_gradients`].
pub fn linear_parameter_gradients<B: Backend>(gradient: T<B>, x: T<B>) -> (T<B>, T<B>) {
    let [gradient, x] = [gradient, x].map(rows::<B>);
    let weight = B::matmul(B::permute(x, &[1, 0]), gradient.clone());
    let outputs = gradient.shape()[1];
    (weight, reshape::<B>(B::reduce(ReduceOp::Sum, gradient, &[0]), &[outputs]))
}

/// The rows of a tensor, `[…, columns]`, as a matrix.
pub fn rows<B: Backend>(tensor: T<B>) -> T<B> {
    let shape = tensor.shape();
    let columns = shape.iter().next_back().copied().unwrap_or(1);
    let rows = shape.iter().rev().skip(1).product();
    reshape::<B>(tensor, &[rows, columns])
}

/// Default of [`Backend::attention`].
///
/// With grouped queries, the queries that share a key head are laid under each other, so that keys and values need no
/// copies.
pub fn attention<B: Backend>(
    q: T<B>,
    k: T<B>,
    v: T<B>,
    mask: Option<T<B>>,
    options: &AttentionOptions,
) -> T<B> {
    if k.shape()[2] == 0 {
        let mut dims = q.shape().dims;
        dims[3] = v.shape()[3];
        return B::full(Shape::from(dims), Scalar::Float(0.0), q.dtype(), &B::device(&q));
    }
    scores::<B>(q, k, mask, options).attended(v)
}

/// The scores of all keys for all queries.
pub(super) struct Scores<B: Backend> {
    /// `[batch, heads, queries, keys]`, with the mask added; what is hidden has a score below all others.
    pub(super) scores: T<B>,
    /// The scores before the mask, if they were capped.
    pub(super) capped: Option<T<B>>,
    /// What a bool mask or the order hides.
    pub(super) hidden: Option<T<B>>,
    /// `[batch, heads, queries, 1]`: the queries to which an added mask leaves no key that they see, if the options say what
    /// they yield.
    pub(super) empty: Option<T<B>>,
    /// What has no share, where a query may be left without any key.
    without_share: Vec<T<B>>,
}

impl<B: Backend> Scores<B> {
    /// The values by their keys' shares, which are the softmax, and nothing for what is hidden. A query without any key yields zeros even if a value is
    /// infinite.
    pub(super) fn attended(self, v: T<B>) -> T<B> {
        let zeros = |x, masked: &T<B>| B::mask_fill(x, masked.clone(), Scalar::Float(0.0));
        let shares = self.without_share.iter().fold(B::softmax(self.scores, 3), zeros);
        let without_keys = self.without_share.into_iter().map(|masked| match masked.shape()[3] {
            1 => masked,
            _ => B::reduce(ReduceOp::All, masked, &[3]),
        });
        without_keys.fold(weighted::<B>(shares, v), |y, rows| zeros(y, &rows))
    }
}

/// What products of queries and keys are multiplied with.
pub(super) fn scale_of(options: &AttentionOptions, size: usize) -> f64 {
    options.scale.unwrap_or_else(|| 1.0 / Float::sqrt(size as f64))
}

/// Computes the scores.
pub(super) fn scores<B: Backend>(
    q: T<B>,
    k: T<B>,
    mask: Option<T<B>>,
    options: &AttentionOptions,
) -> Scores<B> {
    let [batch, heads, queries, size] = q.shape().dims();
    let [_, key_heads, keys, _] = k.shape().dims();
    let group = heads / key_heads.max(1);
    let q = mul_scalar::<B>(q, scale_of(options, size));
    let q = reshape::<B>(q, &[batch, key_heads, group * queries, size]);
    let scores = B::matmul(q, B::permute(k, &swapped(4, 2, 3)));
    let mut scores = reshape::<B>(scores, &[batch, heads, queries, keys]);
    let mut capped = None;
    if let Some(cap) = options.softcap {
        scores = mul_scalar::<B>(B::unary(UnaryOp::Tanh, mul_scalar::<B>(scores, 1.0 / cap)), cap);
        capped = Some(scores.clone());
    }

    let (kept, added) = match mask.map(|mask| lead_to_rank::<B>(mask, 4)) {
        Some(mask) if mask.dtype() == DType::Bool => (Some(mask), None),
        mask => (None, mask),
    };
    // Rows without any key arise from bool masks and from queries before the first key.
    let may_be_empty = kept.is_some() || (options.is_causal && queries > keys);
    let is_added = added.is_some();
    if let Some(added) = added {
        scores = add::<B>(scores, added);
    }
    let kept = match (kept, options.is_causal) {
        (Some(kept), true) => {
            let causal = causal_mask::<B>(queries, keys, &scores);
            Some(B::binary(BinaryOp::And, kept, causal))
        }
        (None, true) => Some(causal_mask::<B>(queries, keys, &scores)),
        (kept, false) => kept,
    };
    let hidden = kept.map(|kept| B::unary(UnaryOp::Not, kept));
    let mut empty = None;
    if is_added && options.fully_masked.is_some() {
        // Of the keys that the order shows: what is added to others' scores is none of the query's business.
        let seen = hidden.iter().fold(scores.clone(), |scores, hidden| {
            B::mask_fill(scores, hidden.clone(), Scalar::Float(f64::NEG_INFINITY))
        });
        let best = B::reduce(ReduceOp::Max, seen, &[3]);
        let rows = B::compare_scalar(CompareOp::Equal, best, Scalar::Float(f64::NEG_INFINITY));
        // Equal scores, whose softmax is finite.
        scores = B::mask_fill(scores, rows.clone(), Scalar::Float(0.0));
        empty = Some(rows);
    }
    if let Some(hidden) = &hidden {
        // A row of which all keys that the order shows got -∞ is NaN: those that it hides are no better.
        let is_nan_without_keys = is_added && !may_be_empty && options.fully_masked.is_none();
        let lowest = if is_nan_without_keys { f64::NEG_INFINITY } else { lowest(scores.dtype()) };
        scores = B::mask_fill(scores, hidden.clone(), Scalar::Float(lowest));
    }
    let without_share = match options.fully_masked {
        Some(FullyMasked::Mean) => Vec::new(),
        _ => hidden.clone().filter(|_| may_be_empty).into_iter().chain(empty.clone()).collect(),
    };
    Scores { scores, capped, hidden, empty, without_share }
}

/// The values, weighted by their keys' shares.
fn weighted<B: Backend>(shares: T<B>, v: T<B>) -> T<B> {
    let [batch, heads, queries, keys] = shares.shape().dims();
    let (key_heads, value_size) = (v.shape()[1], v.shape()[3]);
    let group = heads / key_heads.max(1);
    let shares = reshape::<B>(shares, &[batch, key_heads, group * queries, keys]);
    reshape::<B>(B::matmul(shares, v), &[batch, heads, queries, value_size])
}

/// `[1, 1, queries, keys]`: true where the key does not come after the query; the last query sees the last key.
fn causal_mask<B: Backend>(queries: usize, keys: usize, like: &T<B>) -> T<B> {
    let device = B::device(like);
    let (queries_i, keys_i) = (queries as i64, keys as i64);
    let last_seen = B::arange(keys_i - queries_i, keys_i, 1, index_dtype::<B>(), &device);
    let key = B::arange(0, keys_i, 1, index_dtype::<B>(), &device);
    let last_seen = reshape::<B>(last_seen, &[1, 1, queries, 1]);
    B::compare(CompareOp::LowerEqual, reshape::<B>(key, &[1, 1, 1, keys]), last_seen)
}

/// A finite score that no real one is below: unlike -∞ it keeps rows without keys, and their gradients, finite.
pub(crate) fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => -65504.0,
        DType::F64 => f64::MIN,
        DType::BF16 => crate::bf16::MIN.to_f64(),
        _ => f64::from(f32::MIN),
    }
}
