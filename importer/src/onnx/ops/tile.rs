//! `Tile`: repeats each axis.

use super::super::lowering::Lowering;
use super::super::node::{SourceNode, invalid};
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::{Op, RuleResult};

pub(super) struct Tile;

impl Operator<'_> for Tile {
    const SPECS: &'static [Spec] = &[Spec::onnx("Tile", 6, &["input", "repeats"])];

    fn read(_: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self)
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        let times = to.host(args.value("repeats")?, "repeats")?;
        if times.iter().any(|times| times.as_constant().is_some_and(|times| times < 0)) {
            return Err(invalid("repeats", "holds a negative number"));
        }
        if times.len() == to.rank(x) && times.iter().all(|times| times.is(1)) {
            return Ok(x.into());
        }
        Ok(to.add(Op::Repeat { times }, &[x])?.into())
    }
}
