//! Activations: those of the runtime, and those composed from a few operations.

use super::prelude::*;
use crate::ir::op;
use kiln_types::Activation;

const X: &[&str] = &["X"];

pub(super) enum Activations {
    Plain(Activation),
    /// `gamma · elu(x, alpha)`.
    Selu {
        alpha: f64,
        gamma: f64,
    },
    /// `alpha · elu(x / alpha, 1)`.
    Celu {
        alpha: f64,
    },
    /// `x > alpha ? x : 0`.
    Thresholded {
        alpha: f64,
    },
    /// `x - bias` above `lambd`, `x + bias` below `-lambd`, else 0.
    Shrink {
        bias: f64,
        lambd: f64,
    },
    /// `x / (1 + |x|)`.
    Softsign,
    /// `x · sigmoid(alpha · x)`.
    Swish {
        alpha: f64,
    },
}

/// The activation behind an operator that ONNX Runtime's optimizer merged it into; `number` tells its parameters in order.
pub(super) fn merged(name: &str, number: impl Fn(usize) -> RuleResult<f64>) -> RuleResult<Activation> {
    Ok(match name {
        "Relu" => Activation::Relu,
        "Tanh" => Activation::Tanh,
        "Sigmoid" => Activation::Sigmoid,
        "Softplus" => Activation::Softplus,
        "Softsign" => Activation::Softsign,
        "Elu" => Activation::Elu { alpha: number(0)? },
        "LeakyRelu" => Activation::LeakyRelu { slope: number(0)? },
        "ThresholdedRelu" => Activation::ThresholdedRelu { alpha: number(0)? },
        "HardSigmoid" => Activation::HardSigmoid { alpha: number(0)?, beta: number(1)? },
        other => {
            let what = format!("the activation {}", kiln_types::quoted(other));
            return Err(RuleError::Unsupported { what });
        }
    })
}

impl Activations {
    fn read_gelu(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let kinds = [("none", Activation::Gelu), ("tanh", Activation::GeluTanh)];
        node.choice("approximate", "none", &kinds).map(Self::Plain)
    }

    fn read_hard_sigmoid(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let (alpha, beta) = (node.float("alpha", 0.2)?, node.float("beta", 0.5)?);
        Ok(Self::Plain(Activation::HardSigmoid { alpha, beta }))
    }

    fn read_selu(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // Klambauer et al. 2017, as the specification rounds them: to four places at first.
        let (alpha, gamma) = match node.opset {
            ..6 => (1.6732, 1.0507),
            6.. => (1.673_263_192_176_818_8, 1.050_701_022_148_132_3),
        };
        Ok(Self::Selu { alpha: node.float("alpha", alpha)?, gamma: node.float("gamma", gamma)? })
    }

    fn read_shrink(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self::Shrink { bias: node.float("bias", 0.0)?, lambd: node.float("lambd", 0.5)? })
    }

    fn read_swish(node: &mut SourceNode<'_>, default: f64) -> RuleResult<Self> {
        let alpha = node.float("alpha", default)?;
        Ok(if alpha == 1.0 { Self::Plain(Activation::Silu) } else { Self::Swish { alpha } })
    }
}

impl<'m> Operator<'m> for Activations {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Celu", 12, X).reads(|node| Ok(Self::Celu { alpha: node.float("alpha", 1.0)? })),
        Spec::onnx("Elu", 1, X)
            .reads(|node| Ok(Self::Plain(Activation::Elu { alpha: node.float("alpha", 1.0)? }))),
        Spec::onnx("Gelu", 20, X).reads(Self::read_gelu),
        Spec::onnx("HardSigmoid", 1, X).reads(Self::read_hard_sigmoid),
        Spec::onnx("HardSwish", 14, X).reads(|_| Ok(Self::Plain(Activation::HardSwish))),
        Spec::onnx("LeakyRelu", 1, X)
            .reads(|node| Ok(Self::Plain(Activation::LeakyRelu { slope: node.float("alpha", 0.01)? }))),
        Spec::onnx("Mish", 18, X).reads(|_| Ok(Self::Plain(Activation::Mish))),
        Spec::onnx("Relu", 1, X).reads(|_| Ok(Self::Plain(Activation::Relu))),
        Spec::onnx("Selu", 1, X).reads(Self::read_selu),
        Spec::onnx("Shrink", 9, X).reads(Self::read_shrink),
        Spec::onnx("Sigmoid", 1, X).reads(|_| Ok(Self::Plain(Activation::Sigmoid))),
        Spec::onnx("Softplus", 1, X).reads(|_| Ok(Self::Plain(Activation::Softplus))),
        Spec::onnx("Softsign", 1, X).reads(|_| Ok(Self::Softsign)),
        Spec::onnx("Swish", 24, X).reads(|node| Self::read_swish(node, 1.0)),
        Spec::onnx("Tanh", 1, X).reads(|_| Ok(Self::Plain(Activation::Tanh))),
        Spec::onnx("ThresholdedRelu", 10, X)
            .reads(|node| Ok(Self::Thresholded { alpha: node.float("alpha", 1.0)? })),
        Spec::microsoft("BiasGelu", &["X", "bias"]).reads(|_| Ok(Self::Plain(Activation::Gelu))),
        Spec::microsoft("FastGelu", &["X", "bias?"]).reads(|_| Ok(Self::Plain(Activation::GeluTanh))),
        Spec::microsoft("Gelu", X).reads(Self::read_gelu),
        Spec::microsoft("QuickGelu", X).reads(|node| Self::read_swish(node, 1.702)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let mut x = args.value("X")?;
        if let Some(bias) = args.optional("bias")? {
            x = to.binary(BinaryOp::Add, x, bias)?;
        }
        Ok(self.compute(to, x)?.into())
    }
}

impl Activations {
    fn compute(&self, to: &mut Lowering<'_, '_>, x: ValueId) -> RuleResult<ValueId> {
        match *self {
            // The one activation that integers have.
            Self::Plain(Activation::Relu) if to.dtype(x).is_int() => {
                to.add(Op::Clamp(op::Clamp { min: Some(Scalar::Int(0)), max: None }), &[x])
            }
            Self::Plain(activation) => to.activation(activation, x),
            Self::Selu { alpha, gamma } => {
                to.formula(|f| f.value(x).activation(Activation::Elu { alpha }) * gamma)
            }
            // Where the slope is negative, no Elu is it.
            Self::Celu { alpha } if alpha < 0.0 => to.formula(|f| {
                let x = f.value(x);
                x.max(0.0) + (((x * (1.0 / alpha)).unary(UnaryOp::Exp) - 1.0) * alpha).min(0.0)
            }),
            Self::Celu { alpha } => to.formula(|f| {
                let inner = f.value(x) * (1.0 / alpha);
                inner.activation(Activation::Elu { alpha: 1.0 }) * alpha
            }),
            Self::Thresholded { alpha } => to.formula(|f| {
                let x = f.value(x);
                x.greater(alpha).where_(x, x.number(0.0))
            }),
            Self::Shrink { bias, lambd } => {
                // Neither bounds nor the bias need be integers.
                let dtype = to.dtype(x);
                let wide = if dtype.is_float() { dtype } else { DType::F64 };
                let x = to.cast(x, wide)?;
                let y = to.formula(|f| {
                    let x = f.value(x);
                    let rest = x.less(-lambd).where_(x + bias, x.number(0.0));
                    x.greater(lambd).where_(x - bias, rest)
                })?;
                to.cast(y, dtype)
            }
            Self::Softsign => to.formula(|f| {
                let x = f.value(x);
                x / (x.abs() + 1.0)
            }),
            Self::Swish { alpha } => to.formula(|f| {
                let x = f.value(x);
                x * (x * alpha).activation(Activation::Sigmoid)
            }),
        }
    }
}
