//! `LpNormalization` and `MeanVarianceNormalization`: over axes, without parameters.

use super::global_pool::norm;
use super::prelude::*;

pub(super) enum LpNormalization {
    Lp { axis: i64, p: i64 },
    MeanVariance { axes: Vec<i64> },
}

impl LpNormalization {
    fn read_lp(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let (axis, p) = (node.int("axis", -1)?, node.int("p", 2)?);
        if p != 1 && p != 2 {
            return Err(invalid("p", format!("is {p}, must be 1 or 2")));
        }
        Ok(Self::Lp { axis, p })
    }

    fn read_mean_variance(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self::MeanVariance { axes: node.ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]) })
    }
}

impl<'m> Operator<'m> for LpNormalization {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("LpNormalization", 1, &["input"]).reads(Self::read_lp),
        Spec::onnx("MeanVarianceNormalization", 9, &["input"]).reads(Self::read_mean_variance),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("input")?;
        let result = match self {
            Self::Lp { axis, p } => {
                let axis = axis_of(*axis, to.rank(x))?;
                let length = norm(to, x, *p, &[axis])?;
                // A zero vector stays one.
                let (zero, one) = (to.number_like(x, 0.0), to.number_like(x, 1.0));
                let empty = to.compare(CompareOp::Equal, length, zero)?;
                let divisor = to.select(empty, one, length)?;
                to.binary(BinaryOp::Div, x, divisor)?
            }
            Self::MeanVariance { axes } => {
                let axes = axes_of(axes, to.rank(x))?;
                standardized(to, x, &axes)?
            }
        };
        Ok(result.into())
    }
}

/// `(x - mean) / (deviation + 1e-9)`; the constant is the specification's.
fn standardized(to: &mut Lowering<'_, '_>, x: ValueId, axes: &[usize]) -> RuleResult<ValueId> {
    let mean = to.reduce(ReduceOp::Mean, x, axes, true)?;
    let centered = to.binary(BinaryOp::Sub, x, mean)?;
    let square = to.binary(BinaryOp::Mul, centered, centered)?;
    let variance = to.reduce(ReduceOp::Mean, square, axes, true)?;
    let deviation = to.unary(UnaryOp::Sqrt, variance)?;
    let epsilon = to.number_like(x, 1e-9);
    let divisor = to.binary(BinaryOp::Add, deviation, epsilon)?;
    to.binary(BinaryOp::Div, centered, divisor)
}
