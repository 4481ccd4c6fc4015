//! Operations that move elements or make values.

use super::{at_least_rank, attribute, check_axis, dims_error, may_equal, need, same_dtype};
use crate::ir::{AxisRange, Dim, Infer, RuleError, RuleResult, TensorType};
use kiln_types::{DType, PadMode};

pub(super) fn reshape(cx: &mut Infer<'_>, dims: &[Dim]) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    let wanted = x.with_dims(dims.to_vec());
    if !may_equal(&x.num_elements(), &wanted.num_elements()) {
        return Err(dims_error("numbers of elements in a reshape", x, &wanted));
    }
    Ok(wanted)
}

pub(super) fn permute(cx: &mut Infer<'_>, axes: &[usize]) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    let mut sorted = axes.to_vec();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..x.rank()) {
        return Err(attribute("axes", format!("{axes:?} are not a permutation of {} axes", x.rank())));
    }
    Ok(x.with_dims(axes.iter().map(|&axis| x.dims[axis].clone()).collect()))
}

pub(super) fn expand(cx: &mut Infer<'_>, dims: &[Dim]) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    let wanted = x.with_dims(dims.to_vec());
    let fits =
        x.rank() == dims.len() && x.dims.iter().zip(dims).all(|(from, to)| from.is(1) || may_equal(from, to));
    if fits { Ok(wanted) } else { Err(dims_error("expansion", x, &wanted)) }
}

pub(super) fn slice(cx: &mut Infer<'_>, ranges: &[AxisRange]) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    if ranges.len() != x.rank() {
        return Err(attribute("ranges", format!("are {} for a tensor of rank {}", ranges.len(), x.rank())));
    }
    let mut dims = Vec::with_capacity(ranges.len());
    for (range, size) in ranges.iter().zip(&x.dims) {
        let step = i64::try_from(range.step.unsigned_abs()).unwrap_or(i64::MAX);
        let (start, end) = (range.start.as_constant(), range.end.as_constant());
        let inside = start.is_none_or(|s| s >= 0)
            && (&range.end - &range.start).as_constant().is_none_or(|len| len >= 0)
            && end.zip(size.as_constant()).is_none_or(|(end, size)| end <= size);
        if step == 0 || !inside {
            let text = format!("{}..{} by {} are outside 0..{size}", range.start, range.end, range.step);
            return Err(attribute("ranges", text));
        }
        dims.push((&range.end - &range.start).ceil_div(&Dim::constant(step)));
    }
    Ok(x.with_dims(dims))
}

pub(super) fn concat(cx: &mut Infer<'_>, axis: usize) -> RuleResult<TensorType> {
    let first = at_least_rank(cx, 0, "inputs", 1)?;
    check_axis(axis, first.rank())?;
    let mut dims = first.dims.clone();
    for n in 1..cx.len() {
        let next = cx.ty(n)?;
        same_dtype("inputs[0]", first, &format!("inputs[{n}]"), next)?;
        if next.rank() != first.rank() {
            return Err(dims_error("ranks of a concatenation", first, next));
        }
        for (i, (dim, other)) in dims.iter_mut().zip(&next.dims).enumerate() {
            if i == axis {
                *dim = &*dim + other;
            } else if !may_equal(dim, other) {
                return Err(dims_error("concatenation", first, next));
            } else if dim.as_constant().is_none() {
                // A known size says more than a symbol.
                *dim = if other.as_constant().is_some() { other.clone() } else { dim.clone() };
            }
        }
    }
    Ok(first.with_dims(dims))
}

pub(super) fn pad(cx: &mut Infer<'_>, padding: &[(Dim, Dim)], mode: PadMode) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    if padding.len() != x.rank() {
        return Err(attribute("pads", format!("are {} for a tensor of rank {}", padding.len(), x.rank())));
    }
    let mut dims = Vec::with_capacity(padding.len());
    for ((before, after), size) in padding.iter().zip(&x.dims) {
        for pad in [before, after] {
            if pad.as_constant().is_some_and(|pad| pad < 0) {
                return Err(attribute("pads", "are negative"));
            }
            let short = mode == PadMode::Reflect
                && pad
                    .as_constant()
                    .zip(size.as_constant())
                    .is_some_and(|(pad, size)| pad > 0 && pad >= size);
            let empty = mode != PadMode::Constant && size.is(0) && !pad.is(0);
            if short || empty {
                return Err(attribute(
                    "pads",
                    format!("of {pad} cannot be taken from an axis of size {size}"),
                ));
            }
        }
        dims.push(&(before + size) + after);
    }
    Ok(x.with_dims(dims))
}

pub(super) fn repeat(cx: &mut Infer<'_>, times: &[Dim]) -> RuleResult<TensorType> {
    let x = cx.ty(0)?;
    if times.len() != x.rank() {
        return Err(attribute("repeats", format!("are {} for a tensor of rank {}", times.len(), x.rank())));
    }
    Ok(x.with_dims(x.dims.iter().zip(times).map(|(dim, times)| dim * times).collect()))
}

pub(super) fn arange(cx: &mut Infer<'_>, start: &Dim, end: &Dim, step: i64) -> RuleResult<TensorType> {
    if step == 0 {
        return Err(attribute("delta", "is 0"));
    }
    let span = if step > 0 { end - start } else { start - end };
    let step = i64::try_from(step.unsigned_abs()).unwrap_or(i64::MAX);
    let count = span.ceil_div(&Dim::constant(step));
    let known = cx.graph().least(&span, 0).is_some_and(|least| least >= 0);
    let count = if known { count } else { count.maximum(&Dim::constant(0)) };
    Ok(TensorType::new(DType::I64, [count]))
}

pub(super) fn host_tensor(values: &[Dim], dims: &[usize]) -> RuleResult<TensorType> {
    let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    if count != Some(values.len()) {
        return Err(attribute("dims", format!("{dims:?} do not hold {} values", values.len())));
    }
    Ok(TensorType::new(DType::I64, dims.iter().copied()))
}

pub(super) fn host_read(cx: &mut Infer<'_>, symbols: usize) -> RuleResult<Vec<TensorType>> {
    let x = cx.ty(0)?;
    need("x", x, !x.dtype.is_float(), "expected an integer or bool")?;
    if !x.num_elements().is(i64::try_from(symbols).unwrap_or(i64::MAX)) {
        return Err(RuleError::NotConstant { input: format!("shape of {x}") });
    }
    Ok(Vec::new())
}
