//! `Tile`: repeats each axis.

use super::prelude::*;
use crate::ir::op;

pub(super) struct Tile;

impl<'m> Operator<'m> for Tile {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("Tile", 6, &["input", "repeats"]).reads(|_| Ok(Self))];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        let times = to.host(args.value("repeats")?, "repeats")?;
        if times.iter().any(|times| times.as_constant().is_some_and(|times| times < 0)) {
            return Err(invalid("repeats", "holds a negative number"));
        }
        if times.len() == to.rank(x) && times.iter().all(|times| times.is(1)) {
            return Ok(x.into());
        }
        Ok(to.add(Op::Repeat(op::Repeat { times }), &[x])?.into())
    }
}
