//! Columns of lists, whose elements are those of one tensor.

use crate::column::{self, Misfit, Reason, Source, Target};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, LargeListArray, ListArray};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, NullBuffer};
use std::ops::Range;

/// An array of lists.
enum Lists<'a> {
    Fixed(&'a FixedSizeListArray),
    Small(&'a ListArray),
    Large(&'a LargeListArray),
}

impl<'a> Lists<'a> {
    /// `None` when the array has no lists.
    fn of(array: &'a dyn Array) -> Option<Self> {
        let fixed = array.as_fixed_size_list_opt().map(Self::Fixed);
        let small = || array.as_list_opt::<i32>().map(Self::Small);
        fixed.or_else(small).or_else(|| array.as_list_opt::<i64>().map(Self::Large))
    }

    /// The elements of all lists.
    fn values(&self) -> &'a ArrayRef {
        match self {
            Self::Fixed(lists) => lists.values(),
            Self::Small(lists) => lists.values(),
            Self::Large(lists) => lists.values(),
        }
    }

    /// The elements of one list.
    fn elements(&self, row: usize) -> Range<usize> {
        fn between<O: ArrowNativeType>(offsets: &[O], row: usize) -> Range<usize> {
            let offset = |row: usize| offsets.get(row).map_or(0, |offset| offset.as_usize());
            offset(row)..offset(row + 1)
        }
        match self {
            Self::Fixed(lists) => {
                let size = lists.value_length().as_usize();
                row * size..(row + 1) * size
            }
            Self::Small(lists) => between(lists.value_offsets(), row),
            Self::Large(lists) => between(lists.value_offsets(), row),
        }
    }
}

/// The dims of lists that are neither null nor empty, as the first such row has them; `None` where there is none.
pub(crate) fn infer_dims(array: &dyn Array, rows: Range<usize>) -> Option<Vec<usize>> {
    let Some(lists) = Lists::of(array) else {
        return Some(Vec::new());
    };
    let dims = |row: usize| {
        let elements = lists.elements(row);
        let len = Some(elements.len()).filter(|&len| len > 0)?;
        let mut dims = vec![len];
        dims.extend(infer_dims(lists.values(), elements)?);
        Some(dims)
    };
    // What is null in an array of fixed sizes has these, too.
    let fixed = matches!(lists, Lists::Fixed(_));
    rows.into_iter().filter(|&row| fixed || array.is_valid(row)).find_map(dims)
}

/// Where the elements of some rows lie, one behind the other, if no list is null and all have these dims.
pub(crate) fn locate(
    array: &ArrayRef,
    rows: Range<usize>,
    dims: &[usize],
) -> Option<(ArrayRef, Range<usize>)> {
    let [len, inner @ ..] = dims else {
        return Some((array.clone(), rows));
    };
    let lists = Lists::of(array)?;
    if column::nulls(array, &rows).is_some() || rows.clone().any(|row| lists.elements(row).len() != *len) {
        return None;
    }
    let start = rows.clone().next().map_or(0, |row| lists.elements(row).start);
    locate(lists.values(), start..start + rows.len() * len, inner)
}

/// Writes the elements of some rows, one row behind the other. A list that is null is as many elements of what stands in for nulls.
pub(crate) fn write<T: Target>(
    array: &ArrayRef,
    rows: Range<usize>,
    dims: &[usize],
    null: Option<T>,
    out: &mut [T],
) -> Result<(), Misfit> {
    if let Some((elements, range)) = locate(array, rows.clone(), dims) {
        return T::write(Source { array: &elements, range, null }, out, 1);
    }
    let (Some(lists), [len, inner @ ..]) = (Lists::of(array), dims) else {
        return Err(Misfit::new(0, Reason::Type(array.data_type().clone())));
    };
    let elements_of_row: usize = dims.iter().product();
    for (number, (row, places)) in rows.zip(out.chunks_mut(elements_of_row.max(1))).enumerate() {
        let before = number * elements_of_row;
        if array.is_null(row) {
            places.fill(null.ok_or(Misfit::new(before, Reason::Null))?);
            continue;
        }
        let elements = lists.elements(row);
        if elements.len() != *len {
            let reason = Reason::Length { actual: elements.len(), expected: *len };
            return Err(Misfit::new(before, reason));
        }
        write(lists.values(), elements, inner, null, places).map_err(|misfit| misfit.after(before))?;
    }
    Ok(())
}

/// Which rows are neither null nor have a null among their elements; `None` where all are so.
pub(crate) fn valid_rows(array: &dyn Array) -> Option<NullBuffer> {
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
    let Some(lists) = Lists::of(array) else {
        return nulls;
    };
    let Some(elements) = valid_rows(lists.values()) else {
        return nulls;
    };
    let valid = BooleanBuffer::collect_bool(array.len(), |row| {
        array.is_valid(row) && lists.elements(row).all(|element| elements.is_valid(element))
    });
    Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0)
}
