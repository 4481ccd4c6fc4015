//! `QLinearAdd` and `QLinearMul`: sums and products of integers that stand for numbers.

use super::prelude::*;
use super::quantization::Quantization;

const OPERANDS: &[&str] =
    &["A", "A_scale", "A_zero_point?", "B", "B_scale", "B_zero_point?", "C_scale", "C_zero_point?"];

pub(super) enum QLinearBinary {
    Add,
    Mul,
}

impl<'m> Operator<'m> for QLinearBinary {
    const FORMS: Forms<'m, Self> = &[
        Spec::microsoft("QLinearAdd", OPERANDS).reads(|_| Ok(Self::Add)),
        Spec::microsoft("QLinearMul", OPERANDS).reads(|_| Ok(Self::Mul)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (a, b) = (args.value("A")?, args.value("B")?);
        let dtype = to.dtype(a);
        let of_a = Quantization::read(args, to, dtype, ["A_scale", "A_zero_point"])?;
        let of_b = Quantization::read(args, to, to.dtype(b), ["B_scale", "B_zero_point"])?;
        let of_c = Quantization::read(args, to, dtype, ["C_scale", "C_zero_point"])?;
        // Operands of one rank.
        let rank = to.rank(a).max(to.rank(b)).max(1);
        let is_number = to.rank(a).max(to.rank(b)) == 0;
        let (a, b) = (to.with_rank(a, rank)?, to.with_rank(b, rank)?);
        let one = |to: &mut Lowering<'_, '_>, number: ValueId| to.reshape(number, vec![Dim::constant(1)]);
        let result = match self {
            // `(a_scale · (a - a_zero) + b_scale · (b - b_zero)) / c_scale + c_zero`, with what does not depend on the operands
            // apart, in the order in which ONNX Runtime sums.
            Self::Add => {
                let [a_step, b_step, offset] = to.formulas(|f| {
                    let [a_scale, b_scale, c_scale] = f.values([of_a.scale, of_b.scale, of_c.scale]);
                    let [a_step, b_step] = [a_scale / c_scale, b_scale / c_scale];
                    let [a_zero, b_zero, c_zero] =
                        [of_a, of_b, of_c].map(|of| of.zero(f).unwrap_or(c_scale.number(0.0)));
                    [a_step, b_step, c_zero - (a_step * a_zero + b_step * b_zero)]
                })?;
                let numbers = [one(to, a_step)?, one(to, b_step)?, one(to, offset)?];
                to.add(Op::QuantizedAdd, &[[a, b].as_slice(), &numbers].concat())?
            }
            Self::Mul => {
                let step = to.formula(|f| {
                    let [a_scale, b_scale, c_scale] = f.values([of_a.scale, of_b.scale, of_c.scale]);
                    a_scale * b_scale / c_scale
                })?;
                let [a_zero, b_zero] = [of_a.zero_point(to)?, of_b.zero_point(to)?];
                let operands = [a, b, a_zero, b_zero, of_c.zero_point(to)?, one(to, step)?];
                to.add(Op::QuantizedMul, &operands)?
            }
        };
        let result = if is_number { to.reshape(result, Vec::new())? } else { result };
        Ok(result.into())
    }
}
