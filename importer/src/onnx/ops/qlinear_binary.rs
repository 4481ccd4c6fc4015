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
        let result = to.formula(|f| {
            let [a_scale, b_scale, c_scale] = f.values([of_a.scale, of_b.scale, of_c.scale]);
            match self {
                // `(a_scale · (a - a_zero) + b_scale · (b - b_zero)) / c_scale + c_zero`, with what does not depend on the operands
                // apart, in the order in which ONNX Runtime sums.
                Self::Add => {
                    let [a_step, b_step] = [a_scale / c_scale, b_scale / c_scale];
                    let [a_zero, b_zero, c_zero] =
                        [of_a, of_b, of_c].map(|of| of.zero(f).unwrap_or(c_scale.number(0.0)));
                    let shift = c_zero - (a_step * a_zero + b_step * b_zero);
                    let [a, b] = f.values([a, b]).map(|integers| integers.cast(DType::F32));
                    of_c.saturated((a * a_step + (b * b_step + shift)).round())
                }
                Self::Mul => {
                    let step = a_scale * b_scale / c_scale;
                    of_c.shifted_before(f, of_a.centered(f, a) * of_b.centered(f, b) * step)
                }
            }
        })?;
        Ok(result.into())
    }
}
