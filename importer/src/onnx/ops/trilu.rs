//! `Trilu`: the upper or lower triangle.

use super::prelude::*;
use crate::ir::op;

pub(super) struct Trilu {
    upper: bool,
}

impl Trilu {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { upper: node.flag("upper", true)? })
    }
}

impl<'m> Operator<'m> for Trilu {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("Trilu", 14, &["input", "k?"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        to.need_rank("input", x, 2)?;
        let k = match args.optional("k")? {
            None => 0,
            Some(k) => {
                let k = to.known_ints(k, "k")?;
                *k.first().ok_or_else(|| invalid("k", "is empty"))?
            }
        };
        Ok(to.add(Op::Trilu(op::Trilu { upper: self.upper, k }), &[x])?.into())
    }
}
