//! Operations that read or write at indices.

use super::{at_least_rank, check_axis, dims_error, may_equal, need, same_dtype};
use crate::ir::{Infer, RuleResult, TensorType};
use kiln_types::DType;

/// Indices are i64 or i32.
fn need_index(ty: &TensorType) -> RuleResult<()> {
    need("indices", ty, matches!(ty.dtype, DType::I64 | DType::I32), "expected i64 or i32")
}

pub(super) fn take(cx: &mut Infer<'_>, axis: usize) -> RuleResult<TensorType> {
    let x = at_least_rank(cx, 0, "x", 1)?;
    let indices = cx.ty(1)?;
    check_axis(axis, x.rank())?;
    need_index(indices)?;
    let dims = x.dims[..axis].iter().chain(&indices.dims).chain(&x.dims[axis + 1..]).cloned();
    Ok(x.with_dims(dims.collect()))
}

pub(super) fn gather(cx: &mut Infer<'_>, axis: usize) -> RuleResult<TensorType> {
    let x = at_least_rank(cx, 0, "x", 1)?;
    let indices = cx.ty(1)?;
    check_axis(axis, x.rank())?;
    need_index(indices)?;
    inside(x, indices, axis)?;
    Ok(x.with_dims(indices.dims.clone()))
}

pub(super) fn scatter(cx: &mut Infer<'_>, axis: usize) -> RuleResult<TensorType> {
    let x = at_least_rank(cx, 0, "x", 1)?;
    let (indices, updates) = (cx.ty(1)?, cx.ty(2)?);
    check_axis(axis, x.rank())?;
    need_index(indices)?;
    same_dtype("x", x, "updates", updates)?;
    inside(x, indices, axis)?;
    let equal = indices.rank() == updates.rank()
        && indices.dims.iter().zip(&updates.dims).all(|(a, b)| may_equal(a, b));
    if equal { Ok(x.clone()) } else { Err(dims_error("indices and updates", indices, updates)) }
}

/// Indices may not be larger than `x` but along the axis.
fn inside(x: &TensorType, indices: &TensorType, axis: usize) -> RuleResult<()> {
    let fits = x.rank() == indices.rank()
        && x.dims.iter().zip(&indices.dims).enumerate().all(|(i, (size, count))| {
            i == axis || size.as_constant().zip(count.as_constant()).is_none_or(|(s, c)| c <= s)
        });
    if fits { Ok(()) } else { Err(dims_error("indices", x, indices)) }
}
