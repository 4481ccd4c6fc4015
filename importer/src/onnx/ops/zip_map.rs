//! `ZipMap`: rows of numbers as maps, which a tensor with the keys of its columns says as well.

use super::prelude::*;
use super::scores::Labels;

pub(super) struct ZipMap {
    keys: Labels,
}

impl ZipMap {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { keys: Labels::read(node, "classlabels_strings", "classlabels_int64s")? })
    }
}

impl<'m> Operator<'m> for ZipMap {
    const FORMS: Forms<'m, Self> = &[Spec::ml("ZipMap", 1, &["X"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let x = match to.rank(x) {
            1 => to.unsqueeze(x, &[0])?,
            _ => x,
        };
        to.need_rank("X", x, 2)?;
        let count = self.keys.count();
        if let Some(columns) = to.dims(x).last().and_then(Dim::as_size)
            && columns != count
        {
            return Err(misfit("X", format!("has {columns} columns for {count} keys")));
        }
        Ok(Outputs(vec![Operand::Maps(x, self.keys.keys().into())]))
    }
}
