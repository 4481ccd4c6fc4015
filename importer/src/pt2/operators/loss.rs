//! Losses and distances.

use super::Table;
use super::norm::{reduction, vector_norm};
use crate::pt2::call::{Call, Outputs, Result, Tensor, int, invalid, string, unsupported};
use kiln_types::{DType, Scalar};

pub(super) const RULES: Table = &[
    ("binary_cross_entropy.default", binary_cross_entropy),
    ("binary_cross_entropy_with_logits.default", binary_cross_entropy_with_logits),
    ("cdist.default", distances),
    ("_cdist_forward.default", distances),
    ("cosine_embedding_loss.default", cosine_embedding_loss),
    ("cosine_similarity.default", |call| {
        let (x, y) = (call.tensor("x1")?, call.tensor("x2")?);
        let dtype = call.result_dtype()?;
        // The axis of the longer one, counted from its end.
        let longer = if x.rank() >= y.rank() { &x } else { &y };
        let axis = call.axis("dim", 1, longer)?.saturating_sub_unsigned(longer.rank() as u64);
        let epsilon = call.float_or("eps", 1e-8)?;
        let stretched = |tensor: &Tensor, other: &Tensor| {
            let along = |tensor: &Tensor| tensor.size(axis.saturating_add_unsigned(tensor.rank() as u64));
            tensor.rank() < other.rank() || along(tensor) != along(other)
        };
        let both = [stretched(&x, &y), stretched(&y, &x)];
        let mut values = [call.cast_tensor(&x, dtype), call.cast_tensor(&y, dtype)];
        let sum = call.op("Add", &[&values[0], &values[1]], Vec::new());
        for (value, stretched) in values.iter_mut().zip(both) {
            if stretched {
                let shape = call.shape(&sum);
                *value = call.op("Expand", &[value, &shape], Vec::new());
            }
        }
        let [x, y] = &values;
        Ok(vec![cosine(call, [x, y], axis, epsilon, dtype)])
    }),
    ("cross_entropy_loss.default", cross_entropy),
    ("_euclidean_dist.default", distances),
    ("hinge_embedding_loss.default", hinge_embedding_loss),
    ("huber_loss.default", |call| {
        let delta = call.float_or("delta", 1.0)?;
        let (difference, dtype) = difference(call, "self", "target")?;
        let loss = huber(call, &difference, delta, dtype);
        reduced(call, &loss)
    }),
    ("kl_div.default", kl_div),
    ("l1_loss.default", |call| {
        let (difference, _) = difference(call, "self", "target")?;
        let loss = call.op("Abs", &[&difference], Vec::new());
        reduced(call, &loss)
    }),
    ("margin_ranking_loss.default", |call| {
        let (difference, dtype) = difference(call, "input1", "input2")?;
        let target = call.operand("target", dtype)?;
        let product = call.op("Mul", &[&target, &difference], Vec::new());
        let margin = call.float_or("margin", 0.0)?;
        let margin = call.number_of(margin, dtype);
        let loss = call.op("Sub", &[&margin, &product], Vec::new());
        let loss = call.op("Relu", &[&loss], Vec::new());
        reduced(call, &loss)
    }),
    ("mse_loss.default", |call| {
        let (difference, _) = difference(call, "self", "target")?;
        let loss = call.op("Mul", &[&difference, &difference], Vec::new());
        reduced(call, &loss)
    }),
    ("multi_margin_loss.default", multi_margin_loss),
    ("nll_loss.default", negative_log_likelihood),
    ("nll_loss2d.default", negative_log_likelihood),
    ("nll_loss2d_forward.default", negative_log_likelihood),
    ("nll_loss_forward.default", negative_log_likelihood),
    ("nll_loss_nd.default", negative_log_likelihood),
    ("pairwise_distance.default", |call| {
        let (x, y) = (call.tensor("x1")?, call.tensor("x2")?);
        let dtype = call.result_dtype()?;
        let (order, epsilon) = (call.float_or("p", 2.0)?, call.float_or("eps", 1e-6)?);
        let keep = call.bool_or("keepdim", false)?;
        Ok(vec![distance(call, [&x, &y], dtype, [order, epsilon], keep)])
    }),
    ("pdist.default", distances_of_pairs),
    ("_pdist_forward.default", distances_of_pairs),
    ("poisson_nll_loss.default", poisson),
    ("smooth_l1_loss.default", |call| {
        let beta = call.float_or("beta", 1.0)?;
        let (difference, dtype) = difference(call, "self", "target")?;
        if beta == 0.0 {
            let loss = call.op("Abs", &[&difference], Vec::new());
            return reduced(call, &loss);
        }
        let loss = huber(call, &difference, beta, dtype);
        let beta = call.number_of(beta, dtype);
        let loss = call.op("Div", &[&loss, &beta], Vec::new());
        reduced(call, &loss)
    }),
    ("soft_margin_loss.default", |call| {
        let dtype = call.result_dtype()?;
        let (x, target) = (call.operand("self", dtype)?, call.operand("target", dtype)?);
        let product = call.op("Mul", &[&x, &target], Vec::new());
        let negative = call.op("Neg", &[&product], Vec::new());
        let loss = call.op("Softplus", &[&negative], Vec::new());
        reduced(call, &loss)
    }),
    ("triplet_margin_loss.default", triplet_margin_loss),
];

/// What the number of a reduction stands for.
fn reduction_name(call: &mut Call<'_, '_>) -> Result<&'static str> {
    match call.int_or("reduction", 1)? {
        0 => Ok("none"),
        1 => Ok("mean"),
        2 => Ok("sum"),
        other => Err(invalid("reduction", format!("is {other}, which stands for nothing"))),
    }
}

/// All losses, their mean or their sum.
fn reduced(call: &mut Call<'_, '_>, loss: &str) -> Result<Outputs> {
    Ok(vec![match reduction_name(call)? {
        "mean" => reduction(call, "ReduceMean", loss, &[], false),
        "sum" => reduction(call, "ReduceSum", loss, &[], false),
        _ => loss.to_owned(),
    }])
}

/// The difference of two arguments, in the dtype of the result.
fn difference(call: &mut Call<'_, '_>, left: &str, right: &str) -> Result<(String, DType)> {
    let dtype = call.result_dtype()?;
    let (left, right) = (call.operand(left, dtype)?, call.operand(right, dtype)?);
    Ok((call.op("Sub", &[&left, &right], Vec::new()), dtype))
}

/// `½ d²` of small differences, `δ (|d| − ½ δ)` of others.
fn huber(call: &mut Call<'_, '_>, difference: &str, delta: f64, dtype: DType) -> String {
    let size = call.op("Abs", &[difference], Vec::new());
    let square = call.op("Mul", &[difference, difference], Vec::new());
    let half = call.number_of(0.5, dtype);
    let small = call.op("Mul", &[&square, &half], Vec::new());
    let (bound, offset) = (call.number_of(delta, dtype), call.number_of(0.5 * delta, dtype));
    let rest = call.op("Sub", &[&size, &offset], Vec::new());
    let large = call.op("Mul", &[&rest, &bound], Vec::new());
    let near = call.op("Less", &[&size, &bound], Vec::new());
    call.op("Where", &[&near, &small, &large], Vec::new())
}

// ---- classes ----

/// Scores with a batch, and the axis that was added for it.
fn with_batch(call: &mut Call<'_, '_>, x: &Tensor, rank: usize) -> String {
    if rank == 1 { call.unsqueeze(x, &[0]) } else { x.name.clone() }
}

fn class_loss(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let (x, target) = (call.tensor("self")?, call.tensor("target")?);
    let weight = call.optional_tensor("weight")?;
    let kind = reduction_name(call)?;
    let rank = x.rank();
    let x = with_batch(call, &x, rank);
    let target = with_batch(call, &target, rank);
    let attributes = vec![string("reduction", kind), int("ignore_index", call.int_or("ignore_index", -100)?)];
    let mut inputs: Vec<&str> = vec![&x, &target];
    inputs.extend(weight.as_deref());
    let loss = call.op(operator, &inputs, attributes);
    Ok(vec![if rank == 1 && kind == "none" { call.squeeze(&loss, &[0]) } else { loss }])
}

fn negative_log_likelihood(call: &mut Call<'_, '_>) -> Result<Outputs> {
    class_loss(call, "NegativeLogLikelihoodLoss")
}

fn cross_entropy(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let target = call.tensor("target")?;
    let smoothing = call.float_or("label_smoothing", 0.0)?;
    if target.dtype.is_float() {
        return cross_entropy_of_probabilities(call, smoothing);
    }
    if smoothing == 0.0 {
        return class_loss(call, "SoftmaxCrossEntropyLoss");
    }
    smoothed_cross_entropy(call, smoothing)
}

/// The logarithms of the probabilities of classes, an axis that is given too; with the weights of classes in their place.
fn log_probabilities(call: &mut Call<'_, '_>) -> Result<(String, Option<String>, Tensor, i64)> {
    let x = call.tensor("self")?;
    let axis = i64::from(x.rank() > 1);
    let logs = call.op("LogSoftmax", &[&x], vec![int("axis", axis)]);
    let weight = match call.optional_tensor("weight")? {
        Some(weight) => {
            let after: Vec<i64> = (1..).take(x.rank().saturating_sub(usize::from(axis > 0) + 1)).collect();
            Some(call.unsqueeze(&weight, &after))
        }
        None => None,
    };
    Ok((logs, weight, x, axis))
}

/// The number of classes, as a float.
fn classes(call: &mut Call<'_, '_>, x: &Tensor, axis: i64) -> String {
    let classes = call.size_of(x, axis);
    let classes = call.size_value(&classes);
    call.cast(&classes, DType::I64, x.dtype)
}

fn cross_entropy_of_probabilities(call: &mut Call<'_, '_>, smoothing: f64) -> Result<Outputs> {
    let (logs, weight, x, axis) = log_probabilities(call)?;
    let mut target = call.operand("target", x.dtype)?;
    if smoothing > 0.0 {
        let (rest, smoothing) =
            (call.number_of(1.0 - smoothing, x.dtype), call.number_of(smoothing, x.dtype));
        let classes = classes(call, &x, axis);
        let each = call.op("Div", &[&smoothing, &classes], Vec::new());
        target = call.op("Mul", &[&target, &rest], Vec::new());
        target = call.op("Add", &[&target, &each], Vec::new());
    }
    let mut product = call.op("Mul", &[&logs, &target], Vec::new());
    if let Some(weight) = weight {
        product = call.op("Mul", &[&product, &weight], Vec::new());
    }
    let sum = reduction(call, "ReduceSum", &product, &[axis], false);
    let loss = call.op("Neg", &[&sum], Vec::new());
    reduced(call, &loss)
}

/// `(1 − ε) · loss + ε / classes · Σ −log p`, without what is ignored.
fn smoothed_cross_entropy(call: &mut Call<'_, '_>, smoothing: f64) -> Result<Outputs> {
    let (logs, weight, x, axis) = log_probabilities(call)?;
    let target = call.tensor("target")?;
    let kind = reduction_name(call)?;
    let exact = class_loss(call, "SoftmaxCrossEntropyLoss")?;
    let [exact] = exact.as_slice() else { return Ok(Vec::new()) };
    let weighted = match &weight {
        Some(weight) => call.op("Mul", &[&logs, weight], Vec::new()),
        None => logs,
    };
    let sum = reduction(call, "ReduceSum", &weighted, &[axis], false);
    let even = call.op("Neg", &[&sum], Vec::new());
    let ignored = call.int_or("ignore_index", -100)?;
    let ignored = call.scalar(Scalar::Int(ignored), target.dtype);
    let ignored = call.op("Equal", &[&target, &ignored], Vec::new());
    let zero = call.number_of(0.0, x.dtype);
    let mut even = call.op("Where", &[&ignored, &zero, &even], Vec::new());
    if kind != "none" {
        even = reduction(call, "ReduceSum", &even, &[], false);
    }
    if kind == "mean" {
        let one = call.number_of(1.0, x.dtype);
        let each = match call.optional_tensor("weight")? {
            Some(weight) => {
                let first = call.scalar(Scalar::Int(0), target.dtype);
                let target = call.op("Where", &[&ignored, &first, &target], Vec::new());
                call.op("Gather", &[&weight, &target], vec![int("axis", 0)])
            }
            None => one,
        };
        let counted = call.op("Where", &[&ignored, &zero, &each], Vec::new());
        let total = reduction(call, "ReduceSum", &counted, &[], false);
        even = call.op("Div", &[&even, &total], Vec::new());
    }
    let (rest, smoothing) = (call.number_of(1.0 - smoothing, x.dtype), call.number_of(smoothing, x.dtype));
    let classes = classes(call, &x, axis);
    let part = call.op("Div", &[&smoothing, &classes], Vec::new());
    let (exact, even) =
        (call.op("Mul", &[exact, &rest], Vec::new()), call.op("Mul", &[&even, &part], Vec::new()));
    Ok(vec![call.op("Add", &[&exact, &even], Vec::new())])
}

/// How much less than the margin the right class is above the others.
fn multi_margin_loss(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, target) = (call.tensor("self")?, call.tensor("target")?);
    let (order, margin) = (call.float_or("p", 1.0)?, call.float_or("margin", 1.0)?);
    let axis = i64::try_from(x.rank()).unwrap_or(i64::MAX) - 1;
    let place = if target.rank() < x.rank() { call.unsqueeze(&target, &[axis]) } else { target.name.clone() };
    let right = call.op("GatherElements", &[&x, &place], vec![int("axis", axis)]);
    let margin = call.number_of(margin, x.dtype);
    let difference = call.op("Sub", &[&x, &right], Vec::new());
    let loss = call.op("Add", &[&difference, &margin], Vec::new());
    let mut loss = call.op("Relu", &[&loss], Vec::new());
    if order != 1.0 {
        let exponent = call.number_of(order, x.dtype);
        loss = call.op("Pow", &[&loss, &exponent], Vec::new());
    }
    if let Some(weight) = call.optional_tensor("weight")? {
        let factor = call.op("Gather", &[&weight, &place], vec![int("axis", 0)]);
        loss = call.op("Mul", &[&loss, &factor], Vec::new());
    }
    let size = call.size_of(&x, axis);
    let count = call.size_value(&size);
    let (first, one) = (call.int64(0), call.int64(1));
    let all = call.op("Range", &[&first, &count, &one], Vec::new());
    let same = call.op("Equal", &[&all, &place], Vec::new());
    let zero = call.number_of(0.0, x.dtype);
    let loss = call.op("Where", &[&same, &zero, &loss], Vec::new());
    let loss = reduction(call, "ReduceMean", &loss, &[axis], false);
    reduced(call, &loss)
}

// ---- probabilities ----

/// Multiplied by the weights that a call gives.
fn weighted(call: &mut Call<'_, '_>, loss: String, dtype: DType) -> Result<String> {
    if !call.has("weight") {
        return Ok(loss);
    }
    let weight = call.operand("weight", dtype)?;
    Ok(call.op("Mul", &[&loss, &weight], Vec::new()))
}

/// Logarithms are no less than −100, as PyTorch's are.
fn binary_cross_entropy(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let (x, target) = (call.operand("self", dtype)?, call.operand("target", dtype)?);
    let (one, least) = (call.number_of(1.0, dtype), call.number_of(-100.0, dtype));
    let log = call.op("Log", &[&x], Vec::new());
    let log = call.op("Max", &[&log, &least], Vec::new());
    let rest = call.op("Sub", &[&one, &x], Vec::new());
    let log_rest = call.op("Log", &[&rest], Vec::new());
    let log_rest = call.op("Max", &[&log_rest, &least], Vec::new());
    let other = call.op("Sub", &[&one, &target], Vec::new());
    let (hit, miss) =
        (call.op("Mul", &[&target, &log], Vec::new()), call.op("Mul", &[&other, &log_rest], Vec::new()));
    let sum = call.op("Add", &[&hit, &miss], Vec::new());
    let loss = call.op("Neg", &[&sum], Vec::new());
    let loss = weighted(call, loss, dtype)?;
    reduced(call, &loss)
}

/// `(1 − t) x + (1 + (w − 1) t) · log(1 + exp(−x))`.
fn binary_cross_entropy_with_logits(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let (x, target) = (call.operand("self", dtype)?, call.operand("target", dtype)?);
    let one = call.number_of(1.0, dtype);
    let negative = call.op("Neg", &[&x], Vec::new());
    let mut log = call.op("Softplus", &[&negative], Vec::new());
    if call.has("pos_weight") {
        let weight = call.operand("pos_weight", dtype)?;
        let more = call.op("Sub", &[&weight, &one], Vec::new());
        let factor = call.op("Mul", &[&more, &target], Vec::new());
        let factor = call.op("Add", &[&factor, &one], Vec::new());
        log = call.op("Mul", &[&factor, &log], Vec::new());
    }
    let other = call.op("Sub", &[&one, &target], Vec::new());
    let part = call.op("Mul", &[&other, &x], Vec::new());
    let loss = call.op("Add", &[&part, &log], Vec::new());
    let loss = weighted(call, loss, dtype)?;
    reduced(call, &loss)
}

/// `t (log t − x)`, which is 0 where `t` is.
fn kl_div(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let (x, target) = (call.operand("self", dtype)?, call.operand("target", dtype)?);
    if call.bool_or("log_target", false)? {
        let probability = call.op("Exp", &[&target], Vec::new());
        let difference = call.op("Sub", &[&target, &x], Vec::new());
        let loss = call.op("Mul", &[&probability, &difference], Vec::new());
        return reduced(call, &loss);
    }
    let log = call.op("Log", &[&target], Vec::new());
    let information = call.op("Mul", &[&target, &log], Vec::new());
    let zero = call.number_of(0.0, dtype);
    let none = call.op("Equal", &[&target, &zero], Vec::new());
    let information = call.op("Where", &[&none, &zero, &information], Vec::new());
    let cross = call.op("Mul", &[&target, &x], Vec::new());
    let loss = call.op("Sub", &[&information, &cross], Vec::new());
    reduced(call, &loss)
}

fn poisson(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let (x, target) = (call.operand("input", dtype)?, call.operand("target", dtype)?);
    call.ignore(&["eps"]);
    let mut loss = if call.bool_or("log_input", true)? {
        let rate = call.op("Exp", &[&x], Vec::new());
        let product = call.op("Mul", &[&target, &x], Vec::new());
        call.op("Sub", &[&rate, &product], Vec::new())
    } else {
        let epsilon = call.float_or("eps", 1e-8)?;
        let epsilon = call.number_of(epsilon, dtype);
        let shifted = call.op("Add", &[&x, &epsilon], Vec::new());
        let log = call.op("Log", &[&shifted], Vec::new());
        let product = call.op("Mul", &[&target, &log], Vec::new());
        call.op("Sub", &[&x, &product], Vec::new())
    };
    if call.bool_or("full", false)? {
        // Stirling's approximation of log(t!), for numbers above 1.
        let log = call.op("Log", &[&target], Vec::new());
        let product = call.op("Mul", &[&target, &log], Vec::new());
        let term = call.op("Sub", &[&product, &target], Vec::new());
        let turn = call.number_of(std::f64::consts::TAU, dtype);
        let turned = call.op("Mul", &[&target, &turn], Vec::new());
        let rest = call.op("Log", &[&turned], Vec::new());
        let half = call.number_of(0.5, dtype);
        let rest = call.op("Mul", &[&rest, &half], Vec::new());
        let term = call.op("Add", &[&term, &rest], Vec::new());
        let (zero, one) = (call.number_of(0.0, dtype), call.number_of(1.0, dtype));
        let above = call.op("Greater", &[&target, &one], Vec::new());
        let term = call.op("Where", &[&above, &term, &zero], Vec::new());
        loss = call.op("Add", &[&loss, &term], Vec::new());
    }
    reduced(call, &loss)
}

// ---- distances ----

/// The cosine of the angle between vectors along an axis.
fn cosine(call: &mut Call<'_, '_>, [x, y]: [&str; 2], axis: i64, epsilon: f64, dtype: DType) -> String {
    let product = call.op("Mul", &[x, y], Vec::new());
    let product = reduction(call, "ReduceSum", &product, &[axis], false);
    let epsilon = call.number_of(epsilon, dtype);
    let mut lengths = Vec::new();
    for value in [x, y] {
        let length = reduction(call, "ReduceL2", value, &[axis], false);
        lengths.push(call.op("Max", &[&length, &epsilon], Vec::new()));
    }
    let lengths: Vec<&str> = lengths.iter().map(String::as_str).collect();
    let lengths = call.op("Mul", &lengths, Vec::new());
    call.op("Div", &[&product, &lengths], Vec::new())
}

fn cosine_embedding_loss(call: &mut Call<'_, '_>) -> Result<Outputs> {
    const EPSILON: f64 = 1e-12;
    let (x, y) = (call.tensor("input1")?, call.tensor("input2")?);
    let dtype = call.result_dtype()?;
    let target = call.operand("target", dtype)?;
    // Roots are of sums that are not 0, unlike those of cosine similarities.
    let product = call.op("Mul", &[&x, &y], Vec::new());
    let product = reduction(call, "ReduceSum", &product, &[-1], false);
    let epsilon = call.number_of(EPSILON, dtype);
    let mut squares = Vec::new();
    for value in [&x, &y] {
        let square = reduction(call, "ReduceSumSquare", value, &[-1], false);
        squares.push(call.op("Add", &[&square, &epsilon], Vec::new()));
    }
    let squares: Vec<&str> = squares.iter().map(String::as_str).collect();
    let squares = call.op("Mul", &squares, Vec::new());
    let lengths = call.op("Sqrt", &[&squares], Vec::new());
    let cosine = call.op("Div", &[&product, &lengths], Vec::new());
    let (zero, one) = (call.number_of(0.0, dtype), call.number_of(1.0, dtype));
    let apart = call.op("Sub", &[&one, &cosine], Vec::new());
    let margin = call.float_or("margin", 0.0)?;
    let margin = call.number_of(margin, dtype);
    let near = call.op("Sub", &[&cosine, &margin], Vec::new());
    let near = call.op("Relu", &[&near], Vec::new());
    let minus = call.number_of(-1.0, dtype);
    let (alike, unlike) =
        (call.op("Equal", &[&target, &one], Vec::new()), call.op("Equal", &[&target, &minus], Vec::new()));
    let other = call.op("Where", &[&unlike, &near, &zero], Vec::new());
    let loss = call.op("Where", &[&alike, &apart, &other], Vec::new());
    reduced(call, &loss)
}

/// The norm of a difference along the last axis; a small number keeps it from 0.
fn distance(
    call: &mut Call<'_, '_>,
    [x, y]: [&str; 2],
    dtype: DType,
    [order, epsilon]: [f64; 2],
    keep: bool,
) -> String {
    let mut difference = call.op("Sub", &[x, y], Vec::new());
    if epsilon != 0.0 {
        let epsilon = call.number_of(epsilon, dtype);
        difference = call.op("Add", &[&difference, &epsilon], Vec::new());
    }
    vector_norm(call, &difference, dtype, order, &[-1], keep)
}

fn triplet_margin_loss(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (anchor, positive) = (call.tensor("anchor")?, call.tensor("positive")?);
    let negative = call.tensor("negative")?;
    let dtype = call.result_dtype()?;
    let norm = [call.float_or("p", 2.0)?, call.float_or("eps", 1e-6)?];
    let near = distance(call, [&anchor, &positive], dtype, norm, false);
    let mut far = distance(call, [&anchor, &negative], dtype, norm, false);
    if call.bool_or("swap", false)? {
        let other = distance(call, [&positive, &negative], dtype, norm, false);
        far = call.op("Min", &[&far, &other], Vec::new());
    }
    let margin = call.float_or("margin", 1.0)?;
    let margin = call.number_of(margin, dtype);
    let loss = call.op("Sub", &[&near, &far], Vec::new());
    let loss = call.op("Add", &[&loss, &margin], Vec::new());
    let loss = call.op("Relu", &[&loss], Vec::new());
    reduced(call, &loss)
}

/// The input itself where the target is 1, and what it lacks of the margin where that is −1.
fn hinge_embedding_loss(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let (x, target) = (call.operand("self", dtype)?, call.operand("target", dtype)?);
    let margin = call.float_or("margin", 1.0)?;
    let (zero, one, margin) =
        (call.number_of(0.0, dtype), call.number_of(1.0, dtype), call.number_of(margin, dtype));
    let minus = call.number_of(-1.0, dtype);
    let lacking = call.op("Sub", &[&margin, &x], Vec::new());
    let lacking = call.op("Relu", &[&lacking], Vec::new());
    let (is_one, is_minus) =
        (call.op("Equal", &[&target, &one], Vec::new()), call.op("Equal", &[&target, &minus], Vec::new()));
    // Other targets than 1 and −1 take both parts.
    let of_minus = call.op("Where", &[&is_one, &zero, &lacking], Vec::new());
    let of_one = call.op("Where", &[&is_minus, &zero, &x], Vec::new());
    let loss = call.op("Add", &[&of_minus, &of_one], Vec::new());
    reduced(call, &loss)
}

/// The distances of all rows of one matrix from all of another.
fn distances(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, y) = (call.tensor("x1")?, call.tensor("x2")?);
    let order = call.float_or("p", 2.0)?;
    // How PyTorch computes Euclidean distances: 2 is never by products of matrices.
    let by_products = call.int_or("compute_mode", 0)? != 2;
    if order == 2.0 && x.rank() == 2 && y.rank() == 2 && x.dtype == DType::F32 && by_products {
        return Ok(vec![call.contrib("CDist", &[&x, &y], vec![string("metric", "euclidean")])]);
    }
    let (rows, columns) = (call.unsqueeze(&x, &[-2]), call.unsqueeze(&y, &[-3]));
    Ok(vec![distance(call, [&rows, &columns], x.dtype, [order, 0.0], false)])
}

/// Pairs of rows whose distances may be listed.
const PAIRS: i64 = 1 << 20;

/// The distances of rows from those after them.
fn distances_of_pairs(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let order = call.float_or("p", 2.0)?;
    let Some(count) = x.size(0).filter(|&count| count.saturating_mul(count) <= PAIRS) else {
        return Err(unsupported("`pdist` of a number of rows that varies, or is large"));
    };
    call.to.spend(usize::try_from(count.saturating_mul(count) / 2).unwrap_or(usize::MAX))?;
    let pairs = || (0..count).flat_map(|first| (first + 1..count).map(move |second| (first, second)));
    let firsts: Vec<i64> = pairs().map(|(first, _)| first).collect();
    let seconds: Vec<i64> = pairs().map(|(_, second)| second).collect();
    let (firsts, seconds) = (call.int64s(&firsts), call.int64s(&seconds));
    let rows = call.op("Gather", &[&x, &firsts], vec![int("axis", 0)]);
    let others = call.op("Gather", &[&x, &seconds], vec![int("axis", 0)]);
    Ok(vec![distance(call, [&rows, &others], x.dtype, [order, 0.0], false)])
}
