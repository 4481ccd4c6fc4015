//! `ArrayFeatureExtractor`: some columns of the last axis.

use super::gather::take;
use super::prelude::*;

pub(super) struct ArrayFeatureExtractor;

impl<'m> Operator<'m> for ArrayFeatureExtractor {
    const FORMS: Forms<'m, Self> =
        &[Spec::ml("ArrayFeatureExtractor", 1, &["X", "Y"]).moves().reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (mut x, columns) = (args.value("X")?, args.value("Y")?);
        let rank = to.need_rank("X", x, 1)?;
        if rank == 1 {
            x = to.unsqueeze(x, &[0])?;
        }
        let count = Dim::product(&to.dims(columns));
        let columns = to.reshape(columns, vec![count])?;
        let columns = to.cast(columns, DType::I64)?;
        let axis = rank.max(2) - 1;
        Ok(take(to, x, axis, columns, false)?.into())
    }
}
