//! Attention of f32 tensors by the fused kernel.

use crate::ops::binary::from_first;
use crate::ops::{cast, copy};
use crate::tensor::NdArrayTensor;
use kiln_kernels::attention::{
    self as kernel, AttentionGradients, AttentionMask, AttentionResult, AttentionShape, Heads,
};
use kiln_tensor::backend::Primitive;
use kiln_tensor::{AttentionOptions, DType, Precision, Shape};

/// Over `[batch, heads, seq, size]`; see [`kiln_tensor::backend::Backend::attention`].
pub(crate) fn attention(
    q: NdArrayTensor,
    k: NdArrayTensor,
    v: NdArrayTensor,
    mask: Option<NdArrayTensor>,
    options: &AttentionOptions,
) -> NdArrayTensor {
    let operands = Operands::new([q, k, v], mask);
    NdArrayTensor::build(operands.output(), DType::F32, |out| {
        let [q, k, v] = operands.heads();
        kernel::attention_in(Precision::current(), &operands.shape, q, k, v, operands.mask(), options, out);
    })
}

/// [`attention`], and the logarithms of the shares' sums, for options that [`kernel::gradient_serves`].
pub(crate) fn attention_train(
    operands: [NdArrayTensor; 3],
    mask: Option<NdArrayTensor>,
    options: &AttentionOptions,
) -> (NdArrayTensor, NdArrayTensor) {
    let operands = Operands::new(operands, mask);
    let AttentionShape { batch, heads, q_len, .. } = operands.shape;
    let mut output = NdArrayTensor::build(operands.output(), DType::F32, |_: &mut [f32]| {});
    let log_sum = NdArrayTensor::build([batch, heads, q_len, 1].into(), DType::F32, |log_sums| {
        let [q, k, v] = operands.heads();
        let out = output.slice_mut().unwrap_or_default();
        kernel::attention_train(&operands.shape, q, k, v, operands.mask(), options, out, log_sums);
    });
    (output, log_sum)
}

/// The gradients of queries, keys and values from that of [`attention_train`]'s result and what it yielded.
pub(crate) fn attention_gradient(
    gradient: NdArrayTensor,
    operands: [NdArrayTensor; 3],
    mask: Option<NdArrayTensor>,
    [output, log_sum]: [NdArrayTensor; 2],
    options: &AttentionOptions,
) -> [NdArrayTensor; 3] {
    let shapes = [0, 1, 2].map(|i| operands[i].shape());
    let operands = Operands::new(operands, mask);
    let [gradient, output] = [gradient, output].map(whole_vectors);
    let log_sum = log_sum.into_contiguous();
    let mut found = shapes.map(|shape| NdArrayTensor::build(shape, DType::F32, |_: &mut [f32]| {}));
    let [q, k, v] = &mut found;
    let into = AttentionGradients {
        q: q.slice_mut().unwrap_or_default(),
        k: k.slice_mut().unwrap_or_default(),
        v: v.slice_mut().unwrap_or_default(),
    };
    let result = AttentionResult {
        gradient: of_heads(&gradient),
        output: of_heads(&output),
        log_sums: log_sum.slice(),
    };
    kernel::attention_gradient(&operands.shape, operands.heads(), operands.mask(), result, options, into);
    found
}

/// Operands as the kernels take them.
struct Operands {
    shape: AttentionShape,
    q: NdArrayTensor,
    k: NdArrayTensor,
    v: NdArrayTensor,
    mask: Option<NdArrayTensor>,
}

impl Operands {
    fn new([q, k, v]: [NdArrayTensor; 3], mask: Option<NdArrayTensor>) -> Self {
        let [batch, heads, q_len, size] = q.shape().dims();
        let [_, kv_heads, k_len, _] = k.shape().dims();
        let value_size = v.dims()[3];
        let mask = mask.map(|mask| {
            let mask = if mask.dtype() == DType::Bool { mask } else { cast::cast(mask, DType::F32) };
            let layout = mask.layout().expand(&Shape::new([batch, heads, q_len, k_len]));
            let mask = mask.with_layout(layout);
            if mask.layout().forward_strides().is_some() { mask } else { copy::contiguous(&mask) }
        });
        let [q, k, v] = [q, k, v].map(whole_vectors);
        let shape = AttentionShape { batch, heads, kv_heads, q_len, k_len, size, value_size };
        Self { shape, q, k, v, mask }
    }

    /// The dims of the result.
    fn output(&self) -> Shape {
        let AttentionShape { batch, heads, q_len, value_size, .. } = self.shape;
        Shape::new([batch, heads, q_len, value_size])
    }

    fn heads(&self) -> [Heads<'_>; 3] {
        [of_heads(&self.q), of_heads(&self.k), of_heads(&self.v)]
    }

    fn mask(&self) -> AttentionMask<'_> {
        match &self.mask {
            None => AttentionMask::None,
            Some(mask) if mask.dtype() == DType::Bool => AttentionMask::Bool(from_first(mask), strides(mask)),
            Some(mask) => AttentionMask::Float(from_first(mask), strides(mask)),
        }
    }
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
