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
        let y = to.formula(|f| {
            let [a, b] = f.values([a, b]);
            let gate = if self.alpha == 1.0 {
                a.activation(Activation::Silu)
            } else {
                a * (a * self.alpha).activation(Activation::Sigmoid)
            };
            gate * b
        })?;
        Ok(y.into())
    }
}
