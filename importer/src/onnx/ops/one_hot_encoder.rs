//! `OneHotEncoder`: categories as vectors of zeros and a one.

use super::prelude::*;
use super::scores::Labels;
use kiln_types::TensorData;

pub(super) struct OneHotEncoder {
    categories: Labels,
}

impl OneHotEncoder {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // Without it ONNX Runtime fails at an unknown category, which here is all zeros in any case.
        node.flag("zeros", true)?;
        Ok(Self { categories: Labels::read(node, "cats_strings", "cats_int64s")? })
    }
}

impl<'m> Operator<'m> for OneHotEncoder {
    const FORMS: Forms<'m, Self> = &[Spec::ml("OneHotEncoder", 1, &["X"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = to.cast(self.categories.input(args, "X")?, DType::I64)?;
        let rank = to.rank(x);
        let x = to.unsqueeze(x, &[rank])?;
        let categories = self.categories.numbers(to);
        let count = categories.len();
        let categories = to.listed("categories", TensorData::new(categories, [count]))?;
        let hit = to.compare(CompareOp::Equal, x, categories)?;
        Ok(to.cast(hit, DType::F32)?.into())
    }
}
