//! Convolutions with what follows them.

use super::calc::{T, add};
use crate::backend::Backend;
use crate::{Activation, BinaryOp, ConvOptions, Expression, Step};
use alloc::vec;

/// Default of [`Backend::conv_added`].
pub fn conv_added<B: Backend>(
    x: T<B>,
    weight: T<B>,
    bias: Option<T<B>>,
    residual: T<B>,
    activation: Option<Activation>,
    options: &ConvOptions,
) -> T<B> {
    added::<B>(B::conv(x, weight, bias, options), residual, activation)
}

/// `activation(y + residual)`, which follows a convolution.
pub fn added<B: Backend>(y: T<B>, residual: T<B>, activation: Option<Activation>) -> T<B> {
    let Some(activation) = activation else { return add::<B>(y, residual) };
    let steps = vec![
        Step::Input(0),
        Step::Input(1),
        Step::Binary(BinaryOp::Add, 0, 1),
        Step::Activation(activation, 2),
    ];
    let mut results = B::elementwise(&Expression::new(steps), [y, residual].into(), &[]);
    results.pop().expect("a program of one result yields one")
}
