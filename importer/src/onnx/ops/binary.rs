//! Functions of two elements, with broadcasting.

use super::limited_broadcast::LimitedBroadcast;
use super::prelude::*;

const AB: &[&str] = &["A", "B"];

pub(super) struct Binary {
    op: BinaryOp,
    /// How operands met before version 7.
    limited: Option<LimitedBroadcast>,
}

impl Binary {
    fn read(node: &mut SourceNode<'_>, op: BinaryOp) -> RuleResult<Self> {
        Ok(Self { op, limited: LimitedBroadcast::read(node)? })
    }

    fn read_shift(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        if !node.has("direction") {
            return Err(invalid("direction", "is missing"));
        }
        let directions = [("LEFT", BinaryOp::ShiftLeft), ("RIGHT", BinaryOp::ShiftRight)];
        let op = node.choice("direction", "", &directions)?;
        Self::read(node, op)
    }

    fn read_modulo(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let op = if node.flag("fmod", false)? { BinaryOp::Fmod } else { BinaryOp::Remainder };
        Self::read(node, op)
    }
}

impl<'m> Operator<'m> for Binary {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Add", 1, AB).reads(|node| Self::read(node, BinaryOp::Add)),
        // The angle of the point `(B, A)`.
        Spec::kiln("Atan2", AB).reads(|_| Ok(Self { op: BinaryOp::Atan2, limited: None })),
        Spec::onnx("And", 1, AB).reads(|node| Self::read(node, BinaryOp::And)),
        Spec::onnx("BitShift", 11, AB).reads(Self::read_shift),
        Spec::onnx("BitwiseAnd", 18, AB).reads(|node| Self::read(node, BinaryOp::BitwiseAnd)),
        Spec::onnx("BitwiseOr", 18, AB).reads(|node| Self::read(node, BinaryOp::BitwiseOr)),
        Spec::onnx("BitwiseXor", 18, AB).reads(|node| Self::read(node, BinaryOp::BitwiseXor)),
        Spec::onnx("Div", 1, AB).reads(|node| Self::read(node, BinaryOp::Div)),
        Spec::onnx("Mod", 10, AB).reads(Self::read_modulo),
        Spec::onnx("Mul", 1, AB).reads(|node| Self::read(node, BinaryOp::Mul)),
        Spec::onnx("Or", 1, AB).reads(|node| Self::read(node, BinaryOp::Or)),
        Spec::onnx("Pow", 1, AB).reads(|node| Self::read(node, BinaryOp::Pow)),
        Spec::onnx("Sub", 1, AB).reads(|node| Self::read(node, BinaryOp::Sub)),
        Spec::onnx("Xor", 1, AB).reads(|node| Self::read(node, BinaryOp::Xor)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (a, mut b) = (args.value("A")?, args.value("B")?);
        if let Some(limited) = &self.limited {
            b = limited.align(to, a, b)?;
        }
        if self.op == BinaryOp::Pow {
            return Ok(power(to, a, b)?.into());
        }
        Ok(to.binary(self.op, a, b)?.into())
    }
}

/// Whether exponents are known, whole and not negative, so that powers of integers are products of integers.
fn is_whole(to: &Lowering<'_, '_>, exponent: ValueId) -> bool {
    let whole = |number: Scalar| {
        let number = number.to_f64();
        (0.0..=f64::from(u8::MAX)).contains(&number) && number.fract() == 0.0
    };
    to.known_numbers(exponent, "Y").is_ok_and(|numbers| numbers.into_iter().all(whole))
}

/// The exponent may have another dtype; the result has the base's.
fn power(to: &mut Lowering<'_, '_>, base: ValueId, exponent: ValueId) -> RuleResult<ValueId> {
    let (base_dtype, exponent_dtype) = (to.dtype(base), to.dtype(exponent));
    if base_dtype.is_int() && exponent_dtype.is_float() && !is_whole(to, exponent) {
        // In f64, as ONNX Runtime does; a device without it computes in f32, and is right as long as that tells integers apart.
        let (base, exponent) = (to.cast(base, DType::F64)?, to.cast(exponent, DType::F64)?);
        let power = to.binary(BinaryOp::Pow, base, exponent)?;
        return to.cast(power, base_dtype);
    }
    let exponent = match to.known_number(exponent) {
        // A literal needs no cast at run time.
        Some(number) if to.rank(exponent) == 0 && exponent_dtype != base_dtype => {
            to.scalar(number, base_dtype)
        }
        _ => to.cast(exponent, base_dtype)?,
    };
    to.binary(BinaryOp::Pow, base, exponent)
}
