//! Operators that pick elements by indices of several axes or by masks, and put them there.

use super::Table;
use super::reduce::{as_before, flattened, with_axis};
use super::shape::{dims, inverse, reshaped};
use crate::pt2::call::{Call, Int, Outputs, Result, Tensor, axis, int, string, unsupported};
use kiln_types::{DType, Scalar};

pub(super) const RULES: Table = &[
    ("_index_put_impl.default", index_put),
    ("_unsafe_index.Tensor", index),
    ("_unsafe_index_put.default", index_put),
    ("_unsafe_masked_index.default", masked_index),
    ("_unsafe_masked_index_put_accumulate.default", masked_index_put),
    ("argwhere.default", nonzero),
    ("diagonal_scatter.default", diagonal_scatter),
    ("embedding.default", embedding),
    ("index.Tensor", index),
    ("index_put.default", index_put),
    ("index_select.default", |call| {
        let (x, index) = (call.tensor("self")?, call.tensor("index")?);
        let axis = call.axis("dim", 0, &x)?;
        let (listed, index) = (with_axis(call, &x), with_axis(call, &index));
        let found = call.op("Gather", &[&listed, &index], vec![int("axis", axis)]);
        Ok(vec![as_before(call, &x, &found)])
    }),
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
    ("take.default", |call| {
        let (x, index) = (call.tensor("self")?, call.tensor("index")?);
        let flat = flattened(call, &x);
        Ok(vec![call.op("Gather", &[&flat, &index], Vec::new())])
    }),
    ("where.default", nonzero_by_axis),
];

/// A value that nodes made, and what is known of it.
pub(super) fn made(name: String, dtype: DType, sizes: Vec<Option<i64>>) -> Tensor {
    Tensor { name, dtype, sizes }
}

pub(super) fn rank_of(x: &Tensor) -> i64 {
    i64::try_from(x.rank()).unwrap_or(i64::MAX)
}

/// Indices as ONNX takes them everywhere.
pub(super) fn indices(call: &mut Call<'_, '_>, x: &Tensor) -> Tensor {
    made(call.cast_tensor(x, DType::I64), DType::I64, x.sizes.clone())
}

/// `0, 1, …` up to a size.
pub(super) fn places(call: &mut Call<'_, '_>, size: &Int) -> String {
    let (zero, size, one) = (call.int64(0), call.size_value(size), call.int64(1));
    call.op("Range", &[&zero, &size, &one], Vec::new())
}

/// A value in each place of a shape.
pub(super) fn expanded(call: &mut Call<'_, '_>, x: &str, shape: &[Int]) -> String {
    let shape = call.sizes_value(shape);
    call.op("Expand", &[x, &shape], Vec::new())
}

/// Zeros of a shape.
pub(super) fn zeros(call: &mut Call<'_, '_>, shape: &[Int], dtype: DType) -> String {
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
    let Some(first) = picked.indices.first() else {
        let shape = dims(call, x);
        let values = expanded(call, values, &shape);
        return if accumulate { call.op("Add", &[x, &values], Vec::new()) } else { values };
    };
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
            order.iter().skip(picked.axes.len()).map(|&axis| call.size_of(x, axis)).collect();
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

/// Indices within a tensor, which may count from its end.
fn clamped(call: &mut Call<'_, '_>, x: &Tensor) -> Result<Vec<(i64, Tensor)>> {
    let given = call.optional_tensors("indices")?;
    let mut found = indexed(call, &given)?;
    for (axis, index) in &mut found {
        let last = match call.size_of(x, *axis) {
            Int::Known(size) => call.int64(size.saturating_sub(1)),
            Int::Value(size) => {
                let one = call.int64(1);
                call.op("Sub", &[&size, &one], Vec::new())
            }
        };
        let first = call.op("BitwiseNot", &[&last], Vec::new());
        index.name = call.op("Clip", &[index, &first, &last], Vec::new());
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
pub(super) fn in_one_shape(call: &mut Call<'_, '_>, a: &Tensor, b: &Tensor) -> Result<[Tensor; 2]> {
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
                call.size_of(of, at)
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
    let first = call.int64(0);
    let count = call.op("CumSum", &[&counted, &first], Vec::new());
    let has_elements = source.sizes.iter().all(|size| size.is_some_and(|size| size > 0));
    let elements = flattened(call, &source);
    let (source, place) = if has_elements {
        let one = call.int64(1);
        // Before the first one it is -1, which is an index, too.
        (elements.name, call.op("Sub", &[&count, &one], Vec::new()))
    } else {
        // Where the mask is not set at all the source may be empty: something stands before it for what is not taken.
        let zero = call.scalar(Scalar::Int(0), source.dtype);
        let zero = call.unsqueeze(&zero, &[0]);
        (call.op("Concat", &[&zero, &elements], vec![int("axis", 0)]), count)
    };
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

/// No gradient flows to the row of padding from where it is looked up.
fn embedding(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let padding = call.int_or("padding_idx", -1)?;
    let (weight, indices) = (call.tensor("weight")?, call.tensor("indices")?);
    let found = call.op("Gather", &[&weight, &indices], Vec::new());
    if padding < 0 || !call.to.trainable {
        return Ok(vec![found]);
    }
    let padding = call.scalar(Scalar::Int(padding), indices.dtype);
    let is_padding = call.op("Equal", &[&indices, &padding], Vec::new());
    let is_padding = call.unsqueeze(&is_padding, &[-1]);
    let fixed = call.kiln("Detach", &[&found], Vec::new());
    Ok(vec![call.op("Where", &[&is_padding, &fixed, &found], Vec::new())])
}

/// A list of indices for each axis.
fn nonzero_by_axis(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor(if call.has("condition") { "condition" } else { "self" })?;
    let found = indexed(call, &[Some(made(x.name.clone(), DType::Bool, x.sizes))])?;
    Ok(found.into_iter().map(|(_, index)| index.name).collect())
}

/// A tensor with another diagonal.
fn diagonal_scatter(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, source) = (call.tensor("self")?, call.tensor("src")?);
    let source = made(call.cast_tensor(&source, x.dtype), x.dtype, source.sizes);
    Ok(vec![with_diagonal(call, &x, &source)?])
}

/// A tensor that has another one on the diagonal that a call names.
pub(in crate::pt2) fn with_diagonal(call: &mut Call<'_, '_>, x: &Tensor, source: &Tensor) -> Result<String> {
    let (rows, columns) = (call.axis("dim1", 0, x)?, call.axis("dim2", 1, x)?);
    let offset = call.int_or("offset", 0)?;
    let size = call.size_of(source, rank_of(source) - 1);
    let place = places(call, &size);
    let shifted = |call: &mut Call<'_, '_>, by: i64| {
        let by = call.int64(by.max(0));
        made(call.op("Add", &[&place, &by], Vec::new()), DType::I64, vec![None])
    };
    let (row, column) = (shifted(call, offset.saturating_neg()), shifted(call, offset));
    let mut order: Vec<i64> = (0..rank_of(source)).collect();
    order.rotate_right(1);
    let source = call.transpose(source, &order);
    let picked = Picked { axes: vec![rows, columns], indices: vec![row, column], rank: 1 };
    let order = picked.order(x);
    let (moved, tuples) = (call.transpose(x, &order), picked.tuples(call));
    let result = call.op("ScatterND", &[&moved, &tuples, &source], Vec::new());
    Ok(call.transpose(&result, &inverse(&order)))
}
