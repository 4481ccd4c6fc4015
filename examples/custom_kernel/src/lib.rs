//! An operation that Kiln does not have, `relu(x · weight + bias)` in one kernel, added to the backends of a program.
//!
//! - [`Backend`] is Kiln's trait with one method more, whose default body is the plain version: a backend without a kernel needs
//!   nothing but `impl Backend for …`.
//! - `Wgpu` has a kernel in WGSL (`forward.rs`, `kernel.wgsl`).
//! - `Autodiff` has the way back (`backward.rs`), over any backend, and whatever the kernel of the way there is.
//! - [`dense_relu`] is the operation on tensors.

mod backward;
mod forward;

use kiln::backend::NdArray;
use kiln::tensor::ops::FloatTensor;
use kiln::tensor::{Tensor, TensorPrimitive, activation};

/// Backends with the operation.
pub trait Backend: kiln::tensor::backend::Backend {
    /// `relu(x · weight + bias)`: `x` is `[batch, m, k]`, `weight` `[batch, k, n]`, `bias` `[batch, m, n]`. A batch of 1 serves all of
    /// the others', and so do a bias's row and column of 1.
    fn dense_relu(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        plain::<Self>(x, weight, bias)
    }
}

/// Those that also record gradients.
pub trait AutodiffBackend: Backend + kiln::tensor::backend::AutodiffBackend {}

/// The operation made of a backend's own ones.
fn plain<B: kiln::tensor::backend::Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    bias: FloatTensor<B>,
) -> FloatTensor<B> {
    B::relu(B::float_add(B::float_matmul(x, weight), bias))
}

impl Backend for NdArray {}

/// [`Backend::dense_relu`] on tensors.
pub fn dense_relu<B: Backend>(x: Tensor<B, 3>, weight: Tensor<B, 3>, bias: Tensor<B, 3>) -> Tensor<B, 3> {
    let primitive = |tensor: Tensor<B, 3>| tensor.into_primitive().tensor();
    Tensor::from_primitive(TensorPrimitive::Float(B::dense_relu(
        primitive(x),
        primitive(weight),
        primitive(bias),
    )))
}

/// What [`dense_relu`] computes, of operations on tensors: three kernels, and gradients that Kiln knows.
pub fn reference<B: kiln::tensor::backend::Backend>(
    x: Tensor<B, 3>,
    weight: Tensor<B, 3>,
    bias: Tensor<B, 3>,
) -> Tensor<B, 3> {
    activation::relu(x.matmul(weight) + bias)
}
