//! `Binarizer`: 1 where numbers are above a threshold, 0 elsewhere.

use super::prelude::*;

pub(super) struct Binarizer {
    threshold: f64,
}

impl Binarizer {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { threshold: node.float("threshold", 0.0)? })
    }
}

impl<'m> Operator<'m> for Binarizer {
    const FORMS: Forms<'m, Self> = &[Spec::ml("Binarizer", 1, &["X"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let dtype = to.dtype(x);
        // A threshold between two integers is no integer.
        let floats = if dtype.is_float() { x } else { to.cast(x, DType::F32)? };
        let threshold = to.number_like(floats, self.threshold);
        let above = to.compare(CompareOp::Greater, floats, threshold)?;
        Ok(to.cast(above, dtype)?.into())
    }
}
