//! Normalizations, norms and dropout.

use super::decomposition::singular_values;
use super::pointwise::wide;
use super::{Sharing, Table, ViewTable};
use crate::pt2::call::{Call, Int, Number, Outputs, Result, Tensor, float, int, invalid, unsupported};
use crate::pt2::views::put_back;
use kiln_types::{DType, Scalar};

pub(super) const RULES: Table = &[
    ("_batch_norm_no_update.default", |call| batch_norm(call, false)),
    ("_batch_norm_with_update.default", |call| batch_norm(call, true)),
    ("batch_norm.default", |call| {
        let training = call.bool_or("training", false)?;
        batch_norm(call, training)
    }),
    ("frobenius_norm.dim", |call| {
        let x = call.tensor("self")?;
        reduced_norm(call, &x, 2.0)
    }),
    ("_fused_rms_norm.default", rms_norm),
    ("group_norm.default", |call| group_norm(call, "num_groups")),
    ("instance_norm.default", instance_norm),
    ("layer_norm.default", layer_norm),
    ("linalg_matrix_norm.default", matrix_norm),
    ("linalg_matrix_norm.str_ord", matrix_norm),
    ("linalg_norm.default", |call| {
        let x = call.tensor("self")?;
        let dims = call.ints_or("dim", &[])?.len();
        let order = call.optional_number("ord")?;
        // Of two axes it is a norm of matrices, but without an order the one of all elements.
        if order.is_some() && (dims == 2 || (dims == 0 && x.rank() == 2)) {
            return matrix_norm(call);
        }
        let order = known(order)?;
        reduced_norm(call, &x, order)
    }),
    ("linalg_norm.ord_str", matrix_norm),
    ("linalg_vector_norm.default", |call| {
        let x = call.tensor("self")?;
        let order = call.optional_number("ord")?;
        let order = known(order)?;
        reduced_norm(call, &x, order)
    }),
    ("_native_batch_norm_legit.default", |call| {
        let training = call.bool_or("training", false)?;
        batch_norm(call, training)
    }),
    ("_native_batch_norm_legit.no_stats", |call| batch_norm(call, true)),
    ("_native_batch_norm_legit_no_training.default", |call| batch_norm(call, false)),
    ("native_batch_norm.default", |call| {
        let training = call.bool_or("training", false)?;
        batch_norm(call, training)
    }),
    ("native_dropout.default", native_dropout),
    ("native_group_norm.default", |call| group_norm(call, "group")),
    ("native_layer_norm.default", layer_norm),
    ("norm.Scalar", norm),
    ("norm.ScalarOpt_dim", norm),
    ("norm.ScalarOpt_dim_dtype", norm),
    ("norm.ScalarOpt_dtype", norm),
    ("norm_except_dim.default", |call| {
        let x = call.tensor("v")?;
        let (order, dim) = (call.int_or("pow", 2)?, call.int_or("dim", 0)?);
        Ok(vec![norm_except(call, &x, order as f64, dim)?])
    }),
    ("renorm.default", renorm),
    ("rms_norm.default", rms_norm),
    ("_weight_norm.default", weight_norm),
    ("_weight_norm_interface.default", weight_norm),
];

/// Operators whose results share elements with what they are given.
pub(super) const VIEWS: ViewTable = &[
    (
        "alpha_dropout.default",
        |call| whole_dropout(call, "alpha_dropout"),
        Sharing::UnlessDropped,
        put_back::same,
    ),
    (
        "dropout.default",
        |call| {
            let x = dropout_input(call)?;
            let (ratio, training) = (call.float_or("p", 0.5)?, call.bool_or("train", false)?);
            Ok(vec![dropped(call, &x, ratio, training)])
        },
        Sharing::UnlessDropped,
        put_back::same,
    ),
    (
        "feature_alpha_dropout.default",
        |call| whole_dropout(call, "feature_alpha_dropout"),
        Sharing::UnlessDropped,
        put_back::same,
    ),
    ("feature_dropout.default", feature_dropout, Sharing::UnlessDropped, put_back::same),
];

// ---- normalizations ----

/// As many of a value as a tensor has along an axis.
fn repeated(call: &mut Call<'_, '_>, value: f64, like: &Tensor, axis: i64, dtype: DType) -> String {
    let size = call.size_of(like, axis);
    filled(call, value, &[size], dtype)
}

/// Numbers that are written as a list; more of them are filled in.
const LISTED: i64 = 1 << 16;

fn filled(call: &mut Call<'_, '_>, value: f64, sizes: &[Int], dtype: DType) -> String {
    if let [Int::Known(size @ 0..=LISTED)] = sizes {
        return call.floats(&vec![value; usize::try_from(*size).unwrap_or(0)], dtype);
    }
    let sizes = call.sizes_value(sizes);
    call.filled(&sizes, Scalar::Float(value), dtype)
}

/// The weights and the bias of each channel: 1 and 0 if there are none.
fn of_channels(call: &mut Call<'_, '_>, x: &Tensor, dtype: DType) -> Result<[String; 2]> {
    let weight = match call.optional_tensor("weight")? {
        Some(weight) => weight.name,
        None => repeated(call, 1.0, x, 1, dtype),
    };
    let bias = match call.optional_tensor("bias")? {
        Some(bias) => bias.name,
        None => repeated(call, 0.0, x, 1, dtype),
    };
    Ok([weight, bias])
}

fn batch_norm(call: &mut Call<'_, '_>, training: bool) -> Result<Outputs> {
    let x = call.tensor("input")?;
    let (mean, variance) = (call.optional_tensor("running_mean")?, call.optional_tensor("running_var")?);
    let (Some(mean), Some(variance)) = (mean, variance) else { return of_the_batch(call, &x) };
    if training && !call.to.trainable {
        return Err(unsupported(
            "batch normalization in training mode, which changes the running statistics; call `model.eval()` before the export, or \
             import it as trainable",
        ));
    }
    // The layer of a network that is trained decides by itself whose statistics it takes.
    let [weight, bias] = of_channels(call, &x, mean.dtype)?;
    // What the running statistics keep is ONNX's momentum, and what they take from a batch is PyTorch's.
    let momentum = 1.0 - call.float_or("momentum", 0.1)?;
    let attributes = vec![float("epsilon", call.float_or("eps", 1e-5)?), float("momentum", momentum)];
    let mut results =
        vec![call.op("BatchNormalization", &[&x, &weight, &bias, &mean, &variance], attributes)];
    // The statistics of the batch, of which there are none.
    for place in 1..call.result_count().min(3) {
        let statistics = call.result(place)?;
        if statistics.sizes == [Some(0)] {
            results.push(call.floats(&[], statistics.dtype));
        }
    }
    Ok(results)
}

/// Normalization by the statistics of the batch itself, as of networks that do not track any; these are results too.
fn of_the_batch(call: &mut Call<'_, '_>, x: &Tensor) -> Result<Outputs> {
    let rank = i64::try_from(x.rank()).unwrap_or(i64::MAX);
    let others: Vec<i64> = (0..rank).filter(|&axis| axis != 1).collect();
    let axes = call.int64s(&others);
    let mean = call.op("ReduceMean", &[x, &axes], Vec::new());
    let centered = call.op("Sub", &[x, &mean], Vec::new());
    let square = call.op("Mul", &[&centered, &centered], Vec::new());
    let variance = call.op("ReduceMean", &[&square, &axes], Vec::new());
    // How fast statistics move that are not there.
    call.ignore(&["momentum"]);
    let (result, deviation) = normalized(call, x, &centered, &variance)?;
    let mut results = vec![result];
    if call.is_used(1) || call.is_used(2) {
        let inverse = call.op("Reciprocal", &[&deviation], Vec::new());
        results.push(call.squeeze(&mean, &others));
        results.push(call.squeeze(&inverse, &others));
    }
    Ok(results)
}

/// What is centered, over its deviation, as the layer scales and shifts it; and the deviation.
fn normalized(
    call: &mut Call<'_, '_>,
    x: &Tensor,
    centered: &str,
    variance: &str,
) -> Result<(String, String)> {
    let epsilon = call.float_or("eps", 1e-5)?;
    let epsilon = call.number_of(epsilon, x.dtype);
    let variance = call.op("Add", &[variance, &epsilon], Vec::new());
    let deviation = call.op("Sqrt", &[&variance], Vec::new());
    let mut result = call.op("Div", &[centered, &deviation], Vec::new());
    for (name, operator) in [("weight", "Mul"), ("bias", "Add")] {
        if let Some(values) = call.optional_tensor(name)? {
            let values = along_channels(call, x, &values);
            result = call.op(operator, &[&result, &values], Vec::new());
        }
    }
    Ok((result, deviation))
}

/// A number for each channel, as it is spread over a tensor.
fn along_channels(call: &mut Call<'_, '_>, x: &Tensor, values: &str) -> String {
    let after: Vec<i64> = (1..i64::try_from(x.rank()).unwrap_or(i64::MAX).saturating_sub(1)).collect();
    call.unsqueeze(values, &after)
}

/// Normalization by running statistics, whoever runs it: of instances they are no statistics of batches, which the layer of a
/// network that is trained would take.
fn of_running_statistics(call: &mut Call<'_, '_>) -> Result<Outputs> {
    call.ignore(&["momentum"]);
    let x = call.tensor("input")?;
    let (mean, variance) = (call.tensor("running_mean")?, call.tensor("running_var")?);
    let [mean, variance] = [mean, variance].map(|values| along_channels(call, &x, &values));
    let centered = call.op("Sub", &[&x, &mean], Vec::new());
    Ok(vec![normalized(call, &x, &centered, &variance)?.0])
}

fn instance_norm(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let tracks = call.has("running_mean");
    if !call.bool_or("use_input_stats", true)? {
        return if call.to.trainable { of_running_statistics(call) } else { batch_norm(call, false) };
    }
    if tracks {
        return Err(unsupported(
            "instance normalization in training mode, which changes the running statistics; call `model.eval()` before the export",
        ));
    }
    call.ignore(&["momentum"]);
    let x = call.tensor("input")?;
    let [weight, bias] = of_channels(call, &x, x.dtype)?;
    let epsilon = call.float_or("eps", 1e-5)?;
    Ok(vec![call.op("InstanceNormalization", &[&x, &weight, &bias], vec![float("epsilon", epsilon)])])
}

/// The weights of a normalization of the last axes, 1 if there are none, and the first of these axes.
fn of_last_axes(call: &mut Call<'_, '_>, x: &Tensor) -> Result<(String, i64)> {
    let sizes = call.sizes("normalized_shape")?;
    let axis = i64::try_from(sizes.len()).unwrap_or(i64::MAX).saturating_neg();
    let weight = match call.optional_tensor("weight")? {
        Some(weight) => weight.name,
        None => filled(call, 1.0, &sizes, x.dtype),
    };
    Ok((weight, axis))
}

fn layer_norm(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("input")?;
    let (weight, axis) = of_last_axes(call, &x)?;
    let bias = call.optional_tensor("bias")?;
    let mut inputs: Vec<&str> = vec![&x, &weight];
    inputs.extend(bias.as_deref());
    let attributes = vec![int("axis", axis), float("epsilon", call.float_or("eps", 1e-5)?)];
    if call.is_used(1) || call.is_used(2) {
        return Ok(call.ops("LayerNormalization", &inputs, attributes, 3));
    }
    Ok(vec![call.op("LayerNormalization", &inputs, attributes)])
}

fn rms_norm(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("input")?;
    let (weight, axis) = of_last_axes(call, &x)?;
    // What is left out is the rounding of the numbers that it computes in.
    let rounding = if x.dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let epsilon = call.float_or("eps", rounding)?;
    Ok(vec![call.op("RMSNormalization", &[&x, &weight], vec![int("axis", axis), float("epsilon", epsilon)])])
}

fn group_norm(call: &mut Call<'_, '_>, groups: &str) -> Result<Outputs> {
    let x = call.tensor("input")?;
    let [weight, bias] = of_channels(call, &x, x.dtype)?;
    let attributes =
        vec![int("num_groups", call.int(groups)?), float("epsilon", call.float_or("eps", 1e-5)?)];
    Ok(vec![call.op("GroupNormalization", &[&x, &weight, &bias], attributes)])
}

// ---- norms ----

/// The order of a norm, 2 unless it is given.
fn known(order: Option<Number>) -> Result<f64> {
    match order {
        None => Ok(2.0),
        Some(order) => order.known().ok_or_else(|| unsupported("a norm whose order is computed")),
    }
}

fn norm(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let order = call.optional_number("p")?;
    let order = known(order)?;
    reduced_norm(call, &x, order)
}

/// The norm along the axes that the call names, all if there are none.
fn reduced_norm(call: &mut Call<'_, '_>, x: &Tensor, order: f64) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    // A number without axes has one all the same, where it is named.
    call.ignore(&["dim"]);
    let axes = if x.rank() > 0 { call.axes("dim", x)? } else { Vec::new() };
    let keep = call.bool_or("keepdim", false)?;
    // Powers of floats of 16 bits may be too large for these.
    let wide = wide(dtype);
    let x = call.cast_tensor(x, wide);
    let norm = vector_norm(call, &x, wide, order, &axes, keep);
    Ok(vec![call.cast(&norm, wide, dtype)])
}

/// A reduction along axes, all if there are none.
pub(super) fn reduction(
    call: &mut Call<'_, '_>,
    operator: &str,
    x: &str,
    axes: &[i64],
    keep: bool,
) -> String {
    let attributes = vec![int("keepdims", i64::from(keep))];
    if axes.is_empty() {
        return call.op(operator, &[x], attributes);
    }
    let axes = call.int64s(axes);
    call.op(operator, &[x, &axes], attributes)
}

/// `(Σ |x|ᵒ)^(1/o)` along axes, all if there are none.
pub(super) fn vector_norm(
    call: &mut Call<'_, '_>,
    x: &str,
    dtype: DType,
    order: f64,
    axes: &[i64],
    keep: bool,
) -> String {
    if order == 2.0 {
        return reduction(call, "ReduceL2", x, axes, keep);
    }
    if order == 1.0 {
        return reduction(call, "ReduceL1", x, axes, keep);
    }
    if order == 0.0 {
        let zero = call.number_of(0.0, dtype);
        let none = call.op("Equal", &[x, &zero], Vec::new());
        let some = call.op("Not", &[&none], Vec::new());
        let some = call.cast(&some, DType::Bool, dtype);
        return reduction(call, "ReduceSum", &some, axes, keep);
    }
    let sizes = call.op("Abs", &[x], Vec::new());
    if order.is_infinite() {
        return reduction(call, if order > 0.0 { "ReduceMax" } else { "ReduceMin" }, &sizes, axes, keep);
    }
    let exponent = call.number_of(order, dtype);
    let powers = call.op("Pow", &[&sizes, &exponent], Vec::new());
    let sum = reduction(call, "ReduceSum", &powers, axes, keep);
    let root = call.number_of(1.0 / order, dtype);
    call.op("Pow", &[&sum, &root], Vec::new())
}

fn matrix_norm(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let dtype = call.result_dtype()?;
    let dims = call.ints_or("dim", &[-2, -1])?;
    let &[rows, columns] = dims.as_slice() else { return Err(invalid("dim", "does not have two axes")) };
    let (rows, columns) = (x.axis(rows)?, x.axis(columns)?);
    let keep = call.bool_or("keepdim", false)?;
    let value = call.cast_tensor(&x, dtype);
    if let Some(word) = call.text("ord") {
        return match word {
            "fro" => Ok(vec![reduction(call, "ReduceL2", &value, &[rows, columns], keep)]),
            "nuc" => Ok(vec![spectral_norm(call, &value, &x, [rows, columns], "ReduceSum", keep)]),
            _ => Err(unsupported(format!("the norm `{word}`, which PyTorch does not have"))),
        };
    }
    let order = match call.optional_number("ord")? {
        Some(order) => known(Some(order))?,
        // The norm of all elements.
        None => return Ok(vec![reduction(call, "ReduceL2", &value, &[rows, columns], keep)]),
    };
    let summed = match order.abs() {
        1.0 => rows,
        f64::INFINITY => columns,
        2.0 => {
            let operator = if order > 0.0 { "ReduceMax" } else { "ReduceMin" };
            return Ok(vec![spectral_norm(call, &value, &x, [rows, columns], operator, keep)]);
        }
        _ => {
            return Err(unsupported(format!(
                "the matrix norm of order {order}, which PyTorch does not have"
            )));
        }
    };
    let sums = reduction(call, "ReduceL1", &value, &[summed], true);
    let operator = if order > 0.0 { "ReduceMax" } else { "ReduceMin" };
    Ok(vec![reduction(call, operator, &sums, &[rows, columns], keep)])
}

/// What is reduced of the singular values of matrices in two axes.
fn spectral_norm(
    call: &mut Call<'_, '_>,
    value: &str,
    x: &Tensor,
    [rows, columns]: [i64; 2],
    operator: &str,
    keep: bool,
) -> String {
    let others = (0..).take(x.rank()).filter(|&axis| axis != rows && axis != columns);
    let order: Vec<i64> = others.chain([rows, columns]).collect();
    let sizes = order.iter().map(|&axis| x.size(axis)).collect();
    let matrices = Tensor { name: call.transpose(value, &order), dtype: x.dtype, sizes };
    let values = singular_values(call, &matrices);
    let norm = reduction(call, operator, &values, &[-1], false);
    if !keep {
        return norm;
    }
    let mut axes = [rows, columns];
    axes.sort_unstable();
    call.unsqueeze(&norm, &axes)
}

/// The norm along all axes but one, or along all if that is −1; axes of size 1 remain.
fn norm_except(call: &mut Call<'_, '_>, x: &Tensor, order: f64, dim: i64) -> Result<String> {
    if dim == -1 {
        return Ok(vector_norm(call, x, x.dtype, order, &[], false));
    }
    let kept = x.axis(dim)?;
    let axes: Vec<i64> = (0..).take(x.rank()).filter(|&axis| axis != kept).collect();
    if axes.is_empty() {
        return Ok(call.op("Abs", &[x], Vec::new()));
    }
    Ok(vector_norm(call, x, x.dtype, order, &axes, true))
}

/// `v · g / ‖v‖`.
fn weight_norm(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (v, g) = (call.tensor("v")?, call.tensor("g")?);
    let dim = call.int_or("dim", 0)?;
    let norm = norm_except(call, &v, 2.0, dim)?;
    let scale = call.op("Div", &[&g, &norm], Vec::new());
    Ok(vec![call.op("Mul", &[&v, &scale], Vec::new()), norm])
}

/// Parts along an axis, scaled down to a norm where theirs is greater.
fn renorm(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let kept = x.axis(call.int("dim")?)?;
    let order = call.float("p")?;
    let greatest = call.operand("maxnorm", x.dtype)?;
    let axes: Vec<i64> = (0..).take(x.rank()).filter(|&axis| axis != kept).collect();
    let norm = vector_norm(call, &x, x.dtype, order, &axes, true);
    let (small, one) = (call.number_of(1e-7, x.dtype), call.number_of(1.0, x.dtype));
    let divisor = call.op("Add", &[&norm, &small], Vec::new());
    let factor = call.op("Div", &[&greatest, &divisor], Vec::new());
    let above = call.op("Greater", &[&norm, &greatest], Vec::new());
    let factor = call.op("Where", &[&above, &factor, &one], Vec::new());
    Ok(vec![call.op("Mul", &[&x, &factor], Vec::new())])
}

// ---- dropout ----

/// What is dropped of; operators that write into it call it by another name.
fn dropout_input(call: &mut Call<'_, '_>) -> Result<Tensor> {
    call.tensor(if call.has("input") { "input" } else { "self" })
}

/// The ratio, and that it is training.
fn dropout_inputs(call: &mut Call<'_, '_>, ratio: f64) -> [String; 2] {
    [call.number_of(ratio, DType::F32), call.scalar(Scalar::Bool(true), DType::Bool)]
}

/// Networks that are imported to be trained drop elements in training, even when they were exported in evaluation mode.
pub(super) fn dropped(call: &mut Call<'_, '_>, x: &str, ratio: f64, training: bool) -> String {
    if !training {
        let ratio = call.number_of(ratio, DType::F32);
        return call.op("Dropout", &[x, &ratio], Vec::new());
    }
    let [ratio, training] = dropout_inputs(call, ratio);
    call.op("Dropout", &[x, &ratio, &training], Vec::new())
}

fn native_dropout(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = dropout_input(call)?;
    let ratio = call.float_or("p", 0.5)?;
    if call.bool_or("train", true)? {
        let [ratio, training] = dropout_inputs(call, ratio);
        return Ok(call.ops("Dropout", &[&x, &ratio, &training], Vec::new(), 2));
    }
    let ratio = call.number_of(ratio, DType::F32);
    Ok(call.ops("Dropout", &[&x, &ratio], Vec::new(), 2))
}

/// Whole channels are dropped, so that each has one factor.
fn feature_dropout(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = dropout_input(call)?;
    let training = call.bool_or("train", false)?;
    let mut sizes = Vec::new();
    for axis in (0..).take(x.rank()) {
        sizes.push(if axis < 2 { call.size_of(&x, axis) } else { Int::Known(1) });
    }
    let ones = filled(call, 1.0, &sizes, x.dtype);
    let ratio = call.float_or("p", 0.5)?;
    let factors = dropped(call, &ones, ratio, training);
    Ok(vec![call.op("Mul", &[&x, &factors], Vec::new())])
}

/// Dropout that ONNX does not have; none of it happens in evaluation mode.
fn whole_dropout(call: &mut Call<'_, '_>, name: &str) -> Result<Outputs> {
    if call.bool_or("train", false)? {
        return Err(unsupported(format!("`{name}` in training mode; call `model.eval()` before the export")));
    }
    call.ignore(&["p"]);
    let x = dropout_input(call)?;
    Ok(vec![call.op("Identity", &[&x], Vec::new())])
}
