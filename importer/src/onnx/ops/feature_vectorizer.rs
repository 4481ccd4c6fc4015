//! `FeatureVectorizer`: features of several inputs side by side.

use super::prelude::*;
use super::scores::samples;

pub(super) struct FeatureVectorizer {
    sizes: Vec<i64>,
}

impl FeatureVectorizer {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { sizes: node.ints("inputdimensions")?.unwrap_or_default() })
    }
}

impl<'m> Operator<'m> for FeatureVectorizer {
    const FORMS: Forms<'m, Self> = &[Spec::ml("FeatureVectorizer", 1, &["X*"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let inputs = args.all("X")?;
        if self.sizes.len() != inputs.len() {
            let reason = format!("has {} sizes for {} inputs", self.sizes.len(), inputs.len());
            return Err(invalid("inputdimensions", reason));
        }
        let mut parts = Vec::with_capacity(inputs.len());
        for (x, &size) in inputs.into_iter().zip(&self.sizes) {
            let part = samples(to, "X", x, DType::F32)?;
            if let Some(features) = to.dims(part).last().and_then(Dim::as_size)
                && i64::try_from(features) != Ok(size)
            {
                // ONNX Runtime would cut them off, or fill them up.
                return Err(misfit("inputdimensions", format!("has {size} for {features} features")));
            }
            parts.push(part);
        }
        Ok(to.concat(&parts, 1)?.into())
    }
}
