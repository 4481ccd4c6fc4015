//! Activations of networks.

use super::elementwise::elementwise_loops;
use super::prelude::*;
use kiln_types::{Activation, BinaryOp, Step, UnaryOp};

impl Operation for Activation {
    facts!(operands: ["x"], effect: Pure, folding: PerElement(1), result: Computed);
    none!(host);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = cx.ty(0)?;
        need_float("x", x)?;
        Ok(vec![x.clone()])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        Some(vec![activation(*self, operands.get(0)?)?])
    }

    fn derivation(&self, of: &Sources<'_>) -> Result<Derivation, String> {
        let one = || Derivation::Number(1.0);
        let unary = |op, x| Derivation::Unary(op, Box::new(x));
        match self {
            Activation::Tanh => Ok(Derivation::Unary(UnaryOp::Tanh, of.boxed(0)?)),
            Activation::Sigmoid => {
                let exp = unary(UnaryOp::Exp, unary(UnaryOp::Neg, of.of(0)?));
                Ok(Derivation::binary(BinaryOp::Div, one(), Derivation::binary(BinaryOp::Add, one(), exp)))
            }
            Activation::Softplus => Ok(unary(UnaryOp::Log1p, unary(UnaryOp::Exp, of.of(0)?))),
            Activation::Relu
            | Activation::LeakyRelu { .. }
            | Activation::Gelu
            | Activation::GeluTanh
            | Activation::Silu
            | Activation::Mish
            | Activation::HardSigmoid { .. }
            | Activation::HardSwish
            | Activation::Elu { .. }
            | Activation::Clamp { .. }
            | Activation::Affine { .. }
            | Activation::ScaledTanh { .. }
            | Activation::Softsign
            | Activation::ThresholdedRelu { .. } => Err(of.unknown()),
        }
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        elementwise_loops(cx, Step::Activation(*self, 0), 1)
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Call(apply(*self, Arg::Operand(0)))
    }
}

pub(super) fn activation(activation: Activation, x: &TensorData) -> Option<TensorData> {
    let Elements::Float(values) = Elements::load(x) else {
        return None;
    };
    let values = values.into_iter().map(|x| activate(activation, x)).collect();
    Some(Elements::Float(values).store(x.dtype, x.shape.clone()))
}

/// One activation of one number.
pub(super) fn activate(activation: Activation, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    match activation {
        Activation::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Activation::LeakyRelu { slope } => {
            if x < 0.0 {
                slope * x
            } else {
                x
            }
        }
        Activation::Gelu => 0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::Sigmoid => sigmoid(x),
        Activation::Tanh => x.tanh(),
        Activation::Silu => x * sigmoid(x),
        Activation::Mish => x * softplus(x).tanh(),
        Activation::Softplus => softplus(x),
        Activation::HardSigmoid { alpha, beta } => (alpha * x + beta).clamp(0.0, 1.0),
        Activation::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Activation::Elu { alpha } => {
            if x < 0.0 {
                alpha * x.exp_m1()
            } else {
                x
            }
        }
        Activation::Clamp { min, max } => {
            let low = if x < min { min } else { x };
            if low > max { max } else { low }
        }
        Activation::Affine { alpha, beta } => alpha * x + beta,
        Activation::ScaledTanh { alpha, beta } => alpha * (beta * x).tanh(),
        Activation::Softsign => x / (1.0 + x.abs()),
        Activation::ThresholdedRelu { alpha } => {
            if x > alpha {
                x
            } else {
                0.0
            }
        }
    }
}

/// An activation of an expression.
fn apply(activation: Activation, x: Arg) -> Arg {
    let (function, numbers) = activation_call(activation);
    let numbers = numbers.into_iter().map(Arg::Float);
    match activation {
        Activation::Clamp { .. } => x.then(function, numbers.collect::<Vec<_>>()),
        _ => Arg::call(
            format!("tensor::activation::{function}"),
            std::iter::once(x).chain(numbers).collect::<Vec<_>>(),
        ),
    }
}

/// The function that applies an activation, and the numbers that it takes behind its operand.
pub fn activation_call(activation: Activation) -> (&'static str, Vec<f64>) {
    match activation {
        Activation::Relu => ("relu", Vec::new()),
        Activation::LeakyRelu { slope } => ("leaky_relu", vec![slope]),
        Activation::Gelu => ("gelu", Vec::new()),
        Activation::GeluTanh => ("gelu_approximate", Vec::new()),
        Activation::Sigmoid => ("sigmoid", Vec::new()),
        Activation::Tanh => ("tanh", Vec::new()),
        Activation::Silu => ("silu", Vec::new()),
        Activation::Mish => ("mish", Vec::new()),
        Activation::Softplus => ("softplus", vec![1.0]),
        Activation::HardSigmoid { alpha, beta } => ("hard_sigmoid", vec![alpha, beta]),
        Activation::HardSwish => ("hard_swish", Vec::new()),
        Activation::Elu { alpha } => ("elu", vec![alpha]),
        Activation::Clamp { min, max } => ("clamp", vec![min, max]),
        Activation::Affine { alpha, beta } => ("affine", vec![alpha, beta]),
        Activation::ScaledTanh { alpha, beta } => ("scaled_tanh", vec![alpha, beta]),
        Activation::Softsign => ("softsign", Vec::new()),
        Activation::ThresholdedRelu { alpha } => ("thresholded_relu", vec![alpha]),
    }
}
