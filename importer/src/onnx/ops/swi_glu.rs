//! `SwiGLU`: one half gates the other.

use super::prelude::*;
use kiln_types::Activation;

pub(super) struct SwiGlu {
    alpha: f64,
}

impl SwiGlu {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { alpha: node.float("alpha", 1.0)? })
    }
}

impl<'m> Operator<'m> for SwiGlu {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("SwiGLU", 28, &["A", "B"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (a, b) = (args.value("A")?, args.value("B")?);
        let gate = if self.alpha == 1.0 {
            to.activation(Activation::Silu, a)?
        } else {
            let alpha = to.number_like(a, self.alpha);
            let inner = to.binary(BinaryOp::Mul, a, alpha)?;
            let sigmoid = to.activation(Activation::Sigmoid, inner)?;
            to.binary(BinaryOp::Mul, a, sigmoid)?
        };
        Ok(to.binary(BinaryOp::Mul, gate, b)?.into())
    }
}
