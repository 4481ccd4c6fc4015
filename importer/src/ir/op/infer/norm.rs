//! Normalizations.

use super::broadcast::broadcasts_to;
use super::{at_least_rank, attribute, check_axis, need_equal, need_float, of_rank, same_dtype};
use crate::ir::{Infer, RuleResult, TensorType};

/// Softmax and its logarithm.
pub(super) fn along(cx: &mut Infer<'_>, axis: usize) -> RuleResult<TensorType> {
    let x = at_least_rank(cx, 0, "x", 1)?;
    need_float("x", x)?;
    check_axis(axis, x.rank())?;
    Ok(x.clone())
}

/// Layer and RMS norm: up to `parameters` operands whose dims are the last of `x`.
pub(super) fn trailing(cx: &mut Infer<'_>, parameters: usize) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    need_float("x", x)?;
    let weight = at_least_rank(cx, 1, "weight", 1)?;
    for n in 1..=parameters {
        if let Some(parameter) = cx.optional(n) {
            of_rank(cx, n, "bias", weight.rank())?;
            same_dtype("x", x, "weight", parameter)?;
            broadcasts_to(parameter, &x.dims)?;
        }
    }
    Ok(x.clone())
}

pub(super) fn group(cx: &mut Infer<'_>, groups: usize) -> RuleResult<TensorType> {
    let x = at_least_rank(cx, 0, "x", 2)?;
    need_float("x", x)?;
    let divides = x.dims[1].as_size().is_none_or(|channels| channels.checked_rem(groups) == Some(0));
    if groups == 0 || !divides {
        return Err(attribute("num_groups", format!("is {groups} for {} channels", x.dims[1])));
    }
    per_channel(cx, x, &[1, 2])?;
    Ok(x.clone())
}

pub(super) fn batch(cx: &mut Infer<'_>) -> RuleResult<TensorType> {
    let x = at_least_rank(cx, 0, "x", 2)?;
    need_float("x", x)?;
    for n in 1..=4 {
        cx.ty(n)?;
    }
    per_channel(cx, x, &[1, 2, 3, 4])?;
    Ok(x.clone())
}

/// Checks operands of one number a channel.
fn per_channel(cx: &Infer<'_>, x: &TensorType, operands: &[usize]) -> RuleResult<()> {
    for &n in operands {
        if let Some(parameter) = cx.optional(n) {
            of_rank(cx, n, "channel parameter", 1)?;
            same_dtype("x", x, "channel parameter", parameter)?;
            need_equal("channels", &x.dims[1], x, &parameter.dims[0], parameter)?;
        }
    }
    Ok(())
}
