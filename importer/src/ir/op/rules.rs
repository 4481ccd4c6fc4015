//! What the rules of several operations check.
//!
//! Whatever an operation yields, its dims are checked here once: no negative size, no tensor beyond [`MAX_ELEMENTS`].

use crate::ir::{Dim, Infer, RuleError, RuleResult, TensorType};

/// More elements than any machine holds (a trillion); a model that asks for more is broken or hostile.
const MAX_ELEMENTS: i64 = 1 << 40;

/// Checks that the operands are there that must be, and no more than there may be.
pub(super) fn check_operands(names: &[&str], cx: &Infer<'_>) -> RuleResult<()> {
    for n in 0..cx.len().max(names.len()) {
        let name = names.get(n).or(names.last().filter(|name| name.ends_with('*')));
        match (name, cx.optional(n)) {
            (Some(name), None) if !name.ends_with(['?', '*']) => {
                return Err(RuleError::MissingInput { input: (*name).to_owned() });
            }
            (None, Some(_)) => {
                let what = format!("{} operands where {} are known", cx.len(), names.len());
                return Err(RuleError::Unsupported { what });
            }
            _ => {}
        }
    }
    Ok(())
}

/// More axes than any operator gives a tensor.
const MAX_RANK: usize = 64;

/// Refuses negative sizes, element counts beyond [`MAX_ELEMENTS`] and more than [`MAX_RANK`] axes.
pub(super) fn check_size(ty: &TensorType) -> RuleResult<()> {
    if ty.rank() > MAX_RANK {
        return Err(RuleError::TooLarge { what: format!("a result of {} axes", ty.rank()) });
    }
    let mut count = 1i64;
    let mut empty = false;
    for dim in &ty.dims {
        match dim.as_constant() {
            Some(0) => empty = true,
            Some(size) if size < 0 => {
                return Err(misfit("shape", format!("gives a result {ty} of negative size")));
            }
            Some(size) => count = count.saturating_mul(size),
            None if dim.is_beyond() => {
                return Err(RuleError::TooLarge { what: "the arithmetic on sizes of a result".to_owned() });
            }
            None => {}
        }
    }
    if count > MAX_ELEMENTS && !empty {
        return Err(RuleError::TooLarge { what: format!("a result {ty}") });
    }
    Ok(())
}
/// The operand's type when its rank is at least `least`.
pub(super) fn at_least_rank<'a>(
    cx: &Infer<'a>,
    n: usize,
    name: &str,
    least: usize,
) -> RuleResult<&'a TensorType> {
    let ty = cx.ty(n)?;
    if ty.rank() < least {
        return Err(RuleError::Rank {
            input: name.into(),
            actual: ty.rank(),
            expected: format!("expected at least {least}"),
        });
    }
    Ok(ty)
}
/// The operand's type when its rank is `rank`.
pub(super) fn of_rank<'a>(cx: &Infer<'a>, n: usize, name: &str, rank: usize) -> RuleResult<&'a TensorType> {
    let ty = cx.ty(n)?;
    if ty.rank() != rank {
        return Err(RuleError::Rank {
            input: name.into(),
            actual: ty.rank(),
            expected: format!("expected {rank}"),
        });
    }
    Ok(ty)
}
/// Checks that a dtype is a float.
pub(super) fn need_float(name: &str, ty: &TensorType) -> RuleResult<()> {
    need(name, ty, ty.dtype.is_float(), "expected a float")
}
/// Checks that a dtype is an integer.
pub(super) fn need_int(name: &str, ty: &TensorType) -> RuleResult<()> {
    need(name, ty, ty.dtype.is_int(), "expected an integer")
}
/// Checks that a dtype is bool.
pub(super) fn need_bool(name: &str, ty: &TensorType) -> RuleResult<()> {
    need(name, ty, ty.dtype.is_bool(), "expected bool")
}
/// An error about a dtype unless `holds`.
pub(super) fn need(name: &str, ty: &TensorType, holds: bool, expected: &str) -> RuleResult<()> {
    if holds {
        return Ok(());
    }
    Err(RuleError::DType { input: name.into(), actual: ty.dtype, expected: expected.into() })
}
/// Checks that two operands have one dtype.
pub(super) fn same_dtype(left: &str, a: &TensorType, right: &str, b: &TensorType) -> RuleResult<()> {
    if a.dtype == b.dtype {
        return Ok(());
    }
    Err(RuleError::DTypesDiffer {
        left: left.into(),
        left_dtype: a.dtype,
        right: right.into(),
        right_dtype: b.dtype,
    })
}
/// Checks that an axis lies inside a rank.
pub(super) fn check_axis(axis: usize, rank: usize) -> RuleResult<()> {
    if axis < rank {
        return Ok(());
    }
    Err(RuleError::Axis { axis: i64::try_from(axis).unwrap_or(i64::MAX), rank })
}
/// Whether two sizes can be equal: not known to differ.
pub(crate) fn may_equal(a: &Dim, b: &Dim) -> bool {
    (a - b).as_constant().is_none_or(|difference| difference == 0)
}
/// An error about dims that contradict each other.
pub(super) fn dims_error(what: &str, left: &TensorType, right: &TensorType) -> RuleError {
    RuleError::Dims { what: what.into(), left: left.clone(), right: right.clone() }
}
/// Checks that two sizes can be equal; the types are for the message.
pub(super) fn need_equal(
    what: &str,
    a: &Dim,
    left: &TensorType,
    b: &Dim,
    right: &TensorType,
) -> RuleResult<()> {
    if may_equal(a, b) { Ok(()) } else { Err(dims_error(what, left, right)) }
}
/// An error about an attribute.
pub(super) fn attribute(attribute: &str, reason: impl Into<String>) -> RuleError {
    RuleError::Attribute { attribute: attribute.into(), reason: reason.into() }
}

/// An error about an attribute that the operands' shapes contradict.
pub(super) fn misfit(attribute: &str, reason: impl Into<String>) -> RuleError {
    RuleError::Misfit { attribute: attribute.into(), reason: reason.into() }
}

/// Sizes, when all are known.
pub(super) fn sizes(dims: &[Dim]) -> Option<Vec<usize>> {
    dims.iter().map(Dim::as_size).collect()
}
