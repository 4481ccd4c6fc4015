//! Operators that make tensors of sizes and numbers alone, random ones among them.

use super::Table;
use super::shape::dims;
use crate::onnx::proto::AttributeProto;
use crate::pt2::call::{Call, Int, Number, Outputs, Result, flag, float, int, invalid, unsupported};
use crate::pt2::dtype::data_type;
use kiln_types::{DType, Scalar};

pub(super) const RULES: Table = &[
    ("arange.default", arange),
    ("arange.start", arange),
    ("arange.start_step", arange),
    ("bartlett_window.default", |call| window(call, WindowFunction::Triangle)),
    ("bartlett_window.periodic", |call| window(call, WindowFunction::Triangle)),
    ("bernoulli.Tensor", |call| bernoulli(call, "p")),
    ("bernoulli.default", |call| bernoulli(call, "self")),
    ("bernoulli.float", |call| bernoulli(call, "p")),
    ("bernoulli.p", |call| bernoulli(call, "p")),
    ("blackman_window.default", |call| window(call, WindowFunction::Cosines([0.42, 0.5, 0.08]))),
    ("blackman_window.periodic", |call| window(call, WindowFunction::Cosines([0.42, 0.5, 0.08]))),
    ("empty.memory_format", |call| uniform(call, Scalar::Int(0))),
    ("empty_like.default", |call| uniform_like(call, Scalar::Int(0))),
    ("empty_permuted.default", |call| uniform(call, Scalar::Int(0))),
    ("empty_strided.default", |call| uniform(call, Scalar::Int(0))),
    ("exponential.default", exponential),
    ("eye.default", eye),
    ("eye.m", eye),
    ("full.default", |call| {
        let value = call.number("fill_value")?;
        let sizes = call.sizes("size")?;
        filled(call, &sizes, &value)
    }),
    ("full_like.default", |call| {
        let value = call.number("fill_value")?;
        let like = call.tensor("self")?;
        let sizes = dims(call, &like);
        filled(call, &sizes, &value)
    }),
    ("hamming_window.default", hamming),
    ("hamming_window.periodic", hamming),
    ("hamming_window.periodic_alpha", hamming),
    ("hamming_window.periodic_alpha_beta", hamming),
    ("hann_window.default", |call| window(call, WindowFunction::Cosines([0.5, 0.5, 0.0]))),
    ("hann_window.periodic", |call| window(call, WindowFunction::Cosines([0.5, 0.5, 0.0]))),
    ("linalg_vander.default", vander),
    ("linspace.Scalar_Tensor", |call| spaced(call, false)),
    ("linspace.Tensor_Scalar", |call| spaced(call, false)),
    ("linspace.Tensor_Tensor", |call| spaced(call, false)),
    ("linspace.default", |call| spaced(call, false)),
    ("logspace.Scalar_Tensor", |call| spaced(call, true)),
    ("logspace.Tensor_Scalar", |call| spaced(call, true)),
    ("logspace.Tensor_Tensor", |call| spaced(call, true)),
    ("logspace.default", |call| spaced(call, true)),
    ("multinomial.default", multinomial),
    ("new_empty.default", |call| uniform(call, Scalar::Int(0))),
    ("new_empty_strided.default", |call| uniform(call, Scalar::Int(0))),
    ("new_full.default", |call| {
        call.ignore(&["self"]);
        let value = call.number("fill_value")?;
        let sizes = call.sizes("size")?;
        filled(call, &sizes, &value)
    }),
    ("new_ones.default", |call| uniform(call, Scalar::Int(1))),
    ("new_zeros.default", |call| uniform(call, Scalar::Int(0))),
    ("normal.Tensor_Tensor", normal),
    ("normal.Tensor_float", normal),
    ("normal.default", normal),
    ("normal.float_Tensor", normal),
    ("normal.float_float", normal),
    ("normal_functional.default", normal),
    ("ones.default", |call| uniform(call, Scalar::Int(1))),
    ("ones_like.default", |call| uniform_like(call, Scalar::Int(1))),
    ("rand.default", |call| random(call, "RandomUniform")),
    ("rand_like.default", |call| random(call, "RandomUniform")),
    ("randint.default", randint),
    ("randint.low", randint),
    ("randint_like.default", randint),
    ("randint_like.low_dtype", randint),
    ("randn.default", |call| random(call, "RandomNormal")),
    ("randn_like.default", |call| random(call, "RandomNormal")),
    ("random.from", randint),
    ("random.to", randint),
    ("randperm.default", |call| {
        let size = call.size("n")?;
        let numbers = drawn(call, "RandomUniform", std::slice::from_ref(&size), DType::F32, Vec::new());
        let size = call.size_list(&size);
        let order = call.ops("TopK", &[&numbers, &size], vec![int("axis", 0)], 2);
        let dtype = call.result_dtype()?;
        Ok(order.iter().skip(1).map(|order| call.cast(order, DType::I64, dtype)).collect())
    }),
    ("scalar_tensor.default", |call| {
        let dtype = call.result_dtype()?;
        Ok(vec![call.operand("s", dtype)?])
    }),
    ("uniform.default", |call| {
        let (from, to) = (call.float_or("from", 0.0)?, call.float_or("to", 1.0)?);
        let (sizes, dtype) = shape_of_result(call)?;
        Ok(vec![drawn(call, "RandomUniform", &sizes, dtype, vec![float("low", from), float("high", to)])])
    }),
    ("vander.default", vander),
    ("zeros.default", |call| uniform(call, Scalar::Int(0))),
    ("zeros_like.default", |call| uniform_like(call, Scalar::Int(0))),
];

fn number_or(call: &mut Call<'_, '_>, name: &str, default: Scalar) -> Result<Number> {
    Ok(call.optional_number(name)?.unwrap_or(Number::Known(default)))
}

// ---- one value everywhere ----

/// A tensor of the result's dtype with one value everywhere.
fn filled(call: &mut Call<'_, '_>, sizes: &[Int], value: &Number) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    if sizes.is_empty() {
        return Ok(vec![call.number_value(value, dtype)?]);
    }
    let shape = call.sizes_value(sizes);
    Ok(vec![match value {
        Number::Known(value) => call.filled(&shape, *value, dtype),
        Number::Value(..) => {
            let value = call.number_value(value, dtype)?;
            call.op("Expand", &[&value, &shape], Vec::new())
        }
    }])
}

pub(super) fn uniform(call: &mut Call<'_, '_>, value: Scalar) -> Result<Outputs> {
    // What it is like but for its shape, and where elements lie.
    call.ignore(&["self", "stride"]);
    let sizes = call.sizes("size")?;
    filled(call, &sizes, &Number::Known(value))
}

pub(super) fn uniform_like(call: &mut Call<'_, '_>, value: Scalar) -> Result<Outputs> {
    let like = call.tensor("self")?;
    let sizes = dims(call, &like);
    filled(call, &sizes, &Number::Known(value))
}

fn eye(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let rows = call.size("n")?;
    let columns = call.optional_size("m")?.unwrap_or_else(|| rows.clone());
    let shape = call.sizes_value(&[rows, columns]);
    let like = call.filled(&shape, Scalar::Int(0), dtype);
    Ok(vec![call.op("EyeLike", &[&like], vec![int("dtype", i64::from(data_type(dtype)))])])
}

// ---- ranges ----

/// `0, 1, …` up to a size, in a dtype.
fn places(call: &mut Call<'_, '_>, size: &Int, dtype: DType) -> String {
    let (zero, size, one) = (call.int64(0), call.size_value(size), call.int64(1));
    let places = call.op("Range", &[&zero, &size, &one], Vec::new());
    call.cast(&places, DType::I64, dtype)
}

fn is_whole(number: &Number) -> bool {
    match number {
        Number::Known(Scalar::Float(value)) => value.fract() == 0.0 && value.abs() < 1e15,
        Number::Known(_) => true,
        Number::Value(_, dtype) => !dtype.is_float(),
    }
}

fn arange(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let (start, end) = (number_or(call, "start", Scalar::Int(0))?, call.number("end")?);
    let step = number_or(call, "step", Scalar::Int(1))?;
    if [&start, &end, &step].into_iter().all(is_whole) {
        let start = call.number_value(&start, DType::I64)?;
        let (end, step) = (call.number_value(&end, DType::I64)?, call.number_value(&step, DType::I64)?);
        let range = call.op("Range", &[&start, &end, &step], Vec::new());
        return Ok(vec![call.cast(&range, DType::I64, dtype)]);
    }
    let (Some(first), Some(last), Some(delta)) = (start.known(), end.known(), step.known()) else {
        let wide = if dtype.is_float() { dtype } else { DType::F32 };
        let start = call.number_value(&start, wide)?;
        let (end, step) = (call.number_value(&end, wide)?, call.number_value(&step, wide)?);
        let range = call.op("Range", &[&start, &end, &step], Vec::new());
        return Ok(vec![call.cast(&range, wide, dtype)]);
    };
    let count = ((last - first) / delta).ceil();
    if !count.is_finite() {
        return Err(invalid("step", format!("is {delta}")));
    }
    // Of integers there are as many as of floats, but start and step lose their fractions.
    let (wide, first, delta) =
        if dtype.is_float() { (dtype, first, delta) } else { (DType::F64, first.trunc(), delta.trunc()) };
    let mut range = places(call, &Int::Known(count as i64), wide);
    if delta != 1.0 {
        let step = call.number_of(delta, wide);
        range = call.op("Mul", &[&range, &step], Vec::new());
    }
    if first != 0.0 {
        let start = call.number_of(first, wide);
        range = call.op("Add", &[&range, &start], Vec::new());
    }
    Ok(vec![call.cast(&range, wide, dtype)])
}

/// So many numbers from one to another, or powers of a base with these exponents.
fn spaced(call: &mut Call<'_, '_>, powers: bool) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let steps = call.int("steps")?;
    let wide = if dtype.is_float() { dtype } else { DType::F64 };
    // Of integers both ends are.
    let ends = ["start", "end"].map(|name| {
        let end = call.number(name)?;
        let end = call.number_value(&end, dtype)?;
        Ok(call.cast(&end, dtype, wide))
    });
    let [start, end]: [Result<String>; 2] = ends;
    let (start, end) = (start?, end?);
    let gaps = steps.saturating_sub(1).max(1);
    let (gaps_value, length) =
        (call.number_of(gaps as f64, wide), call.op("Sub", &[&end, &start], Vec::new()));
    let step = call.op("Div", &[&length, &gaps_value], Vec::new());
    let place = places(call, &Int::Known(steps), wide);
    let part = call.op("Mul", &[&place, &step], Vec::new());
    let mut range = call.op("Add", &[&part, &start], Vec::new());
    if steps > 1 {
        // PyTorch counts the second half from the end, so that the last one is exact.
        let rest = call.op("Sub", &[&gaps_value, &place], Vec::new());
        let part = call.op("Mul", &[&rest, &step], Vec::new());
        let from_end = call.op("Sub", &[&end, &part], Vec::new());
        let half = call.number_of((steps / 2) as f64, wide);
        let is_first = call.op("Less", &[&place, &half], Vec::new());
        range = call.op("Where", &[&is_first, &range, &from_end], Vec::new());
    }
    if powers {
        let base = call.float_or("base", 10.0)?;
        let base = call.number_of(base, wide);
        range = call.op("Pow", &[&base, &range], Vec::new());
    }
    Ok(vec![call.cast(&range, wide, dtype)])
}

/// Powers of numbers, a row each.
fn vander(call: &mut Call<'_, '_>) -> Result<Outputs> {
    // That of `torch.linalg` takes any number of lists, and has powers increase.
    let several = super::family(&call.node.target) == "linalg_vander";
    let x = call.tensor("x")?;
    let dtype = call.result_dtype()?;
    let size = match call.optional_size("N")? {
        Some(size) => size,
        None if x.rank() == 0 => Int::Known(1),
        None => call.size_of(&x, i64::try_from(x.rank()).unwrap_or(i64::MAX) - 1),
    };
    let mut exponents = places(call, &size, dtype);
    if !several && !call.bool_or("increasing", false)? {
        let (size, one) = (call.size_value(&size), call.int64(1));
        let last = call.op("Sub", &[&size, &one], Vec::new());
        let last = call.cast(&last, DType::I64, dtype);
        exponents = call.op("Sub", &[&last, &exponents], Vec::new());
    }
    let value = call.cast_tensor(&x, dtype);
    let axes: &[i64] = if x.rank() == 0 { &[0, 1] } else { &[-1] };
    let rows = call.unsqueeze(&value, axes);
    Ok(vec![call.op("Pow", &[&rows, &exponents], Vec::new())])
}

// ---- windows ----

#[derive(Clone, Copy)]
enum WindowFunction {
    /// A constant, less a cosine, and a cosine of the double angle, each with its coefficient.
    Cosines([f64; 3]),
    Triangle,
}

fn hamming(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (alpha, beta) = (call.float_or("alpha", 0.54)?, call.float_or("beta", 0.46)?);
    window(call, WindowFunction::Cosines([alpha, beta, 0.0]))
}

fn window(call: &mut Call<'_, '_>, window: WindowFunction) -> Result<Outputs> {
    /// Longer windows than this are no windows.
    const MOST: i64 = 1 << 20;
    let dtype = call.result_dtype()?;
    let (length, periodic) = (call.int("window_length")?, call.bool_or("periodic", true)?);
    if !(0..=MOST).contains(&length) {
        return Err(unsupported(format!("a window of {length} numbers")));
    }
    if let WindowFunction::Cosines([constant, first, second]) = window
        && length > 1
        && constant == 0.5
        && first == 0.5
        && second == 0.0
    {
        let size = call.int64(length);
        let attributes =
            vec![flag("periodic", periodic), int("output_datatype", i64::from(data_type(dtype)))];
        return Ok(vec![call.op("HannWindow", &[&size], attributes)]);
    }
    let period = if periodic { length } else { length - 1 };
    let number = |place: i64| {
        let part = place as f64 / period as f64;
        match window {
            // A window of one number is 1.
            _ if length == 1 => 1.0,
            WindowFunction::Triangle => 1.0 - (2.0 * part - 1.0).abs(),
            WindowFunction::Cosines([constant, first, second]) => {
                let angle = std::f64::consts::TAU * part;
                constant - first * angle.cos() + second * (2.0 * angle).cos()
            }
        }
    };
    let numbers: Vec<f64> = (0..length).map(number).collect();
    Ok(vec![call.floats(&numbers, dtype)])
}

// ---- random numbers ----

/// Random numbers of a shape.
fn drawn(
    call: &mut Call<'_, '_>,
    operator: &str,
    sizes: &[Int],
    dtype: DType,
    mut attributes: Vec<AttributeProto>,
) -> String {
    attributes.push(int("dtype", i64::from(data_type(dtype))));
    let known = sizes.iter().map(|size| match size {
        Int::Known(size) => Some(*size),
        Int::Value(_) => None,
    });
    if let Some(known) = known.collect::<Option<Vec<i64>>>() {
        attributes.push(crate::pt2::call::ints("shape", known));
        return call.op(operator, &[], attributes);
    }
    let shape = call.sizes_value(sizes);
    let like = call.filled(&shape, Scalar::Int(0), dtype);
    call.op(&format!("{operator}Like"), &[&like], attributes)
}

/// The sizes that a call names, or those of its first argument; and the result's dtype.
fn shape_of_result(call: &mut Call<'_, '_>) -> Result<(Vec<Int>, DType)> {
    let dtype = call.result_dtype()?;
    if call.has("size") {
        return Ok((call.sizes("size")?, dtype));
    }
    let like = call.tensor("self")?;
    Ok((dims(call, &like), dtype))
}

fn random(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let (sizes, dtype) = shape_of_result(call)?;
    Ok(vec![drawn(call, operator, &sizes, dtype, Vec::new())])
}

/// Integers from `low` up to before `high`.
fn randint(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (sizes, dtype) = shape_of_result(call)?;
    let [from, to] = if call.has("to") { ["from", "to"] } else { ["low", "high"] };
    let (low, high) = (call.int_or(from, 0)?, call.int(to)?);
    let range = vec![float("low", low as f64), float("high", high as f64)];
    let numbers = drawn(call, "RandomUniform", &sizes, DType::F32, range);
    let whole = call.op("Floor", &[&numbers], Vec::new());
    // Where rounding reached the end.
    let last = call.number_of(high.saturating_sub(1) as f64, DType::F32);
    let whole = call.op("Min", &[&whole, &last], Vec::new());
    Ok(vec![call.cast(&whole, DType::F32, dtype)])
}

fn bernoulli(call: &mut Call<'_, '_>, chance: &str) -> Result<Outputs> {
    let like = call.tensor("self")?;
    let dtype = call.result_dtype()?;
    let chances = if chance == "self" {
        like.name
    } else {
        let sizes = dims(call, &like);
        // The chance of `bernoulli_` is one half if none is given.
        let chance = number_or(call, "p", Scalar::Float(0.5))?;
        let wide = if dtype.is_float() { dtype } else { DType::F32 };
        let chance = call.number_value(&chance, wide)?;
        let shape = call.sizes_value(&sizes);
        call.op("Expand", &[&chance, &shape], Vec::new())
    };
    Ok(vec![call.op("Bernoulli", &[&chances], vec![int("dtype", i64::from(data_type(dtype)))])])
}

/// `mean + std · ε`, where both may be tensors.
fn normal(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let mean = number_or(call, "mean", Scalar::Float(0.0))?;
    let std = number_or(call, "std", Scalar::Float(1.0))?;
    let result = call.result(0)?;
    let sizes: Vec<Int> = if call.has("size") || call.has("self") {
        shape_of_result(call)?.0
    } else if result.sizes.iter().all(Option::is_some) {
        result.sizes.iter().copied().flatten().map(Int::Known).collect()
    } else {
        let of = call.tensor(if matches!(mean, Number::Value(..)) { "mean" } else { "std" })?;
        dims(call, &of)
    };
    if let (Some(mean), Some(std)) = (mean.known(), std.known()) {
        return Ok(vec![drawn(
            call,
            "RandomNormal",
            &sizes,
            dtype,
            vec![float("mean", mean), float("scale", std)],
        )]);
    }
    let noise = drawn(call, "RandomNormal", &sizes, dtype, Vec::new());
    let (mean, std) = (call.number_value(&mean, dtype)?, call.number_value(&std, dtype)?);
    let scaled = call.op("Mul", &[&noise, &std], Vec::new());
    Ok(vec![call.op("Add", &[&scaled, &mean], Vec::new())])
}

/// `−log(1 − u) / λ`.
fn exponential(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (sizes, dtype) = shape_of_result(call)?;
    let lambda = call.float_or("lambd", 1.0)?;
    let numbers = drawn(call, "RandomUniform", &sizes, dtype, Vec::new());
    let (one, scale) = (call.number_of(1.0, dtype), call.number_of(-1.0 / lambda, dtype));
    let rest = call.op("Sub", &[&one, &numbers], Vec::new());
    let log = call.op("Log", &[&rest], Vec::new());
    Ok(vec![call.op("Mul", &[&log, &scale], Vec::new())])
}

/// Draws of classes by their chances; without replacement by the greatest sums of a class's logarithm and noise of Gumbel's distribution.
fn multinomial(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let (samples, replacement) = (call.int("num_samples")?, call.bool_or("replacement", false)?);
    let logits = call.op("Log", &[&x], Vec::new());
    let classes = if replacement || samples == 1 {
        let rows = if x.rank() == 1 { call.unsqueeze(&logits, &[0]) } else { logits };
        let attributes = vec![int("dtype", i64::from(data_type(DType::I64))), int("sample_size", samples)];
        let drawn = call.op("Multinomial", &[&rows], attributes);
        if x.rank() == 1 { call.squeeze(&drawn, &[0]) } else { drawn }
    } else {
        let sizes = dims(call, &x);
        let numbers = drawn(call, "RandomUniform", &sizes, x.dtype, Vec::new());
        let log = call.op("Log", &[&numbers], Vec::new());
        let negative = call.op("Neg", &[&log], Vec::new());
        let noise = call.op("Log", &[&negative], Vec::new());
        let scores = call.op("Sub", &[&logits, &noise], Vec::new());
        let count = call.int64s(&[samples]);
        let found = call.ops("TopK", &[&scores, &count], vec![int("axis", -1)], 2);
        found.into_iter().nth(1).unwrap_or_default()
    };
    Ok(vec![classes])
}
