//! Attention of f32 tensors by the fused kernel.

use crate::ops::binary::from_first;
use crate::ops::{cast, copy};
use crate::tensor::NdArrayTensor;
use kiln_kernels::attention::{self as kernel, AttentionMask, AttentionShape, Heads};
use kiln_tensor::backend::Primitive;
use kiln_tensor::{AttentionOptions, DType, Shape};

/// Over `[batch, heads, seq, size]`; see [`kiln_tensor::backend::Backend::attention`].
pub(crate) fn attention(
    q: NdArrayTensor,
    k: NdArrayTensor,
    v: NdArrayTensor,
    mask: Option<NdArrayTensor>,
    options: &AttentionOptions,
) -> NdArrayTensor {
    let [batch, heads, q_len, size] = q.shape().dims();
    let [_, kv_heads, k_len, _] = k.shape().dims();
    let value_size = v.dims()[3];
    let shape = AttentionShape { batch, heads, kv_heads, q_len, k_len, size, value_size };
    let (q, k, v) = (whole_vectors(q), whole_vectors(k), whole_vectors(v));
    let mask = mask.map(|mask| {
        let mask = if mask.dtype() == DType::Bool { mask } else { cast::cast(mask, DType::F32) };
        let layout = mask.layout().expand(&Shape::new([batch, heads, q_len, k_len]));
        let mask = mask.with_layout(layout);
        if mask.layout().forward_strides().is_some() { mask } else { copy::contiguous(&mask) }
    });
    NdArrayTensor::build([batch, heads, q_len, value_size].into(), DType::F32, |out| {
        let mask = match &mask {
            None => AttentionMask::None,
            Some(mask) if mask.dtype() == DType::Bool => AttentionMask::Bool(from_first(mask), strides(mask)),
            Some(mask) => AttentionMask::Float(from_first(mask), strides(mask)),
        };
        kernel::attention(&shape, of_heads(&q), of_heads(&k), of_heads(&v), mask, options, out);
    })
}

/// With contiguous vectors and no negative strides.
fn whole_vectors(x: NdArrayTensor) -> NdArrayTensor {
    let strides = &x.layout().strides;
    let fits = (strides[3] == 1 || x.dims()[3] == 1) && strides.iter().all(|&stride| stride >= 0);
    if fits { x } else { copy::contiguous(&x) }
}

fn strides<const N: usize>(x: &NdArrayTensor) -> [usize; N] {
    core::array::from_fn(|i| x.layout().strides[i].unsigned_abs())
}

fn of_heads(x: &NdArrayTensor) -> Heads<'_> {
    Heads { data: from_first(x), strides: strides(x) }
}
