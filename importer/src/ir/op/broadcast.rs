//! The rule by which operands of equal rank meet.

use super::rules::{dims_error, may_equal};
use crate::ir::{Dim, Infer, RuleError, RuleResult, TensorType};

/// Dims that two lists of equal length broadcast to; `fresh` makes a size that only the run tells.
///
/// Two sizes that are both unknown and of which none is provably the result yield a fresh size: either may be 1.
pub(super) fn broadcast_dims(a: &[Dim], b: &[Dim], fresh: &mut dyn FnMut() -> Dim) -> Option<Vec<Dim>> {
    if a.len() != b.len() {
        return None;
    }
    let dims = a.iter().zip(b).map(|(x, y)| {
        if x == y || y.is(1) {
            return Some(x.clone());
        }
        if x.is(1) {
            return Some(y.clone());
        }
        match (x.as_constant(), y.as_constant()) {
            (Some(_), Some(_)) => None,
            (Some(_), None) => Some(x.clone()),
            (None, Some(_)) => Some(y.clone()),
            (None, None) => Some(x.met(y).unwrap_or_else(&mut *fresh)),
        }
    });
    dims.collect()
}
/// Dims that the given operands broadcast to. Operands have equal rank, except constants of rank 0.
pub(super) fn broadcast(cx: &mut Infer<'_>, operands: &[usize]) -> RuleResult<Vec<Dim>> {
    let mut result: Option<TensorType> = None;
    for &n in operands {
        let ty = cx.ty(n)?;
        if cx.is_scalar_constant(n) {
            continue;
        }
        result = Some(match result {
            None => ty.clone(),
            Some(left) => {
                if left.rank() != ty.rank() {
                    return Err(RuleError::Dims {
                        what: "ranks of a broadcast".into(),
                        left,
                        right: ty.clone(),
                    });
                }
                let dims = broadcast_dims(&left.dims, &ty.dims, &mut || cx.fresh("dim"))
                    .ok_or_else(|| dims_error("broadcast", &left, ty))?;
                left.with_dims(dims)
            }
        });
    }
    Ok(result.map(|ty| ty.dims).unwrap_or_default())
}
/// Checks that `dims` broadcast to `target` without changing it (aligned at the last dim).
pub(super) fn broadcasts_to(ty: &TensorType, target: &[Dim]) -> RuleResult<()> {
    let wanted = TensorType { dtype: ty.dtype, dims: target.to_vec() };
    let Some(skip) = target.len().checked_sub(ty.rank()) else {
        return Err(dims_error("broadcast", ty, &wanted));
    };
    let fits = ty.dims.iter().zip(&target[skip..]).all(|(from, to)| from.is(1) || may_equal(from, to));
    if fits { Ok(()) } else { Err(dims_error("broadcast", ty, &wanted)) }
}
