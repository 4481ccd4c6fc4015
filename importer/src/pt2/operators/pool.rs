//! Pooling.

use super::Table;
use super::linear::{batched, pads, unbatched};
use super::norm::reduction;
use crate::pt2::call::{Call, Int, Outputs, Result, Tensor, flag, int, ints, invalid, unsupported};
use kiln_types::DType;

pub(super) const RULES: Table = &[
    ("adaptive_avg_pool1d.default", |call| adaptive_average(call, 1)),
    ("adaptive_avg_pool2d.default", |call| adaptive_average(call, 2)),
    ("_adaptive_avg_pool2d.default", |call| adaptive_average(call, 2)),
    ("adaptive_avg_pool3d.default", |call| adaptive_average(call, 3)),
    ("_adaptive_avg_pool3d.default", |call| adaptive_average(call, 3)),
    ("adaptive_max_pool1d.default", |call| adaptive_max(call, 1)),
    ("adaptive_max_pool2d.default", |call| adaptive_max(call, 2)),
    ("adaptive_max_pool3d.default", |call| adaptive_max(call, 3)),
    ("avg_pool1d.default", |call| average(call, 1)),
    ("avg_pool2d.default", |call| average(call, 2)),
    ("avg_pool3d.default", |call| average(call, 3)),
    ("max_pool1d.default", |call| max(call, 1, false)),
    ("max_pool1d_with_indices.default", |call| max(call, 1, true)),
    ("max_pool2d.default", |call| max(call, 2, false)),
    ("max_pool2d_with_indices.default", |call| max(call, 2, true)),
    ("max_pool3d.default", |call| max(call, 3, false)),
    ("max_pool3d_with_indices.default", |call| max(call, 3, true)),
    ("max_unpool2d.default", |call| max_unpool(call, 2)),
    ("max_unpool3d.default", |call| max_unpool(call, 3)),
];

/// The windows of a call.
struct PoolArguments {
    kernel: Vec<i64>,
    strides: Vec<i64>,
    padding: Vec<i64>,
}

impl PoolArguments {
    fn of(call: &mut Call<'_, '_>, axes: usize) -> Result<Self> {
        let kernel = call.spread("kernel_size", 1, axes)?;
        let given = !call.ints_or("stride", &[])?.is_empty();
        let strides = if given { call.spread("stride", 1, axes)? } else { kernel.clone() };
        Ok(Self { kernel, strides, padding: call.spread("padding", 0, axes)? })
    }
}

/// The axes that windows move along.
fn spatial(axes: usize) -> std::ops::Range<i64> {
    2..i64::try_from(axes).unwrap_or(0) + 2
}

/// The tensor as one with a batch, without its own name.
fn with_batch(x: &Tensor, name: &str, added: bool) -> Tensor {
    let batch = added.then_some(Some(1));
    Tensor {
        name: name.to_owned(),
        dtype: x.dtype,
        sizes: batch.into_iter().chain(x.sizes.iter().copied()).collect(),
    }
}

// ---- the greatest ----

fn max(call: &mut Call<'_, '_>, axes: usize, indices: bool) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let windows = PoolArguments::of(call, axes)?;
    let (value, added) = batched(call, &x, axes + 2);
    let attributes = vec![
        ints("kernel_shape", windows.kernel),
        ints("strides", windows.strides),
        pads(&windows.padding),
        ints("dilations", call.spread("dilation", 1, axes)?),
        flag("ceil_mode", call.bool_or("ceil_mode", false)?),
    ];
    if !indices || !call.is_used(1) {
        let greatest = call.op("MaxPool", &[&value], attributes);
        return Ok(vec![unbatched(call, greatest, added)]);
    }
    let results = call.ops("MaxPool", &[&value], attributes, 2);
    let [greatest, places] = results.as_slice() else { return Ok(Vec::new()) };
    let places = within_channels(call, &with_batch(&x, &value, added), places, axes);
    Ok(vec![unbatched(call, greatest.clone(), added), unbatched(call, places, added)])
}

/// Indices into each channel, of indices into the whole tensor.
fn within_channels(call: &mut Call<'_, '_>, x: &Tensor, indices: &str, axes: usize) -> String {
    let mut count = Int::Known(1);
    for axis in spatial(axes) {
        let size = call.size_of(x, axis);
        count = call.size_op("Mul", &count, &size);
    }
    let count = call.size_value(&count);
    call.op("Mod", &[indices, &count], Vec::new())
}

/// Elements put at indices into each channel, among zeros.
fn max_unpool(call: &mut Call<'_, '_>, axes: usize) -> Result<Outputs> {
    let (x, indices) = (call.tensor("self")?, call.tensor("indices")?);
    let sizes = call.sizes("output_size")?;
    let (value, added) = batched(call, &x, axes + 2);
    let (places, _) = batched(call, &indices, axes + 2);
    let x = with_batch(&x, &value, added);
    let outer = [call.size_of(&x, 0), call.size_of(&x, 1)];
    let mut count = Int::Known(1);
    for size in &sizes {
        count = call.size_op("Mul", &count, size);
    }
    let [batch, channels] = outer;
    let flat = call.int64s(&[0, 0, -1]);
    let (value, places) =
        (call.op("Reshape", &[&value, &flat], Vec::new()), call.op("Reshape", &[&places, &flat], Vec::new()));
    let whole = call.sizes_value(&[batch.clone(), channels.clone(), count]);
    let zero = call.number_of(0.0, x.dtype);
    let zeros = call.op("Expand", &[&zero, &whole], Vec::new());
    let result = call.op("ScatterElements", &[&zeros, &places, &value], vec![int("axis", 2)]);
    let sizes: Vec<Int> = [batch, channels].into_iter().chain(sizes).collect();
    let sizes = call.sizes_value(&sizes);
    let result = call.op("Reshape", &[&result, &sizes], Vec::new());
    Ok(vec![unbatched(call, result, added)])
}

// ---- averages ----

fn average(call: &mut Call<'_, '_>, axes: usize) -> Result<Outputs> {
    let x = call.tensor("self")?;
    if !x.dtype.is_float() {
        return Err(unsupported("averages of windows of integers, which are rounded"));
    }
    let windows = PoolArguments::of(call, axes)?;
    let (mut value, added) = batched(call, &x, axes + 2);
    let mut ceil = call.bool_or("ceil_mode", false)?;
    let mut padding = pads(&windows.padding);
    let divisor = call.optional_int("divisor_override")?;
    let mut include = call.bool_or("count_include_pad", true)?;
    if divisor.is_some() {
        // Averages of whole windows are sums of them, but for a factor.
        include = true;
        if ceil {
            value = padded(call, &with_batch(&x, &value, added), &windows)?;
            padding = pads(&vec![0; axes]);
            ceil = false;
        }
    }
    let volume: f64 = windows.kernel.iter().map(|&size| size as f64).product();
    let attributes = vec![
        ints("kernel_shape", windows.kernel),
        ints("strides", windows.strides),
        padding,
        flag("ceil_mode", ceil),
        flag("count_include_pad", include),
    ];
    let mut result = call.op("AveragePool", &[&value], attributes);
    if let Some(divisor) = divisor {
        let factor = call.number_of(volume / divisor as f64, x.dtype);
        result = call.op("Mul", &[&result, &factor], Vec::new());
    }
    Ok(vec![unbatched(call, result, added)])
}

/// A tensor with zeros around it, as many as the windows of the result reach.
fn padded(call: &mut Call<'_, '_>, x: &Tensor, windows: &PoolArguments) -> Result<String> {
    let result = call.result(0)?;
    let mut ends = Vec::new();
    let last = result.rank().saturating_sub(windows.kernel.len());
    let sizes = result.sizes.get(last..).unwrap_or_default();
    let each = windows.kernel.iter().zip(&windows.strides).zip(&windows.padding);
    for ((axis, size), ((kernel, stride), before)) in (2..).zip(sizes).zip(each) {
        let (Some(input), Some(output)) = (x.size(axis), *size) else {
            return Err(unsupported(
                "`avg_pool` with `ceil_mode` and `divisor_override` along an axis whose size varies",
            ));
        };
        let reach = (output - 1).saturating_mul(*stride).saturating_add(*kernel);
        ends.push(reach.saturating_sub(input).saturating_sub(*before).max(0));
    }
    let counts = [&[0, 0], windows.padding.as_slice(), &[0, 0], &ends].concat();
    let counts = call.int64s(&counts);
    Ok(call.op("Pad", &[x, &counts], Vec::new()))
}

// ---- windows of sizes that follow from those of the tensor ----

/// The sizes that a call yields along the axes.
fn output_sizes(call: &mut Call<'_, '_>, axes: usize) -> Result<Vec<Int>> {
    let sizes = call.sizes("output_size")?;
    match sizes.as_slice() {
        [only] => Ok(vec![only.clone(); axes]),
        sizes if sizes.len() == axes => Ok(sizes.to_vec()),
        _ => Err(invalid("output_size", format!("has {} sizes for {axes} axes", sizes.len()))),
    }
}

fn is_one(size: &Int) -> bool {
    matches!(size, Int::Known(1))
}

/// The sizes of windows that divide the tensor, if they are known and do.
fn divided(x: &Tensor, sizes: &[Int]) -> Option<Vec<i64>> {
    let divided = |(axis, size): (i64, &Int)| match (x.size(axis), size) {
        (Some(input), Int::Known(output)) if *output > 0 && input % output == 0 => Some(input / output),
        _ => None,
    };
    (2..).zip(sizes).map(divided).collect()
}

fn adaptive_average(call: &mut Call<'_, '_>, axes: usize) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let sizes = output_sizes(call, axes)?;
    let (value, added) = batched(call, &x, axes + 2);
    let x = with_batch(&x, &value, added);
    let result = if sizes.iter().all(is_one) {
        call.op("GlobalAveragePool", &[&value], Vec::new())
    } else if let Some(kernel) = divided(&x, &sizes) {
        let attributes = vec![ints("kernel_shape", kernel.clone()), ints("strides", kernel)];
        call.op("AveragePool", &[&value], attributes)
    } else {
        let mut result = value;
        for (axis, size) in spatial(axes).zip(&sizes) {
            result = average_along(call, &x, &result, axis, size);
        }
        result
    };
    Ok(vec![unbatched(call, result, added)])
}

/// Averages along one axis: a product with a matrix that has the weights of each window.
fn average_along(call: &mut Call<'_, '_>, x: &Tensor, value: &str, axis: i64, size: &Int) -> String {
    if is_one(size) {
        return reduction(call, "ReduceMean", value, &[axis], true);
    }
    let input = call.size_of(x, axis);
    if let (Int::Known(input), Int::Known(output)) = (&input, size)
        && input == output
    {
        return value.to_owned();
    }
    let (input, output) = (call.size_value(&input), call.size_value(size));
    let (zero, one) = (call.int64(0), call.int64(1));
    let windows = call.op("Range", &[&zero, &output, &one], Vec::new());
    let places = call.op("Range", &[&zero, &input, &one], Vec::new());
    let places = call.unsqueeze(&places, &[1]);
    // From ⌊i · input / output⌋ up to ⌈(i + 1) · input / output⌉.
    let start = call.op("Mul", &[&windows, &input], Vec::new());
    let end = call.op("Add", &[&start, &input], Vec::new());
    let rest = call.op("Sub", &[&output, &one], Vec::new());
    let end = call.op("Add", &[&end, &rest], Vec::new());
    let (start, end) =
        (call.op("Div", &[&start, &output], Vec::new()), call.op("Div", &[&end, &output], Vec::new()));
    let begun = call.op("GreaterOrEqual", &[&places, &start], Vec::new());
    let unended = call.op("Less", &[&places, &end], Vec::new());
    let inside = call.op("And", &[&begun, &unended], Vec::new());
    let inside = call.cast(&inside, DType::Bool, x.dtype);
    let count = call.op("Sub", &[&end, &start], Vec::new());
    let count = call.cast(&count, DType::I64, x.dtype);
    let weights = call.op("Div", &[&inside, &count], Vec::new());
    // The axis is the last one of the product.
    let last = i64::try_from(x.rank()).unwrap_or(i64::MAX) - 1;
    let swapped: Vec<i64> = (0..=last)
        .map(|at| match at {
            at if at == axis => last,
            at if at == last => axis,
            at => at,
        })
        .collect();
    let value = call.transpose(value, &swapped);
    let product = call.op("MatMul", &[&value, &weights], Vec::new());
    call.transpose(&product, &swapped)
}

fn adaptive_max(call: &mut Call<'_, '_>, axes: usize) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let sizes = output_sizes(call, axes)?;
    let (value, added) = batched(call, &x, axes + 2);
    let x = with_batch(&x, &value, added);
    let (greatest, places) = if let Some(kernel) = divided(&x, &sizes) {
        let attributes = vec![ints("kernel_shape", kernel.clone()), ints("strides", kernel)];
        if !call.is_used(1) {
            let greatest = call.op("MaxPool", &[&value], attributes);
            return Ok(vec![unbatched(call, greatest, added)]);
        }
        let results = call.ops("MaxPool", &[&value], attributes, 2);
        let [greatest, places] = results.as_slice() else { return Ok(Vec::new()) };
        (greatest.clone(), within_channels(call, &x, places, axes))
    } else if sizes.iter().all(is_one) {
        greatest_of_all(call, &value, axes)
    } else {
        greatest_of_windows(call, &x, &sizes)?
    };
    Ok(vec![unbatched(call, greatest, added), unbatched(call, places, added)])
}

/// The greatest of each channel.
fn greatest_of_all(call: &mut Call<'_, '_>, x: &str, axes: usize) -> (String, String) {
    let flat = call.int64s(&[0, 0, -1]);
    let flat = call.op("Reshape", &[x, &flat], Vec::new());
    let place = call.op("ArgMax", &[&flat], vec![int("axis", 2)]);
    // Of equal elements the first has all of the gradient, whereas a reduction shares it.
    let greatest = match call.to.trainable {
        true => call.op("GatherElements", &[&flat, &place], vec![int("axis", 2)]),
        false => reduction(call, "ReduceMax", &flat, &[2], true),
    };
    let rest: Vec<i64> = (3..).take(axes.saturating_sub(1)).collect();
    (call.unsqueeze(&greatest, &rest), call.unsqueeze(&place, &rest))
}

/// Indices that one call may need for windows of different sizes.
const WINDOW_ELEMENTS: usize = 1 << 20;

/// The greatest of windows of different sizes: the elements of each are gathered, the last of them several times.
fn greatest_of_windows(call: &mut Call<'_, '_>, x: &Tensor, sizes: &[Int]) -> Result<(String, String)> {
    let mut windows: Vec<Vec<i64>> = vec![vec![0]];
    let mut elements: usize = 1;
    let mut outputs = vec![0, 0];
    for (axis, size) in (2..).zip(sizes) {
        let (Some(input), Int::Known(output)) = (x.size(axis), size) else {
            return Err(unsupported("`adaptive_max_pool` along an axis whose size varies"));
        };
        let limit = WINDOW_ELEMENTS as i64;
        if !(1..=limit).contains(output) || !(1..=limit).contains(&input) {
            return Err(invalid("output_size", "is no size that windows can have"));
        }
        call.to.spend(usize::try_from(*output).unwrap_or(usize::MAX))?;
        let ranges: Vec<_> =
            (0..*output).map(|at| at * input / output..((at + 1) * input + output - 1) / output).collect();
        let inner = |window: &Vec<i64>, range: &std::ops::Range<i64>| {
            window.iter().flat_map(|place| range.clone().map(move |at| place * input + at)).collect()
        };
        let each = ranges.iter().map(|range| usize::try_from(range.end - range.start).unwrap_or(0));
        elements = elements.saturating_mul(each.sum());
        if elements > WINDOW_ELEMENTS {
            return Err(unsupported(
                "`adaptive_max_pool` of so large a tensor with windows of different sizes",
            ));
        }
        windows =
            windows.iter().flat_map(|window| ranges.iter().map(move |range| inner(window, range))).collect();
        outputs.push(*output);
    }
    let longest = windows.iter().map(Vec::len).max().unwrap_or(0);
    let mut table = Vec::new();
    for window in &windows {
        table.extend(window.iter().chain(std::iter::repeat(window.last().unwrap_or(&0))).take(longest));
    }
    let count = i64::try_from(windows.len()).unwrap_or(i64::MAX);
    let length = i64::try_from(longest).unwrap_or(i64::MAX);
    let table = call.int64s(&table);
    let shape = call.int64s(&[count, length]);
    let indices = call.op("Reshape", &[&table, &shape], Vec::new());
    let flat = call.int64s(&[0, 0, -1]);
    let flat = call.op("Reshape", &[x, &flat], Vec::new());
    let elements = call.op("Gather", &[&flat, &indices], vec![int("axis", 2)]);
    let greatest = reduction(call, "ReduceMax", &elements, &[3], false);
    let place = call.op("ArgMax", &[&elements], vec![int("axis", 3), int("keepdims", 0)]);
    let starts: Vec<i64> = (0..count).map(|at| at * length).collect();
    let starts = call.int64s(&starts);
    let place = call.op("Add", &[&place, &starts], Vec::new());
    let place = call.op("Gather", &[&table, &place], vec![int("axis", 0)]);
    let outputs = call.int64s(&outputs);
    Ok((
        call.op("Reshape", &[&greatest, &outputs], Vec::new()),
        call.op("Reshape", &[&place, &outputs], Vec::new()),
    ))
}
