//! `Clip`: bounds as attributes before version 11, as inputs since.

use super::prelude::*;
use crate::ir::op;

pub(super) struct Clip {
    min: Option<f64>,
    max: Option<f64>,
}

impl Clip {
    /// The form with bounds as attributes.
    fn read_old(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // As attributes, bounds that were left out were finite.
        let most = f64::from(f32::MAX);
        Ok(Self { min: Some(node.float("min", -most)?), max: Some(node.float("max", most)?) })
    }
}

impl<'m> Operator<'m> for Clip {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Clip", 1, &["input"]).until(10).reads(Self::read_old),
        Spec::onnx("Clip", 11, &["input", "min?", "max?"]).reads(|_| Ok(Self { min: None, max: None })),
    ];

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
        Ok(to.add(Op::Clamp(op::Clamp { min, max }), &[x])?.into())
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
