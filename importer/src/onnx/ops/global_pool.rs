//! Poolings over everything spatial: reductions.

use super::prelude::*;

const X: &[&str] = &["X"];

pub(super) enum GlobalPool {
    Plain(ReduceOp),
    /// `(Σ |x|^p)^(1/p)`.
    Lp(i64),
}

impl GlobalPool {
    fn read_lp(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        match order(node)? {
            p if p >= 1 => Ok(Self::Lp(p)),
            p => Err(invalid("p", format!("is {p}, must be at least 1"))),
        }
    }
}

impl<'m> Operator<'m> for GlobalPool {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("GlobalAveragePool", 1, X).reads(|_| Ok(Self::Plain(ReduceOp::Mean))),
        Spec::onnx("GlobalLpPool", 1, X).reads(Self::read_lp),
        Spec::onnx("GlobalMaxPool", 1, X).reads(|_| Ok(Self::Plain(ReduceOp::Max))),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let rank = to.need_rank("X", x, 2)?;
        let axes: Vec<usize> = (2..rank).collect();
        let result = match *self {
            Self::Plain(op) => to.reduce(op, x, &axes, true)?,
            Self::Lp(p) => to.in_single(x, |to, x| to.formula(|f| norm(f.value(x), p, &axes)))?,
        };
        Ok(result.into())
    }
}

/// The order of a norm, which was a float in version 1.
pub(super) fn order(node: &mut SourceNode<'_>) -> RuleResult<i64> {
    if node.opset >= 2 {
        return node.int("p", 2);
    }
    let p = node.float("p", 2.0)?;
    if p.fract() != 0.0 || !(1.0..=f64::from(u16::MAX)).contains(&p) {
        return Err(invalid("p", format!("is {p}, must be a whole number, at least 1")));
    }
    Ok(p as i64)
}

/// The `p`-norm over axes, which stay with size 1.
pub(super) fn norm<'f>(x: Value<'f>, p: i64, axes: &[usize]) -> Value<'f> {
    match p {
        1 => x.abs().sum(axes),
        2 => x.square().sum(axes).sqrt(),
        _ => x.abs().pow(p as f64).sum(axes).pow(1.0 / p as f64),
    }
}
