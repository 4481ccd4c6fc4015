//! Poolings over everything spatial: reductions.

use super::prelude::*;
use crate::ir::op;
use kiln_types::{ArgReduceOp, PoolOp, PoolOptions};

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
            Self::Plain(ReduceOp::Max) if to.trainable && to.dtype(x).is_float() && rank > 2 => {
                first_maximum(to, x)?
            }
            Self::Plain(op) => to.reduce(op, x, &axes, true)?,
            Self::Lp(p) => to.in_single(x, |to, x| to.formula(|f| norm(f.value(x), p, &axes)))?,
        };
        Ok(result.into())
    }
}

/// The greatest of each channel where gradients matter: of equal elements the first has all of it, whereas a reduction shares it.
fn first_maximum(to: &mut Lowering<'_, '_>, x: ValueId) -> RuleResult<ValueId> {
    let dims = to.dims(x);
    let (outer, spatial) = dims.split_at(2);
    let sizes: Option<Vec<usize>> = spatial.iter().map(Dim::as_size).collect();
    if let Some(kernel) = sizes.filter(|sizes| sizes.len() <= 3 && !sizes.contains(&0)) {
        let ones = vec![1; kernel.len()];
        let options = PoolOptions {
            stride: ones.clone().into(),
            padding: vec![(0, 0); kernel.len()].into(),
            dilation: ones.into(),
            kernel: kernel.into(),
            ceil_mode: false,
        };
        return to.add(Op::Pool(op::Pool { op: PoolOp::Max, options }), &[x]);
    }
    let flat = to.reshape(x, [outer, &[Dim::product(spatial)]].concat())?;
    let arg = op::ArgReduce { op: ArgReduceOp::Max, axis: 2, keep_dims: true, select_last: false };
    let place = to.add(Op::ArgReduce(arg), &[flat])?;
    let greatest = to.add(Op::Gather(op::Gather { axis: 2 }), &[flat, place])?;
    to.reshape(greatest, [outer, &vec![1.into(); spatial.len()]].concat())
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
