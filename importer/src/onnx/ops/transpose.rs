//! `Transpose`.

use super::super::lowering::{Lowering, axis_of};
use super::super::node::SourceNode;
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::RuleResult;

pub(super) struct Transpose {
    perm: Option<Vec<i64>>,
}

impl Operator<'_> for Transpose {
    const SPECS: &'static [Spec] = &[Spec::onnx("Transpose", 1, &["data"])];

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { perm: node.ints("perm")? })
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("data")?;
        let rank = to.rank(x);
        let axes = match &self.perm {
            Some(perm) => perm.iter().map(|&axis| axis_of(axis, rank)).collect::<RuleResult<Vec<_>>>()?,
            None => (0..rank).rev().collect(),
        };
        Ok(to.permute(x, axes)?.into())
    }
}
