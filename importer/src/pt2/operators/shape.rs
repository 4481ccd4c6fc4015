//! Operators that move elements, or give a tensor another shape.

use super::{Sharing, Table, ViewTable};
use crate::pt2::call::{
    Call, Int, MAX_RANK, Outputs, Result, Tensor, axis, int, invalid, string, unsupported,
};
use crate::pt2::views::put_back;
use kiln_types::{Scalar, quoted};

pub(super) const RULES: Table = &[
    ("cat.default", concatenate),
    ("concat.default", concatenate),
    ("concatenate.default", concatenate),
    ("constant_pad_nd.default", |call| pad(call, "constant")),
    ("column_stack.default", |call| stacked(call, 2, 1)),
    ("dstack.default", |call| stacked(call, 3, 2)),
    ("flip.default", flip),
    ("fliplr.default", |call| {
        let x = call.tensor("self")?;
        Ok(vec![flipped(call, &x, &[1])])
    }),
    ("flipud.default", |call| {
        let x = call.tensor("self")?;
        Ok(vec![flipped(call, &x, &[0])])
    }),
    ("hstack.default", |call| stacked(call, 1, 1)),
    ("pad.default", |call| {
        let mode = call.string_or("mode", "constant")?;
        pad(call, mode)
    }),
    ("reflection_pad1d.default", |call| pad(call, "reflect")),
    ("reflection_pad2d.default", |call| pad(call, "reflect")),
    ("reflection_pad3d.default", |call| pad(call, "reflect")),
    ("repeat.default", repeat),
    ("repeat_interleave.self_int", repeat_interleave),
    ("replication_pad1d.default", |call| pad(call, "replicate")),
    ("replication_pad2d.default", |call| pad(call, "replicate")),
    ("replication_pad3d.default", |call| pad(call, "replicate")),
    ("roll.default", roll),
    ("rot90.default", rot90),
    ("stack.default", |call| {
        let tensors = call.tensors("tensors")?;
        let rank = tensors.first().map_or(0, Tensor::rank);
        let along = axis(call.int_or("dim", 0)?, rank + 1)?;
        let dtype = call.result_dtype()?;
        let mut parts = Vec::with_capacity(tensors.len());
        for tensor in &tensors {
            let part = call.cast_tensor(tensor, dtype);
            parts.push(call.unsqueeze(&part, &[along]));
        }
        Ok(vec![joined(call, &parts, along)])
    }),
    ("tile.default", repeat),
    ("vstack.default", |call| stacked(call, 2, 0)),
];

/// Operators whose results share elements with what they are given.
pub(super) const VIEWS: ViewTable = &[
    ("atleast_1d.Sequence", |call| at_least(call, 1), Sharing::Always, put_back::reshaped),
    ("atleast_1d.default", |call| at_least(call, 1), Sharing::Always, put_back::reshaped),
    ("atleast_2d.Sequence", |call| at_least(call, 2), Sharing::Always, put_back::reshaped),
    ("atleast_2d.default", |call| at_least(call, 2), Sharing::Always, put_back::reshaped),
    ("atleast_3d.Sequence", |call| at_least(call, 3), Sharing::Always, put_back::reshaped),
    ("atleast_3d.default", |call| at_least(call, 3), Sharing::Always, put_back::reshaped),
    ("broadcast_tensors.default", broadcast_tensors, Sharing::Always, put_back::expanded),
    ("broadcast_to.default", expand, Sharing::Always, put_back::expanded),
    ("chunk.default", chunk, Sharing::Always, put_back::split),
    ("dsplit.array", |call| divided(call, 2), Sharing::Always, put_back::unchangeable),
    ("dsplit.int", |call| divided(call, 2), Sharing::Always, put_back::unchangeable),
    ("expand.default", expand, Sharing::Always, put_back::expanded),
    (
        "expand_as.default",
        |call| {
            let (x, other) = (call.tensor("self")?, call.tensor("other")?);
            let shape = call.shape(&other);
            Ok(vec![call.op("Expand", &[&x, &shape], Vec::new())])
        },
        Sharing::Always,
        put_back::expanded,
    ),
    ("flatten.using_ints", flatten, Sharing::IfItLiesSo, put_back::reshaped),
    ("hsplit.array", |call| divided(call, 1), Sharing::Always, put_back::unchangeable),
    ("hsplit.int", |call| divided(call, 1), Sharing::Always, put_back::unchangeable),
    ("adjoint.default", permute, Sharing::Always, put_back::permuted),
    ("mH.default", permute, Sharing::Always, put_back::permuted),
    ("mT.default", permute, Sharing::Always, put_back::permuted),
    ("matrix_H.default", permute, Sharing::Always, put_back::permuted),
    ("meshgrid.default", meshgrid, Sharing::Always, put_back::unchangeable),
    ("meshgrid.indexing", meshgrid, Sharing::Always, put_back::unchangeable),
    ("movedim.int", permute, Sharing::Always, put_back::permuted),
    ("movedim.intlist", permute, Sharing::Always, put_back::permuted),
    (
        "narrow.default",
        |call| {
            let x = call.tensor("self")?;
            let along = call.axis("dim", 0, &x)?;
            let (start, end) = narrowed(call)?;
            Ok(vec![call.slice(&x, along, [&start, &end], 1)])
        },
        Sharing::Always,
        put_back::narrowed,
    ),
    ("numpy_T.default", permute, Sharing::Always, put_back::permuted),
    ("permute.default", permute, Sharing::Always, put_back::permuted),
    (
        "ravel.default",
        |call| {
            let x = call.tensor("self")?;
            Ok(vec![reshaped(call, &x, &[Int::Known(-1)])])
        },
        Sharing::IfContiguous,
        put_back::reshaped,
    ),
    ("reshape.default", |call| reshape(call, "shape"), Sharing::IfItLiesSo, put_back::reshaped),
    ("reshape_as.default", reshape_as, Sharing::IfItLiesSo, put_back::reshaped),
    (
        "select.int",
        |call| {
            let x = call.tensor("self")?;
            let along = call.axis("dim", 0, &x)?;
            let index = call.size("index")?;
            let index = call.size_value(&index);
            Ok(vec![call.op("Gather", &[&x, &index], vec![int("axis", along)])])
        },
        Sharing::Always,
        put_back::selected,
    ),
    ("slice.Tensor", slice, Sharing::Always, put_back::sliced),
    ("split.Tensor", split, Sharing::Always, put_back::split),
    ("split.sizes", split_with_sizes, Sharing::Always, put_back::split),
    ("split_with_sizes.default", split_with_sizes, Sharing::Always, put_back::split),
    ("squeeze.default", squeeze, Sharing::Always, put_back::reshaped),
    ("squeeze.dim", squeeze, Sharing::Always, put_back::reshaped),
    ("squeeze.dims", squeeze, Sharing::Always, put_back::reshaped),
    ("sum_to_size.default", sum_to_size, Sharing::IfSameShape, put_back::same),
    ("swapaxes.default", permute, Sharing::Always, put_back::permuted),
    ("swapdims.default", permute, Sharing::Always, put_back::permuted),
    ("t.default", permute, Sharing::Always, put_back::permuted),
    (
        "tensor_split.indices",
        |call| {
            let x = call.tensor("self")?;
            let (along, indices) = (call.axis("dim", 0, &x)?, call.sizes("indices")?);
            cut(call, along, &indices)
        },
        Sharing::Always,
        put_back::cut,
    ),
    ("tensor_split.sections", tensor_split, Sharing::Always, put_back::split),
    ("transpose.default", permute, Sharing::Always, put_back::permuted),
    ("transpose.int", permute, Sharing::Always, put_back::permuted),
    (
        "unbind.int",
        |call| {
            let x = call.tensor("self")?;
            let along = call.axis("dim", 0, &x)?;
            let mut parts = Vec::new();
            for index in (0..).take(call.result_count()) {
                let index = call.int64(index);
                parts.push(call.op("Gather", &[&x, &index], vec![int("axis", along)]));
            }
            Ok(parts)
        },
        Sharing::Always,
        put_back::unbound,
    ),
    (
        "unflatten.int",
        |call| {
            let x = call.tensor("self")?;
            let along = call.axis("dim", 0, &x)?;
            let sizes = call.sizes("sizes")?;
            let at = usize::try_from(along).unwrap_or(0);
            let mut shape = dims(call, &x);
            let rest = shape.split_off((at + 1).min(shape.len()));
            shape.truncate(at);
            shape.extend(sizes);
            shape.extend(rest);
            Ok(vec![reshaped(call, &x, &shape)])
        },
        Sharing::Always,
        put_back::reshaped,
    ),
    ("unfold.default", unfold, Sharing::Always, put_back::unchangeable),
    ("unsafe_chunk.default", chunk, Sharing::Always, put_back::split),
    ("unsafe_split.Tensor", split, Sharing::Always, put_back::split),
    ("unsafe_split_with_sizes.default", split_with_sizes, Sharing::Always, put_back::split),
    ("unsqueeze.default", unsqueeze, Sharing::Always, put_back::reshaped),
    ("view.default", |call| reshape(call, "size"), Sharing::Always, put_back::reshaped),
    ("view_as.default", reshape_as, Sharing::Always, put_back::reshaped),
    ("vsplit.array", |call| divided(call, 0), Sharing::Always, put_back::unchangeable),
    ("vsplit.int", |call| divided(call, 0), Sharing::Always, put_back::unchangeable),
    (
        "_reshape_alias.default",
        |call| {
            call.ignore(&["stride"]);
            reshape(call, "size")
        },
        Sharing::Always,
        put_back::reshaped,
    ),
    ("_unsafe_view.default", |call| reshape(call, "size"), Sharing::Always, put_back::reshaped),
];

// ---- sizes ----

/// The size of a tensor along each axis.
pub(super) fn dims(call: &mut Call<'_, '_>, x: &Tensor) -> Vec<Int> {
    (0..).take(x.rank()).map(|axis| call.size_of(x, axis)).collect()
}

/// The end of the slice that an index alone is.
pub(in crate::pt2) fn next(call: &mut Call<'_, '_>, index: &Int) -> Int {
    match index {
        Int::Known(-1) => Int::Known(i64::MAX),
        index => call.size_op("Add", index, &Int::Known(1)),
    }
}

// ---- shapes ----

pub(super) fn reshaped(call: &mut Call<'_, '_>, x: &str, shape: &[Int]) -> String {
    let shape = call.sizes_value(shape);
    call.op("Reshape", &[x, &shape], vec![int("allowzero", 1)])
}

fn reshape(call: &mut Call<'_, '_>, sizes: &str) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let shape = call.sizes(sizes)?;
    Ok(vec![reshaped(call, &x, &shape)])
}

fn reshape_as(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, other) = (call.tensor("self")?, call.tensor("other")?);
    let shape = call.shape(&other);
    Ok(vec![call.op("Reshape", &[&x, &shape], vec![int("allowzero", 1)])])
}

fn flatten(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let (start, end) = (call.axis("start_dim", 0, &x)?, call.axis("end_dim", -1, &x)?);
    let last = i64::try_from(x.rank()).unwrap_or(i64::MAX) - 1;
    if start == 1 && end == last && x.rank() > 1 {
        return Ok(vec![call.op("Flatten", &[&x], vec![int("axis", 1)])]);
    }
    let (start, end) = (usize::try_from(start).unwrap_or(0), usize::try_from(end).unwrap_or(0));
    if start > end {
        return Err(invalid("start_dim", "is behind `end_dim`"));
    }
    let sizes = dims(call, &x);
    let before = sizes.iter().take(start).cloned();
    let behind = sizes.iter().skip(end + 1).cloned();
    let shape: Vec<Int> = before.chain([Int::Known(-1)]).chain(behind).collect();
    Ok(vec![reshaped(call, &x, &shape)])
}

fn unsqueeze(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let along = axis(call.int("dim")?, x.rank() + 1)?;
    Ok(vec![call.unsqueeze(&x, &[along])])
}

/// Axes of size 1 go: those that are named, or all. A size that is not known is not 1, as PyTorch has seen to when the program was made.
fn squeeze(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let all: Vec<i64> = (0..).take(x.rank()).collect();
    let named = if call.has("dim") && x.rank() > 0 { call.axes("dim", &x)? } else { all };
    let ones: Vec<i64> = named.into_iter().filter(|&axis| x.size(axis) == Some(1)).collect();
    if ones.is_empty() {
        return Ok(vec![call.op("Identity", &[&x], Vec::new())]);
    }
    Ok(vec![call.squeeze(&x, &ones)])
}

/// Sizes of -1 are those that the tensor has.
fn expand(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let mut sizes = call.sizes("size")?;
    for size in &mut sizes {
        if matches!(size, Int::Known(-1)) {
            *size = Int::Known(1);
        }
    }
    let shape = call.sizes_value(&sizes);
    Ok(vec![call.op("Expand", &[&x, &shape], Vec::new())])
}

fn broadcast_tensors(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let tensors = call.tensors("tensors")?;
    let mut whole: Option<String> = None;
    for tensor in &tensors {
        whole = Some(match whole {
            None => tensor.name.clone(),
            Some(whole) => {
                let shape = call.shape(tensor);
                call.op("Expand", &[&whole, &shape], Vec::new())
            }
        });
    }
    let Some(whole) = whole else { return Ok(Vec::new()) };
    let shape = call.shape(&whole);
    Ok(tensors.iter().map(|tensor| call.op("Expand", &[tensor, &shape], Vec::new())).collect())
}

fn meshgrid(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let tensors = call.tensors("tensors")?;
    // Each grid has an axis for each tensor.
    if tensors.len() > MAX_RANK {
        return Err(invalid("tensors", format!("are {}, too many for a grid", tensors.len())));
    }
    let columns_first = match call.string_or("indexing", "ij")? {
        "ij" => false,
        "xy" => true,
        other => return Err(invalid("indexing", format!("is {}, must be `ij` or `xy`", quoted(other)))),
    };
    // With `xy` the first two axes are exchanged.
    let place = |at: usize| match (at, tensors.len()) {
        (0 | 1, 2..) if columns_first => 1 - at,
        _ => at,
    };
    let mut sizes = vec![Int::Known(1); tensors.len()];
    for (at, tensor) in tensors.iter().enumerate() {
        let size = if tensor.rank() == 0 { Int::Known(1) } else { call.size_of(tensor, 0) };
        if let Some(slot) = sizes.get_mut(place(at)) {
            *slot = size;
        }
    }
    let shape = call.sizes_value(&sizes);
    let mut grids = Vec::with_capacity(tensors.len());
    for (at, tensor) in tensors.iter().enumerate() {
        let mut own = vec![Int::Known(1); tensors.len()];
        if let Some(slot) = own.get_mut(place(at)) {
            *slot = Int::Known(-1);
        }
        let line = reshaped(call, tensor, &own);
        grids.push(call.op("Expand", &[&line, &shape], Vec::new()));
    }
    Ok(grids)
}

// ---- the order of axes ----

/// The axes of what a call takes, in the order in which its result has them.
pub(in crate::pt2) fn permutation(call: &mut Call<'_, '_>, of: &Tensor) -> Result<Vec<i64>> {
    let mut order: Vec<i64> = (0..).take(of.rank()).collect();
    let operator = super::family(&call.node.target);
    let (first, second) = match operator.strip_suffix("_copy").unwrap_or(operator) {
        "permute" => return call.axes("dims", of),
        "numpy_T" => {
            order.reverse();
            return Ok(order);
        }
        "t" => (0, of.rank().saturating_sub(1)),
        "mT" | "mH" | "matrix_H" | "adjoint" => (of.rank().saturating_sub(2), of.rank().saturating_sub(1)),
        "movedim" | "moveaxis" => return moved(call, of),
        "swapaxes" => (place(call.axis("axis0", 0, of)?), place(call.axis("axis1", 0, of)?)),
        _ => (place(call.axis("dim0", 0, of)?), place(call.axis("dim1", 0, of)?)),
    };
    if first < order.len() && second < order.len() {
        order.swap(first, second);
    }
    Ok(order)
}

/// Where the order of axes is undone.
pub(in crate::pt2) fn inverse(order: &[i64]) -> Vec<i64> {
    let mut inverse: Vec<(i64, i64)> = order.iter().copied().zip(0..).collect();
    inverse.sort_unstable();
    inverse.into_iter().map(|(_, place)| place).collect()
}

pub(super) fn place(axis: i64) -> usize {
    usize::try_from(axis).unwrap_or(usize::MAX)
}

fn moved(call: &mut Call<'_, '_>, of: &Tensor) -> Result<Vec<i64>> {
    let (from, to) = (call.axes("source", of)?, call.axes("destination", of)?);
    let mut rest = (0..).take(of.rank()).filter(|axis| !from.contains(axis));
    let source = |axis: i64| to.iter().position(|&to| to == axis).and_then(|at| from.get(at).copied());
    Ok((0..).take(of.rank()).filter_map(|axis| source(axis).or_else(|| rest.next())).collect())
}

fn permute(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let order = permutation(call, &x)?;
    if order.windows(2).all(|pair| matches!(pair, [a, b] if a < b)) {
        return Ok(vec![call.op("Identity", &[&x], Vec::new())]);
    }
    Ok(vec![call.transpose(&x, &order)])
}

// ---- parts ----

/// Where a slice begins and ends.
pub(in crate::pt2) fn bounds(call: &mut Call<'_, '_>) -> Result<(Int, Int)> {
    let start = call.optional_size("start")?.unwrap_or(Int::Known(0));
    let end = call.optional_size("end")?.unwrap_or(Int::Known(i64::MAX));
    Ok((start, end))
}

/// Where so many elements from an index on begin and end. The index may count from the end, and the last of them may be the last of all.
pub(in crate::pt2) fn narrowed(call: &mut Call<'_, '_>) -> Result<(Int, Int)> {
    let (start, length) = (call.size("start")?, call.size("length")?);
    let end = match (&start, &length) {
        (Int::Known(start @ ..0), Int::Known(length)) if start.checked_add(*length) == Some(0) => {
            Int::Known(i64::MAX)
        }
        (Int::Known(..0), Int::Known(_)) | (Int::Known(0..), _) => call.size_op("Add", &start, &length),
        _ => {
            // What is added where it is negative makes no difference to where the elements begin.
            let x = call.tensor("self")?;
            let along = call.axis("dim", 0, &x)?;
            let start = if call.is_count("start") {
                start.clone()
            } else {
                let size = call.size_of(&x, along);
                let (start, size) = (call.size_value(&start), call.size_value(&size));
                let zero = call.int64(0);
                let negative = call.op("Less", &[&start, &zero], Vec::new());
                let behind = call.op("Add", &[&start, &size], Vec::new());
                Int::Value(call.op("Where", &[&negative, &behind, &start], Vec::new()))
            };
            let end = call.size_op("Add", &start, &length);
            return Ok((start, end));
        }
    };
    Ok((start, end))
}

fn slice(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let along = call.axis("dim", 0, &x)?;
    let (start, end) = bounds(call)?;
    let step = call.int_or("step", 1)?;
    if matches!((&start, &end, step), (Int::Known(0), Int::Known(i64::MAX), 1)) {
        return Ok(vec![call.op("Identity", &[&x], Vec::new())]);
    }
    Ok(vec![call.slice(&x, along, [&start, &end], step)])
}

/// A tensor that has `value` at the steps of a slice.
pub(in crate::pt2) fn put_steps(
    call: &mut Call<'_, '_>,
    base: &Tensor,
    value: &str,
    along: i64,
    [start, end]: [&Int; 2],
) -> Result<String> {
    let step = call.int_or("step", 1)?;
    let size = call.size_of(base, along);
    let (zero, size, one) = (call.int64(0), call.size_value(&size), call.int64(1));
    let all = call.op("Range", &[&zero, &size, &one], Vec::new());
    let some = call.slice(&all, 0, [start, end], step);
    let indices = call.unsqueeze(&some, &[1]);
    // The axis comes first while its rows are replaced.
    let mut order: Vec<i64> = (0..).take(base.rank()).collect();
    let at = place(along);
    if at < order.len() {
        order[..=at].rotate_right(1);
    }
    let mut back: Vec<i64> = (0..).take(base.rank()).collect();
    if at < back.len() {
        back[..=at].rotate_left(1);
    }
    let (turned, value) = (call.transpose(base, &order), call.transpose(value, &order));
    let put = call.op("ScatterND", &[&turned, &indices, &value], Vec::new());
    Ok(call.transpose(&put, &back))
}

/// The sizes of all results along an axis, if they are numbers.
fn result_sizes(call: &Call<'_, '_>, along: i64) -> Option<Vec<i64>> {
    call.results().map(|part| part.ok()?.size(along)).collect()
}

fn split_known(call: &mut Call<'_, '_>, x: &Tensor, along: i64, sizes: &[i64]) -> Outputs {
    if sizes.len() == 1 {
        return vec![call.op("Identity", &[x], Vec::new())];
    }
    let split = call.int64s(sizes);
    call.ops("Split", &[x, &split], vec![int("axis", along)], sizes.len())
}

fn split(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let along = call.axis("dim", 0, &x)?;
    if let Some(sizes) = result_sizes(call, along) {
        return Ok(split_known(call, &x, along, &sizes));
    }
    let size = call.size("split_size")?;
    let bounds: Vec<Int> = (1..)
        .take(call.result_count().saturating_sub(1))
        .map(|part| call.size_op("Mul", &size, &Int::Known(part)))
        .collect();
    cut(call, along, &bounds)
}

fn split_with_sizes(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let along = call.axis("dim", 0, &x)?;
    let sizes = call.sizes(if call.has("split_sizes") { "split_sizes" } else { "split_size" })?;
    if let [_] = sizes.as_slice() {
        return Ok(vec![call.op("Identity", &[&x], Vec::new())]);
    }
    let split = call.sizes_value(&sizes);
    Ok(call.ops("Split", &[&x, &split], vec![int("axis", along)], sizes.len()))
}

fn chunk(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let along = call.axis("dim", 0, &x)?;
    if let Some(sizes) = result_sizes(call, along) {
        return Ok(split_known(call, &x, along, &sizes));
    }
    // Both take the size of a part to be the quotient, rounded up.
    let count = call.int("chunks")?;
    if usize::try_from(count) != Ok(call.result_count()) {
        return Err(unsupported("chunks of an axis of unknown size that are fewer than asked for"));
    }
    let attributes = vec![int("axis", along), int("num_outputs", count)];
    Ok(call.ops("Split", &[&x], attributes, call.result_count()))
}

/// The parts between these indices.
fn cut(call: &mut Call<'_, '_>, along: i64, bounds: &[Int]) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let starts = [Int::Known(0)].into_iter().chain(bounds.iter().cloned());
    let ends = bounds.iter().cloned().chain([Int::Known(i64::MAX)]);
    Ok(starts.zip(ends).map(|(start, end)| call.slice(&x, along, [&start, &end], 1)).collect())
}

/// `hsplit` and the like: equal parts, or those between indices. A line has no second axis, and is divided along its first.
fn divided(call: &mut Call<'_, '_>, along: i64) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let along = if x.rank() == 1 { 0 } else { x.axis(along)? };
    if call.has("indices") {
        let indices = call.sizes("indices")?;
        return cut(call, along, &indices);
    }
    equal_parts(call, along)
}

fn tensor_split(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let along = call.axis("dim", 0, &x)?;
    equal_parts(call, along)
}

fn equal_parts(call: &mut Call<'_, '_>, along: i64) -> Result<Outputs> {
    let x = call.tensor("self")?;
    match result_sizes(call, along) {
        Some(sizes) => Ok(split_known(call, &x, along, &sizes)),
        None => Err(unsupported("equal parts of an axis of unknown size")),
    }
}

// ---- joining and repeating ----

pub(super) fn joined(call: &mut Call<'_, '_>, parts: &[String], along: i64) -> String {
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match parts.as_slice() {
        [only] => call.op("Identity", &[only], Vec::new()),
        parts => call.op("Concat", parts, vec![int("axis", along)]),
    }
}

/// Tensors of shape `[0]` count as absent, whatever rank the others have.
fn concatenate(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let tensors = call.tensors("tensors")?;
    let rank = tensors.iter().map(Tensor::rank).max().unwrap_or(0);
    let along = axis(call.int_or("dim", 0)?, rank)?;
    let dtype = call.result_dtype()?;
    let absent = |tensor: &&Tensor| rank > 1 && tensor.sizes == [Some(0)];
    let parts: Vec<String> = tensors
        .iter()
        .filter(|tensor| !absent(tensor))
        .map(|tensor| call.cast_tensor(tensor, dtype))
        .collect();
    Ok(vec![joined(call, &parts, along)])
}

/// The axes of size 1 that a tensor gets so that it has at least a rank.
fn added_axes(rank: usize, tensor: &Tensor) -> &'static [i64] {
    match (rank, tensor.rank()) {
        (1, 0) | (2, 1) => &[0],
        (2, 0) => &[0, 1],
        (3, 0) => &[0, 1, 2],
        (3, 1) => &[0, 2],
        (3, 2) => &[2],
        _ => &[],
    }
}

fn at_least(call: &mut Call<'_, '_>, rank: usize) -> Result<Outputs> {
    let tensors = if call.has("tensors") { call.tensors("tensors")? } else { vec![call.tensor("self")?] };
    let mut results = Vec::with_capacity(tensors.len());
    for tensor in &tensors {
        results.push(match added_axes(rank, tensor) {
            [] => call.op("Identity", &[tensor], Vec::new()),
            axes => call.unsqueeze(tensor, axes),
        });
    }
    Ok(results)
}

/// The sum over all axes that were stretched to get from these sizes to those of the tensor.
fn sum_to_size(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let sizes = call.sizes("size")?;
    let more = x.rank().saturating_sub(sizes.len());
    let stretched = (0..).zip(&sizes).filter(|(at, size)| {
        let axis = i64::try_from(more).unwrap_or(i64::MAX).saturating_add(*at);
        matches!(size, Int::Known(1)) && x.size(axis) != Some(1)
    });
    let stretched: Vec<i64> =
        stretched.map(|(at, _)| i64::try_from(more).unwrap_or(i64::MAX).saturating_add(at)).collect();
    let dtype = call.result_dtype()?;
    let mut value = call.cast_tensor(&x, dtype);
    if !stretched.is_empty() {
        let axes = call.int64s(&stretched);
        value = call.op("ReduceSum", &[&value, &axes], vec![int("keepdims", 1)]);
    }
    if more > 0 {
        let first: Vec<i64> = (0..).take(more).collect();
        let axes = call.int64s(&first);
        value = call.op("ReduceSum", &[&value, &axes], vec![int("keepdims", 0)]);
    }
    Ok(vec![if value == x.name { call.op("Identity", &[&x], Vec::new()) } else { value }])
}

/// Tensors of at least a rank, joined along an axis, or the first where there is no such axis.
fn stacked(call: &mut Call<'_, '_>, rank: usize, along: i64) -> Result<Outputs> {
    let tensors = call.tensors("tensors")?;
    let dtype = call.result_dtype()?;
    let column = super::family(&call.node.target) == "column_stack";
    let mut parts = Vec::with_capacity(tensors.len());
    let mut along = along;
    for tensor in &tensors {
        let part = call.cast_tensor(tensor, dtype);
        // A line is a row, but of a column stack.
        let axes = if column && tensor.rank() == 1 { &[1] } else { added_axes(rank, tensor) };
        if rank == 1 && tensor.rank() < 2 {
            along = 0;
        }
        parts.push(call.unsqueeze(&part, axes));
    }
    Ok(vec![joined(call, &parts, along)])
}

/// `repeat` and `tile`: axes are added in front, and each is repeated.
fn repeat(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let mut counts = call.sizes(if call.has("repeats") { "repeats" } else { "dims" })?;
    let mut value = x.name.clone();
    if let Some(more) = counts.len().checked_sub(x.rank()) {
        let axes: Vec<i64> = (0..).take(more).collect();
        value = call.unsqueeze(&value, &axes);
    }
    while counts.len() < x.rank() {
        counts.insert(0, Int::Known(1));
    }
    let counts = call.sizes_value(&counts);
    Ok(vec![call.op("Tile", &[&value, &counts], Vec::new())])
}

/// Each element is repeated in place.
fn repeat_interleave(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let mut x = call.tensor("self")?;
    // How many there will be: the program says so of the result.
    call.ignore(&["output_size"]);
    let count = call.size("repeats")?;
    let along = match call.optional_int("dim")? {
        Some(dim) => x.axis(dim)?,
        None => {
            x.name = reshaped(call, &x, &[Int::Known(-1)]);
            x.sizes = vec![None];
            0
        }
    };
    let mut counts = vec![Int::Known(1); x.rank() + 1];
    if let Some(own) = counts.get_mut(place(along) + 1) {
        *own = count;
    }
    let apart = call.unsqueeze(&x, &[along + 1]);
    let counts = call.sizes_value(&counts);
    let repeated = call.op("Tile", &[&apart, &counts], Vec::new());
    let mut shape: Vec<Int> = Vec::with_capacity(x.rank());
    for axis in (0..).take(x.rank()) {
        shape.push(if axis == along { Int::Known(-1) } else { call.size_of(&x, axis) });
    }
    Ok(vec![reshaped(call, &repeated, &shape)])
}

fn flip(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let axes = if x.rank() > 0 { call.axes("dims", &x)? } else { Vec::new() };
    Ok(vec![flipped(call, &x, &axes)])
}

fn flipped(call: &mut Call<'_, '_>, x: &str, axes: &[i64]) -> String {
    if axes.is_empty() {
        return call.op("Identity", &[x], Vec::new());
    }
    let fill = |value: i64| vec![value; axes.len()];
    let (starts, ends, steps) =
        (call.int64s(&fill(-1)), call.int64s(&fill(i64::MIN)), call.int64s(&fill(-1)));
    let axes = call.int64s(axes);
    call.op("Slice", &[x, &starts, &ends, &axes, &steps], Vec::new())
}

fn rot90(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let dims = call.ints_or("dims", &[0, 1])?;
    let &[from, to] = dims.as_slice() else { return Err(invalid("dims", "must be two")) };
    let (from, to) = (x.axis(from)?, x.axis(to)?);
    let mut order: Vec<i64> = (0..).take(x.rank()).collect();
    if place(from).max(place(to)) < order.len() {
        order.swap(place(from), place(to));
    }
    Ok(vec![match call.int_or("k", 1)?.rem_euclid(4) {
        0 => call.op("Identity", &[&x], Vec::new()),
        1 => {
            let turned = flipped(call, &x, &[to]);
            call.transpose(&turned, &order)
        }
        2 => flipped(call, &x, &[from, to]),
        _ => {
            let turned = call.transpose(&x, &order);
            flipped(call, &turned, &[to])
        }
    }])
}

/// Elements are moved along axes, the last ones to the beginning; without axes along the tensor as a line.
fn roll(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let shifts = call.sizes("shifts")?;
    let axes = call.axes("dims", &x)?;
    if axes.is_empty() {
        let line = reshaped(call, &x, &[Int::Known(-1)]);
        let shift = shifts.first().cloned().unwrap_or(Int::Known(0));
        let size = x.sizes.iter().try_fold(1i64, |count, size| count.checked_mul((*size)?));
        let size = match size {
            Some(size) => Int::Known(size),
            None => Int::Value(call.op("Size", &[&x], Vec::new())),
        };
        let rolled = turned(call, line, [&shift, &size], 0);
        let shape = call.shape(&x);
        return Ok(vec![call.op("Reshape", &[&rolled, &shape], vec![int("allowzero", 1)])]);
    }
    let mut value = x.name.clone();
    for (shift, axis) in shifts.iter().zip(axes) {
        let size = call.size_of(&x, axis);
        value = turned(call, value, [shift, &size], axis);
    }
    Ok(vec![value])
}

/// Elements moved along an axis of a size: a shift by more than that goes round again.
fn turned(call: &mut Call<'_, '_>, x: String, [shift, size]: [&Int; 2], axis: i64) -> String {
    match (shift, size) {
        (Int::Known(shift), Int::Known(size)) => {
            rolled(call, x, &Int::Known(shift.rem_euclid((*size).max(1))), axis)
        }
        // These do not, whatever the size is: nothing moves where it is 0.
        (Int::Known(-1..=1), _) => rolled(call, x, shift, axis),
        _ => {
            let cut = call.size_op("Sub", &Int::Known(0), shift);
            let (cut, size, one) = (call.size_value(&cut), call.size_value(size), call.int64(1));
            // Of nothing, which has no remainder, nothing moves.
            let divisor = call.op("Max", &[&size, &one], Vec::new());
            let cut = Int::Value(call.op("Mod", &[&cut, &divisor], Vec::new()));
            exchanged(call, &x, &cut, axis)
        }
    }
}

pub(super) fn rolled(call: &mut Call<'_, '_>, x: String, shift: &Int, axis: i64) -> String {
    if matches!(shift, Int::Known(0)) {
        return call.op("Identity", &[&x], Vec::new());
    }
    let cut = call.size_op("Sub", &Int::Known(0), shift);
    exchanged(call, &x, &cut, axis)
}

/// What is behind an index, and then what is before it.
fn exchanged(call: &mut Call<'_, '_>, x: &str, cut: &Int, axis: i64) -> String {
    let end = call.slice(x, axis, [cut, &Int::Known(i64::MAX)], 1);
    let start = call.slice(x, axis, [&Int::Known(0), cut], 1);
    call.op("Concat", &[&end, &start], vec![int("axis", axis)])
}

/// Paddings come in pairs, those of the last axis first.
fn pad(call: &mut Call<'_, '_>, mode: &str) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let given = call.sizes(if call.has("pad") { "pad" } else { "padding" })?;
    // Only constants are a value, and none where nothing is padded.
    call.ignore(&["value"]);
    let mode = match mode {
        "constant" => "constant",
        "reflect" => "reflect",
        "replicate" => "edge",
        "circular" => "wrap",
        other => return Err(invalid("mode", format!("is {}, which is no way to pad", quoted(other)))),
    };
    let axes = given.len() / 2;
    if axes > x.rank() {
        return Err(invalid("pad", format!("has {} numbers for a tensor of rank {}", given.len(), x.rank())));
    }
    let side = |side: usize| {
        let pairs = given.chunks_exact(2).rev().filter_map(move |pair| pair.get(side).cloned());
        std::iter::repeat_n(Int::Known(0), x.rank() - axes).chain(pairs)
    };
    let mut pads: Vec<Int> = side(0).chain(side(1)).collect();
    if pads.iter().all(|pad| matches!(pad, Int::Known(0))) {
        return Ok(vec![call.op("Identity", &[&x], Vec::new())]);
    }
    if mode != "constant" {
        // What is taken away on one side may be mirrored on the other first.
        let mut taken = vec![0i64; pads.len()];
        for (pad, taken) in pads.iter_mut().zip(&mut taken).filter(|_| mode != "wrap") {
            if let Int::Known(count @ ..0) = *pad {
                (*pad, *taken) = (Int::Known(0), count.saturating_neg());
            }
        }
        let pads = call.sizes_value(&pads);
        let mut value = call.op("Pad", &[&x, &pads], vec![string("mode", mode)]);
        let (starts, ends) = taken.split_at(x.rank().min(taken.len()));
        for ((axis, &start), &end) in (0..).zip(starts).zip(ends) {
            if start > 0 || end > 0 {
                let end = if end > 0 { end.saturating_neg() } else { i64::MAX };
                value = call.slice(&value, axis, [&Int::Known(start), &Int::Known(end)], 1);
            }
        }
        return Ok(vec![value]);
    }
    let pads = call.sizes_value(&pads);
    let value = match call.optional_number("value")? {
        Some(number) => call.number_value(&number, x.dtype)?,
        None => call.scalar(Scalar::Int(0), x.dtype),
    };
    Ok(vec![call.op("Pad", &[&x, &pads, &value], Vec::new())])
}

/// Windows along an axis, whose elements stand along a new last one.
fn unfold(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let along = call.axis("dimension", 0, &x)?;
    if x.rank() == 0 {
        return Ok(vec![call.unsqueeze(&x, &[0])]);
    }
    let (size, step) = (call.int("size")?, call.int("step")?);
    let length = call.size_of(&x, along);
    let end = call.size_op("Add", &length, &Int::Known(1i64.saturating_sub(size)));
    let (zero, end, step) = (call.int64(0), call.size_value(&end), call.int64(step));
    let starts = call.op("Range", &[&zero, &end, &step], Vec::new());
    let starts = call.unsqueeze(&starts, &[1]);
    let (size, one) = (call.int64(size), call.int64(1));
    let within = call.op("Range", &[&zero, &size, &one], Vec::new());
    let indices = call.op("Add", &[&starts, &within], Vec::new());
    let windows = call.op("Gather", &[&x, &indices], vec![int("axis", along)]);
    let last = i64::try_from(x.rank()).unwrap_or(i64::MAX);
    let order: Vec<i64> = (0..=last).filter(|&axis| axis != along + 1).chain([along + 1]).collect();
    Ok(vec![call.transpose(&windows, &order)])
}
