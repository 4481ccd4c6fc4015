//! `OneHotEncoder`: categories as vectors of zeros and a one.

use super::prelude::*;
use super::scores::texts;
use kiln_types::TensorData;

pub(super) struct OneHotEncoder {
    categories: Vec<i64>,
}

impl OneHotEncoder {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        if node.strings("cats_strings")?.is_some_and(|strings| !strings.is_empty()) {
            return Err(texts(
                "categories that are strings (`cats_strings`)",
                "encode them as integers before",
            ));
        }
        // Without it ONNX Runtime fails at an unknown category, which here is all zeros in any case.
        node.flag("zeros", true)?;
        let categories = node.ints("cats_int64s")?.unwrap_or_default();
        if categories.is_empty() {
            return Err(invalid("cats_int64s", "is missing"));
        }
        Ok(Self { categories })
    }
}

impl<'m> Operator<'m> for OneHotEncoder {
    const FORMS: Forms<'m, Self> = &[Spec::ml("OneHotEncoder", 1, &["X"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = to.cast(args.value("X")?, DType::I64)?;
        let rank = to.rank(x);
        let x = to.unsqueeze(x, &[rank])?;
        let categories = TensorData::new(self.categories.clone(), [self.categories.len()]);
        let categories = to.fixed("categories", categories)?;
        let hit = to.compare(CompareOp::Equal, x, categories)?;
        Ok(to.cast(hit, DType::F32)?.into())
    }
}
