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
                to.in_single(x, |to, x| {
                    to.formula(|f| {
                        let x = f.value(x);
                        let length = norm(x, *p, &[axis]);
                        // A zero vector stays one.
                        x / length.equals(0.0).where_(x.number(1.0), length)
                    })
                })?
            }
            Self::MeanVariance { axes } => {
                let axes = axes_of(axes, to.rank(x))?;
                to.in_single(x, |to, x| to.formula(|f| standardized(f.value(x), &axes)))?
            }
        };
        Ok(result.into())
    }
}

/// `(x - mean) / (deviation + 1e-9)`; the constant is the specification's.
fn standardized<'f>(x: Value<'f>, axes: &[usize]) -> Value<'f> {
    let centered = x - x.mean(axes);
    let deviation = centered.square().mean(axes).sqrt();
    centered / (deviation + 1e-9)
}
