//! Operators that read and write elements along an axis, by indices or in parts.

use super::Table;
use super::index::{expanded, indices, made, rank_of};
use super::reduce::{as_before, bound, flattened, with_axis};
use super::shape::{bounds, dims, put_steps, reshaped};
use crate::pt2::call::{Call, Int, Outputs, Result, Tensor, int, string, unsupported};
use crate::pt2::views::put_back::{at_index, between, has_any};
use kiln_types::{DType, Scalar};

pub(super) const RULES: Table = &[
    ("gather.default", gather),
    ("index_add.default", index_add),
    ("index_copy.default", |call| put_entries(call, "none")),
    ("index_fill.int_Scalar", index_fill),
    ("index_fill.int_Tensor", index_fill),
    ("index_reduce.default", index_reduce),
    ("put.default", put),
    ("scatter.reduce", scatter),
    ("scatter.src", scatter),
    ("scatter.value", scatter),
    ("scatter.value_reduce", scatter),
    ("scatter_add.default", scatter),
    ("scatter_reduce.two", scatter),
    ("select_scatter.default", select_scatter),
    ("slice_scatter.default", slice_scatter),
    ("take_along_dim.default", take_along),
];

/// A tensor cut to the sizes of an index along all axes but one, where they differ.
fn cut(call: &mut Call<'_, '_>, x: &Tensor, index: &Tensor, but: Option<i64>) -> String {
    let mut result = x.name.clone();
    for (axis, size) in (0..).zip(&index.sizes) {
        if Some(axis) != but && x.size(axis) != *size {
            let end = call.size_of(index, axis);
            result = call.slice(&result, axis, [&Int::Known(0), &end], 1);
        }
    }
    result
}

fn gather(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, index) = (call.tensor("self")?, call.tensor("index")?);
    let along = call.axis("dim", 0, &x)?;
    let (listed, listed_index) = (with_axis(call, &x), with_axis(call, &index));
    let listed = cut(call, &listed, &listed_index, Some(along));
    let found = call.op("GatherElements", &[&listed, &listed_index], vec![int("axis", along)]);
    Ok(vec![as_before(call, &index, &found)])
}

fn take_along(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, index) = (call.tensor("self")?, call.tensor("indices")?);
    if !call.has("dim") {
        let (x, index) = (flattened(call, &x), flattened(call, &index));
        return Ok(vec![call.op("GatherElements", &[&x, &index], vec![int("axis", 0)])]);
    }
    let along = call.axis("dim", 0, &x)?;
    // Each keeps its own size along the axis.
    let mut fitted = Vec::with_capacity(2);
    for (of, other) in [(&x, &index), (&index, &x)] {
        let mut shape = Vec::with_capacity(of.rank());
        let mut fits = true;
        for axis in 0..rank_of(of) {
            let from = if axis != along && of.size(axis) == Some(1) { other } else { of };
            fits &= from.size(axis) == of.size(axis);
            shape.push((from.clone(), axis));
        }
        if fits {
            fitted.push(of.name.clone());
            continue;
        }
        let shape: Vec<Int> = shape.iter().map(|(from, axis)| call.size_of(from, *axis)).collect();
        fitted.push(expanded(call, of, &shape));
    }
    let fitted: Vec<&str> = fitted.iter().map(String::as_str).collect();
    Ok(vec![call.op("GatherElements", &fitted, vec![int("axis", along)])])
}

/// How elements that meet in one place are combined.
struct Combined<'s> {
    reduce: &'s str,
    include_self: bool,
}

fn scatter(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, index) = (call.tensor("self")?, call.tensor("index")?);
    let along = call.axis("dim", 0, &x)?;
    let (listed, index) = (with_axis(call, &x), with_axis(call, &index));
    let index = indices(call, &index);
    let updates = if call.has("value") {
        let value = call.operand("value", x.dtype)?;
        let shape = dims(call, &index);
        expanded(call, &value, &shape)
    } else {
        let source = call.tensor("src")?;
        let source = with_axis(call, &source);
        let cut = cut(call, &source, &index, None);
        call.cast(&cut, source.dtype, x.dtype)
    };
    let adds = super::name(&call.node.target).starts_with("scatter_add");
    let reduce = call.string_or("reduce", if adds { "sum" } else { "none" })?;
    let combined = Combined { reduce, include_self: call.bool_or("include_self", true)? };
    let result = combine(call, &listed, along, &index, &updates, &combined)?;
    Ok(vec![as_before(call, &x, &result)])
}

/// Combines elements of a tensor with others, each in the place along an axis that an index of the same shape tells.
fn combine(
    call: &mut Call<'_, '_>,
    x: &Tensor,
    along: i64,
    index: &Tensor,
    updates: &str,
    combined: &Combined<'_>,
) -> Result<String> {
    let reduction = match combined.reduce {
        "none" => {
            return Ok(call.op("ScatterElements", &[x, index, updates], vec![int("axis", along)]));
        }
        "add" | "sum" | "mean" => "add",
        "multiply" | "prod" => "mul",
        "amax" => "max",
        "amin" => "min",
        other => return Err(unsupported(format!("combining elements by `{other}`"))),
    };
    let attributes = || vec![int("axis", along), string("reduction", reduction)];
    let shape = dims(call, index);
    let mut base = x.name.clone();
    if !combined.include_self {
        // What changes nothing, wherever something is combined.
        let neutral = match reduction {
            "add" => Scalar::Int(0),
            "mul" => Scalar::Int(1),
            reduction => bound(x.dtype, reduction == "min"),
        };
        let neutral = call.scalar(neutral, x.dtype);
        let neutral = expanded(call, &neutral, &shape);
        base = call.op("ScatterElements", &[&base, index, &neutral], vec![int("axis", along)]);
    }
    let result = call.op("ScatterElements", &[&base, index, updates], attributes());
    if combined.reduce != "mean" {
        return Ok(result);
    }
    let one = call.scalar(Scalar::Int(1), x.dtype);
    let ones = expanded(call, &one, &shape);
    let x_shape = dims(call, x);
    let x_shape = call.sizes_value(&x_shape);
    let start = Scalar::Int(i64::from(combined.include_self));
    let count = call.filled(&x_shape, start, x.dtype);
    let count = call.op("ScatterElements", &[&count, index, &ones], attributes());
    let count = call.op("Max", &[&count, &one], Vec::new());
    if x.dtype.is_float() {
        return Ok(call.op("Div", &[&result, &count], Vec::new()));
    }
    Ok(super::pointwise::floored_quotient(call, &result, &count, x.dtype))
}

/// A tensor with entries of an axis replaced, or with something added to them, where a list of indices tells.
fn put_entries(call: &mut Call<'_, '_>, reduce: &str) -> Result<Outputs> {
    let source = call.tensor("source")?;
    put_entries_of(call, &source, &Combined { reduce, include_self: true })
}

fn put_entries_of(call: &mut Call<'_, '_>, source: &Tensor, combined: &Combined<'_>) -> Result<Outputs> {
    let (x, index) = (call.tensor("self")?, call.tensor("index")?);
    let along = call.axis("dim", 0, &x)?;
    let (listed, source) = (with_axis(call, &x), with_axis(call, source));
    let source = made(call.cast_tensor(&source, x.dtype), x.dtype, source.sizes.clone());
    let index = with_axis(call, &index);
    let index = indices(call, &index);
    let attributes = match combined.reduce {
        "none" => Some(Vec::new()),
        "sum" => Some(vec![string("reduction", "add")]),
        _ => None,
    };
    if let Some(attributes) = attributes.filter(|_| along == 0) {
        let rows = call.unsqueeze(&index, &[1]);
        let result = call.op("ScatterND", &[&listed, &rows, &source], attributes);
        return Ok(vec![as_before(call, &x, &result)]);
    }
    let others: Vec<i64> = (0..rank_of(&source)).filter(|&axis| axis != along).collect();
    let spread = call.unsqueeze(&index, &others);
    let shape = dims(call, &source);
    let spread = made(expanded(call, &spread, &shape), DType::I64, source.sizes.clone());
    let result = combine(call, &listed, along, &spread, &source, combined)?;
    Ok(vec![as_before(call, &x, &result)])
}

fn index_add(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let mut source = call.tensor("source")?;
    if let Some(alpha) = call.optional_number("alpha")?.filter(|alpha| alpha.known() != Some(1.0)) {
        let alpha = call.number_value(&alpha, source.dtype)?;
        source.name = call.op("Mul", &[&source, &alpha], Vec::new());
    }
    put_entries_of(call, &source, &Combined { reduce: "sum", include_self: true })
}

fn index_reduce(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let source = call.tensor("source")?;
    let combined = Combined {
        reduce: call.string_or("reduce", "prod")?,
        include_self: call.bool_or("include_self", true)?,
    };
    put_entries_of(call, &source, &combined)
}

/// One value in the entries of an axis that indices tell.
fn index_fill(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, index) = (call.tensor("self")?, call.tensor("index")?);
    let along = call.axis("dim", 0, &x)?;
    let listed = with_axis(call, &x);
    let index = with_axis(call, &index);
    let index = indices(call, &index);
    // An entry of the axis for each index.
    let size = |axis| if axis == along { call.size_of(&index, 0) } else { call.size_of(&listed, axis) };
    let shape: Vec<Int> = (0..rank_of(&listed)).map(size).collect();
    let behind: Vec<i64> = (1..rank_of(&listed) - along).collect();
    let rows = call.unsqueeze(&index, &behind);
    let rows = made(expanded(call, &rows, &shape), DType::I64, vec![None; listed.rank()]);
    let value = call.operand("value", x.dtype)?;
    let value = expanded(call, &value, &shape);
    let result = call.op("ScatterElements", &[&listed, &rows, &value], vec![int("axis", along)]);
    Ok(vec![as_before(call, &x, &result)])
}

fn put(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, index, source) = (call.tensor("self")?, call.tensor("index")?, call.tensor("source")?);
    let reduction =
        if call.bool_or("accumulate", false)? { vec![string("reduction", "add")] } else { Vec::new() };
    let (flat, index, source) = (flattened(call, &x), flattened(call, &index), flattened(call, &source));
    let result = call.op("ScatterElements", &[&flat, &index, &source], reduction);
    let shape = dims(call, &x);
    Ok(vec![reshaped(call, &result, &shape)])
}

// ---- parts ----

fn select_scatter(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, source) = (call.tensor("self")?, call.tensor("src")?);
    let along = call.axis("dim", 0, &x)?;
    let index = call.size("index")?;
    let value = call.cast_tensor(&source, x.dtype);
    Ok(vec![at_index(call, &x, &value, along, &index)])
}

fn slice_scatter(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, source) = (call.tensor("self")?, call.tensor("src")?);
    let along = call.axis("dim", 0, &x)?;
    let value = call.cast_tensor(&source, x.dtype);
    let (start, end) = bounds(call)?;
    if call.int_or("step", 1)? != 1 {
        return Ok(vec![put_steps(call, &x, &value, along, [&start, &end])?]);
    }
    let is_in_order = call.meta("src").is_some_and(|meta| has_any(meta, along));
    Ok(vec![between(call, &x, &value, along, [&start, &end], is_in_order)])
}
