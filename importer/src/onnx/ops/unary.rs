//! Functions of one element, one result each.

use super::super::lowering::Lowering;
use super::super::node::SourceNode;
use super::super::operator::{Args, Operator, Outputs, Spec, family};
use crate::ir::RuleResult;
use kiln_types::UnaryOp;

family!(UnaryOp, &["x"], {
    "Abs" since 6 => UnaryOp::Abs,
    "Acos" since 7 => UnaryOp::Acos,
    "Acosh" since 9 => UnaryOp::Acosh,
    "Asin" since 7 => UnaryOp::Asin,
    "Asinh" since 9 => UnaryOp::Asinh,
    "Atan" since 7 => UnaryOp::Atan,
    "Atanh" since 9 => UnaryOp::Atanh,
    "BitwiseNot" since 18 => UnaryOp::BitwiseNot,
    "Ceil" since 6 => UnaryOp::Ceil,
    "Cos" since 7 => UnaryOp::Cos,
    "Cosh" since 9 => UnaryOp::Cosh,
    "Erf" since 9 => UnaryOp::Erf,
    "Exp" since 6 => UnaryOp::Exp,
    "Floor" since 6 => UnaryOp::Floor,
    "IsNaN" since 9 => UnaryOp::IsNan,
    "Log" since 6 => UnaryOp::Log,
    "Neg" since 6 => UnaryOp::Neg,
    "Not" since 1 => UnaryOp::Not,
    "Reciprocal" since 6 => UnaryOp::Recip,
    "Round" since 11 => UnaryOp::Round,
    "Sign" since 9 => UnaryOp::Sign,
    "Sin" since 7 => UnaryOp::Sin,
    "Sinh" since 9 => UnaryOp::Sinh,
    "Sqrt" since 6 => UnaryOp::Sqrt,
    "Tan" since 7 => UnaryOp::Tan,
});

pub(super) struct Unary(UnaryOp);

impl Operator<'_> for Unary {
    const SPECS: &'static [Spec] = FAMILY;

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        member(node.operator()).map(Self)
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        Ok(to.unary(self.0, args.value("x")?)?.into())
    }
}
