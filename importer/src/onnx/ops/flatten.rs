//! `Flatten`: a matrix of the axes before and from `axis`.

use super::prelude::*;

pub(super) struct Flatten {
    axis: i64,
}

impl Flatten {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { axis: node.int("axis", 1)? })
    }
}

impl<'m> Operator<'m> for Flatten {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("Flatten", 1, &["input"]).moves().reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        let dims = to.dims(x);
        let rank = dims.len() as i64;
        // The rank itself is allowed: everything is before it.
        let axis = if self.axis < 0 { self.axis.saturating_add(rank) } else { self.axis };
        if !(0..=rank).contains(&axis) {
            return Err(RuleError::Axis { axis: self.axis, rank: dims.len() });
        }
        let (before, after) = dims.split_at(axis as usize);
        Ok(to.reshape(x, vec![Dim::product(before), Dim::product(after)])?.into())
    }
}
