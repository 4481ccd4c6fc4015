//! [`ActivationOps`]: activations and their gradients under Burn's names.

use super::FloatTensor;
use crate::backend::Backend;
use crate::{Activation, BinaryOp, Scalar, UnaryOp};

/// The activations of a [`Backend`] and their gradients under the names that Burn gives them. Every backend has them; none
/// implements them. `grad` is the gradient of an activation's result.
pub trait ActivationOps<B: Backend> {
    /// `max(x, 0)`.
    fn relu(tensor: FloatTensor<B>) -> FloatTensor<B> {
        B::activation(Activation::Relu, tensor)
    }

    /// The gradient of [`ActivationOps::relu`], given its result: 0 where that is 0.
    fn relu_backward(output: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
        B::activation_gradient(Activation::Relu, grad, output)
    }

    /// `x` if positive, else `negative_slope · x`.
    fn leaky_relu(tensor: FloatTensor<B>, negative_slope: B::FloatElem) -> FloatTensor<B> {
        B::activation(Activation::LeakyRelu { slope: number(negative_slope) }, tensor)
    }

    /// `x Φ(x)` with the exact error function.
    fn gelu(tensor: FloatTensor<B>) -> FloatTensor<B> {
        B::activation(Activation::Gelu, tensor)
    }

    /// The gradient of [`ActivationOps::gelu`], given its operand.
    fn gelu_backward(x: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
        B::activation_gradient(Activation::Gelu, grad, x)
    }

    /// `1 / (1 + e^-x)`.
    fn sigmoid(tensor: FloatTensor<B>) -> FloatTensor<B> {
        B::activation(Activation::Sigmoid, tensor)
    }

    /// The gradient of [`ActivationOps::sigmoid`], given its result `y`: `y (1 - y)` times that of the result.
    fn sigmoid_backward(output: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
        let complement = B::binary_scalar(BinaryOp::Add, B::unary(UnaryOp::Neg, output.clone()), 1.0.into());
        B::binary(BinaryOp::Mul, grad, B::binary(BinaryOp::Mul, output, complement))
    }

    /// `clamp(alpha · x + beta, 0, 1)`.
    fn hard_sigmoid(tensor: FloatTensor<B>, alpha: B::FloatElem, beta: B::FloatElem) -> FloatTensor<B> {
        let activation = Activation::HardSigmoid { alpha: number(alpha), beta: number(beta) };
        B::activation(activation, tensor)
    }

    /// `ln(sigmoid(x))`, computed without overflow: `-softplus(-x)`.
    fn log_sigmoid(tensor: FloatTensor<B>) -> FloatTensor<B> {
        let softplus = B::activation(Activation::Softplus, B::unary(UnaryOp::Neg, tensor));
        B::unary(UnaryOp::Neg, softplus)
    }

    /// The gradient of [`ActivationOps::log_sigmoid`], given its operand: `sigmoid(-x)` times that of the result.
    fn log_sigmoid_backward(x: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
        let slope = B::activation(Activation::Sigmoid, B::unary(UnaryOp::Neg, x));
        B::binary(BinaryOp::Mul, grad, slope)
    }
}

impl<B: Backend> ActivationOps<B> for B {}

fn number<E: Into<Scalar>>(value: E) -> f64 {
    value.into().to_f64()
}
