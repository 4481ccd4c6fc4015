//! `Concat`.

use super::prelude::*;

pub(super) struct Concat {
    axis: i64,
}

impl Concat {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let axis = if node.opset < 4 { node.int("axis", 1)? } else { node.required_int("axis")? };
        Ok(Self { axis })
    }
}

impl<'m> Operator<'m> for Concat {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("Concat", 1, &["inputs*"]).moves().reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let values = args.all("inputs")?;
        let first = values.first().ok_or_else(|| RuleError::MissingInput { input: "inputs".into() })?;
        let axis = axis_of(self.axis, to.rank(*first))?;
        Ok(to.concat(&values, axis)?.into())
    }
}
