//! What a view shows is another value: the value that what it views has then.

use crate::error::ImportErrorKind;
use crate::pt2::call::{Call, Int, Result, Tensor, int, unsupported};
use crate::pt2::operators::{self, complex, index, shape};
use crate::pt2::schema::{Size, TensorMeta};
use crate::pt2::value::{Output, Part, Value};

/// The value of what a call views, with `value` where the result of a position shows it.
pub(in crate::pt2) type PutBack =
    for<'c, 'p> fn(&mut Call<'c, 'p>, base: &Tensor, value: &str, position: usize) -> Result<String>;

/// A value that has `output` where a call's view of it is.
pub(in crate::pt2) fn put_back(
    call: &mut Call<'_, '_>,
    base: &Value,
    output: Output,
    position: usize,
) -> Result<Output> {
    if call.is_complex()
        && let Some(view) = complex::view(&call.node.target)
    {
        return (view.put_back)(call, base, output, position);
    }
    parts(call, base, output, position)
}

/// As [`put_back`], of real numbers or of either part of complex ones.
pub(in crate::pt2) fn parts(
    call: &mut Call<'_, '_>,
    base: &Value,
    output: Output,
    position: usize,
) -> Result<Output> {
    let Some(operators::View { put_back, .. }) = operators::view(&call.node.target) else {
        return Err(not_put_back(call));
    };
    match (base, output) {
        (Value::Tensor(base), Output::Real(value)) => {
            put_back(call, base, &value, position).map(Output::Real)
        }
        (Value::Complex(base), Output::Complex([real, imaginary])) => {
            let mut put = |part, value: &str| {
                put_back(&mut call.of_parts(&[("self", part)]), &base.part(part), value, position)
            };
            Ok(Output::Complex([put(Part::Real, &real)?, put(Part::Imaginary, &imaginary)?]))
        }
        (Value::Complex(_), Output::Real(_)) | (Value::Tensor(_), Output::Complex(_)) => {
            Err(not_put_back(call))
        }
    }
}

/// An error that tells what to do instead.
pub(in crate::pt2) fn not_put_back(call: &Call<'_, '_>) -> ImportErrorKind {
    let operator = operators::family(&call.node.target);
    unsupported(format!(
        "changing what `{operator}` yields in place; `run_decompositions({{}})` makes a program that changes nothing in place"
    ))
}

/// Of views that no rule can put back.
pub(in crate::pt2) fn unchangeable(call: &mut Call<'_, '_>, _: &Tensor, _: &str, _: usize) -> Result<String> {
    Err(not_put_back(call))
}

/// The view has all elements, as they are.
pub(in crate::pt2) fn same(_: &mut Call<'_, '_>, _: &Tensor, value: &str, _: usize) -> Result<String> {
    Ok(value.to_owned())
}

pub(in crate::pt2) fn reshaped(
    call: &mut Call<'_, '_>,
    base: &Tensor,
    value: &str,
    _: usize,
) -> Result<String> {
    let shape = call.shape(base);
    Ok(call.op("Reshape", &[value, &shape], vec![int("allowzero", 1)]))
}

/// Of what is stretched along axes: where it is not, elements are as many as before.
pub(in crate::pt2) fn expanded(
    call: &mut Call<'_, '_>,
    base: &Tensor,
    value: &str,
    position: usize,
) -> Result<String> {
    let result = call.result(position)?;
    if base.sizes == result.sizes && base.sizes.iter().all(Option::is_some) {
        return Ok(value.to_owned());
    }
    let count = |sizes: &[Option<i64>]| {
        sizes.iter().try_fold(1i64, |count, size| size.and_then(|size| count.checked_mul(size)))
    };
    match (count(&base.sizes), count(&result.sizes)) {
        (Some(own), Some(shown)) if own == shown => reshaped(call, base, value, position),
        _ => Err(not_put_back(call)),
    }
}

pub(in crate::pt2) fn permuted(
    call: &mut Call<'_, '_>,
    base: &Tensor,
    value: &str,
    _: usize,
) -> Result<String> {
    let permuted = shape::permutation(call, base)?;
    Ok(call.transpose(value, &shape::inverse(&permuted)))
}

pub(in crate::pt2) fn selected(
    call: &mut Call<'_, '_>,
    base: &Tensor,
    value: &str,
    _: usize,
) -> Result<String> {
    let along = call.axis("dim", 0, base)?;
    let index = call.size("index")?;
    Ok(at_index(call, base, value, along, &index))
}

pub(in crate::pt2) fn sliced(
    call: &mut Call<'_, '_>,
    base: &Tensor,
    value: &str,
    position: usize,
) -> Result<String> {
    let along = call.axis("dim", 0, base)?;
    let (start, end) = shape::bounds(call)?;
    if call.int_or("step", 1)? != 1 {
        return shape::put_steps(call, base, value, along, [&start, &end]);
    }
    let is_in_order = shows_any(call, position, along);
    Ok(between(call, base, value, along, [&start, &end], is_in_order))
}

/// Whether a result had elements along an axis when the program was made.
fn shows_any(call: &Call<'_, '_>, position: usize, along: i64) -> bool {
    let name = call.to.results(call.node).nth(position);
    name.and_then(|name| call.to.meta(name)).is_some_and(|meta| has_any(meta, along))
}

/// Whether a tensor had elements along an axis when the program was made.
pub(in crate::pt2) fn has_any(meta: &TensorMeta, along: i64) -> bool {
    let size = usize::try_from(along).ok().and_then(|along| meta.sizes.get(along));
    size.and_then(Size::hint).is_some_and(|size| size > 0)
}

pub(in crate::pt2) fn narrowed(
    call: &mut Call<'_, '_>,
    base: &Tensor,
    value: &str,
    _: usize,
) -> Result<String> {
    let along = call.axis("dim", 0, base)?;
    let (start, end) = shape::narrowed(call)?;
    Ok(between(call, base, value, along, [&start, &end], true))
}

pub(in crate::pt2) fn diagonal(
    call: &mut Call<'_, '_>,
    base: &Tensor,
    value: &str,
    _: usize,
) -> Result<String> {
    let value = Tensor { name: value.to_owned(), ..call.result(0)? };
    index::with_diagonal(call, base, &value)
}

pub(in crate::pt2) fn unbound(
    call: &mut Call<'_, '_>,
    base: &Tensor,
    value: &str,
    position: usize,
) -> Result<String> {
    let along = call.axis("dim", 0, base)?;
    let index = Int::Known(i64::try_from(position).unwrap_or(i64::MAX));
    Ok(at_index(call, base, value, along, &index))
}

/// Of one of the parts along an axis.
pub(in crate::pt2) fn split(
    call: &mut Call<'_, '_>,
    base: &Tensor,
    value: &str,
    position: usize,
) -> Result<String> {
    let along = call.axis("dim", 0, base)?;
    call.to.spend(position)?;
    let sizes = call.results().take(position + 1).map(|part| part.ok().and_then(|part| part.size(along)));
    let sizes: Option<Vec<i64>> = sizes.collect();
    let Some([before @ .., length]) = sizes.as_deref() else {
        return Err(unsupported("changing a part of unknown size in place"));
    };
    let start = before.iter().fold(0i64, |sum, size| sum.saturating_add(*size));
    let end = start.saturating_add(*length);
    Ok(between(call, base, value, along, [&Int::Known(start), &Int::Known(end)], true))
}

/// Of the parts between indices, which need not be in order.
pub(in crate::pt2) fn cut(
    call: &mut Call<'_, '_>,
    base: &Tensor,
    value: &str,
    position: usize,
) -> Result<String> {
    let along = call.axis("dim", 0, base)?;
    let indices = call.sizes("indices")?;
    call.to.spend(indices.len())?;
    let before = position.checked_sub(1).and_then(|place| indices.get(place)).cloned();
    let (start, end) = (before.unwrap_or(Int::Known(0)), indices.get(position).cloned());
    let end = end.unwrap_or(Int::Known(i64::MAX));
    let is_in_order = shows_any(call, position, along);
    Ok(between(call, base, value, along, [&start, &end], is_in_order))
}

/// Where a slice from an index up to another begins and ends in an axis of a size, both counted from its beginning.
fn bounds(size: i64, [start, end]: [i64; 2]) -> [i64; 2] {
    let place = |index: i64| if index < 0 { index.saturating_add(size) } else { index }.clamp(0, size);
    let start = place(start);
    [start, place(end).max(start)]
}

/// A tensor that has `value`, which lacks the axis, at an index along it.
pub(in crate::pt2) fn at_index(
    call: &mut Call<'_, '_>,
    base: &Tensor,
    value: &str,
    along: i64,
    index: &Int,
) -> String {
    let value = call.unsqueeze(value, &[along]);
    let end = shape::next(call, index);
    between(call, base, &value, along, [index, &end], true)
}

/// A tensor that has `value` from an index up to another along an axis. A slice that ends before it begins has nothing; whether it is known
/// not to is told for indices that are no numbers.
pub(in crate::pt2) fn between(
    call: &mut Call<'_, '_>,
    base: &Tensor,
    value: &str,
    along: i64,
    [start, end]: [&Int; 2],
    is_in_order: bool,
) -> String {
    const END: Int = Int::Known(i64::MAX);
    let (mut start, mut end) = (start.clone(), end.clone());
    if let (Int::Known(from), Int::Known(to)) = (&start, &end) {
        let (from, to) = (*from, *to);
        if let Some(size) = base.size(along) {
            let [from, to] = bounds(size, [from, to]);
            start = Int::Known(from);
            end = if to == size && from < to { END } else { Int::Known(to) };
        } else if (from < 0) == (to < 0) && to < from {
            end = start.clone();
        }
    }
    let is_in_order = is_in_order
        || match (&start, &end) {
            (Int::Known(0), _) | (_, Int::Known(i64::MAX)) => true,
            (Int::Known(start), Int::Known(end)) => (*start < 0) == (*end < 0),
            (Int::Value(_), _) | (_, Int::Value(_)) => false,
        };
    let mut parts = Vec::new();
    if !matches!(start, Int::Known(0)) {
        parts.push(call.slice(base, along, [&Int::Known(0), &start], 1));
    }
    parts.push(value.to_owned());
    if !is_in_order {
        // What is behind the start, without as much as the value has.
        let rest = call.slice(base, along, [&start, &END], 1);
        let length = call.size_at(value, along);
        let length = Int::Value(call.squeeze(&length, &[0]));
        parts.push(call.slice(&rest, along, [&length, &END], 1));
    } else if !matches!(end, Int::Known(i64::MAX)) {
        parts.push(call.slice(base, along, [&end, &END], 1));
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match parts.as_slice() {
        [only] => (*only).to_owned(),
        parts => call.op("Concat", parts, vec![int("axis", along)]),
    }
}
