//! Functions of one element, one result each.

use super::prelude::*;

const X: &[&str] = &["x"];

pub(super) struct Unary(UnaryOp);

impl<'m> Operator<'m> for Unary {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Abs", 1, X).reads(|_| Ok(Self(UnaryOp::Abs))),
        Spec::onnx("Acos", 7, X).reads(|_| Ok(Self(UnaryOp::Acos))),
        Spec::onnx("Acosh", 9, X).reads(|_| Ok(Self(UnaryOp::Acosh))),
        Spec::onnx("Asin", 7, X).reads(|_| Ok(Self(UnaryOp::Asin))),
        Spec::onnx("Asinh", 9, X).reads(|_| Ok(Self(UnaryOp::Asinh))),
        Spec::onnx("Atan", 7, X).reads(|_| Ok(Self(UnaryOp::Atan))),
        Spec::onnx("Atanh", 9, X).reads(|_| Ok(Self(UnaryOp::Atanh))),
        Spec::onnx("BitwiseNot", 18, X).reads(|_| Ok(Self(UnaryOp::BitwiseNot))),
        Spec::onnx("Ceil", 1, X).reads(|_| Ok(Self(UnaryOp::Ceil))),
        Spec::onnx("Cos", 7, X).reads(|_| Ok(Self(UnaryOp::Cos))),
        Spec::onnx("Cosh", 9, X).reads(|_| Ok(Self(UnaryOp::Cosh))),
        Spec::onnx("Erf", 9, X).reads(|_| Ok(Self(UnaryOp::Erf))),
        Spec::onnx("Exp", 1, X).reads(|_| Ok(Self(UnaryOp::Exp))),
        Spec::onnx("Floor", 1, X).reads(|_| Ok(Self(UnaryOp::Floor))),
        Spec::onnx("IsNaN", 9, X).reads(|_| Ok(Self(UnaryOp::IsNan))),
        Spec::onnx("Log", 1, X).reads(|_| Ok(Self(UnaryOp::Log))),
        Spec::onnx("Neg", 1, X).reads(|_| Ok(Self(UnaryOp::Neg))),
        Spec::onnx("Not", 1, X).reads(|_| Ok(Self(UnaryOp::Not))),
        Spec::onnx("Reciprocal", 1, X).reads(|_| Ok(Self(UnaryOp::Recip))),
        Spec::onnx("Round", 11, X).reads(|_| Ok(Self(UnaryOp::Round))),
        Spec::onnx("Sign", 9, X).reads(|_| Ok(Self(UnaryOp::Sign))),
        Spec::onnx("Sin", 7, X).reads(|_| Ok(Self(UnaryOp::Sin))),
        Spec::onnx("Sinh", 9, X).reads(|_| Ok(Self(UnaryOp::Sinh))),
        Spec::onnx("Sqrt", 1, X).reads(|_| Ok(Self(UnaryOp::Sqrt))),
        Spec::onnx("Tan", 7, X).reads(|_| Ok(Self(UnaryOp::Tan))),
        Spec::kiln("Log1p", X).reads(|_| Ok(Self(UnaryOp::Log1p))),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        Ok(to.unary(self.0, args.value("x")?)?.into())
    }
}
