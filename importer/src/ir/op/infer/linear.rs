//! Matrix products and attention.

use super::broadcast::{broadcast_dims, broadcasts_to};
use super::{at_least_rank, dims_error, need, need_equal, need_float, of_rank, same_dtype};
use crate::ir::{Dim, Infer, RuleResult, TensorType};

pub(super) fn matmul(cx: &mut Infer<'_>) -> RuleResult<TensorType> {
    let a = at_least_rank(cx, 0, "a", 2)?;
    let b = of_rank(cx, 1, "b", a.rank())?;
    same_dtype("a", a, "b", b)?;
    need("a", a, !a.dtype.is_bool(), "expected a number")?;
    let lead = a.rank() - 2;
    need_equal("inner dims of a product", &a.dims[lead + 1], a, &b.dims[lead], b)?;
    let mut dims = broadcast_dims(&a.dims[..lead], &b.dims[..lead], &mut || cx.fresh("dim"))
        .ok_or_else(|| dims_error("leading dims of a product", a, b))?;
    dims.push(a.dims[lead].clone());
    dims.push(b.dims[lead + 1].clone());
    Ok(a.with_dims(dims))
}

pub(super) fn linear(cx: &mut Infer<'_>) -> RuleResult<TensorType> {
    let x = at_least_rank(cx, 0, "x", 1)?;
    let weight = of_rank(cx, 1, "weight", 2)?;
    need_float("x", x)?;
    same_dtype("x", x, "weight", weight)?;
    let last = x.rank() - 1;
    need_equal("inner dims of a linear layer", &x.dims[last], x, &weight.dims[0], weight)?;
    if let Some(bias) = cx.optional(2) {
        of_rank(cx, 2, "bias", 1)?;
        same_dtype("x", x, "bias", bias)?;
        need_equal("bias of a linear layer", &bias.dims[0], bias, &weight.dims[1], weight)?;
    }
    let mut dims = x.dims.clone();
    dims[last] = weight.dims[1].clone();
    Ok(x.with_dims(dims))
}

pub(super) fn attention(cx: &mut Infer<'_>) -> RuleResult<TensorType> {
    let q = of_rank(cx, 0, "q", 4)?;
    let k = of_rank(cx, 1, "k", 4)?;
    let v = of_rank(cx, 2, "v", 4)?;
    need_float("q", q)?;
    same_dtype("q", q, "k", k)?;
    same_dtype("q", q, "v", v)?;
    need_equal("batch of q and k", &q.dims[0], q, &k.dims[0], k)?;
    need_equal("batch of k and v", &k.dims[0], k, &v.dims[0], v)?;
    need_equal("head size of q and k", &q.dims[3], q, &k.dims[3], k)?;
    need_equal("sequence of k and v", &k.dims[2], k, &v.dims[2], v)?;
    need_equal("heads of k and v", &k.dims[1], k, &v.dims[1], v)?;
    let groups = q.dims[1].as_size().zip(k.dims[1].as_size());
    if groups.is_some_and(|(q, k)| q.checked_rem(k) != Some(0)) {
        return Err(dims_error("heads of q and k", q, k));
    }
    if let Some(mask) = cx.optional(3) {
        need("mask", mask, mask.dtype.is_bool() || mask.dtype == q.dtype, "expected bool or the dtype of q")?;
        let scores: Vec<Dim> =
            vec![q.dims[0].clone(), q.dims[1].clone(), q.dims[2].clone(), k.dims[2].clone()];
        broadcasts_to(mask, &scores)?;
    }
    let mut dims = q.dims.clone();
    dims[3] = v.dims[3].clone();
    Ok(q.with_dims(dims))
}
