//! Operators that read and write elements by their indices.

use super::Table;
use super::reduce::{as_before, bound, flattened, with_axis};
use super::shape::{bounds, dim_at, dims, next, put_steps, reshaped};
use crate::pt2::call::{Call, Int, Outputs, Result, Tensor, axis, flag, int, string, unsupported};
use crate::pt2::dtype::promoted;
use crate::pt2::views::between;
use kiln_types::{DType, Scalar};

pub(super) const RULES: Table = &[
    ("_embedding_bag.default", embedding_bag),
    ("_embedding_bag_forward_only.default", embedding_bag),
    ("_index_put_impl.default", index_put),
    ("_unique.default", unique),
    ("_unique2.default", unique),
    ("_unsafe_index.Tensor", index),
    ("_unsafe_index_put.default", index_put),
    ("_unsafe_masked_index.default", masked_index),
    ("_unsafe_masked_index_put_accumulate.default", masked_index_put),
    ("argwhere.default", nonzero),
    ("bincount.default", bincount),
    ("bucketize.Scalar", |call| search(call, "boundaries")),
    ("bucketize.Tensor", |call| search(call, "boundaries")),
    ("cartesian_prod.default", cartesian_product),
    ("combinations.default", combinations),
    ("diagonal_scatter.default", diagonal_scatter),
    ("embedding.default", |call| {
        let (weight, indices) = (call.tensor("weight")?, call.tensor("indices")?);
        Ok(vec![call.op("Gather", &[&weight, &indices], Vec::new())])
    }),
    ("embedding_bag.default", embedding_bag),
    ("embedding_bag.padding_idx", embedding_bag),
    ("gather.default", gather),
    ("histc.default", histogram),
    ("index.Tensor", index),
    ("index_add.default", index_add),
    ("index_copy.default", |call| put_entries(call, "none")),
    ("index_fill.int_Scalar", index_fill),
    ("index_fill.int_Tensor", index_fill),
    ("index_put.default", index_put),
    ("index_reduce.default", index_reduce),
    ("index_select.default", |call| {
        let (x, index) = (call.tensor("self")?, call.tensor("index")?);
        let axis = call.axis("dim", 0, &x)?;
        let (listed, index) = (with_axis(call, &x), with_axis(call, &index));
        let found = call.op("Gather", &[&listed, &index], vec![int("axis", axis)]);
        Ok(vec![as_before(call, &x, &found)])
    }),
    ("isin.Scalar_Tensor", is_in),
    ("isin.Tensor_Scalar", is_in),
    ("isin.Tensor_Tensor", is_in),
    ("masked_scatter.default", masked_scatter),
    ("masked_select.default", masked_select),
    ("nonzero.default", nonzero),
    ("nonzero_numpy.default", nonzero_by_axis),
    ("nonzero_static.default", |call| {
        let x = call.tensor("self")?;
        let found = nonzero(call)?;
        let (size, fill) = (call.size("size")?, call.int_or("fill_value", -1)?);
        let shape = call.sizes_value(&[size.clone(), Int::Known(rank_of(&x))]);
        let rest = call.filled(&shape, Scalar::Int(fill), DType::I64);
        let cut = |found: &String| {
            let all = call.op("Concat", &[found, &rest], vec![int("axis", 0)]);
            call.slice(&all, 0, [&Int::Known(0), &size], 1)
        };
        Ok(found.iter().map(cut).collect())
    }),
    ("one_hot.default", one_hot),
    ("put.default", put),
    ("repeat_interleave.Tensor", |call| {
        let repeats = call.tensor("repeats")?;
        Ok(vec![repeated_places(call, &repeats)?])
    }),
    ("repeat_interleave.self_Tensor", repeat_interleave),
    ("scatter.reduce", scatter),
    ("scatter.src", scatter),
    ("scatter.value", scatter),
    ("scatter.value_reduce", scatter),
    ("scatter_add.default", scatter),
    ("scatter_reduce.two", scatter),
    ("searchsorted.Scalar", |call| search(call, "sorted_sequence")),
    ("searchsorted.Tensor", |call| search(call, "sorted_sequence")),
    ("select_scatter.default", select_scatter),
    ("slice_scatter.default", slice_scatter),
    ("take.default", |call| {
        let (x, index) = (call.tensor("self")?, call.tensor("index")?);
        let flat = flattened(call, &x);
        Ok(vec![call.op("Gather", &[&flat, &index], Vec::new())])
    }),
    ("take_along_dim.default", take_along),
    ("tril_indices.default", |call| triangle(call, false)),
    ("triu_indices.default", |call| triangle(call, true)),
    ("unique_consecutive.default", unique_consecutive),
    ("unique_dim.default", unique),
    ("where.default", nonzero_by_axis),
];

/// A value that nodes made, and what is known of it.
fn made(name: String, dtype: DType, sizes: Vec<Option<i64>>) -> Tensor {
    Tensor { name, dtype, sizes }
}

fn rank_of(x: &Tensor) -> i64 {
    i64::try_from(x.rank()).unwrap_or(i64::MAX)
}

/// Indices as ONNX takes them everywhere.
fn indices(call: &mut Call<'_, '_>, x: &Tensor) -> Tensor {
    made(call.cast_tensor(x, DType::I64), DType::I64, x.sizes.clone())
}

/// `0, 1, …` up to a size.
fn places(call: &mut Call<'_, '_>, size: &Int) -> String {
    let (zero, size, one) = (call.int64(0), call.size_value(size), call.int64(1));
    call.op("Range", &[&zero, &size, &one], Vec::new())
}

/// A value in each place of a shape.
fn expanded(call: &mut Call<'_, '_>, x: &str, shape: &[Int]) -> String {
    let shape = call.sizes_value(shape);
    call.op("Expand", &[x, &shape], Vec::new())
}

/// Zeros of a shape.
fn zeros(call: &mut Call<'_, '_>, shape: &[Int], dtype: DType) -> String {
    let shape = call.sizes_value(shape);
    call.filled(&shape, Scalar::Int(0), dtype)
}

// ---- several indices ----

fn is_mask(index: &Tensor) -> bool {
    matches!(index.dtype, DType::Bool | DType::U8)
}

/// The mask that is the only index, and the first of its axes.
fn only_mask(indices: &[Option<Tensor>]) -> Option<(i64, Tensor)> {
    let mut given = (0..).zip(indices).filter_map(|(axis, index)| Some((axis, index.clone()?)));
    given.next().filter(|(_, index)| is_mask(index) && index.rank() > 0 && given.next().is_none())
}

/// Axes that are indexed, and their indices, of one shape.
struct Picked {
    axes: Vec<i64>,
    indices: Vec<Tensor>,
    rank: usize,
}

impl Picked {
    /// Whether the indexed axes are neighbors: then what is found stays in their place, else it comes first.
    fn adjacent(&self) -> bool {
        self.axes.windows(2).all(|pair| matches!(pair, [a, b] if a + 1 == *b))
    }

    /// The number of axes before what is found.
    fn before(&self) -> i64 {
        if self.adjacent() { self.axes.first().copied().unwrap_or(0) } else { 0 }
    }

    /// The axes of a tensor, those first that are indexed.
    fn order(&self, x: &Tensor) -> Vec<i64> {
        let rest = (0..rank_of(x)).filter(|axis| !self.axes.contains(axis));
        self.axes.iter().copied().chain(rest).collect()
    }

    /// How the axes of what is found first have to be ordered.
    fn result_order(&self, x: &Tensor) -> Vec<i64> {
        let found = i64::try_from(self.rank).unwrap_or(i64::MAX);
        let (before, rest) =
            (self.before(), rank_of(x).saturating_sub(i64::try_from(self.axes.len()).unwrap_or(0)));
        let moved = (found..).take(usize::try_from(before).unwrap_or(0));
        moved.chain(0..found).chain(found + before..found + rest).collect()
    }

    /// The indices as tuples along a last axis.
    fn tuples(&self, call: &mut Call<'_, '_>) -> String {
        let parts: Vec<String> = self.indices.iter().map(|index| call.unsqueeze(index, &[-1])).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match parts.as_slice() {
            [only] => (*only).to_owned(),
            parts => call.op("Concat", parts, vec![int("axis", -1)]),
        }
    }
}

/// Where the order of axes is undone.
fn inverse(order: &[i64]) -> Vec<i64> {
    let mut inverse: Vec<(i64, i64)> = order.iter().copied().zip(0..).collect();
    inverse.sort_unstable();
    inverse.into_iter().map(|(_, place)| place).collect()
}

/// The axes that tensors index, a mask for each of its axes.
fn indexed(call: &mut Call<'_, '_>, given: &[Option<Tensor>]) -> Result<Vec<(i64, Tensor)>> {
    let mut found = Vec::new();
    let mut axis = 0;
    for index in given {
        match index {
            None => axis += 1,
            Some(mask) if is_mask(mask) => {
                if mask.rank() == 0 {
                    return Err(unsupported("a mask without axes as an index"));
                }
                let places = call.op("NonZero", &[mask], Vec::new());
                for row in 0..rank_of(mask) {
                    let row = call.int64(row);
                    let row = call.op("Gather", &[&places, &row], Vec::new());
                    found.push((axis, made(row, DType::I64, vec![None])));
                    axis += 1;
                }
            }
            Some(index) => {
                found.push((axis, indices(call, index)));
                axis += 1;
            }
        }
    }
    Ok(found)
}

/// The sizes that sizes are broadcast to, as far as they are known.
fn broadcast(all: &[&[Option<i64>]]) -> Vec<Option<i64>> {
    let rank = all.iter().map(|sizes| sizes.len()).max().unwrap_or(0);
    let at = |place: usize| {
        let of =
            |sizes: &&[Option<i64>]| sizes.len().checked_sub(place + 1).and_then(|at| sizes.get(at).copied());
        all.iter().filter_map(of).reduce(|a, b| match (a, b) {
            (Some(1), other) | (other, Some(1)) => other,
            (Some(known), _) | (_, Some(known)) => Some(known),
            (None, None) => None,
        })
    };
    (0..rank).rev().map(|place| at(place).unwrap_or(Some(1))).collect()
}

/// Indices of several axes, in one shape.
fn picked(call: &mut Call<'_, '_>, found: Vec<(i64, Tensor)>) -> Picked {
    let (axes, mut indices): (Vec<i64>, Vec<Tensor>) = found.into_iter().unzip();
    let all: Vec<&[Option<i64>]> = indices.iter().map(|index| index.sizes.as_slice()).collect();
    let sizes = broadcast(&all);
    if indices.iter().any(|index| index.sizes != sizes) {
        let known: Option<Vec<i64>> = sizes.iter().copied().collect();
        let shape = match known {
            Some(known) => call.int64s(&known),
            None => {
                let mut rest = indices.iter();
                let first = rest.next().map(|index| index.name.clone()).unwrap_or_default();
                let all = rest.fold(first, |sum, index| call.op("Add", &[&sum, index], Vec::new()));
                call.shape(&all)
            }
        };
        for index in indices.iter_mut().filter(|index| index.sizes != sizes) {
            index.name = call.op("Expand", &[index, &shape], Vec::new());
            index.sizes.clone_from(&sizes);
        }
    }
    Picked { axes, indices, rank: sizes.len() }
}

/// Indices of neighboring axes that each vary along an axis of their own, in order: one axis is picked from after the other.
fn separate(found: &[(i64, Tensor)]) -> bool {
    let rank = found.iter().map(|(_, index)| index.rank()).max().unwrap_or(0);
    let own = |(place, (_, index)): (usize, &(i64, Tensor))| {
        let missing = rank - index.rank();
        let alone = |(at, size): (usize, &Option<i64>)| at + missing == place || *size == Some(1);
        index.rank() + place >= rank && index.sizes.iter().enumerate().all(alone)
    };
    let neighbors = found.windows(2).all(|pair| matches!(pair, [(a, _), (b, _)] if a + 1 == *b));
    rank == found.len() && neighbors && found.iter().enumerate().all(own)
}

fn index(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let given = call.optional_tensors("indices")?;
    if let Some((first, mask)) = only_mask(&given) {
        let condition = made(call.cast_tensor(&mask, DType::Bool), DType::Bool, mask.sizes.clone());
        if mask.rank() == 1 {
            return Ok(vec![call.op("Compress", &[&x, &condition], vec![int("axis", first)])]);
        }
        if mask.rank() == x.rank() {
            let condition = flattened(call, &condition);
            return Ok(vec![call.op("Compress", &[&x, &condition], Vec::new())]);
        }
    }
    let found = indexed(call, &given)?;
    Ok(vec![at_indices(call, &x, found)])
}

/// The elements of a tensor at indices of some of its axes.
fn at_indices(call: &mut Call<'_, '_>, x: &Tensor, found: Vec<(i64, Tensor)>) -> String {
    if found.len() < 2 || separate(&found) {
        let one = found.len() < 2;
        return found.iter().fold(x.name.clone(), |x, (axis, index)| {
            let index = if one { index.clone() } else { flattened(call, index) };
            call.op("Gather", &[&x, &index], vec![int("axis", *axis)])
        });
    }
    let picked = picked(call, found);
    let moved = call.transpose(x, &picked.order(x));
    let tuples = picked.tuples(call);
    let result = call.op("GatherND", &[&moved, &tuples], Vec::new());
    call.transpose(&result, &picked.result_order(x))
}

fn index_put(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, given) = (call.tensor("self")?, call.optional_tensors("indices")?);
    let values = call.tensor("values")?;
    let values = made(call.cast_tensor(&values, x.dtype), x.dtype, values.sizes);
    let accumulate = call.bool_or("accumulate", false)?;
    if let Some((first, mask)) = only_mask(&given).filter(|_| !accumulate) {
        let behind = x.rank().saturating_sub(usize::try_from(first).unwrap_or(0) + mask.rank());
        // Values that are the same for all that the mask has.
        if values.rank() <= behind || values.sizes == [Some(1)] {
            let axes: Vec<i64> = (rank_of(&mask)..).take(behind).collect();
            let condition = call.cast_tensor(&mask, DType::Bool);
            let condition = call.unsqueeze(&condition, &axes);
            return Ok(vec![call.op("Where", &[&condition, &values, &x], Vec::new())]);
        }
    }
    let found = indexed(call, &given)?;
    Ok(vec![put_at_indices(call, &x, found, &values, accumulate)])
}

/// A tensor with other elements at indices of some of its axes, or with something added to them.
fn put_at_indices(
    call: &mut Call<'_, '_>,
    x: &Tensor,
    found: Vec<(i64, Tensor)>,
    values: &Tensor,
    accumulate: bool,
) -> String {
    let picked = picked(call, found);
    let Some(first) = picked.indices.first() else { return values.name.clone() };
    let order = picked.order(x);
    // The values have the shape of what the indices read.
    let found = first.sizes.iter().copied();
    let rest = || order.iter().skip(picked.axes.len()).map(|&axis| x.size(axis));
    let before = usize::try_from(picked.before()).unwrap_or(0);
    let sizes: Vec<Option<i64>> = rest().take(before).chain(found).chain(rest().skip(before)).collect();
    let mut updates = values.name.clone();
    if values.sizes != sizes {
        let found: Vec<Int> = dims(call, first);
        let rest: Vec<Int> =
            order.iter().skip(picked.axes.len()).map(|&axis| dim_at(call, x, axis)).collect();
        let (front, back) = rest.split_at(before.min(rest.len()));
        let shape: Vec<Int> = front.iter().chain(&found).chain(back).cloned().collect();
        updates = expanded(call, &updates, &shape);
    }
    let updates = call.transpose(&updates, &inverse(&picked.result_order(x)));
    let moved = call.transpose(x, &order);
    let tuples = picked.tuples(call);
    let reduction = if accumulate { vec![string("reduction", "add")] } else { Vec::new() };
    let result = call.op("ScatterND", &[&moved, &tuples, &updates], reduction);
    call.transpose(&result, &inverse(&order))
}

/// Indices within a tensor, and the mask of those that were.
fn clamped(call: &mut Call<'_, '_>, x: &Tensor) -> Result<Vec<(i64, Tensor)>> {
    let given = call.optional_tensors("indices")?;
    let mut found = indexed(call, &given)?;
    for (axis, index) in &mut found {
        let last = match dim_at(call, x, *axis) {
            Int::Known(size) => call.int64(size.saturating_sub(1)),
            Int::Value(size) => {
                let one = call.int64(1);
                call.op("Sub", &[&size, &one], Vec::new())
            }
        };
        let zero = call.int64(0);
        index.name = call.op("Clip", &[index, &zero, &last], Vec::new());
    }
    Ok(found)
}

/// Elements at indices where a mask is set, and a number elsewhere, where indices may lie outside.
fn masked_index(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, mask) = (call.tensor("self")?, call.tensor("mask")?);
    let found = clamped(call, &x)?;
    let result = at_indices(call, &x, found);
    let fill = call.operand("fill", x.dtype)?;
    Ok(vec![call.op("Where", &[&mask, &result, &fill], Vec::new())])
}

fn masked_index_put(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, mask, values) = (call.tensor("self")?, call.tensor("mask")?, call.tensor("values")?);
    let found = clamped(call, &x)?;
    let none = call.scalar(Scalar::Int(0), values.dtype);
    let sizes = broadcast(&[&mask.sizes, &values.sizes]);
    let values = made(call.op("Where", &[&mask, &values, &none], Vec::new()), values.dtype, sizes);
    Ok(vec![put_at_indices(call, &x, found, &values, true)])
}

// ---- masks ----

/// Two tensors in one shape.
fn in_one_shape(call: &mut Call<'_, '_>, a: &Tensor, b: &Tensor) -> Result<[Tensor; 2]> {
    if a.sizes == b.sizes {
        return Ok([a.clone(), b.clone()]);
    }
    let sizes = broadcast(&[&a.sizes, &b.sizes]);
    let mut shape = Vec::with_capacity(sizes.len());
    for (place, size) in sizes.iter().enumerate() {
        let behind = sizes.len() - place;
        shape.push(match size {
            Some(size) => Int::Known(*size),
            None => {
                let unknown = |x: &&Tensor| {
                    x.rank().checked_sub(behind).is_some_and(|at| x.sizes.get(at) == Some(&None))
                };
                let of = [a, b].into_iter().find(unknown).unwrap_or(a);
                let at = axis(-i64::try_from(behind).unwrap_or(1), of.rank())?;
                dim_at(call, of, at)
            }
        });
    }
    let fit = |x: &Tensor| {
        if x.sizes == sizes { x.clone() } else { made(expanded(call, x, &shape), x.dtype, sizes.clone()) }
    };
    Ok([a, b].map(fit))
}

fn masked_select(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, mask) = (call.tensor("self")?, call.tensor("mask")?);
    let [x, mask] = in_one_shape(call, &x, &mask)?;
    let (x, mask) = (flattened(call, &x), flattened(call, &mask));
    let mask = call.cast_tensor(&mask, DType::Bool);
    Ok(vec![call.op("Compress", &[&x, &mask], vec![int("axis", 0)])])
}

/// The elements of `source` one after the other, where a mask is set.
fn masked_scatter(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, mask, source) = (call.tensor("self")?, call.tensor("mask")?, call.tensor("source")?);
    let [x, mask] = in_one_shape(call, &x, &mask)?;
    let condition = made(call.cast_tensor(&mask, DType::Bool), DType::Bool, mask.sizes.clone());
    let flat = flattened(call, &condition);
    let counted = call.cast_tensor(&flat, DType::I64);
    let (first, one) = (call.int64(0), call.int64(1));
    let count = call.op("CumSum", &[&counted, &first], Vec::new());
    // Before the first one it is -1, which is an index, too.
    let place = call.op("Sub", &[&count, &one], Vec::new());
    let source = flattened(call, &source);
    let taken = call.op("Gather", &[&source, &place], Vec::new());
    let shape = dims(call, &x);
    let taken = reshaped(call, &taken, &shape);
    Ok(vec![call.op("Where", &[&condition, &taken, &x], Vec::new())])
}

fn nonzero(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    if x.rank() == 0 {
        return Err(unsupported("the indices of a tensor without axes"));
    }
    let places = call.op("NonZero", &[&x], Vec::new());
    Ok(vec![call.transpose(&places, &[1, 0])])
}

/// A list of indices for each axis.
fn nonzero_by_axis(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor(if call.has("condition") { "condition" } else { "self" })?;
    let found = indexed(call, &[Some(made(x.name.clone(), DType::Bool, x.sizes))])?;
    Ok(found.into_iter().map(|(_, index)| index.name).collect())
}

// ---- along an axis ----

/// A tensor cut to the sizes of an index along all axes but one, where they differ.
fn cut(call: &mut Call<'_, '_>, x: &Tensor, index: &Tensor, but: Option<i64>) -> String {
    let mut result = x.name.clone();
    for (axis, size) in (0..).zip(&index.sizes) {
        if Some(axis) != but && x.size(axis) != *size {
            let end = dim_at(call, index, axis);
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
        let shape: Vec<Int> = shape.iter().map(|(from, axis)| dim_at(call, from, *axis)).collect();
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
    let size = |axis| if axis == along { dim_at(call, &index, 0) } else { dim_at(call, &listed, axis) };
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
    let value = call.unsqueeze(&value, &[along]);
    let end = next(call, &index);
    Ok(vec![between(call, &x, &value, along, [&index, &end])])
}

fn slice_scatter(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, source) = (call.tensor("self")?, call.tensor("src")?);
    let along = call.axis("dim", 0, &x)?;
    let value = call.cast_tensor(&source, x.dtype);
    let (start, end) = bounds(call)?;
    if call.int_or("step", 1)? != 1 {
        return Ok(vec![put_steps(call, &x, &value, along, [&start, &end])?]);
    }
    Ok(vec![between(call, &x, &value, along, [&start, &end])])
}

/// A tensor with another diagonal.
fn diagonal_scatter(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, source) = (call.tensor("self")?, call.tensor("src")?);
    let (rows, columns) = (call.axis("dim1", 0, &x)?, call.axis("dim2", 1, &x)?);
    let offset = call.int_or("offset", 0)?;
    let source = made(call.cast_tensor(&source, x.dtype), x.dtype, source.sizes);
    let size = dim_at(call, &source, rank_of(&source) - 1);
    let place = places(call, &size);
    let shifted = |call: &mut Call<'_, '_>, by: i64| {
        let by = call.int64(by.max(0));
        made(call.op("Add", &[&place, &by], Vec::new()), DType::I64, vec![None])
    };
    let (row, column) = (shifted(call, offset.saturating_neg()), shifted(call, offset));
    let mut order: Vec<i64> = (0..rank_of(&source)).collect();
    order.rotate_right(1);
    let source = call.transpose(&source, &order);
    let picked = Picked { axes: vec![rows, columns], indices: vec![row, column], rank: 1 };
    let order = picked.order(&x);
    let (moved, tuples) = (call.transpose(&x, &order), picked.tuples(call));
    let result = call.op("ScatterND", &[&moved, &tuples, &source], Vec::new());
    Ok(vec![call.transpose(&result, &inverse(&order))])
}

// ---- counting ----

fn one_hot(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let x = indices(call, &x);
    let classes = match call.size_or("num_classes", -1)? {
        Int::Known(-1) => {
            let greatest = call.op("ReduceMax", &[&x], vec![flag("keepdims", false)]);
            let one = call.int64(1);
            call.op("Add", &[&greatest, &one], Vec::new())
        }
        classes => call.size_value(&classes),
    };
    let values = call.int64s(&[0, 1]);
    Ok(vec![call.op("OneHot", &[&x, &classes, &values], Vec::new())])
}

/// How many numbers of sorted ones come before each value, those that equal it among them if `right`. The sorted ones are along the last axis.
fn place_among(call: &mut Call<'_, '_>, sorted: &str, values: &str, right: bool, dtype: DType) -> String {
    let values = call.unsqueeze(values, &[-1]);
    let before = call.op(if right { "LessOrEqual" } else { "Less" }, &[sorted, &values], Vec::new());
    let before = call.cast(&before, DType::Bool, dtype);
    let last = call.int64s(&[-1]);
    call.op("ReduceSum", &[&before, &last], vec![flag("keepdims", false)])
}

fn search(call: &mut Call<'_, '_>, among: &str) -> Result<Outputs> {
    let (mut sorted, values) = (call.tensor(among)?, call.tensor("self")?);
    if let Some(sorter) = call.optional_tensor("sorter")? {
        let last = vec![int("axis", rank_of(&sorted) - 1)];
        sorted.name = call.op("GatherElements", &[&sorted, &sorter], last);
    }
    let right = call.bool_or("right", false)? || call.string_or("side", "left")? == "right";
    let dtype = promoted([&[sorted.dtype], &[], &[values.dtype]]);
    let dtype = if values.rank() > 0 { promoted([&[sorted.dtype, values.dtype], &[], &[]]) } else { dtype };
    let (mut among, values) = (call.cast_tensor(&sorted, dtype), call.cast_tensor(&values, dtype));
    if sorted.rank() > 1 {
        among = call.unsqueeze(&among, &[-2]);
    }
    let dtype = call.result_dtype()?;
    Ok(vec![place_among(call, &among, &values, right, dtype)])
}

fn is_in(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let of = |call: &mut Call<'_, '_>, names: [&str; 2]| {
        let [several, one] = names;
        call.tensor(if call.has(several) { several } else { one })
    };
    let (x, among) = (of(call, ["elements", "element"])?, of(call, ["test_elements", "test_element"])?);
    let zero = |x: &Tensor| if x.rank() == 0 { Vec::new() } else { vec![x.dtype] };
    let dtype = promoted([&[zero(&x), zero(&among)].concat(), &[x.dtype, among.dtype], &[]]);
    let among = flattened(call, &among);
    let (x, among) = (call.cast_tensor(&x, dtype), call.cast_tensor(&among, dtype));
    let x = call.unsqueeze(&x, &[-1]);
    let equal = call.op("Equal", &[&x, &among], Vec::new());
    let last = call.int64s(&[-1]);
    let found = call.op("ReduceMax", &[&equal, &last], vec![flag("keepdims", false)]);
    Ok(vec![if call.bool_or("invert", false)? { call.op("Not", &[&found], Vec::new()) } else { found }])
}

/// Values that differ, for each element which of them it is, and how many are equal to each.
fn unique(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let attributes = if call.has("dim") { vec![int("axis", call.axis("dim", 0, &x)?)] } else { Vec::new() };
    let whole = attributes.is_empty();
    let found = call.ops("Unique", &[&x], attributes, 4);
    let [values, _, place, counts] = found.as_slice() else { return Ok(found) };
    let place = if whole && x.rank() != 1 {
        let shape = dims(call, &x);
        reshaped(call, place, &shape)
    } else {
        place.clone()
    };
    Ok(vec![values.clone(), place, counts.clone()])
}

/// As `unique`, of neighbors only.
fn unique_consecutive(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let whole = call.tensor("self")?;
    let (x, along) = if call.has("dim") {
        let along = call.axis("dim", 0, &whole)?;
        (whole.clone(), along)
    } else {
        (flattened(call, &whole), 0)
    };
    let after = call.slice(&x, along, [&Int::Known(1), &Int::Known(i64::MAX)], 1);
    let before = call.slice(&x, along, [&Int::Known(0), &Int::Known(-1)], 1);
    let equal = call.op("Equal", &[&after, &before], Vec::new());
    let mut differs = call.op("Not", &[&equal], Vec::new());
    let others: Vec<i64> = (0..rank_of(&x)).filter(|&axis| axis != along).collect();
    if !others.is_empty() {
        let others = call.int64s(&others);
        differs = call.op("ReduceMax", &[&differs, &others], vec![flag("keepdims", false)]);
    }
    let one = call.int64s(&[1]);
    let first = call.filled(&one, Scalar::Bool(true), DType::Bool);
    let first = call.op("Concat", &[&first, &differs], vec![int("axis", 0)]);
    let values = call.op("Compress", &[&x, &first], vec![int("axis", along)]);
    let counted = call.cast(&first, DType::Bool, DType::I64);
    let (axis, one) = (call.int64(0), call.int64(1));
    let place = call.op("CumSum", &[&counted, &axis], Vec::new());
    let place = call.op("Sub", &[&place, &one], Vec::new());
    let length = call.size_at(&values, along);
    let none = call.filled(&length, Scalar::Int(0), DType::I64);
    let shape = call.shape(&place);
    let ones = call.filled(&shape, Scalar::Int(1), DType::I64);
    let counts = call.op("ScatterElements", &[&none, &place, &ones], vec![string("reduction", "add")]);
    let place = if call.has("dim") || whole.rank() == 1 {
        place
    } else {
        let shape = dims(call, &whole);
        reshaped(call, &place, &shape)
    };
    Ok(vec![values, place, counts])
}

/// How often each integer occurs, or the sum of its weights.
fn bincount(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let x = indices(call, &x);
    let dtype = call.result_dtype()?;
    let greatest = call.op("ReduceMax", &[&x], vec![flag("keepdims", true)]);
    let one = call.int64(1);
    let mut length = call.op("Add", &[&greatest, &one], Vec::new());
    let least = call.size_or("minlength", 0)?;
    if !matches!(least, Int::Known(0)) {
        let least = call.size_list(&least);
        length = call.op("Max", &[&length, &least], Vec::new());
    }
    let none = call.filled(&length, Scalar::Int(0), dtype);
    let weights = match call.optional_tensor("weights")? {
        Some(weights) => call.cast_tensor(&weights, dtype),
        None => {
            let shape = call.shape(&x);
            call.filled(&shape, Scalar::Int(1), dtype)
        }
    };
    Ok(vec![call.op("ScatterElements", &[&none, &x, &weights], vec![string("reduction", "add")])])
}

/// How many elements lie in each of some intervals of one length.
fn histogram(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let x = flattened(call, &x);
    let bins = call.int_or("bins", 100)?;
    let (low, high) = (call.float_or("min", 0.0)?, call.float_or("max", 0.0)?);
    let wide = if x.dtype.is_float() { x.dtype } else { DType::F32 };
    let number = made(call.cast_tensor(&x, wide), wide, x.sizes.clone());
    let (low, high) = if low == high && low == 0.0 {
        let fold = |operator| call.op(operator, &[&number], vec![flag("keepdims", false)]);
        let [low, high] = ["ReduceMin", "ReduceMax"].map(fold);
        (low, high)
    } else {
        (call.number_of(low, wide), call.number_of(high, wide))
    };
    let shifted = call.op("Sub", &[&number, &low], Vec::new());
    let width = call.op("Sub", &[&high, &low], Vec::new());
    let part = call.op("Div", &[&shifted, &width], Vec::new());
    let bins_value = call.number_of(bins as f64, wide);
    let place = call.op("Mul", &[&part, &bins_value], Vec::new());
    let place = call.op("Floor", &[&place], Vec::new());
    // The last interval has its end.
    let (zero, last) = (call.number_of(0.0, wide), call.number_of(bins.saturating_sub(1) as f64, wide));
    let place = call.op("Clip", &[&place, &zero, &last], Vec::new());
    let place = call.cast(&place, wide, DType::I64);
    let above = call.op("GreaterOrEqual", &[&number, &low], Vec::new());
    let below = call.op("LessOrEqual", &[&number, &high], Vec::new());
    let inside = call.op("And", &[&above, &below], Vec::new());
    let inside = call.cast(&inside, DType::Bool, x.dtype);
    let none = zeros(call, &[Int::Known(bins)], x.dtype);
    Ok(vec![call.op("ScatterElements", &[&none, &place, &inside], vec![string("reduction", "add")])])
}

// ---- lists of indices ----

/// More constants than this a graph should not have.
const MOST: i64 = 1 << 20;

/// The indices of a triangle of a matrix.
fn triangle(call: &mut Call<'_, '_>, upper: bool) -> Result<Outputs> {
    let (rows, columns) = (call.int("row")?, call.int("col")?);
    let offset = call.int_or("offset", 0)?;
    let fits = (0..=MOST).contains(&rows) && (0..=MOST).contains(&columns) && rows * columns <= MOST;
    if !fits {
        return Err(unsupported(format!("the indices of a triangle of {rows} × {columns}")));
    }
    let inside = |row: i64, column: i64| {
        if upper { column - row >= offset } else { column - row <= offset }
    };
    let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let (rows, columns): (Vec<i64>, Vec<i64>) = places.filter(|&(row, column)| inside(row, column)).unzip();
    let count = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    let all = call.int64s(&[rows, columns].concat());
    let all = reshaped(call, &all, &[Int::Known(2), Int::Known(count)]);
    let dtype = call.result_dtype()?;
    Ok(vec![call.cast(&all, DType::I64, dtype)])
}

/// The index of each entry as often as `repeats` tells.
fn repeated_places(call: &mut Call<'_, '_>, repeats: &Tensor) -> Result<String> {
    let repeats = indices(call, repeats);
    let first = call.int64(0);
    let ends = call.op("CumSum", &[&repeats, &first], Vec::new());
    let size = match call.optional_size("output_size")? {
        Some(size) => size,
        None => Int::Value(call.op("ReduceSum", &[&repeats], vec![flag("keepdims", false)])),
    };
    let places = places(call, &size);
    Ok(place_among(call, &ends, &places, true, DType::I64))
}

fn repeat_interleave(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, mut repeats) = (call.tensor("self")?, call.tensor("repeats")?);
    let (x, along) = if call.has("dim") {
        let along = call.axis("dim", 0, &x)?;
        (with_axis(call, &x), along)
    } else {
        (flattened(call, &x), 0)
    };
    if repeats.rank() == 0 || repeats.sizes == [Some(1)] {
        let size = dim_at(call, &x, along);
        repeats = made(expanded(call, &repeats, &[size]), repeats.dtype, vec![x.size(along)]);
    }
    let places = repeated_places(call, &repeats)?;
    Ok(vec![call.op("Gather", &[&x, &places], vec![int("axis", along)])])
}

/// All choices of `r` elements.
fn combinations(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let (r, replace) = (call.int_or("r", 2)?, call.bool_or("with_replacement", false)?);
    let Some(size) = x.size(0) else { return Err(unsupported("combinations of elements of unknown number")) };
    if !(1..=8).contains(&r) {
        return Err(unsupported(format!("combinations of {r} elements")));
    }
    let mut choices: Vec<Vec<i64>> = vec![Vec::new()];
    for _ in 0..r {
        let longer = |choice: &Vec<i64>| {
            let from = choice.last().map_or(0, |last| if replace { *last } else { last + 1 });
            let choice = choice.clone();
            (from..size).map(move |next| choice.iter().copied().chain([next]).collect())
        };
        choices = choices.iter().flat_map(longer).take(usize::try_from(MOST).unwrap_or(usize::MAX)).collect();
    }
    let count = i64::try_from(choices.len()).unwrap_or(i64::MAX);
    if count >= MOST {
        return Err(unsupported(format!("combinations of {r} of {size} elements")));
    }
    let all = call.int64s(&choices.concat());
    let all = reshaped(call, &all, &[Int::Known(count), Int::Known(r)]);
    Ok(vec![call.op("Gather", &[&x, &all], Vec::new())])
}

/// All tuples of an element of each tensor.
fn cartesian_product(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let tensors = call.tensors("tensors")?;
    if let [only] = tensors.as_slice() {
        return Ok(vec![only.name.clone()]);
    }
    let shape: Vec<Int> = tensors.iter().map(|x| dim_at(call, x, 0)).collect();
    let mut columns = Vec::with_capacity(tensors.len());
    for (place, x) in tensors.iter().enumerate() {
        let behind: Vec<i64> = (1..).take(tensors.len() - place - 1).collect();
        let spread = call.unsqueeze(x, &behind);
        let spread = expanded(call, &spread, &shape);
        columns.push(reshaped(call, &spread, &[Int::Known(-1), Int::Known(1)]));
    }
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    Ok(vec![call.op("Concat", &columns, vec![int("axis", 1)])])
}

// ---- bags of embeddings ----

/// Embeddings of bags of words: each offset is where the next bag begins.
fn embedding_bag(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (weight, words) = (call.tensor("weight")?, call.tensor("indices")?);
    let mut starts = call.tensor("offsets")?;
    let words = indices(call, &words);
    let dtype = weight.dtype;
    if call.bool_or("include_last_offset", false)? {
        starts.name = call.slice(&starts, 0, [&Int::Known(0), &Int::Known(-1)], 1);
        starts.sizes = starts.sizes.iter().map(|size| size.map(|size| size.saturating_sub(1))).collect();
    }
    let starts = indices(call, &starts);
    let (count, bags) = (dim_at(call, &words, 0), dim_at(call, &starts, 0));
    let place = places(call, &count);
    // The first bag begins with the first word.
    let later = call.slice(&starts, 0, [&Int::Known(1), &Int::Known(i64::MAX)], 1);
    let bag = place_among(call, &later, &place, true, DType::I64);
    let bag = call.unsqueeze(&bag, &[1]);
    let mut rows = call.op("Gather", &[&weight, &words], Vec::new());
    if let Some(weights) = call.optional_tensor("per_sample_weights")? {
        let weights = call.unsqueeze(&weights, &[1]);
        rows = call.op("Mul", &[&rows, &weights], Vec::new());
    }
    // A word that stands for none.
    let padding = match (call.optional_int("padding_idx")?, weight.size(0)) {
        (Some(padding), Some(size)) if padding < 0 && super::name(&call.node.target).starts_with('e') => {
            Some(padding.saturating_add(size))
        }
        (padding, _) => padding.filter(|&padding| padding >= 0),
    };
    let counted = match padding {
        Some(padding) => {
            let padding = call.int64(padding);
            let none = call.op("Equal", &[&words, &padding], Vec::new());
            Some(call.op("Not", &[&none], Vec::new()))
        }
        None => None,
    };
    let mode = call.int_or("mode", 0)?;
    let start = if mode == 2 { bound(dtype, false) } else { Scalar::Int(0) };
    if let Some(counted) = &counted {
        let counted = call.unsqueeze(counted, &[1]);
        let none = call.scalar(start, dtype);
        rows = call.op("Where", &[&counted, &rows, &none], Vec::new());
    }
    let width = dim_at(call, &weight, 1);
    let shape = call.sizes_value(&[bags.clone(), width]);
    let base = call.filled(&shape, start, dtype);
    let reduction = |reduction: &str| vec![string("reduction", reduction)];
    if mode == 2 {
        let greatest = call.op("ScatterND", &[&base, &bag, &rows], reduction("max"));
        let (none, zero) = (call.scalar(start, dtype), call.number_of(0.0, dtype));
        let empty = call.op("Equal", &[&greatest, &none], Vec::new());
        return Ok(vec![call.op("Where", &[&empty, &zero, &greatest], Vec::new())]);
    }
    let sum = call.op("ScatterND", &[&base, &bag, &rows], reduction("add"));
    if mode == 0 {
        return Ok(vec![sum]);
    }
    let ones = match &counted {
        Some(counted) => call.cast(counted, DType::Bool, dtype),
        None => {
            let shape = call.shape(&words);
            call.filled(&shape, Scalar::Int(1), dtype)
        }
    };
    let none = zeros(call, &[bags], dtype);
    let count = call.op("ScatterND", &[&none, &bag, &ones], reduction("add"));
    let one = call.number_of(1.0, dtype);
    let count = call.op("Max", &[&count, &one], Vec::new());
    let count = call.unsqueeze(&count, &[1]);
    Ok(vec![call.op("Div", &[&sum, &count], Vec::new())])
}
