//! `Normalizer`: each sample over its largest number, its sum of sizes, or its length.

use super::global_pool::norm;
use super::prelude::*;
use super::scores::samples;

#[derive(Clone, Copy)]
pub(super) enum Normalizer {
    Max,
    L1,
    L2,
}

impl Normalizer {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        node.choice("norm", "MAX", &[("MAX", Self::Max), ("L1", Self::L1), ("L2", Self::L2)])
    }
}

impl<'m> Operator<'m> for Normalizer {
    const FORMS: Forms<'m, Self> = &[Spec::ml("Normalizer", 1, &["X"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let is_line = to.rank(x) == 1;
        let x = samples(to, "X", x, DType::F32)?;
        let y = to.formula(|f| {
            let x = f.value(x);
            let size = match self {
                // Not that of sizes: ONNX Runtime turns signs where all numbers are negative.
                Self::Max => x.reduce(ReduceOp::Max, &[1]),
                Self::L1 => norm(x, 1, &[1]),
                Self::L2 => norm(x, 2, &[1]),
            };
            // Zeros stay zeros.
            x / size.equals(0.0).where_(x.number(1.0), size)
        })?;
        Ok(if is_line { to.squeeze(y, &[0])? } else { y }.into())
    }
}
