//! `OneHot`.

use super::gather::may_be_negative;
use super::prelude::*;
use crate::ir::op;

pub(super) struct OneHot {
    axis: i64,
}

impl OneHot {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { axis: node.int("axis", -1)? })
    }
}

impl<'m> Operator<'m> for OneHot {
    const FORMS: Forms<'m, Self> =
        &[Spec::onnx("OneHot", 9, &["indices", "depth", "values"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let depth = args.value("depth")?;
        let depth = match to.known_number(depth) {
            Some(depth) => Dim::constant(depth.to_i64()),
            None => {
                let depth = to.cast(depth, DType::I64)?;
                to.host_integer(depth, "depth")?
            }
        };
        let indices = args.value("indices")?;
        let indices = to.cast(indices, DType::I64)?;
        let rank = to.rank(indices) + 1;
        let axis = axis_of(self.axis, rank)?;
        let mut indices = to.unsqueeze(indices, &[axis])?;
        if may_be_negative(to, indices) {
            let size = to.builder.host_tensor(vec![depth.clone()], Vec::new())?;
            let zero = to.number_like(indices, 0);
            let negative = to.compare(CompareOp::Lower, indices, zero)?;
            let moved = to.binary(BinaryOp::Add, indices, size)?;
            indices = to.select(negative, moved, indices)?;
        }
        let positions =
            to.add(Op::Arange(op::Arange { start: Dim::constant(0), end: depth.clone(), step: 1 }), &[])?;
        let mut shape = vec![Dim::constant(1); rank];
        shape[axis] = depth;
        let positions = to.reshape(positions, shape)?;
        let hit = to.compare(CompareOp::Equal, indices, positions)?;
        let (off, on) = off_and_on(to, args.value("values")?)?;
        Ok(to.select(hit, on, off)?.into())
    }
}

/// The two entries of `values`.
fn off_and_on(to: &mut Lowering<'_, '_>, values: ValueId) -> RuleResult<(ValueId, ValueId)> {
    let dims = to.dims(values);
    let is_two = |dim: &Dim| dim.as_constant().is_none_or(|size| size == 2);
    if dims.len() != 1 || !is_two(&dims[0]) {
        return Err(invalid("values", "must hold two numbers"));
    }
    if to.constant(values).is_some() {
        let numbers = to.known_numbers(values, "values")?;
        if let &[off, on] = numbers.as_slice() {
            return Ok((to.number_like(values, off), to.number_like(values, on)));
        }
    }
    let off = to.slice(values, 0, Dim::constant(0), Dim::constant(1))?;
    let on = to.slice(values, 0, Dim::constant(1), Dim::constant(2))?;
    Ok((off, on))
}
