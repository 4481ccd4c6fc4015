//! Operators that search, count and list.

use super::index::{expanded, indices, made, places, rank_of, zeros};
use super::pointwise::{common, wide};
use super::reduce::{bound, flattened, with_axis};
use super::shape::{dims, reshaped};
use super::{Sharing, Table, ViewTable};
use crate::pt2::call::{
    Call, Int, MAX_RANK, Outputs, Result, Tensor, flag, int, invalid, string, unsupported,
};
use crate::pt2::views::put_back;
use kiln_types::{DType, Scalar};

pub(super) const RULES: Table = &[
    ("_embedding_bag.default", embedding_bag),
    ("_embedding_bag_forward_only.default", embedding_bag),
    ("_unique.default", unique),
    ("_unique2.default", unique),
    ("bincount.default", bincount),
    ("combinations.default", combinations),
    ("embedding_bag.default", embedding_bag),
    ("embedding_bag.padding_idx", embedding_bag),
    ("histc.default", histogram),
    ("isin.Scalar_Tensor", is_in),
    ("isin.Tensor_Scalar", is_in),
    ("isin.Tensor_Tensor", is_in),
    ("one_hot.default", one_hot),
    ("repeat_interleave.Tensor", |call| {
        let repeats = call.tensor("repeats")?;
        Ok(vec![repeated_places(call, &repeats)?])
    }),
    ("repeat_interleave.self_Tensor", repeat_interleave),
    ("tril_indices.default", |call| triangle(call, false)),
    ("triu_indices.default", |call| triangle(call, true)),
    ("unique_consecutive.default", unique_consecutive),
    ("unique_dim.default", unique),
];

pub(super) const INDEX_RULES: Table = &[
    ("bucketize.Scalar", |call| search(call, "boundaries")),
    ("bucketize.Tensor", |call| search(call, "boundaries")),
    ("searchsorted.Scalar", |call| search(call, "sorted_sequence")),
    ("searchsorted.Tensor", |call| search(call, "sorted_sequence")),
];

/// Operators whose results share elements with what they are given.
pub(super) const VIEWS: ViewTable =
    &[("cartesian_prod.default", cartesian_product, Sharing::OfOne, put_back::same)];

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
/// All come before what is no number.
fn place_among(call: &mut Call<'_, '_>, sorted: &Tensor, values: &str, right: bool, dtype: DType) -> String {
    let values = call.unsqueeze(values, &[-1]);
    let before = if sorted.dtype.is_float() {
        let behind =
            call.op(if right { "Greater" } else { "GreaterOrEqual" }, &[sorted, &values], Vec::new());
        call.op("Not", &[&behind], Vec::new())
    } else {
        call.op(if right { "LessOrEqual" } else { "Less" }, &[sorted, &values], Vec::new())
    };
    let before = call.cast(&before, DType::Bool, dtype);
    let last = call.int64s(&[-1]);
    call.op("ReduceSum", &[&before, &last], vec![flag("keepdims", false)])
}

fn search(call: &mut Call<'_, '_>, among: &str) -> Result<Outputs> {
    let mut sorted = call.tensor(among)?;
    if let Some(sorter) = call.optional_tensor("sorter")? {
        let last = vec![int("axis", rank_of(&sorted) - 1)];
        sorted.name = call.op("GatherElements", &[&sorted, &sorter], last);
    }
    let right = call.bool_or("right", false)? || call.string_or("side", "left")? == "right";
    let dtype = common(call, [among, "self"])?;
    let values = call.operand("self", dtype)?;
    let mut among = made(call.cast_tensor(&sorted, dtype), dtype, sorted.sizes);
    if among.rank() > 1 {
        among.name = call.unsqueeze(&among, &[-2]);
    }
    let dtype = call.result_dtype()?;
    Ok(vec![place_among(call, &among, &values, right, dtype)])
}

fn is_in(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = if call.has("elements") { "elements" } else { "element" };
    let among = if call.has("test_elements") { "test_elements" } else { "test_element" };
    let dtype = common(call, [x, among])?;
    let (x, among) = (call.operand(x, dtype)?, call.operand(among, dtype)?);
    let among = reshaped(call, &among, &[Int::Known(-1)]);
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
    if let Some(counts) = counted(call, &x, [low, high], bins) {
        return Ok(vec![counts]);
    }
    let wide = if x.dtype.is_float() { wide(x.dtype) } else { DType::F32 };
    let number = made(call.cast_tensor(&x, wide), wide, x.sizes.clone());
    let (low, high) = if low == high {
        // The range of the elements, and one to either side where all are equal.
        let reduce = |operator| call.op(operator, &[&number], vec![flag("keepdims", false)]);
        let [low, high] = ["ReduceMin", "ReduceMax"].map(reduce);
        let equal = call.op("Equal", &[&low, &high], Vec::new());
        let more = call.cast(&equal, DType::Bool, wide);
        (call.op("Sub", &[&low, &more], Vec::new()), call.op("Add", &[&high, &more], Vec::new()))
    } else {
        (call.number_of(low, wide), call.number_of(high, wide))
    };
    // In this order, as it rounds otherwise.
    let shifted = call.op("Sub", &[&number, &low], Vec::new());
    let width = call.op("Sub", &[&high, &low], Vec::new());
    let bins_value = call.number_of(bins as f64, wide);
    let scaled = call.op("Mul", &[&shifted, &bins_value], Vec::new());
    let place = call.op("Div", &[&scaled, &width], Vec::new());
    let place = call.op("Floor", &[&place], Vec::new());
    // The last interval has its end. As integers, as floats of few bits do not have each of them.
    let place = call.cast(&place, wide, DType::I64);
    let (zero, last) = (call.int64(0), call.int64(bins.saturating_sub(1)));
    let place = call.op("Clip", &[&place, &zero, &last], Vec::new());
    let above = call.op("GreaterOrEqual", &[&number, &low], Vec::new());
    let below = call.op("LessOrEqual", &[&number, &high], Vec::new());
    let inside = call.op("And", &[&above, &below], Vec::new());
    let inside = call.cast(&inside, DType::Bool, x.dtype);
    let none = zeros(call, &[Int::Known(bins)], x.dtype);
    Ok(vec![call.op("ScatterElements", &[&none, &place, &inside], vec![string("reduction", "add")])])
}

/// [`histogram`] of integers, one interval for each from `low` to `high`: how often each occurs. Experts count their tokens so, which are converted to floats as
/// PyTorch counts no others on the CPU.
fn counted(call: &mut Call<'_, '_>, x: &Tensor, [low, high]: [f64; 2], bins: i64) -> Option<String> {
    let (integers, dtype) = match x.dtype.is_int() {
        true => (x.name.clone(), x.dtype),
        false => call.integers(x)?,
    };
    let first = low as i64;
    let is_one_each =
        first as f64 == low && low < high && high - low + 1.0 == bins as f64 && (1..=MOST).contains(&bins);
    if !is_one_each {
        return None;
    }
    let range = [first, first.saturating_add(bins), 1].map(|number| call.int64(number));
    let range = call.op("Range", &[&range[0], &range[1], &range[2]], Vec::new());
    let integers = call.cast(&integers, dtype, DType::I64);
    let integers = call.unsqueeze(&integers, &[1]);
    let equal = call.op("Equal", &[&integers, &range], Vec::new());
    let equal = call.cast(&equal, DType::Bool, x.dtype);
    let rows = call.int64s(&[0]);
    Some(call.op("ReduceSum", &[&equal, &rows], vec![flag("keepdims", false)]))
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
    call.to.spend(usize::try_from(rows * columns).unwrap_or(usize::MAX))?;
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
    let ends = made(ends, DType::I64, repeats.sizes);
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
        let size = call.size_of(&x, along);
        repeats = made(expanded(call, &repeats, &[size]), repeats.dtype, vec![x.size(along)]);
    }
    let places = repeated_places(call, &repeats)?;
    Ok(vec![call.op("Gather", &[&x, &places], vec![int("axis", along)])])
}

/// How many choices of `r` of so many elements there are: `n (n − 1) … / r!`.
fn choices_of(r: i64, size: i64, replace: bool) -> Option<i64> {
    let most = if replace { size.checked_add(r - 1)? } else { size };
    (0..r).try_fold(1i64, |count, place| Some(count.checked_mul((most - place).max(0))? / (place + 1)))
}

/// All choices of `r` elements.
fn combinations(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let (r, replace) = (call.int_or("r", 2)?, call.bool_or("with_replacement", false)?);
    let Some(size) = x.size(0) else { return Err(unsupported("combinations of elements of unknown number")) };
    if !(1..=8).contains(&r) {
        return Err(unsupported(format!("combinations of {r} elements")));
    }
    let count = choices_of(r, size, replace).filter(|count| count.saturating_mul(r) <= MOST);
    let Some(count) = count else {
        return Err(unsupported(format!("combinations of {r} of {size} elements")));
    };
    call.to.spend(usize::try_from(count.saturating_mul(r)).unwrap_or(usize::MAX))?;
    // Where nothing is chosen, nothing is longer, either.
    let mut choices: Vec<Vec<i64>> = if count > 0 { vec![Vec::new()] } else { Vec::new() };
    for _ in 0..r {
        let longer = |choice: &Vec<i64>| {
            let from = choice.last().map_or(0, |last| if replace { *last } else { last + 1 });
            let choice = choice.clone();
            (from..size).map(move |next| choice.iter().copied().chain([next]).collect())
        };
        choices = choices.iter().flat_map(longer).collect();
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
    // The product has an axis for each tensor before it is made a matrix.
    if tensors.len() > MAX_RANK {
        return Err(invalid("tensors", format!("are {}, too many for a product", tensors.len())));
    }
    let shape: Vec<Int> = tensors.iter().map(|x| call.size_of(x, 0)).collect();
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
    let (count, bags) = (call.size_of(&words, 0), call.size_of(&starts, 0));
    let place = places(call, &count);
    // The first bag begins with the first word.
    let later = call.slice(&starts, 0, [&Int::Known(1), &Int::Known(i64::MAX)], 1);
    let later = made(later, DType::I64, vec![None]);
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
    let width = call.size_of(&weight, 1);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_counted() {
        assert_eq!(choices_of(2, 5, false), Some(10));
        assert_eq!(choices_of(3, 5, true), Some(35));
        assert_eq!(choices_of(6, 5, false), Some(0));
        assert_eq!(choices_of(1, 0, true), Some(0));
        assert_eq!(choices_of(8, 1 << 40, false), None);
        assert_eq!(choices_of(8, i64::MAX, true), None);
    }
}
