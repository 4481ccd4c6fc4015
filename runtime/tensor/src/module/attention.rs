//! Products with weights, and attention.

use crate::backend::{Backend, Primitive};
use crate::check::{self, ensure};
use crate::compose::attention::lowest;
use crate::{Activation, AttentionOptions, Bool, DType, FullyMasked, Int, Shape, Tensor, Traced, trace};

#[track_caller]
fn check_linear(x: &[usize], weight: &[usize], bias: Option<&[usize]>) {
    ensure!(
        x.last() == Some(&weight[0]),
        "linear",
        "the last dim of {x:?} does not fit a weight {weight:?}, which is [in, out]"
    );
    if let Some(bias) = bias {
        ensure!(bias[..] == weight[1..], "linear", "a bias {bias:?} does not fit a weight {weight:?}");
    }
}

/// [`linear`] of a weight and a bias that stay where they are, with an activation or without: what a layer computes.
pub fn linear_with<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: &Tensor<B, 2>,
    bias: Option<&Tensor<B, 1>>,
    activation: Option<Activation>,
) -> Tensor<B, D> {
    check_linear(x.sizes(), weight.sizes(), bias.map(Tensor::sizes));
    check::same_dtypes("linear", x.dtype(), weight.dtype(), bias.map(Tensor::dtype));
    let bias = bias.map(Tensor::as_backend);
    Tensor::wrap(B::linear(x.into_backend(), weight.as_backend(), bias, activation))
}

/// `x · weight + bias`: `x` is `[…, in]`, `weight` `[in, out]`, `bias` `[out]`.
pub fn linear<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
) -> Tensor<B, D> {
    linear_with(x, &weight, bias.as_ref(), None)
}

/// [`linear`] and an activation, in one operation where the backend has it.
pub fn linear_activated<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
    activation: Activation,
) -> Tensor<B, D> {
    linear_with(x, &weight, bias.as_ref(), Some(activation))
}

/// Rows times the matrix of their group: `x` is `[rows, in]`, `weight` `[groups, in, out]`, and the result `[rows, out]`. The groups' rows are one behind
/// another; `ends` `[groups]` says where they end, in ascending order. Rows behind the last group become 0. Experts of a network compute their tokens so
/// (Gale et al. 2023, "MegaBlocks: Efficient Sparse Training with Mixture-of-Experts").
///
/// Each row is multiplied by one matrix, on the CPU as on GPUs. Only where kernels do not see all of a tensor (WebGPU binds perhaps 128 MB), all rows
/// are multiplied by all matrices.
///
/// # Panics
/// When shapes do not fit.
pub fn grouped_matmul<B: Backend>(
    x: Tensor<B, 2>,
    weight: Tensor<B, 3>,
    ends: Tensor<B, 1, Int>,
) -> Tensor<B, 2> {
    let (rows, matrices, groups) = (x.sizes(), weight.sizes(), ends.sizes());
    ensure!(
        rows[1] == matrices[1] && groups[0] == matrices[0],
        "grouped_matmul",
        "rows {rows:?} and {groups:?} ends do not fit a weight {matrices:?}, which is [groups, in, out]"
    );
    check::same_dtype("grouped_matmul", x.dtype(), weight.dtype());
    Tensor::wrap(B::grouped_matmul(x.into_backend(), weight.into_backend(), ends.into_backend()))
}

/// Rows of `weights` `[n, size]` for `[batch, seq]` indices, which may count from the end: `[batch, seq, size]`.
pub fn embedding<B: Backend>(weights: Tensor<B, 2>, indices: Tensor<B, 2, Int>) -> Tensor<B, 3> {
    weights.take_wrapped(0, indices)
}

/// A mask of attention scores, of any rank that broadcasts to `[batch, heads, queries, keys]`: a bool mask keeps where
/// it is true, a float mask is added, of whatever float dtype it is.
#[derive(Clone, Debug)]
pub struct AttentionMask<B: Backend>(B::Primitive);

impl<B: Backend, const D: usize> From<Tensor<B, D, Bool>> for AttentionMask<B> {
    fn from(mask: Tensor<B, D, Bool>) -> Self {
        Self(mask.into_backend())
    }
}

impl<B: Backend, const D: usize> From<Tensor<B, D>> for AttentionMask<B> {
    fn from(mask: Tensor<B, D>) -> Self {
        Self(mask.into_backend())
    }
}

/// Scaled-dot-product attention over `[batch, heads, seq, size]`: `softmax(scale · q kᵀ + mask) v`.
///
/// Keys and values may have fewer heads than queries (grouped queries): their number divides that of the queries. What
/// a query gets that the mask leaves without any key, [`AttentionOptions::fully_masked`] says; without keys at all, zeros.
///
/// # Panics
/// When shapes or dtypes do not fit, or the mean of all values is asked for beside `is_causal`.
pub fn attention<B: Backend>(
    query: Tensor<B, 4>,
    key: Tensor<B, 4>,
    value: Tensor<B, 4>,
    mask: Option<AttentionMask<B>>,
    options: AttentionOptions,
) -> Tensor<B, 4> {
    let (q, k, v) = (query.dims(), key.dims(), value.dims());
    let batch = q[0] == k[0] && k[0] == v[0];
    let heads = k[1] == v[1] && k[1] > 0 && q[1].is_multiple_of(k[1]);
    ensure!(
        batch && heads && q[3] == k[3] && k[2] == v[2],
        "attention",
        "queries {q:?}, keys {k:?} and values {v:?} do not fit"
    );
    let options = AttentionOptions { softcap: options.softcap.filter(|&cap| cap != 0.0), ..options };
    let mean = options.fully_masked == Some(FullyMasked::Mean);
    ensure!(
        !(mean && options.is_causal),
        "attention",
        "`FullyMasked::Mean` has no meaning beside `is_causal`"
    );
    check::same_dtype("attention", query.dtype(), key.dtype());
    check::same_dtype("attention", key.dtype(), value.dtype());
    if let Some(AttentionMask(mask)) = &mask {
        let scores = Shape::from([q[0], q[1], q[2], k[2]]);
        let shape = mask.shape();
        let fits = shape.broadcast(&scores).is_some_and(|full| full == scores);
        ensure!(fits, "attention", "a mask {shape} does not broadcast to the scores, {scores}");
        ensure!(
            mask.dtype().is_bool() || mask.dtype().is_float(),
            "attention",
            "the mask is {} and the queries {}",
            mask.dtype(),
            query.dtype()
        );
    }
    let mask = mask.map(|mask| of_scores::<B>(mask.0, query.dtype()));
    let [query, key, value] = [query, key, value].map(Tensor::into_backend);
    Tensor::wrap(B::attention(query, key, value, mask, &options))
}

/// A mask in the dtype of the scores that it is added to: a model that computes in 16 bits may have made it in 32. What is finite stays
/// so, as the lowest number of f32 hides keys, and a row of -∞ would yield NaN.
fn of_scores<B: Backend>(mask: B::Primitive, dtype: DType) -> B::Primitive {
    if mask.dtype().is_bool() || mask.dtype() == dtype {
        return mask;
    }
    let most = -lowest(dtype);
    let narrowed = |[mask]: [Traced; 1]| {
        let infinite = mask.clone().abs().equal(f64::INFINITY);
        mask.clone().clamp(-most, most).mask_where(infinite, mask).cast(dtype)
    };
    let [mask] = trace::run::<B, 1, 1>([mask], |mask| [narrowed(mask)]);
    mask
}
