//! `Concat`.

use super::prelude::*;

pub(super) struct Concat {
    axis: i64,
}

impl Concat {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { axis: node.optional_int("axis")?.ok_or_else(|| invalid("axis", "is missing"))? })
    }
}

impl<'m> Operator<'m> for Concat {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("Concat", 4, &["inputs*"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let values = args.all("inputs")?;
        let first = values.first().ok_or_else(|| RuleError::MissingInput { input: "inputs".into() })?;
        let axis = axis_of(self.axis, to.rank(*first))?;
        Ok(to.concat(&values, axis)?.into())
    }
}
