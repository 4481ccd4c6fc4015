//! Reductions and running folds.

use super::{at_least_rank, attribute, check_axis, need, reduces};
use crate::ir::{Dim, Infer, RuleResult, TensorType};
use kiln_types::{DType, ReduceOp};

pub(super) fn reduce(
    cx: &mut Infer<'_>,
    op: ReduceOp,
    axes: &[usize],
    keep_dims: bool,
) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    need(
        "x",
        x,
        reduces(op, x.dtype),
        if x.dtype.is_bool() { "expected a number" } else { "expected bool" },
    )?;
    if axes.is_empty() || axes.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(attribute("axes", format!("{axes:?} are not sorted and distinct")));
    }
    for &axis in axes {
        check_axis(axis, x.rank())?;
    }
    Ok(x.with_dims(without(&x.dims, axes, keep_dims)))
}

/// Dims with some axes folded.
fn without(dims: &[Dim], axes: &[usize], keep_dims: bool) -> Vec<Dim> {
    let kept = dims.iter().enumerate().filter_map(|(i, dim)| match (axes.contains(&i), keep_dims) {
        (false, _) => Some(dim.clone()),
        (true, true) => Some(Dim::constant(1)),
        (true, false) => None,
    });
    kept.collect()
}

pub(super) fn arg_reduce(cx: &mut Infer<'_>, axis: usize, keep_dims: bool) -> RuleResult<TensorType> {
    let x = at_least_rank(cx, 0, "x", 1)?;
    check_axis(axis, x.rank())?;
    need("x", x, !x.dtype.is_bool(), "expected a number")?;
    Ok(TensorType { dtype: DType::I64, dims: without(&x.dims, &[axis], keep_dims) })
}

pub(super) fn cumulative(cx: &mut Infer<'_>, axis: usize) -> RuleResult<TensorType> {
    let x = at_least_rank(cx, 0, "x", 1)?;
    check_axis(axis, x.rank())?;
    need("x", x, !x.dtype.is_bool(), "expected a number")?;
    Ok(x.clone())
}

pub(super) fn trilu(cx: &mut Infer<'_>) -> RuleResult<TensorType> {
    Ok(at_least_rank(cx, 0, "x", 2)?.clone())
}
