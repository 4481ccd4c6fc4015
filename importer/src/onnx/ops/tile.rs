//! `Tile`: repeats each axis.

use super::prelude::*;
use crate::ir::op;

pub(super) struct Tile;

impl<'m> Operator<'m> for Tile {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Tile", 1, &["input", "tiles", "axis"]).until(5).moves().reads(|_| Ok(Self)),
        Spec::onnx("Tile", 6, &["input", "repeats"]).moves().reads(|_| Ok(Self)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        let times = match args.optional("tiles")? {
            Some(tiles) => along_axis(args, to, x, tiles)?,
            None => to.host(args.value("repeats")?, "repeats")?,
        };
        if times.iter().any(|times| times.as_constant().is_some_and(|times| times < 0)) {
            return Err(invalid("repeats", "holds a negative number"));
        }
        if times.len() == to.rank(x) && times.iter().all(|times| times.is(1)) {
            return Ok(x.into());
        }
        Ok(to.add(Op::Repeat(op::Repeat { times }), &[x])?.into())
    }
}

/// How often each axis is repeated where only one is, before version 6.
fn along_axis(args: &Args, to: &Lowering<'_, '_>, x: ValueId, tiles: ValueId) -> RuleResult<Vec<Dim>> {
    let rank = to.rank(x);
    let one = |value: ValueId, name: &str| match whole_numbers(to, value, name)?.as_slice() {
        &[number] => Ok(number),
        numbers => Err(invalid(name, format!("holds {} numbers, must hold one", numbers.len()))),
    };
    let mut times = vec![Dim::constant(1); rank];
    times[axis_of(one(args.value("axis")?, "axis")?, rank)?] = Dim::constant(one(tiles, "tiles")?);
    Ok(times)
}

/// Whole numbers that are known, which the first forms of operators took as floats.
pub(super) fn whole_numbers(to: &Lowering<'_, '_>, value: ValueId, name: &str) -> RuleResult<Vec<i64>> {
    let whole = |number: Scalar| match number.to_f64() {
        float if float.fract() == 0.0 && float.abs() < 2f64.powi(52) => Ok(number.to_i64()),
        float => Err(invalid(name, format!("holds {float}, must hold whole numbers"))),
    };
    to.known_numbers(value, name)?.into_iter().map(whole).collect()
}
