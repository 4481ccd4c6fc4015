//! `Trilu`: the upper or lower triangle.

use super::super::lowering::Lowering;
use super::super::node::{SourceNode, invalid};
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::{Op, RuleResult};

pub(super) struct Trilu {
    upper: bool,
}

impl Operator<'_> for Trilu {
    const SPECS: &'static [Spec] = &[Spec::onnx("Trilu", 14, &["input", "k?"])];

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { upper: node.flag("upper", true)? })
    }

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
        Ok(to.add(Op::Trilu { upper: self.upper, k }, &[x])?.into())
    }
}
