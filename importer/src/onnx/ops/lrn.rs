//! `LRN`: each element over the energy of its neighbours in other channels.

use super::prelude::*;
use crate::ir::op;
use kiln_types::PadMode;

pub(super) struct Lrn {
    alpha: f64,
    beta: f64,
    bias: f64,
    size: i64,
}

impl Lrn {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let size = node.required_int("size")?;
        // Each neighbour is a slice of its own.
        if !(1..=256).contains(&size) {
            return Err(invalid("size", format!("is {size}, must be 1 to 256")));
        }
        Ok(Self {
            alpha: node.float("alpha", 1e-4)?,
            beta: node.float("beta", 0.75)?,
            bias: node.float("bias", 1.0)?,
            size,
        })
    }
}

impl<'m> Operator<'m> for Lrn {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("LRN", 1, &["X"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let rank = to.need_rank("X", x, 2)?;
        let channels = to.dims(x)[1].clone();
        let y = to.in_single(x, |to, x| self.compute(to, x, rank, &channels))?;
        Ok(y.into())
    }
}

impl Lrn {
    fn compute(
        &self,
        to: &mut Lowering<'_, '_>,
        x: ValueId,
        rank: usize,
        channels: &Dim,
    ) -> RuleResult<ValueId> {
        let before = (self.size - 1) / 2;
        let square = to.binary(BinaryOp::Mul, x, x)?;
        let mut padding = vec![(Dim::constant(0), Dim::constant(0)); rank];
        padding[1] = (Dim::constant(before), Dim::constant(self.size - 1 - before));
        let op = Op::Pad(op::Pad { padding, mode: PadMode::Constant, value: Scalar::Float(0.0) });
        let padded = to.add(op, &[square])?;
        let mut energy = to.slice(padded, 1, Dim::constant(0), channels.clone())?;
        for offset in 1..self.size {
            let offset = Dim::constant(offset);
            let neighbour = to.slice(padded, 1, offset.clone(), &offset + channels)?;
            energy = to.binary(BinaryOp::Add, energy, neighbour)?;
        }
        to.formula(|f| {
            let [x, energy] = f.values([x, energy]);
            x / (energy * (self.alpha / self.size as f64) + self.bias).pow(self.beta)
        })
    }
}
