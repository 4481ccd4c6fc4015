//! `MatMulInteger` and `QLinearMatMul`: products of quantized matrices.

use super::matmul::product;
use super::prelude::*;
use super::quantize_linear::{quantized, range_of};

pub(super) struct MatMulInteger {
    requantize: bool,
}

impl<'m> Operator<'m> for MatMulInteger {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("MatMulInteger", 10, &["A", "B", "a_zero_point?", "b_zero_point?"])
            .reads(|_| Ok(Self { requantize: false })),
        Spec::onnx(
            "QLinearMatMul",
            10,
            &["A", "a_scale", "a_zero_point", "B", "b_scale", "b_zero_point", "y_scale", "y_zero_point"],
        )
        .reads(|_| Ok(Self { requantize: true })),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let a = centered(to, args.value("A")?, args.optional("a_zero_point")?, true)?;
        let b = centered(to, args.value("B")?, args.optional("b_zero_point")?, false)?;
        let sum = product(to, a, b)?;
        if !self.requantize {
            return Ok(sum.into());
        }
        let a_scale = rows(to, args.value("a_scale")?, true)?;
        let b_scale = rows(to, args.value("b_scale")?, false)?;
        let scale = to.binary(BinaryOp::Mul, a_scale, b_scale)?;
        let zero = args.value("y_zero_point")?;
        Ok(requantized(to, sum, scale, args.value("y_scale")?, zero)?.into())
    }
}

/// One parameter a row (of the left matrix) or a column (of the right one).
fn rows(to: &mut Lowering<'_, '_>, parameter: ValueId, left: bool) -> RuleResult<ValueId> {
    let parameter = if to.dtype(parameter).is_float() { to.cast(parameter, DType::F32)? } else { parameter };
    match (to.rank(parameter), left) {
        (1, true) if !to.dims(parameter)[0].is(1) => to.unsqueeze(parameter, &[1]),
        _ => Ok(parameter),
    }
}

/// `x - zero_point` in 32-bit integers.
pub(super) fn centered(
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    zero: Option<ValueId>,
    left: bool,
) -> RuleResult<ValueId> {
    let x = to.cast(x, DType::I32)?;
    let Some(zero) = zero else {
        return Ok(x);
    };
    let zero = to.cast(zero, DType::I32)?;
    let zero = rows(to, zero, left)?;
    to.binary(BinaryOp::Sub, x, zero)
}

/// Integer sums to the result's scale and zero point.
pub(super) fn requantized(
    to: &mut Lowering<'_, '_>,
    sum: ValueId,
    scale: ValueId,
    y_scale: ValueId,
    zero: ValueId,
) -> RuleResult<ValueId> {
    let dtype = to.dtype(zero);
    let range = range_of(dtype);
    let range = range.ok_or_else(|| RuleError::Unsupported { what: format!("quantization to {dtype}") })?;
    let [real, y_scale, zero] = to.formulas(|f| {
        let [sum, scale, y_scale, zero] = f.values([sum, scale, y_scale, zero]);
        [sum.cast(DType::F32) * scale, y_scale.cast(DType::F32), zero.cast(DType::F32)]
    })?;
    quantized(to, real, y_scale, Some(zero), dtype, range)
}
