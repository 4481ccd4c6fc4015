//! Cases' tensors, and PyTorch's parameters put into layers.

use kiln::backend::NdArray;
use kiln::module::Param;
use kiln::nn::attention::MultiHeadAttention;
use kiln::nn::{LayerNorm, Linear};
use kiln::tensor::{Float, Tensor};
use kiln_backend_tests::case::Case;

type B = NdArray;

pub fn get<const D: usize>(case: &Case, name: &str) -> Tensor<B, D> {
    case.get::<B, D, Float>(name)
}

pub fn param<const D: usize>(case: &Case, name: &str) -> Param<Tensor<B, D>> {
    Param::from_tensor(get(case, name))
}

/// PyTorch's `[out, in]` weight and bias, of which rows `part` of `of` belong to the layer.
pub fn put_linear(linear: &mut Linear<B>, case: &Case, weight: &str, bias: &str, part: usize, of: usize) {
    let weight = match get::<2>(case, weight) {
        own if own.dims()[0] == linear.weight.dims()[1] => own,
        parts => parts.chunk(of, 0).swap_remove(part),
    };
    let bias: Tensor<B, 1> = get::<1>(case, bias).chunk(of, 0).swap_remove(part);
    linear.weight = Param::from_tensor(weight.transpose());
    linear.bias = Some(Param::from_tensor(bias));
}

pub fn put_attention(attention: &mut MultiHeadAttention<B>, case: &Case, prefix: &str) {
    let (weight, bias) = (format!("{prefix}in_proj_weight"), format!("{prefix}in_proj_bias"));
    put_linear(&mut attention.query, case, &weight, &bias, 0, 3);
    put_linear(&mut attention.key, case, &weight, &bias, 1, 3);
    put_linear(&mut attention.value, case, &weight, &bias, 2, 3);
    let (weight, bias) = (format!("{prefix}out_proj.weight"), format!("{prefix}out_proj.bias"));
    put_linear(&mut attention.output, case, &weight, &bias, 0, 1);
}

pub fn put_norm(norm: &mut LayerNorm<B>, case: &Case, name: &str) {
    norm.gamma = param(case, &format!("{name}.weight"));
    norm.beta = Some(param(case, &format!("{name}.bias")));
}
