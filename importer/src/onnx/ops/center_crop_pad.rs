//! `CenterCropPad`: the middle, or zeros around.

use super::prelude::*;
use crate::ir::op;
use kiln_types::PadMode;

pub(super) struct CenterCropPad {
    axes: Option<Vec<i64>>,
}

impl CenterCropPad {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { axes: node.ints("axes")? })
    }
}

impl<'m> Operator<'m> for CenterCropPad {
    const FORMS: Forms<'m, Self> =
        &[Spec::onnx("CenterCropPad", 18, &["input_data", "shape"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input_data")?;
        let rank = to.rank(x);
        let wanted = to.host(args.value("shape")?, "shape")?;
        let axes = match &self.axes {
            Some(axes) => axes.iter().map(|&axis| axis_of(axis, rank)).collect::<RuleResult<Vec<_>>>()?,
            None => (0..rank).collect(),
        };
        if axes.len() != wanted.len() {
            return Err(misfit("shape", format!("has {} entries for {} axes", wanted.len(), axes.len())));
        }
        let (zero, two) = (Dim::constant(0), Dim::constant(2));
        let mut ranges = to.full_ranges(x);
        let mut padding = vec![(zero.clone(), zero.clone()); rank];
        for (axis, wanted) in axes.into_iter().zip(wanted) {
            let size = ranges[axis].end.clone();
            let graph = &*to.builder.graph;
            let surplus = graph.maximum(&(&size - &wanted), &zero);
            let missing = graph.maximum(&(&wanted - &size), &zero);
            let start = surplus.floor_div(&two);
            ranges[axis].end = &start + &(&size - &surplus);
            ranges[axis].start = start;
            let before = missing.floor_div(&two);
            padding[axis] = (before.clone(), &missing - &before);
        }
        let mut y = x;
        if ranges != to.full_ranges(x) {
            y = to.add(Op::Slice(op::Slice { ranges }), &[y])?;
        }
        if padding.iter().any(|(before, after)| !before.is(0) || !after.is(0)) {
            let value = if to.dtype(x).is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) };
            y = to.add(Op::Pad(op::Pad { padding, mode: PadMode::Constant, value }), &[y])?;
        }
        Ok(y.into())
    }
}
