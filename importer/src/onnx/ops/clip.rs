//! `Clip`: bounds as attributes before version 11, as inputs since.

use super::super::lowering::Lowering;
use super::super::node::SourceNode;
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::{Op, RuleResult, ValueId};
use kiln_types::{BinaryOp, Scalar};

pub(super) struct Clip {
    min: Option<f64>,
    max: Option<f64>,
}

impl Operator<'_> for Clip {
    const SPECS: &'static [Spec] =
        &[Spec::onnx("Clip", 6, &["input"]).until(10), Spec::onnx("Clip", 11, &["input", "min?", "max?"])];

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        if node.opset >= 11 {
            return Ok(Self { min: None, max: None });
        }
        // As attributes, bounds that were left out were finite.
        let most = f64::from(f32::MAX);
        Ok(Self { min: Some(node.float("min", -most)?), max: Some(node.float("max", most)?) })
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        let (min, max) = (args.optional("min")?, args.optional("max")?);
        let known = |bound: Option<ValueId>| bound.map(|bound| to.known_number(bound));
        let (low, high) = match (known(min), known(max)) {
            (Some(None), _) | (_, Some(None)) => return dynamic(to, x, min, max),
            (low, high) => (low.flatten(), high.flatten()),
        };
        let bound = |known: Option<Scalar>, attribute: Option<f64>| known.or(attribute.map(Scalar::Float));
        // The largest number is a bound for infinity, which alone bounds nothing.
        let min = bound(low, self.min).filter(|min| min.to_f64() != f64::NEG_INFINITY);
        let max = bound(high, self.max).filter(|max| max.to_f64() != f64::INFINITY);
        if min.is_none() && max.is_none() {
            return Ok(x.into());
        }
        Ok(to.add(Op::Clamp { min, max }, &[x])?.into())
    }
}

/// Bounds that only the run gives.
fn dynamic(
    to: &mut Lowering<'_, '_>,
    mut x: ValueId,
    min: Option<ValueId>,
    max: Option<ValueId>,
) -> RuleResult<Outputs> {
    for (op, bound) in [(BinaryOp::Max, min), (BinaryOp::Min, max)] {
        if let Some(bound) = bound {
            x = to.binary(op, x, bound)?;
        }
    }
    Ok(x.into())
}
