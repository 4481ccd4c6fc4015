//! `Range`: `start, start + delta, …` before `limit`.

use super::super::lowering::Lowering;
use super::super::node::{SourceNode, invalid};
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::{Dim, Op, RuleError, RuleResult};
use kiln_types::{BinaryOp, DType};

pub(super) struct Range;

impl Operator<'_> for Range {
    const SPECS: &'static [Spec] = &[Spec::onnx("Range", 11, &["start", "limit", "delta"])];

    fn read(_: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self)
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let inputs = [args.value("start")?, args.value("limit")?, args.value("delta")?];
        let dtype = to.dtype(inputs[0]);
        if dtype.is_float() {
            return floats(to, args, dtype);
        }
        let start = to.host_integer(inputs[0], "start")?;
        let end = to.host_integer(inputs[1], "limit")?;
        let step = to.host_integer(inputs[2], "delta")?;
        let step = step.as_constant().ok_or(RuleError::NotConstant { input: "delta".into() })?;
        if step == 0 {
            return Err(invalid("delta", "is 0"));
        }
        let range = to.add(Op::Arange { start, end, step }, &[])?;
        Ok(to.cast(range, dtype)?.into())
    }
}

/// Floats: the number of elements must be known.
fn floats(to: &mut Lowering<'_, '_>, args: &Args, dtype: DType) -> RuleResult<Outputs> {
    let mut bounds = [0.0; 3];
    for (bound, name) in bounds.iter_mut().zip(["start", "limit", "delta"]) {
        let numbers = to.known_floats(args.value(name)?, name)?;
        *bound = numbers.first().copied().ok_or_else(|| invalid(name, "is empty"))?;
    }
    let [start, limit, delta] = bounds;
    let count = ((limit - start) / delta).ceil();
    if !count.is_finite() {
        return Err(invalid("delta", format!("is {delta}")));
    }
    let end = Dim::constant((count as i64).max(0));
    let positions = to.add(Op::Arange { start: Dim::constant(0), end, step: 1 }, &[])?;
    let positions = to.cast(positions, dtype)?;
    let (delta, start) = (to.scalar(delta, dtype), to.scalar(start, dtype));
    let steps = to.binary(BinaryOp::Mul, positions, delta)?;
    Ok(to.binary(BinaryOp::Add, steps, start)?.into())
}
