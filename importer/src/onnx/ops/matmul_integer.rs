//! `MatMulInteger` and `QLinearMatMul`: products of quantized matrices; ONNX Runtime's `MatMulIntegerToFloat` and
//! `DynamicQuantizeMatMul` yield floats, and the latter takes them on the left.

use super::matmul::matrices;
use super::prelude::*;
use super::quantize_linear::{dynamic, measured_number, range_of};

/// What becomes of the sums, and what the left side is.
pub(super) enum MatMulInteger {
    Sums,
    Requantized,
    Floats,
    FloatsOfFloats,
}

impl<'m> Operator<'m> for MatMulInteger {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("MatMulInteger", 10, &["A", "B", "a_zero_point?", "b_zero_point?"])
            .reads(|_| Ok(Self::Sums)),
        Spec::onnx(
            "QLinearMatMul",
            10,
            &["A", "a_scale", "a_zero_point", "B", "b_scale", "b_zero_point", "y_scale", "y_zero_point"],
        )
        .reads(|_| Ok(Self::Requantized)),
        Spec::microsoft("DynamicQuantizeMatMul", &["A", "B", "b_scale", "b_zero_point?", "bias?"])
            .reads(|_| Ok(Self::FloatsOfFloats)),
        Spec::microsoft(
            "MatMulIntegerToFloat",
            &["A", "B", "a_scale", "b_scale", "a_zero_point?", "b_zero_point?", "bias?"],
        )
        .reads(|_| Ok(Self::Floats)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (a, b) = (args.value("A")?, args.value("B")?);
        let b_zero = args.optional("b_zero_point")?;
        if let Self::FloatsOfFloats = self {
            let [a, scale, zero] = dynamic(to, a)?;
            let sum = integer_product(to, a, b, Some(zero), b_zero)?;
            return floats(args, to, sum, scale);
        }
        let sum = integer_product(to, a, b, args.optional("a_zero_point")?, b_zero)?;
        if let Self::Sums = self {
            return Ok(sum.into());
        }
        let a_scale = rows(to, args.value("a_scale")?, true)?;
        if let Self::Floats = self {
            return floats(args, to, sum, a_scale);
        }
        let b_scale = rows(to, args.value("b_scale")?, false)?;
        let scale = to.binary(BinaryOp::Mul, a_scale, b_scale)?;
        let zero = args.value("y_zero_point")?;
        Ok(requantized(to, sum, scale, args.value("y_scale")?, zero)?.into())
    }
}

/// The numbers that sums stand for, of the dtype of the right side's scale, and a bias.
fn floats(args: &Args, to: &mut Lowering<'_, '_>, sum: ValueId, a_scale: ValueId) -> RuleResult<Outputs> {
    let b_scale = args.value("b_scale")?;
    let dtype = to.dtype(b_scale);
    let b_scale = rows(to, b_scale, false)?;
    let scale = to.binary(BinaryOp::Mul, a_scale, b_scale)?;
    let y = to.formula(|f| (f.value(sum).cast(DType::F32) * f.value(scale)).cast(dtype))?;
    Ok(match args.optional("bias")? {
        Some(bias) => to.binary(BinaryOp::Add, y, bias)?,
        None => y,
    }
    .into())
}

/// One parameter a row (of the left matrix) or a column (of the right one).
fn rows(to: &mut Lowering<'_, '_>, parameter: ValueId, left: bool) -> RuleResult<ValueId> {
    let parameter = if to.dtype(parameter).is_float() { to.cast(parameter, DType::F32)? } else { parameter };
    match (to.rank(parameter), left) {
        (1, true) if !to.dims(parameter)[0].is(1) => to.unsqueeze(parameter, &[1]),
        _ => Ok(parameter),
    }
}

/// The sums of a product of any ranks.
pub(super) fn integer_product(
    to: &mut Lowering<'_, '_>,
    a: ValueId,
    b: ValueId,
    a_zero: Option<ValueId>,
    b_zero: Option<ValueId>,
) -> RuleResult<ValueId> {
    let rank = to.rank(a).max(to.rank(b));
    let a_zero = a_zero.map(|zero| zero_point(to, zero, rank.max(2), true)).transpose()?;
    let b_zero = b_zero.map(|zero| zero_point(to, zero, rank.max(2), false)).transpose()?;
    matrices(to, a, b, |to, a, b| to.add_optional(Op::MatMulInteger, &[Some(a), Some(b), a_zero, b_zero]))
}

/// One number, or one for each row (of the left matrix) or column (of the right one), of the rank of the product's operands.
fn zero_point(to: &mut Lowering<'_, '_>, zero: ValueId, rank: usize, left: bool) -> RuleResult<ValueId> {
    if to.ty(zero).num_elements().is(1) {
        return to.reshape(zero, Vec::new());
    }
    let zero = rows(to, zero, left)?;
    to.with_rank(zero, rank)
}

/// `x - zero_point` in 32-bit integers.
pub(super) fn centered(to: &mut Lowering<'_, '_>, x: ValueId, zero: Option<ValueId>) -> RuleResult<ValueId> {
    let x = to.cast(x, DType::I32)?;
    let Some(zero) = zero else {
        return Ok(x);
    };
    let zero = to.cast(zero, DType::I32)?;
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
    let [low, high] =
        range.ok_or_else(|| RuleError::Unsupported { what: format!("quantization to {dtype}") })?;
    let narrow = matches!(dtype, DType::U8 | DType::I8) && to.dtype(y_scale) == DType::F32;
    if narrow
        && to.rank(sum) > 0
        && to.data_type(zero).narrow.is_none()
        && let Some(zero) = measured_number(to, zero)
    {
        let steps = to.formula(|f| {
            let [sum, scale, y_scale] = f.values([sum, scale, y_scale]);
            sum.cast(DType::F32) * (scale / y_scale)
        })?;
        return to.add_optional(Op::Quantize, &[Some(steps), None, Some(zero)]);
    }
    to.formula(|f| {
        let [sum, scale, y_scale, zero] = f.values([sum, scale, y_scale, zero]);
        let steps = sum.cast(DType::F32) * (scale / y_scale.cast(DType::F32));
        (steps.round() + zero.cast(DType::F32)).clamp(low as f64, high as f64).cast(dtype)
    })
}
