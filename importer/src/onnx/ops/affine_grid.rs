//! `AffineGrid`: sampling positions of a transformed image or volume.

use super::prelude::*;
use crate::ir::op;

pub(super) struct AffineGrid {
    align_corners: bool,
}

impl AffineGrid {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { align_corners: node.flag("align_corners", false)? })
    }
}

impl<'m> Operator<'m> for AffineGrid {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("AffineGrid", 20, &["theta", "size"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let theta = args.value("theta")?;
        let size = to.host(args.value("size")?, "size")?;
        let spatial = match size.get(2..) {
            Some(spatial @ ([_, _] | [_, _, _])) => spatial.to_vec(),
            _ => return Err(misfit("size", format!("has {} entries, must have 4 or 5", size.len()))),
        };
        let dtype = to.dtype(theta);
        let rank = spatial.len();
        let mut columns = Vec::with_capacity(rank + 1);
        let mut full = spatial.clone();
        full.push(Dim::constant(1));
        // `x` is the last axis and comes first.
        for axis in (0..rank).rev() {
            let line = self.line(to, &spatial[axis], dtype)?;
            let mut shape = vec![Dim::constant(1); rank + 1];
            shape[axis] = spatial[axis].clone();
            let line = to.reshape(line, shape)?;
            columns.push(to.expand(line, full.clone())?);
        }
        columns.push(to.fill(full, Scalar::Float(1.0), dtype)?);
        let grid = to.concat(&columns, rank)?;
        let points = to.reshape(grid, vec![Dim::constant(1), Dim::product(&spatial), Dim::from(rank + 1)])?;
        let theta = to.permute(theta, vec![0, 2, 1])?;
        let moved = to.add(Op::MatMul, &[points, theta])?;
        let mut dims = vec![size[0].clone()];
        dims.extend(spatial);
        dims.push(Dim::from(rank));
        Ok(to.reshape(moved, dims)?.into())
    }
}

impl AffineGrid {
    /// Evenly spaced numbers from -1 to 1, at the pixels' corners or centers.
    fn line(&self, to: &mut Lowering<'_, '_>, size: &Dim, dtype: DType) -> RuleResult<ValueId> {
        let positions =
            to.add(Op::Arange(op::Arange { start: Dim::constant(0), end: size.clone(), step: 1 }), &[])?;
        let positions = to.cast(positions, dtype)?;
        let (intervals, shift) =
            if self.align_corners { (size - &Dim::constant(1), 0.0) } else { (size.clone(), 1.0) };
        let intervals = to.builder.host_tensor(vec![intervals], Vec::new())?;
        let intervals = to.cast(intervals, dtype)?;
        to.formula(|f| {
            let [positions, intervals] = f.values([positions, intervals]);
            (positions * 2.0 + shift) / intervals - 1.0
        })
    }
}
