//! `PRelu`: a leaky rectifier with a slope for each channel or element.

use super::super::lowering::Lowering;
use super::super::node::SourceNode;
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::RuleResult;
use kiln_types::{BinaryOp, CompareOp};

pub(super) struct PRelu;

impl Operator<'_> for PRelu {
    const SPECS: &'static [Spec] = &[Spec::onnx("PRelu", 7, &["X", "slope"])];

    fn read(_: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self)
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, slope) = (args.value("X")?, args.value("slope")?);
        let zero = to.number_like(x, 0);
        let negative = to.compare(CompareOp::Lower, x, zero)?;
        let scaled = to.binary(BinaryOp::Mul, x, slope)?;
        Ok(to.select(negative, scaled, x)?.into())
    }
}
