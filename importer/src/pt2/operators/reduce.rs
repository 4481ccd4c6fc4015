//! Operators that reduce axes, run along them, or put them in order.

use super::Table;
use super::shape::{place, reshaped};
use crate::pt2::call::{Call, Int, Number, Outputs, Result, Tensor, flag, int, unsupported};
use kiln_types::{DType, Scalar};

pub(super) const RULES: Table = &[
    ("_is_any_true.default", |call| truth(call, "ReduceMax")),
    ("_log_softmax.default", |call| softmax(call, "LogSoftmax")),
    ("_logcumsumexp.default", running_log_sum),
    ("_softmax.default", |call| softmax(call, "Softmax")),
    ("all.default", |call| truth(call, "ReduceMin")),
    ("all.dim", |call| truth(call, "ReduceMin")),
    ("all.dims", |call| truth(call, "ReduceMin")),
    ("amax.default", |call| reduce(call, "ReduceMax")),
    ("amin.default", |call| reduce(call, "ReduceMin")),
    ("aminmax.default", |call| {
        let mut least = reduce(call, "ReduceMin")?;
        least.extend(reduce(call, "ReduceMax")?);
        Ok(least)
    }),
    ("any.default", |call| truth(call, "ReduceMax")),
    ("any.dim", |call| truth(call, "ReduceMax")),
    ("any.dims", |call| truth(call, "ReduceMax")),
    ("count_nonzero.default", count_nonzero),
    ("count_nonzero.dim_IntList", count_nonzero),
    ("cummax.default", |call| running_extreme(call, "Max")),
    ("cummin.default", |call| running_extreme(call, "Min")),
    ("cumprod.default", |call| running(call, "CumProd")),
    ("cumsum.default", |call| running(call, "CumSum")),
    ("cumulative_trapezoid.dx", |call| trapezoids(call, true)),
    ("cumulative_trapezoid.x", |call| trapezoids(call, true)),
    ("diff.default", differences),
    ("kthvalue.default", |call| {
        let k = call.size("k")?;
        ordered(call, |_, _, _| Ok(k))
    }),
    ("log_softmax.int", |call| softmax(call, "LogSoftmax")),
    ("logcumsumexp.default", running_log_sum),
    ("logsumexp.default", |call| reduce(call, "ReduceLogSumExp")),
    ("max.default", |call| reduce(call, "ReduceMax")),
    ("max.dim", |call| extreme(call, ["ReduceMax", "ArgMax"])),
    ("mean.default", |call| reduce(call, "ReduceMean")),
    ("mean.dim", |call| reduce(call, "ReduceMean")),
    ("median.default", median),
    ("median.dim", median),
    ("min.default", |call| reduce(call, "ReduceMin")),
    ("min.dim", |call| extreme(call, ["ReduceMin", "ArgMin"])),
    ("mode.default", mode),
    ("msort.default", |call| {
        let x = call.tensor("self")?;
        let sorted = sorted(call, &x, 0, false);
        Ok(sorted.into_iter().take(1).collect())
    }),
    ("nanmean.default", |call| without_nan(call, true)),
    ("nanmedian.default", nanmedian),
    ("nanmedian.dim", nanmedian),
    ("nanquantile.default", nanquantile),
    ("nanquantile.scalar", nanquantile),
    ("nansum.default", |call| without_nan(call, false)),
    ("prod.default", |call| reduce(call, "ReduceProd")),
    ("prod.dim_int", |call| reduce(call, "ReduceProd")),
    ("quantile.default", quantile),
    ("quantile.scalar", quantile),
    ("softmax.int", |call| softmax(call, "Softmax")),
    ("sort.default", sort),
    ("sort.stable", sort),
    ("special_log_softmax.default", |call| softmax(call, "LogSoftmax")),
    ("special_logsumexp.default", |call| reduce(call, "ReduceLogSumExp")),
    ("special_softmax.default", |call| softmax(call, "Softmax")),
    ("std.correction", |call| variance(call, true)),
    ("std.default", |call| variance(call, true)),
    ("std.dim", |call| variance(call, true)),
    ("std_mean.correction", |call| variance(call, true)),
    ("std_mean.default", |call| variance(call, true)),
    ("std_mean.dim", |call| variance(call, true)),
    ("sum.default", |call| reduce(call, "ReduceSum")),
    ("sum.dim_IntList", |call| reduce(call, "ReduceSum")),
    ("topk.default", topk),
    ("trapezoid.dx", |call| trapezoids(call, false)),
    ("trapezoid.x", |call| trapezoids(call, false)),
    ("trapz.dx", |call| trapezoids(call, false)),
    ("trapz.x", |call| trapezoids(call, false)),
    ("var.correction", |call| variance(call, false)),
    ("var.default", |call| variance(call, false)),
    ("var.dim", |call| variance(call, false)),
    ("var_mean.correction", |call| variance(call, false)),
    ("var_mean.default", |call| variance(call, false)),
    ("var_mean.dim", |call| variance(call, false)),
];

pub(super) const INDEX_RULES: Table = &[
    ("argmax.default", |call| position(call, "ArgMax")),
    ("argmin.default", |call| position(call, "ArgMin")),
    ("argsort.default", argsort),
    ("argsort.stable", argsort),
];

// ---- tensors without dims ----

/// A tensor with at least one axis, as PyTorch treats those without.
pub(super) fn with_axis(call: &mut Call<'_, '_>, x: &Tensor) -> Tensor {
    if x.rank() > 0 {
        return x.clone();
    }
    Tensor { name: call.unsqueeze(x, &[0]), dtype: x.dtype, sizes: vec![Some(1)] }
}

/// A result of what `with_axis` made, without the axis that was added.
pub(super) fn as_before(call: &mut Call<'_, '_>, x: &Tensor, result: &str) -> String {
    if x.rank() > 0 { result.to_owned() } else { call.squeeze(result, &[0]) }
}

// ---- reductions ----

/// Reduces axes, all of them if none is given.
pub(super) fn reduce_axes(
    call: &mut Call<'_, '_>,
    operator: &str,
    x: &Tensor,
    axes: &[i64],
    keep: bool,
) -> String {
    let keep = vec![flag("keepdims", keep)];
    if axes.is_empty() || x.rank() == 0 {
        return call.op(operator, &[x], keep);
    }
    let axes = call.int64s(axes);
    call.op(operator, &[x, &axes], keep)
}

/// The first argument in the dtype of the result, in which PyTorch reduces.
pub(super) fn operand(call: &mut Call<'_, '_>) -> Result<Tensor> {
    let x = call.tensor("self")?;
    let dtype = call.result_dtype()?;
    Ok(Tensor { name: call.cast_tensor(&x, dtype), dtype, sizes: x.sizes })
}

fn reduce(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let x = operand(call)?;
    let (axes, keep) = (call.axes("dim", &x)?, call.bool_or("keepdim", false)?);
    Ok(vec![reduce_axes(call, operator, &x, &axes, keep)])
}

/// Whether all or any elements are not zero.
fn truth(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let mut x = call.tensor("self")?;
    let dtype = call.result_dtype()?;
    x.name = call.cast_tensor(&x, DType::Bool);
    let (axes, keep) = (call.axes("dim", &x)?, call.bool_or("keepdim", false)?);
    // Here no axes at all are none, not all of them.
    let none = call.has("dim") && axes.is_empty();
    let found = if none { x.name } else { reduce_axes(call, operator, &x, &axes, keep) };
    Ok(vec![call.cast(&found, DType::Bool, dtype)])
}

/// The greatest or least element along an axis, and its index.
fn extreme(call: &mut Call<'_, '_>, [of_values, of_indices]: [&str; 2]) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let (axis, keep) = (call.axis("dim", 0, &x)?, call.bool_or("keepdim", false)?);
    let listed = with_axis(call, &x);
    if call.to.trainable && x.dtype.is_float() && x.rank() > 0 {
        // Of equal elements one alone has a gradient.
        let index = arg(call, of_indices, &listed, axis, true);
        let value = call.op("GatherElements", &[&x, &index], vec![int("axis", axis)]);
        return Ok([value, index].map(|kept| if keep { kept } else { call.squeeze(&kept, &[axis]) }).into());
    }
    let value = reduce_axes(call, of_values, &x, &[axis], keep);
    let index = arg(call, of_indices, &listed, axis, keep);
    let index = if keep { as_before(call, &x, &index) } else { index };
    Ok(vec![value, index])
}

/// The first index of the greatest or least element along an axis.
fn arg(call: &mut Call<'_, '_>, operator: &str, x: &Tensor, axis: i64, keep: bool) -> String {
    let ordered = comparable(call, x);
    call.op(operator, &[&ordered], vec![int("axis", axis), flag("keepdims", keep)])
}

/// A tensor whose elements have an order, which ONNX does not give bools.
fn comparable(call: &mut Call<'_, '_>, x: &Tensor) -> Tensor {
    if x.dtype != DType::Bool {
        return x.clone();
    }
    Tensor { name: call.cast_tensor(x, DType::U8), dtype: DType::U8, sizes: x.sizes.clone() }
}

/// All elements in a row.
pub(super) fn flattened(call: &mut Call<'_, '_>, x: &Tensor) -> Tensor {
    if x.rank() == 1 {
        return x.clone();
    }
    let size = x.sizes.iter().copied().try_fold(1i64, |product, size| product.checked_mul(size?));
    let name = reshaped(call, x, &[Int::Known(-1)]);
    Tensor { name, dtype: x.dtype, sizes: vec![size] }
}

fn position(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let keep = call.bool_or("keepdim", false)?;
    if call.has("dim") {
        let axis = call.axis("dim", 0, &x)?;
        let listed = with_axis(call, &x);
        let index = arg(call, operator, &listed, axis, keep);
        let index = if keep { as_before(call, &x, &index) } else { index };
        return Ok(vec![index]);
    }
    let flat = flattened(call, &x);
    let index = arg(call, operator, &flat, 0, false);
    if keep {
        return Ok(vec![reshaped(call, &index, &vec![Int::Known(1); x.rank()])]);
    }
    Ok(vec![index])
}

fn count_nonzero(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let mut x = call.tensor("self")?;
    let axes = call.axes("dim", &x)?;
    let nonzero = call.cast_tensor(&x, DType::Bool);
    x.name = call.cast(&nonzero, DType::Bool, DType::I64);
    Ok(vec![reduce_axes(call, "ReduceSum", &x, &axes, false)])
}

/// Sums, and means, of the elements that are numbers.
fn without_nan(call: &mut Call<'_, '_>, mean: bool) -> Result<Outputs> {
    let mut x = operand(call)?;
    let (axes, keep) = (call.axes("dim", &x)?, call.bool_or("keepdim", false)?);
    if !x.dtype.is_float() {
        return Ok(vec![reduce_axes(call, "ReduceSum", &x, &axes, keep)]);
    }
    let nan = call.op("IsNaN", &[&x], Vec::new());
    let zero = call.number_of(0.0, x.dtype);
    x.name = call.op("Where", &[&nan, &zero, &x], Vec::new());
    let sum = reduce_axes(call, "ReduceSum", &x, &axes, keep);
    if !mean {
        return Ok(vec![sum]);
    }
    let number = call.op("Not", &[&nan], Vec::new());
    x.name = call.cast(&number, DType::Bool, x.dtype);
    let count = reduce_axes(call, "ReduceSum", &x, &axes, keep);
    Ok(vec![call.op("Div", &[&sum, &count], Vec::new())])
}

/// The number of elements that are reduced, less so many, and 0 at the least.
fn count_less(call: &mut Call<'_, '_>, x: &Tensor, axes: &[i64], less: f64) -> String {
    let all: Vec<i64> = (0..).take(x.rank()).collect();
    let axes = if axes.is_empty() || x.rank() == 0 { &all } else { axes };
    let known = axes.iter().map(|&axis| x.size(axis).map(|size| size as f64)).product::<Option<f64>>();
    if let Some(known) = known {
        return call.number_of((known - less).max(0.0), x.dtype);
    }
    let sizes: Vec<Int> = axes.iter().map(|&axis| call.size_of(x, axis)).collect();
    let mut count = match sizes.as_slice() {
        [only] => call.size_value(only),
        sizes => {
            let sizes = call.sizes_value(sizes);
            call.op("ReduceProd", &[&sizes], vec![flag("keepdims", false)])
        }
    };
    if less == 1.0 {
        let (one, zero) = (call.int64(1), call.int64(0));
        count = call.op("Sub", &[&count, &one], Vec::new());
        count = call.op("Max", &[&count, &zero], Vec::new());
        return call.cast(&count, DType::I64, x.dtype);
    }
    let count = call.cast(&count, DType::I64, x.dtype);
    let (less, zero) = (call.number_of(less, x.dtype), call.number_of(0.0, x.dtype));
    let rest = call.op("Sub", &[&count, &less], Vec::new());
    call.op("Max", &[&rest, &zero], Vec::new())
}

/// Variances, or standard deviations; and means, if the call has them as a second result.
fn variance(call: &mut Call<'_, '_>, root: bool) -> Result<Outputs> {
    let x = operand(call)?;
    let (axes, keep) = (call.axes("dim", &x)?, call.bool_or("keepdim", false)?);
    let unbiased = if call.bool_or("unbiased", true)? { 1.0 } else { 0.0 };
    let correction = call.float_or("correction", unbiased)?;
    let mean = reduce_axes(call, "ReduceMean", &x, &axes, true);
    let difference = call.op("Sub", &[&x, &mean], Vec::new());
    let square = call.op("Mul", &[&difference, &difference], Vec::new());
    let square = Tensor { name: square, ..x.clone() };
    let mut result = if correction == 0.0 {
        reduce_axes(call, "ReduceMean", &square, &axes, keep)
    } else {
        let sum = reduce_axes(call, "ReduceSum", &square, &axes, keep);
        let count = count_less(call, &x, &axes, correction);
        call.op("Div", &[&sum, &count], Vec::new())
    };
    if root {
        result = call.op("Sqrt", &[&result], Vec::new());
    }
    if call.result_count() < 2 {
        return Ok(vec![result]);
    }
    let mean = match axes.as_slice() {
        _ if keep || x.rank() == 0 => mean,
        [] => call.op("Squeeze", &[&mean], Vec::new()),
        axes => call.squeeze(&mean, axes),
    };
    Ok(vec![result, mean])
}

// ---- along an axis ----

fn softmax(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let x = operand(call)?;
    let axis = call.axis("dim", -1, &x)?;
    let listed = with_axis(call, &x);
    let result = call.op(operator, &[&listed], vec![int("axis", axis)]);
    Ok(vec![as_before(call, &x, &result)])
}

fn running(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let x = operand(call)?;
    let axis = call.axis("dim", 0, &x)?;
    let listed = with_axis(call, &x);
    let axis = call.int64(axis);
    let result = call.op(operator, &[&listed, &axis], Vec::new());
    Ok(vec![as_before(call, &x, &result)])
}

/// For each index of an axis, what lies up to there, along an axis behind it; `beyond` stands for the rest.
fn prefixes(call: &mut Call<'_, '_>, x: &Tensor, axis: i64, beyond: Scalar) -> Tensor {
    let size = call.size_of(x, axis);
    let (zero, end, one) = (call.int64(0), call.size_value(&size), call.int64(1));
    let places = call.op("Range", &[&zero, &end, &one], Vec::new());
    let rows = call.unsqueeze(&places, &[1]);
    let reached = call.op("GreaterOrEqual", &[&rows, &places], Vec::new());
    let behind: Vec<i64> =
        (0..).take(x.rank()).filter(|&other| other > axis).map(|other| other - axis + 1).collect();
    let reached = call.unsqueeze(&reached, &behind);
    let spread = call.unsqueeze(x, &[axis]);
    let beyond = call.scalar(beyond, x.dtype);
    let name = call.op("Where", &[&reached, &spread, &beyond], Vec::new());
    Tensor { name, dtype: x.dtype, sizes: vec![None; x.rank() + 1] }
}

/// The least or greatest number of a dtype.
pub(super) fn bound(dtype: DType, greatest: bool) -> Scalar {
    let infinite = if greatest { f64::INFINITY } else { f64::NEG_INFINITY };
    let (least, most) = match dtype {
        dtype if dtype.is_float() => return Scalar::Float(infinite),
        DType::Bool => return Scalar::Bool(greatest),
        DType::U64 if greatest => return Scalar::UInt(u64::MAX),
        DType::U8 => (0, i64::from(u8::MAX)),
        DType::U16 => (0, i64::from(u16::MAX)),
        DType::U32 => (0, i64::from(u32::MAX)),
        DType::U64 => (0, i64::MAX),
        DType::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        DType::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    Scalar::Int(if greatest { most } else { least })
}

/// The greatest or least of what lies up to an index, and the last index that it has.
fn running_extreme(call: &mut Call<'_, '_>, of: &str) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let axis = call.axis("dim", 0, &x)?;
    let listed = with_axis(call, &x);
    let ordered = comparable(call, &listed);
    let so_far = prefixes(call, &ordered, axis, bound(ordered.dtype, of == "Min"));
    let running = reduce_axes(call, &format!("Reduce{of}"), &so_far, &[axis + 1], false);
    let values = call.cast(&running, ordered.dtype, x.dtype);
    // Where the running extreme is an element itself; the last such place so far is its index.
    let mut record = call.op("Equal", &[&ordered, &running], Vec::new());
    if ordered.dtype.is_float() {
        let none = call.op("IsNaN", &[&ordered], Vec::new());
        record = call.op("Or", &[&record, &none], Vec::new());
    }
    let size = call.size_of(&listed, axis);
    let (zero, end, one) = (call.int64(0), call.size_value(&size), call.int64(1));
    let places = call.op("Range", &[&zero, &end, &one], Vec::new());
    let behind: Vec<i64> = (1..).take(listed.rank().saturating_sub(1 + place(axis))).collect();
    let places = call.unsqueeze(&places, &behind);
    let name = call.op("Where", &[&record, &places, &zero], Vec::new());
    let places = Tensor { name, dtype: DType::I64, sizes: listed.sizes };
    let places = prefixes(call, &places, axis, Scalar::Int(0));
    let indices = reduce_axes(call, "ReduceMax", &places, &[axis + 1], false);
    Ok(vec![as_before(call, &x, &values), as_before(call, &x, &indices)])
}

fn running_log_sum(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = operand(call)?;
    let axis = call.axis("dim", 0, &x)?;
    let listed = with_axis(call, &x);
    let prefixes = prefixes(call, &listed, axis, Scalar::Float(f64::NEG_INFINITY));
    let sums = reduce_axes(call, "ReduceLogSumExp", &prefixes, &[axis + 1], false);
    Ok(vec![as_before(call, &x, &sums)])
}

/// Differences of neighbors, `n` times.
fn differences(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let (axis, times) = (call.axis("dim", -1, &x)?, call.int_or("n", 1)?);
    let mut parts = Vec::new();
    for name in ["prepend", "self", "append"] {
        if let Some(part) = call.optional_tensor(name)? {
            parts.push(call.cast_tensor(&part, x.dtype));
        }
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let mut result = match parts.as_slice() {
        [only] => (*only).to_owned(),
        parts => call.op("Concat", parts, vec![int("axis", axis)]),
    };
    let operator = if x.dtype == DType::Bool { "Xor" } else { "Sub" };
    for _ in 0..times.min(64) {
        result = neighbors(call, &result, axis, operator);
    }
    if times > 64 {
        return Err(unsupported(format!("differences that are taken {times} times")));
    }
    Ok(vec![result])
}

/// What follows along an axis less, or with, what comes before it.
fn neighbors(call: &mut Call<'_, '_>, x: &str, axis: i64, operator: &str) -> String {
    let after = call.slice(x, axis, [&Int::Known(1), &Int::Known(i64::MAX)], 1);
    let before = call.slice(x, axis, [&Int::Known(0), &Int::Known(-1)], 1);
    call.op(operator, &[&after, &before], Vec::new())
}

/// The area below lines between points, as one sum or running ones.
fn trapezoids(call: &mut Call<'_, '_>, running: bool) -> Result<Outputs> {
    let y = call.tensor("y")?;
    let dtype = call.result_dtype()?;
    let axis = call.axis("dim", -1, &y)?;
    let value = call.cast_tensor(&y, dtype);
    let sums = neighbors(call, &value, axis, "Add");
    let half = call.number_of(0.5, dtype);
    let mut areas = call.op("Mul", &[&sums, &half], Vec::new());
    if let Some(x) = call.optional_tensor("x")? {
        let places = call.cast_tensor(&x, dtype);
        // A line of places is that of the axis.
        let own = if x.rank() == y.rank() { axis } else { x.axis(-1)? };
        let mut widths = neighbors(call, &places, own, "Sub");
        if x.rank() == 1 {
            let behind: Vec<i64> = (1..).take(y.rank().saturating_sub(1 + place(axis))).collect();
            widths = call.unsqueeze(&widths, &behind);
        } else if x.rank() != y.rank() {
            return Err(unsupported("trapezoids whose widths have other axes than their heights"));
        }
        areas = call.op("Mul", &[&areas, &widths], Vec::new());
    } else if let Some(width) = call.optional_number("dx")? {
        let width = call.number_value(&width, dtype)?;
        areas = call.op("Mul", &[&areas, &width], Vec::new());
    }
    if running {
        let axis = call.int64(axis);
        return Ok(vec![call.op("CumSum", &[&areas, &axis], Vec::new())]);
    }
    let axes = call.int64s(&[axis]);
    Ok(vec![call.op("ReduceSum", &[&areas, &axes], vec![flag("keepdims", false)])])
}

// ---- order ----

/// The `k` greatest or least along an axis and their indices, in order.
fn select(call: &mut Call<'_, '_>, x: &Tensor, axis: i64, k: &Int, largest: bool) -> Vec<String> {
    let listed = with_axis(call, x);
    let ordered = comparable(call, &listed);
    let k = call.size_list(k);
    let found = call.ops("TopK", &[&ordered, &k], vec![int("axis", axis), flag("largest", largest)], 2);
    let dtypes = [(ordered.dtype, x.dtype), (DType::I64, DType::I64)];
    let restore = |(found, (from, to)): (&String, (DType, DType))| {
        let found = call.cast(found, from, to);
        as_before(call, x, &found)
    };
    found.iter().zip(dtypes).map(restore).collect()
}

/// All elements along an axis and their indices, in order.
fn sorted(call: &mut Call<'_, '_>, x: &Tensor, axis: i64, descending: bool) -> Vec<String> {
    let size = if x.rank() == 0 { Int::Known(1) } else { call.size_of(x, axis) };
    select(call, x, axis, &size, descending)
}

fn sort(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let (axis, descending) = (call.axis("dim", -1, &x)?, call.bool_or("descending", false)?);
    Ok(sorted(call, &x, axis, descending))
}

fn argsort(call: &mut Call<'_, '_>) -> Result<Outputs> {
    Ok(sort(call)?.into_iter().skip(1).collect())
}

fn topk(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let (axis, k) = (call.axis("dim", -1, &x)?, call.size("k")?);
    let largest = call.bool_or("largest", true)?;
    Ok(select(call, &x, axis, &k, largest))
}

/// The last entry of an axis.
fn last(call: &mut Call<'_, '_>, x: &str, axis: i64, keep: bool) -> String {
    let index = if keep { call.int64s(&[-1]) } else { call.int64(-1) };
    call.op("Gather", &[x, &index], vec![int("axis", axis)])
}

/// The element in the `k`-th place along an axis and its index, where `k` is told by the tensor and the axis.
fn ordered(
    call: &mut Call<'_, '_>,
    k: impl FnOnce(&mut Call<'_, '_>, &Tensor, i64) -> Result<Int>,
) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let (axis, keep) = (call.axis("dim", -1, &x)?, call.bool_or("keepdim", false)?);
    let listed = with_axis(call, &x);
    let k = k(call, &listed, axis)?;
    let found = select(call, &listed, axis, &k, false);
    let keep = keep && x.rank() > 0;
    Ok(found.iter().map(|found| last(call, found, axis, keep)).collect())
}

/// The place of the median among so many: the lower of two.
fn middle(call: &mut Call<'_, '_>, size: &Int) -> Int {
    match size {
        Int::Known(size) => Int::Known(size.saturating_add(1) / 2),
        Int::Value(size) => {
            let (one, two) = (call.int64(1), call.int64(2));
            let next = call.op("Add", &[size, &one], Vec::new());
            Int::Value(call.op("Div", &[&next, &two], Vec::new()))
        }
    }
}

/// `NaN` where an axis has one, and the value elsewhere.
fn or_nan(call: &mut Call<'_, '_>, x: &Tensor, axis: i64, keep: bool, value: &str) -> String {
    if !x.dtype.is_float() {
        return value.to_owned();
    }
    let none = call.op("IsNaN", &[x], Vec::new());
    let none = reduce_axes(
        call,
        "ReduceMax",
        &Tensor { name: none, dtype: DType::Bool, sizes: x.sizes.clone() },
        &[axis],
        keep,
    );
    let nan = call.number_of(f64::NAN, x.dtype);
    call.op("Where", &[&none, &nan, value], Vec::new())
}

/// The tensor whose axis an operator reduces: flat, if the call names no axis.
fn reduced_along_one(call: &mut Call<'_, '_>) -> Result<(Tensor, i64)> {
    let x = call.tensor("self")?;
    if !call.has("dim") {
        return Ok((flattened(call, &x), 0));
    }
    let axis = call.axis("dim", -1, &x)?;
    Ok((with_axis(call, &x), axis))
}

fn median(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, axis) = reduced_along_one(call)?;
    let keep = call.bool_or("keepdim", false)? && call.tensor("self")?.rank() > 0;
    let size = call.size_of(&x, axis);
    let k = middle(call, &size);
    let found = select(call, &x, axis, &k, false);
    let found: Vec<String> = found.iter().map(|found| last(call, found, axis, keep)).collect();
    let [value, index] = found.as_slice() else { return Ok(found) };
    Ok(vec![or_nan(call, &x, axis, keep, value), index.clone()])
}

/// Elements in order with infinity in place of `NaN`, their indices, and the number of those that are numbers, all along an axis.
fn numbers_in_order(call: &mut Call<'_, '_>, x: &Tensor, axis: i64) -> (Vec<String>, String) {
    if !x.dtype.is_float() {
        let size = call.size_of(x, axis);
        return (sorted(call, x, axis, false), call.size_value(&size));
    }
    let nan = call.op("IsNaN", &[x], Vec::new());
    let infinity = call.number_of(f64::INFINITY, x.dtype);
    let finite = call.op("Where", &[&nan, &infinity, x], Vec::new());
    let sorted = sorted(call, &Tensor { name: finite, ..x.clone() }, axis, false);
    let number = call.op("Not", &[&nan], Vec::new());
    let number = call.cast(&number, DType::Bool, DType::I64);
    let number = Tensor { name: number, dtype: DType::I64, sizes: x.sizes.clone() };
    (sorted, reduce_axes(call, "ReduceSum", &number, &[axis], true))
}

fn nanmedian(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, axis) = reduced_along_one(call)?;
    if !x.dtype.is_float() {
        return median(call);
    }
    let keep = call.bool_or("keepdim", false)? && call.tensor("self")?.rank() > 0;
    let (sorted, count) = numbers_in_order(call, &x, axis);
    let (zero, one, two) = (call.int64(0), call.int64(1), call.int64(2));
    let place = call.op("Sub", &[&count, &one], Vec::new());
    let place = call.op("Max", &[&place, &zero], Vec::new());
    let place = call.op("Div", &[&place, &two], Vec::new());
    let mut found: Vec<String> =
        sorted.iter().map(|x| call.op("GatherElements", &[x, &place], vec![int("axis", axis)])).collect();
    if let Some(value) = found.first_mut() {
        let none = call.op("Equal", &[&count, &zero], Vec::new());
        let nan = call.number_of(f64::NAN, x.dtype);
        *value = call.op("Where", &[&none, &nan, value], Vec::new());
    }
    if keep {
        return Ok(found);
    }
    Ok(found.iter().map(|found| call.squeeze(found, &[axis])).collect())
}

/// How a quantile between two elements is found.
struct Between {
    lower: String,
    upper: String,
    weight: String,
}

/// The places around a place in order, and how much of the second counts.
fn between(call: &mut Call<'_, '_>, place: &str, dtype: DType) -> Result<Between> {
    let interpolation = call.string_or("interpolation", "linear")?;
    let whole = match interpolation {
        "higher" => "Ceil",
        "nearest" => "Round",
        _ => "Floor",
    };
    let lower = call.op(whole, &[place], Vec::new());
    let (upper, weight) = match interpolation {
        "linear" => (call.op("Ceil", &[place], Vec::new()), call.op("Sub", &[place, &lower], Vec::new())),
        "midpoint" => (call.op("Ceil", &[place], Vec::new()), call.number_of(0.5, dtype)),
        "lower" | "higher" | "nearest" => (String::new(), String::new()),
        other => return Err(unsupported(format!("quantiles with interpolation `{other}`"))),
    };
    let index = |call: &mut Call<'_, '_>, place: String| match place.as_str() {
        "" => place,
        place => call.cast(place, dtype, DType::I64),
    };
    Ok(Between { lower: index(call, lower), upper: index(call, upper), weight })
}

/// The element at two places of the last axis, weighed.
fn weighed(call: &mut Call<'_, '_>, sorted: &str, between: &Between, operator: &str) -> String {
    let axis = || vec![int("axis", -1)];
    let lower = call.op(operator, &[sorted, &between.lower], axis());
    if between.upper.is_empty() {
        return lower;
    }
    let upper = call.op(operator, &[sorted, &between.upper], axis());
    let difference = call.op("Sub", &[&upper, &lower], Vec::new());
    let part = call.op("Mul", &[&difference, &between.weight], Vec::new());
    call.op("Add", &[&lower, &part], Vec::new())
}

/// The tensor with the axis that is reduced last, and which quantiles are wanted.
fn quantile_operands(call: &mut Call<'_, '_>) -> Result<(Tensor, Tensor)> {
    let (x, axis) = reduced_along_one(call)?;
    let mut order: Vec<i64> = (0..).take(x.rank()).filter(|&other| other != axis).collect();
    order.push(axis);
    let sizes = order.iter().map(|&axis| x.size(axis)).collect();
    let moved = Tensor { name: call.transpose(&x, &order), dtype: x.dtype, sizes };
    let sizes = match call.number("q")? {
        Number::Known(_) => Vec::new(),
        Number::Value(..) => call.tensor("q")?.sizes,
    };
    let q = Tensor { name: call.operand("q", x.dtype)?, dtype: x.dtype, sizes };
    Ok((moved, q))
}

/// Quantiles along the last axis, where PyTorch has them: several come first, and a reduced axis may be kept.
fn placed(call: &mut Call<'_, '_>, result: String, several: bool) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let keep = call.bool_or("keepdim", false)?;
    let mut result = result;
    if several {
        let rank = if call.has("dim") { x.rank() } else { 1 };
        let last = i64::try_from(rank.max(1)).unwrap_or(i64::MAX) - 1;
        let order: Vec<i64> = std::iter::once(last).chain(0..last).collect();
        result = call.transpose(&result, &order);
    }
    if keep && x.rank() > 0 {
        let shift = i64::from(several);
        let axes: Vec<i64> = if call.has("dim") {
            vec![call.axis("dim", -1, &x)? + shift]
        } else {
            (shift..).take(x.rank()).collect()
        };
        result = call.unsqueeze(&result, &axes);
    }
    Ok(vec![result])
}

fn quantile(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, q) = quantile_operands(call)?;
    let axis = i64::try_from(x.rank()).unwrap_or(i64::MAX) - 1;
    let sorted = sorted(call, &x, axis, false);
    let greatest = match call.size_of(&x, axis) {
        Int::Known(size) => call.number_of(size.saturating_sub(1) as f64, x.dtype),
        Int::Value(size) => {
            let one = call.int64(1);
            let greatest = call.op("Sub", &[&size, &one], Vec::new());
            call.cast(&greatest, DType::I64, x.dtype)
        }
    };
    let place = call.op("Mul", &[&q, &greatest], Vec::new());
    let between = between(call, &place, x.dtype)?;
    let sorted = sorted.first().map(String::as_str).unwrap_or_default();
    let result = weighed(call, sorted, &between, "Gather");
    let result = or_nan(call, &x, axis, q.rank() > 0, &result);
    placed(call, result, q.rank() > 0)
}

fn nanquantile(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, q) = quantile_operands(call)?;
    let axis = i64::try_from(x.rank()).unwrap_or(i64::MAX) - 1;
    let (sorted, count) = numbers_in_order(call, &x, axis);
    let (zero, one) = (call.int64(0), call.int64(1));
    let greatest = call.op("Sub", &[&count, &one], Vec::new());
    let greatest = call.op("Max", &[&greatest, &zero], Vec::new());
    let greatest = call.cast(&greatest, DType::I64, x.dtype);
    let place = call.op("Mul", &[&q, &greatest], Vec::new());
    let between = between(call, &place, x.dtype)?;
    let sorted = sorted.first().map(String::as_str).unwrap_or_default();
    let result = weighed(call, sorted, &between, "GatherElements");
    let none = call.op("Equal", &[&count, &zero], Vec::new());
    let nan = call.number_of(f64::NAN, x.dtype);
    let mut result = call.op("Where", &[&none, &nan, &result], Vec::new());
    if q.rank() == 0 {
        result = call.squeeze(&result, &[-1]);
    }
    placed(call, result, q.rank() > 0)
}

/// The value that an axis has most often, the least of several, and where it is last.
fn mode(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let (axis, keep) = (call.axis("dim", -1, &x)?, call.bool_or("keepdim", false)?);
    let listed = with_axis(call, &x);
    let ordered = comparable(call, &listed);
    let sorted = sorted(call, &ordered, axis, false);
    let sorted = sorted.first().map(String::as_str).unwrap_or_default();
    let (rows, columns) = (call.unsqueeze(sorted, &[axis + 1]), call.unsqueeze(sorted, &[axis]));
    let equal = call.op("Equal", &[&rows, &columns], Vec::new());
    let equal = call.cast(&equal, DType::Bool, DType::I64);
    let equal = Tensor { name: equal, dtype: DType::I64, sizes: vec![None; listed.rank() + 1] };
    let often = reduce_axes(call, "ReduceSum", &equal, &[axis + 1], false);
    let place = call.op("ArgMax", &[&often], vec![int("axis", axis), flag("keepdims", true)]);
    let value = call.op("GatherElements", &[sorted, &place], vec![int("axis", axis)]);
    let found = call.op("Equal", &[&ordered, &value], Vec::new());
    let found = call.cast(&found, DType::Bool, DType::U8);
    let last =
        vec![int("axis", axis), flag("keepdims", keep && x.rank() > 0), flag("select_last_index", true)];
    let index = call.op("ArgMax", &[&found], last);
    let value = call.cast(&value, ordered.dtype, x.dtype);
    let value = if keep && x.rank() > 0 { value } else { call.squeeze(&value, &[axis]) };
    Ok(vec![value, index])
}
