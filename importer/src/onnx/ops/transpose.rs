//! `Transpose`.

use super::prelude::*;

pub(super) struct Transpose {
    perm: Option<Vec<i64>>,
}

impl Transpose {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { perm: node.ints("perm")? })
    }
}

impl<'m> Operator<'m> for Transpose {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("Transpose", 1, &["data"]).moves().reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("data")?;
        let rank = to.rank(x);
        if let Some(perm) = self.perm.as_ref().filter(|perm| perm.len() != rank) {
            let expected = format!("expected the {} of `perm`", perm.len());
            return Err(RuleError::Rank { input: "data".into(), actual: rank, expected });
        }
        let axes = match &self.perm {
            Some(perm) => perm.iter().map(|&axis| axis_of(axis, rank)).collect::<RuleResult<Vec<_>>>()?,
            None => (0..rank).rev().collect(),
        };
        Ok(to.permute(x, axes)?.into())
    }
}
