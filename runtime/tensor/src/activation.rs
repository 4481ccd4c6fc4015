//! Activation functions.

use crate::backend::Backend;
use crate::{Activation, Tensor, check};

/// Applies an [`Activation`].
pub fn apply<B: Backend, const D: usize>(activation: Activation, tensor: Tensor<B, D>) -> Tensor<B, D> {
    Tensor::wrap(B::activation(activation, tensor.into_backend()))
}

/// `max(x, 0)`.
pub fn relu<const D: usize, B: Backend>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    apply(Activation::Relu, tensor)
}

/// `x` if positive, else `negative_slope · x`.
pub fn leaky_relu<const D: usize, B: Backend>(tensor: Tensor<B, D>, negative_slope: f64) -> Tensor<B, D> {
    apply(Activation::LeakyRelu { slope: negative_slope }, tensor)
}

/// `x` if positive, else `alpha · x`, with one `alpha` for all channels (dim 1) or one for each.
pub fn prelu<const D: usize, B: Backend>(tensor: Tensor<B, D>, alpha: Tensor<B, 1>) -> Tensor<B, D> {
    let count = alpha.dims()[0];
    let shape = tensor.shape();
    let mut dims = [1; D];
    if count != 1 {
        check::ensure!(
            D >= 2 && shape[1] == count,
            "prelu",
            "{count} slopes do not fit the channels (dim 1) of {shape}"
        );
        dims[1] = count;
    }
    let negative = tensor.clone().mul(alpha.reshape::<D, _>(dims));
    let positive = tensor.clone().greater_elem(0);
    negative.mask_where(positive, tensor)
}

/// `x Φ(x)` with the exact error function.
pub fn gelu<const D: usize, B: Backend>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    apply(Activation::Gelu, tensor)
}

/// GELU's approximation by the hyperbolic tangent.
pub fn gelu_approximate<const D: usize, B: Backend>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    apply(Activation::GeluTanh, tensor)
}

/// `1 / (1 + e^-x)`.
pub fn sigmoid<const D: usize, B: Backend>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    apply(Activation::Sigmoid, tensor)
}

/// `ln(sigmoid(x))`, computed without overflow.
pub fn log_sigmoid<const D: usize, B: Backend>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    apply(Activation::Softplus, tensor.neg()).neg()
}

/// The hyperbolic tangent.
pub fn tanh<const D: usize, B: Backend>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    apply(Activation::Tanh, tensor)
}

/// `x · sigmoid(x)`, also called swish.
pub fn silu<const D: usize, B: Backend>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    apply(Activation::Silu, tensor)
}

/// `x · tanh(softplus(x))`.
pub fn mish<const D: usize, B: Backend>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    apply(Activation::Mish, tensor)
}

/// `ln(1 + e^(beta x)) / beta`, computed without overflow.
pub fn softplus<const D: usize, B: Backend>(tensor: Tensor<B, D>, beta: f64) -> Tensor<B, D> {
    if beta == 1.0 {
        return apply(Activation::Softplus, tensor);
    }
    apply(Activation::Softplus, tensor.mul_scalar(beta)).div_scalar(beta)
}

/// `clamp(alpha · x + beta, 0, 1)`.
pub fn hard_sigmoid<const D: usize, B: Backend>(tensor: Tensor<B, D>, alpha: f64, beta: f64) -> Tensor<B, D> {
    apply(Activation::HardSigmoid { alpha, beta }, tensor)
}

/// `x · clamp(x / 6 + 1/2, 0, 1)`.
pub fn hard_swish<const D: usize, B: Backend>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    apply(Activation::HardSwish, tensor)
}

/// `x` if positive, else `alpha · (e^x - 1)`.
pub fn elu<const D: usize, B: Backend>(tensor: Tensor<B, D>, alpha: f64) -> Tensor<B, D> {
    apply(Activation::Elu { alpha }, tensor)
}

/// `clamp(x, min, max)`; ReLU6 is `0, 6`.
pub fn clamp<const D: usize, B: Backend>(tensor: Tensor<B, D>, min: f64, max: f64) -> Tensor<B, D> {
    apply(Activation::Clamp { min, max }, tensor)
}

/// `x / (1 + |x|)`.
pub fn softsign<const D: usize, B: Backend>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    apply(Activation::Softsign, tensor)
}

/// `alpha · x + beta`.
pub fn affine<const D: usize, B: Backend>(tensor: Tensor<B, D>, alpha: f64, beta: f64) -> Tensor<B, D> {
    apply(Activation::Affine { alpha, beta }, tensor)
}

/// `alpha · tanh(beta · x)`.
pub fn scaled_tanh<const D: usize, B: Backend>(tensor: Tensor<B, D>, alpha: f64, beta: f64) -> Tensor<B, D> {
    apply(Activation::ScaledTanh { alpha, beta }, tensor)
}

/// `x` above `alpha`, else 0.
pub fn thresholded_relu<const D: usize, B: Backend>(tensor: Tensor<B, D>, alpha: f64) -> Tensor<B, D> {
    apply(Activation::ThresholdedRelu { alpha }, tensor)
}

/// The first half of `dim` times the sigmoid of the second.
pub fn glu<const D: usize, B: Backend>(tensor: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    let shape = tensor.shape();
    let dim = check::dim("glu", dim as isize, D);
    check::ensure!(shape[dim].is_multiple_of(2), "glu", "dim {dim} of {shape} has no halves");
    let half = shape[dim] / 2;
    let gate = sigmoid(tensor.clone().narrow(dim, half, half));
    tensor.narrow(dim, 0, half).mul(gate)
}

/// `e^x / Σ e^x` along `dim`.
pub fn softmax<const D: usize, B: Backend>(tensor: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    let dim = check::dim("softmax", dim as isize, D);
    Tensor::wrap(B::softmax(tensor.into_backend(), dim))
}

/// The softmax of `-x` along `dim`.
pub fn softmin<const D: usize, B: Backend>(tensor: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    softmax(tensor.neg(), dim)
}

/// The natural logarithm of the softmax along `dim`.
pub fn log_softmax<const D: usize, B: Backend>(tensor: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    let dim = check::dim("log_softmax", dim as isize, D);
    Tensor::wrap(B::log_softmax(tensor.into_backend(), dim))
}

/// `e^x / (1 + Σ e^x)` along `dim`: a softmax that may choose nothing.
pub fn quiet_softmax<const D: usize, B: Backend>(tensor: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    // Both sides are scaled by e^-m; 0 is among the candidates for m, since the 1 is e^0.
    let largest = tensor.clone().detach().max_dim(dim).clamp_min(0);
    let exp = tensor.sub(largest.clone()).exp();
    let sum = exp.clone().sum_dim(dim).add(largest.neg().exp());
    exp.div(sum)
}
