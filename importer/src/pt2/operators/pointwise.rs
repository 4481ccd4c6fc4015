//! Operators on elements.

mod activation;
mod quotient;

use super::special::product_with_log;
use super::{Table, reduce};
use crate::pt2::call::{Call, Number, Outputs, Result, int, invalid, string, unsupported};
use crate::pt2::dtype::{is_signed, promoted};
use activation::{activation, celu, elu, glu, hard_sigmoid, leaky_relu, prelu, selu, softplus};
use kiln_types::{DType, Scalar};
use quotient::{divide, floor_divide, fmod, remainder, truncated};
pub(super) use quotient::{floored_quotient, remainder_of};

macro_rules! unary {
    ($operator:literal) => {
        |call| unary(call, $operator)
    };
}

macro_rules! binary {
    ($operator:literal) => {
        |call| binary(call, $operator)
    };
}

macro_rules! compare {
    ($operator:literal) => {
        |call| {
            let truth = compare(call, $operator)?;
            as_described(call, truth)
        }
    };
}

macro_rules! logical {
    ($operator:literal) => {
        |call| {
            let truth = logical(call, $operator)?;
            as_described(call, truth)
        }
    };
}

macro_rules! bitwise {
    ($of_bools:literal, $of_integers:literal) => {
        |call| bitwise(call, $of_bools, $of_integers)
    };
}

pub(super) const RULES: Table = &[
    ("abs.default", unary!("Abs")),
    ("acos.default", unary!("Acos")),
    ("acosh.default", unary!("Acosh")),
    ("add.Scalar", |call| sum(call, "Add")),
    ("add.Tensor", |call| sum(call, "Add")),
    ("addcdiv.default", |call| addc(call, "Div")),
    ("addcmul.default", |call| addc(call, "Mul")),
    ("angle.default", |call| {
        // That of a negative number is half a turn.
        let (x, dtype) = computed(call)?;
        let (zero, pi) = (call.number_of(0.0, dtype), call.number_of(std::f64::consts::PI, dtype));
        let negative = call.op("Less", &[&x, &zero], Vec::new());
        let angle = call.op("Where", &[&negative, &pi, &zero], Vec::new());
        let none = call.op("IsNaN", &[&x], Vec::new());
        Ok(vec![call.op("Where", &[&none, &x, &angle], Vec::new())])
    }),
    ("asin.default", unary!("Asin")),
    ("asinh.default", unary!("Asinh")),
    ("atan.default", unary!("Atan")),
    ("atan2.default", atan2),
    ("atanh.default", unary!("Atanh")),
    ("bitwise_and.Scalar", bitwise!("And", "BitwiseAnd")),
    ("bitwise_and.Scalar_Tensor", bitwise!("And", "BitwiseAnd")),
    ("bitwise_and.Tensor", bitwise!("And", "BitwiseAnd")),
    ("__and__.Tensor", bitwise!("And", "BitwiseAnd")),
    ("__and__.Scalar", bitwise!("And", "BitwiseAnd")),
    ("bitwise_not.default", not),
    ("bitwise_or.Scalar", bitwise!("Or", "BitwiseOr")),
    ("bitwise_or.Scalar_Tensor", bitwise!("Or", "BitwiseOr")),
    ("bitwise_or.Tensor", bitwise!("Or", "BitwiseOr")),
    ("__or__.Tensor", bitwise!("Or", "BitwiseOr")),
    ("__or__.Scalar", bitwise!("Or", "BitwiseOr")),
    ("bitwise_xor.Scalar", bitwise!("Xor", "BitwiseXor")),
    ("bitwise_xor.Scalar_Tensor", bitwise!("Xor", "BitwiseXor")),
    ("bitwise_xor.Tensor", bitwise!("Xor", "BitwiseXor")),
    ("__xor__.Tensor", bitwise!("Xor", "BitwiseXor")),
    ("__xor__.Scalar", bitwise!("Xor", "BitwiseXor")),
    ("bitwise_left_shift.Tensor", |call| shift(call, "LEFT")),
    ("bitwise_left_shift.Tensor_Scalar", |call| shift(call, "LEFT")),
    ("bitwise_left_shift.Scalar_Tensor", |call| shift(call, "LEFT")),
    ("bitwise_right_shift.Tensor", |call| shift(call, "RIGHT")),
    ("bitwise_right_shift.Tensor_Scalar", |call| shift(call, "RIGHT")),
    ("bitwise_right_shift.Scalar_Tensor", |call| shift(call, "RIGHT")),
    ("__lshift__.Scalar", |call| shift(call, "LEFT")),
    ("__lshift__.Tensor", |call| shift(call, "LEFT")),
    ("__rshift__.Scalar", |call| shift(call, "RIGHT")),
    ("__rshift__.Tensor", |call| shift(call, "RIGHT")),
    ("ceil.default", rounding),
    ("celu.default", celu),
    ("clamp.default", |call| clamp(call, "min", "max")),
    ("clamp.Tensor", |call| clamp(call, "min", "max")),
    ("clamp_max.default", |call| clamp(call, "", "max")),
    ("clamp_max.Tensor", |call| clamp(call, "", "max")),
    ("clamp_min.default", |call| clamp(call, "min", "")),
    ("clamp_min.Tensor", |call| clamp(call, "min", "")),
    ("clip.default", |call| clamp(call, "min", "max")),
    ("clip.Tensor", |call| clamp(call, "min", "max")),
    ("copysign.Scalar", copysign),
    ("copysign.Tensor", copysign),
    ("cos.default", unary!("Cos")),
    ("cosh.default", unary!("Cosh")),
    ("div.Scalar", divide),
    ("div.Scalar_mode", divide),
    ("div.Tensor", divide),
    ("div.Tensor_mode", divide),
    ("divide.Tensor", divide),
    ("divide.Scalar", divide),
    ("divide.Scalar_mode", divide),
    ("divide.Tensor_mode", divide),
    ("elu.default", elu),
    ("eq.Scalar", compare!("Equal")),
    ("eq.Tensor", compare!("Equal")),
    ("erf.default", unary!("Erf")),
    ("exp.default", unary!("Exp")),
    ("exp2.default", |call| {
        let (x, dtype) = computed(call)?;
        let two = call.number_of(2.0, dtype);
        Ok(vec![call.op("Pow", &[&two, &x], Vec::new())])
    }),
    ("expm1.default", |call| {
        let (x, dtype) = computed(call)?;
        Ok(vec![exp_less_one(call, &x, dtype)])
    }),
    ("floor.default", rounding),
    ("floor_divide.Scalar", floor_divide),
    ("floor_divide.Tensor", floor_divide),
    ("floor_divide.default", floor_divide),
    ("fmax.default", |call| ignoring_nan(call, "Max")),
    ("fmin.default", |call| ignoring_nan(call, "Min")),
    ("fmod.Scalar", fmod),
    ("fmod.Tensor", fmod),
    ("frac.default", |call| {
        let x = call.tensor("self")?;
        let whole = truncated(call, &x);
        Ok(vec![call.op("Sub", &[&x, &whole], Vec::new())])
    }),
    ("ge.Scalar", compare!("GreaterOrEqual")),
    ("ge.Tensor", compare!("GreaterOrEqual")),
    ("gelu.default", |call| {
        let approximate = call.string_or("approximate", "none")?;
        activation(call, "Gelu", |_| vec![string("approximate", approximate)])
    }),
    ("glu.default", glu),
    ("gt.Scalar", compare!("Greater")),
    ("gt.Tensor", compare!("Greater")),
    ("hardshrink.default", |call| {
        // Unlike ONNX's `Shrink`, it keeps what is no number.
        let (x, dtype) = computed(call)?;
        let lambd = call.float_or("lambd", 0.5)?;
        let (lambd, zero) = (call.number_of(lambd, dtype), call.number_of(0.0, dtype));
        let size = call.op("Abs", &[&x], Vec::new());
        let small = call.op("LessOrEqual", &[&size, &lambd], Vec::new());
        Ok(vec![call.op("Where", &[&small, &zero, &x], Vec::new())])
    }),
    ("hardsigmoid.default", hard_sigmoid),
    ("hardswish.default", |call| activation(call, "HardSwish", |_| Vec::new())),
    ("hardtanh.default", |call| {
        let (low, high) = (call.float_or("min_val", -1.0)?, call.float_or("max_val", 1.0)?);
        clipped(call, low, high)
    }),
    ("heaviside.default", heaviside),
    ("hypot.default", |call| {
        let [x, y] = operands(call, ["self", "other"])?;
        let dtype = call.result_dtype()?;
        let result = hypotenuse(call, [&x, &y], dtype);
        // Infinite whatever the other one is, which may be no number.
        let infinity = call.number_of(f64::INFINITY, dtype);
        let [infinite_x, infinite_y] = [x, y].map(|x| call.op("IsInf", &[&x], Vec::new()));
        let infinite = call.op("Or", &[&infinite_x, &infinite_y], Vec::new());
        Ok(vec![call.op("Where", &[&infinite, &infinity, &result], Vec::new())])
    }),
    ("isfinite.default", |call| {
        let x = call.tensor("self")?;
        if !x.dtype.is_float() {
            let same = call.op("Equal", &[&x, &x], Vec::new());
            return Ok(vec![same]);
        }
        let infinite = call.op("IsInf", &[&x], Vec::new());
        let nan = call.op("IsNaN", &[&x], Vec::new());
        let either = call.op("Or", &[&infinite, &nan], Vec::new());
        Ok(vec![call.op("Not", &[&either], Vec::new())])
    }),
    ("isinf.default", |call| classified(call, "IsInf")),
    ("isnan.default", |call| classified(call, "IsNaN")),
    ("le.Scalar", compare!("LessOrEqual")),
    ("le.Tensor", compare!("LessOrEqual")),
    ("leaky_relu.default", |call| {
        let slope = call.float_or("negative_slope", 0.01)?;
        leaky_relu(call, slope)
    }),
    ("lerp.Scalar", lerp),
    ("lerp.Tensor", lerp),
    ("log.default", unary!("Log")),
    ("log10.default", |call| scaled_log(call, std::f64::consts::LOG10_E)),
    ("log1p.default", |call| {
        let (x, _) = computed(call)?;
        Ok(vec![call.kiln("Log1p", &[&x], Vec::new())])
    }),
    ("log2.default", |call| scaled_log(call, std::f64::consts::LOG2_E)),
    ("log_sigmoid.default", |call| {
        let (x, _) = computed(call)?;
        let negative = call.op("Neg", &[&x], Vec::new());
        let softplus = call.op("Softplus", &[&negative], Vec::new());
        Ok(vec![call.op("Neg", &[&softplus], Vec::new())])
    }),
    ("logaddexp.default", |call| logaddexp(call, std::f64::consts::E)),
    ("logaddexp2.default", |call| logaddexp(call, 2.0)),
    ("logical_and.default", logical!("And")),
    ("logical_not.default", |call| {
        let x = call.tensor("self")?;
        let x = call.cast_tensor(&x, DType::Bool);
        let truth = call.op("Not", &[&x], Vec::new());
        as_described(call, vec![truth])
    }),
    ("logical_or.default", logical!("Or")),
    ("logical_xor.default", logical!("Xor")),
    ("logit.default", logit),
    ("lt.Scalar", compare!("Less")),
    ("lt.Tensor", compare!("Less")),
    ("masked_fill.Scalar", masked_fill),
    ("masked_fill.Tensor", masked_fill),
    ("maximum.default", binary!("Max")),
    ("max.other", binary!("Max")),
    ("min.other", binary!("Min")),
    ("minimum.default", binary!("Min")),
    ("mish.default", |call| activation(call, "Mish", |_| Vec::new())),
    ("mul.Scalar", multiply),
    ("mul.Tensor", multiply),
    ("multiply.Tensor", multiply),
    ("multiply.Scalar", multiply),
    ("nan_to_num.default", nan_to_num),
    ("ne.Scalar", |call| {
        let equal = compare(call, "Equal")?;
        let truth = negated(call, equal)?;
        as_described(call, truth)
    }),
    ("ne.Tensor", |call| {
        let equal = compare(call, "Equal")?;
        let truth = negated(call, equal)?;
        as_described(call, truth)
    }),
    ("neg.default", unary!("Neg")),
    ("_neg_view.default", unary!("Neg")),
    ("pow.Scalar", binary!("Pow")),
    ("pow.Tensor", power),
    ("pow.Tensor_Scalar", power),
    ("pow.Tensor_Tensor", power),
    ("prelu.default", prelu),
    ("_prelu_kernel.default", prelu),
    ("reciprocal.default", unary!("Reciprocal")),
    ("relu.default", unary!("Relu")),
    ("relu6.default", |call| clipped(call, 0.0, 6.0)),
    ("remainder.Scalar", remainder),
    ("remainder.Scalar_Tensor", remainder),
    ("remainder.Tensor", remainder),
    ("round.decimals", |call| {
        let (x, dtype) = computed(call)?;
        let decimals = call.int_or("decimals", 0)?;
        let places = i32::try_from(decimals.unsigned_abs())
            .map_err(|_| invalid("decimals", format!("is {decimals}")))?;
        // A power of ten is exact, its reciprocal is not.
        let (to, from) = if decimals < 0 { ("Div", "Mul") } else { ("Mul", "Div") };
        let wide = wide(dtype);
        let x = call.cast(&x, dtype, wide);
        let scale = call.number_of(10f64.powi(places), wide);
        let scaled = call.op(to, &[&x, &scale], Vec::new());
        let rounded = call.op("Round", &[&scaled], Vec::new());
        let result = call.op(from, &[&rounded, &scale], Vec::new());
        Ok(vec![call.cast(&result, wide, dtype)])
    }),
    ("round.default", rounding),
    ("rrelu.default", |call| {
        let (low, high) = (call.float_or("lower", 0.125)?, call.float_or("upper", 1.0 / 3.0)?);
        if call.bool_or("training", false)? {
            return Err(unsupported("`rrelu` in training mode; export the network in evaluation mode"));
        }
        leaky_relu(call, (low + high) / 2.0)
    }),
    ("rsqrt.default", |call| {
        let (x, _) = computed(call)?;
        let root = call.op("Sqrt", &[&x], Vec::new());
        Ok(vec![call.op("Reciprocal", &[&root], Vec::new())])
    }),
    ("rsub.Scalar", reversed_difference),
    ("rsub.Tensor", reversed_difference),
    ("selu.default", selu),
    ("sgn.default", sign),
    ("sigmoid.default", unary!("Sigmoid")),
    ("sign.default", sign),
    ("signbit.default", |call| {
        let x = call.tensor("self")?;
        if x.dtype == DType::Bool {
            let same = call.op("Equal", &[&x, &x], Vec::new());
            return negated(call, vec![same]);
        }
        Ok(vec![has_sign(call, &x, x.dtype)])
    }),
    ("silu.default", |call| {
        let (x, _) = computed(call)?;
        let sigmoid = call.op("Sigmoid", &[&x], Vec::new());
        Ok(vec![call.op("Mul", &[&x, &sigmoid], Vec::new())])
    }),
    ("sin.default", unary!("Sin")),
    ("sinh.default", unary!("Sinh")),
    ("softplus.default", softplus),
    ("softshrink.default", |call| {
        let (x, dtype) = computed(call)?;
        let lambd = call.float_or("lambd", 0.5)?;
        let (low, high) = (call.number_of(-lambd, dtype), call.number_of(lambd, dtype));
        let near = call.op("Clip", &[&x, &low, &high], Vec::new());
        Ok(vec![call.op("Sub", &[&x, &near], Vec::new())])
    }),
    ("softsign.default", |call| activation(call, "Softsign", |_| Vec::new())),
    ("sqrt.default", unary!("Sqrt")),
    ("square.default", |call| {
        let (x, dtype) = computed(call)?;
        let product = multiplied(dtype);
        Ok(vec![call.op(product, &[&x, &x], Vec::new())])
    }),
    ("sub.Scalar", |call| sum(call, "Sub")),
    ("sub.Tensor", |call| sum(call, "Sub")),
    ("subtract.Tensor", |call| sum(call, "Sub")),
    ("subtract.Scalar", |call| sum(call, "Sub")),
    ("tan.default", unary!("Tan")),
    ("tanh.default", unary!("Tanh")),
    ("threshold.default", |call| {
        let x = call.tensor("self")?;
        let threshold = call.operand("threshold", x.dtype)?;
        let value = call.operand("value", x.dtype)?;
        let below = call.op("LessOrEqual", &[&x, &threshold], Vec::new());
        Ok(vec![call.op("Where", &[&below, &value, &x], Vec::new())])
    }),
    ("true_divide.Tensor", divide),
    ("true_divide.Scalar", divide),
    ("trunc.default", |call| {
        let x = call.tensor("self")?;
        Ok(vec![truncated(call, &x)])
    }),
    ("fix.default", |call| {
        let x = call.tensor("self")?;
        Ok(vec![truncated(call, &x)])
    }),
    ("where.Scalar", choose),
    ("where.ScalarOther", choose),
    ("where.ScalarSelf", choose),
    ("where.self", choose),
    ("xlogy.Scalar_Other", xlogy),
    ("xlogy.Scalar_Self", xlogy),
    ("xlogy.Tensor", xlogy),
];

/// The first argument in the dtype of the result, and that dtype: floats are computed of integers.
pub(super) fn computed(call: &mut Call<'_, '_>) -> Result<(String, DType)> {
    let x = call.tensor("self")?;
    let dtype = call.result_dtype()?;
    Ok((call.cast_tensor(&x, dtype), dtype))
}

/// The greater of `|x|` and `|y|`, by which both can be divided: neither 0 nor infinity.
pub(super) fn greater_size(call: &mut Call<'_, '_>, [x, y]: [&str; 2], dtype: DType) -> String {
    let (least, most) = match dtype {
        DType::F16 => (2f64.powi(-24), 65504.0),
        DType::F64 => (f64::MIN_POSITIVE, f64::MAX),
        DType::BF16 => (f64::from(f32::MIN_POSITIVE), f64::from(f32::from_bits(0x7f7f_0000))),
        _ => (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)),
    };
    let (least, most) = (call.number_of(least, dtype), call.number_of(most, dtype));
    let sizes = [x, y].map(|x| call.op("Abs", &[x], Vec::new()));
    let greater = call.op("Max", &[&sizes[0], &sizes[1]], Vec::new());
    call.op("Clip", &[&greater, &least, &most], Vec::new())
}

/// `sqrt(x² + y²)`, whose squares may be too large or too small: `m · sqrt((x / m)² + (y / m)²)` with `m = max(|x|, |y|)`, which is exact where one of
/// them is 0.
pub(super) fn hypotenuse(call: &mut Call<'_, '_>, [x, y]: [&str; 2], dtype: DType) -> String {
    let greater = greater_size(call, [x, y], dtype);
    let squares = [x, y].map(|x| {
        let ratio = call.op("Div", &[x, &greater], Vec::new());
        call.op("Mul", &[&ratio, &ratio], Vec::new())
    });
    let sum = call.op("Add", &[&squares[0], &squares[1]], Vec::new());
    let root = call.op("Sqrt", &[&sum], Vec::new());
    call.op("Mul", &[&greater, &root], Vec::new())
}

/// `eˣ − 1`: near 0 by `2t / (1 − t)` of `t = tanh(x / 2)`, as the difference has few digits there.
pub(super) fn exp_less_one(call: &mut Call<'_, '_>, x: &str, dtype: DType) -> String {
    let (half, one, two) =
        (call.number_of(0.5, dtype), call.number_of(1.0, dtype), call.number_of(2.0, dtype));
    let exp = call.op("Exp", &[x], Vec::new());
    let far = call.op("Sub", &[&exp, &one], Vec::new());
    let part = call.op("Mul", &[x, &half], Vec::new());
    let tanh = call.op("Tanh", &[&part], Vec::new());
    let twice = call.op("Mul", &[&tanh, &two], Vec::new());
    let rest = call.op("Sub", &[&one, &tanh], Vec::new());
    let near = call.op("Div", &[&twice, &rest], Vec::new());
    let size = call.op("Abs", &[x], Vec::new());
    let is_near = call.op("Less", &[&size, &one], Vec::new());
    call.op("Where", &[&is_near, &near, &far], Vec::new())
}

fn unary(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let (x, _) = computed(call)?;
    Ok(vec![call.op(operator, &[&x], Vec::new())])
}

/// Rounding, which leaves integers as they are.
fn rounding(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    if !x.dtype.is_float() {
        return Ok(vec![call.op("Identity", &[&x], Vec::new())]);
    }
    let operator = match super::family(&call.node.target) {
        "ceil" => "Ceil",
        "floor" => "Floor",
        _ => "Round",
    };
    Ok(vec![call.op(operator, &[&x], Vec::new())])
}

fn classified(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let x = call.tensor("self")?;
    if x.dtype.is_float() {
        return Ok(vec![call.op(operator, &[&x], Vec::new())]);
    }
    // No integer is one.
    let same = call.op("Equal", &[&x, &x], Vec::new());
    negated(call, vec![same])
}

pub(super) fn negated(call: &mut Call<'_, '_>, outputs: Outputs) -> Result<Outputs> {
    Ok(outputs.iter().map(|value| call.op("Not", &[value], Vec::new())).collect())
}

/// What is true or not in the dtype that the program says: a tensor that is given for it, or changed in place, keeps its own.
fn as_described(call: &mut Call<'_, '_>, truth: Outputs) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    Ok(truth.iter().map(|value| call.cast(value, DType::Bool, dtype)).collect())
}

/// Two operands in the dtype of the result.
pub(super) fn operands(call: &mut Call<'_, '_>, names: [&str; 2]) -> Result<[String; 2]> {
    let dtype = call.result_dtype()?;
    let [x, y] = names;
    Ok([call.operand(x, dtype)?, call.operand(y, dtype)?])
}

/// The operator that multiplies.
pub(super) fn multiplied(dtype: DType) -> &'static str {
    of_dtype("Mul", dtype)
}

/// ONNX takes bools for no numbers; these operators are logical ones of them.
fn of_dtype(operator: &str, dtype: DType) -> &str {
    match (operator, dtype) {
        ("Mul" | "Min", DType::Bool) => "And",
        ("Add" | "Max", DType::Bool) => "Or",
        _ => operator,
    }
}

/// The dtype in which PyTorch computes what it rounds once, at the end.
pub(super) fn wide(dtype: DType) -> DType {
    if dtype.is_float() && dtype.size() < 4 { DType::F32 } else { dtype }
}

fn sign(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, dtype) = computed(call)?;
    Ok(vec![call.op(if dtype == DType::Bool { "Identity" } else { "Sign" }, &[&x], Vec::new())])
}

/// Whether numbers have a sign, which the negative zero has too.
fn has_sign(call: &mut Call<'_, '_>, x: &str, dtype: DType) -> String {
    let zero = call.scalar(Scalar::Int(0), dtype);
    let below = call.op("Less", &[x, &zero], Vec::new());
    if !dtype.is_float() {
        return below;
    }
    let reciprocal = call.op("Reciprocal", &[x], Vec::new());
    let infinite = call.op("Less", &[&reciprocal, &zero], Vec::new());
    call.op("Or", &[&below, &infinite], Vec::new())
}

fn binary(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let second = if call.has("other") { "other" } else { "exponent" };
    let [x, y] = operands(call, ["self", second])?;
    let operator = of_dtype(operator, call.result_dtype()?);
    Ok(vec![call.op(operator, &[&x, &y], Vec::new())])
}

/// The dtype in which two operands are compared.
pub(super) fn common(call: &mut Call<'_, '_>, names: [&str; 2]) -> Result<DType> {
    let mut groups: [Vec<DType>; 3] = Default::default();
    for name in names {
        let number = call.number(name)?;
        let group = match (&number, call.optional_tensor(name)) {
            (Number::Value(..), Ok(Some(tensor))) if tensor.rank() > 0 => 0,
            (Number::Value(..), _) => 1,
            (Number::Known(_), _) => 2,
        };
        if let Some(group) = groups.get_mut(group) {
            group.push(number.dtype());
        }
    }
    let [tensors, without_dims, numbers] = &groups;
    Ok(promoted([tensors, without_dims, numbers]))
}

fn compare(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let dtype = common(call, ["self", "other"])?;
    let dtype = if dtype == DType::Bool && operator != "Equal" { DType::U8 } else { dtype };
    let (x, y) = (call.operand("self", dtype)?, call.operand("other", dtype)?);
    Ok(vec![call.op(operator, &[&x, &y], Vec::new())])
}

fn logical(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let (x, y) = (call.operand("self", DType::Bool)?, call.operand("other", DType::Bool)?);
    Ok(vec![call.op(operator, &[&x, &y], Vec::new())])
}

fn bitwise(call: &mut Call<'_, '_>, of_bools: &str, of_integers: &str) -> Result<Outputs> {
    let operator = if call.result_dtype()? == DType::Bool { of_bools } else { of_integers };
    binary(call, operator)
}

fn not(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let operator = if call.result_dtype()? == DType::Bool { "Not" } else { "BitwiseNot" };
    unary(call, operator)
}

/// ONNX shifts the bits of unsigned integers. To the right, those of negative ones are shifted inverted, as ones come after them.
fn shift(call: &mut Call<'_, '_>, direction: &str) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let (x, y) = (call.operand("self", dtype)?, call.operand("other", dtype)?);
    let attributes = || vec![string("direction", direction)];
    let y = call.cast(&y, dtype, DType::U64);
    let mut bits = x.clone();
    let negative = (direction == "RIGHT" && is_signed(dtype)).then(|| {
        let zero = call.scalar(Scalar::Int(0), dtype);
        call.op("Less", &[&x, &zero], Vec::new())
    });
    if let Some(negative) = &negative {
        let inverted = call.op("BitwiseNot", &[&x], Vec::new());
        bits = call.op("Where", &[negative, &inverted, &x], Vec::new());
    }
    let bits = call.cast(&bits, dtype, DType::U64);
    let shifted = call.op("BitShift", &[&bits, &y], attributes());
    let mut result = call.cast(&shifted, DType::U64, dtype);
    if let Some(negative) = &negative {
        let inverted = call.op("BitwiseNot", &[&result], Vec::new());
        result = call.op("Where", &[negative, &inverted, &result], Vec::new());
    }
    Ok(vec![result])
}

/// `self + alpha · other`, or the difference.
fn sum(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let [x, y] = operands(call, ["self", "other"])?;
    let y = scaled(call, y)?;
    // PyTorch does not subtract bools.
    let operator = of_dtype(operator, call.result_dtype()?);
    Ok(vec![call.op(operator, &[&x, &y], Vec::new())])
}

/// An operand times `alpha`.
fn scaled(call: &mut Call<'_, '_>, value: String) -> Result<String> {
    let alpha = call.optional_number("alpha")?.unwrap_or(Number::Known(Scalar::Int(1)));
    if alpha.known() == Some(1.0) {
        return Ok(value);
    }
    let dtype = call.result_dtype()?;
    let alpha = call.number_value(&alpha, dtype)?;
    Ok(call.op(multiplied(dtype), &[&value, &alpha], Vec::new()))
}

fn reversed_difference(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let [x, y] = operands(call, ["self", "other"])?;
    let x = scaled(call, x)?;
    Ok(vec![call.op("Sub", &[&y, &x], Vec::new())])
}

fn multiply(call: &mut Call<'_, '_>) -> Result<Outputs> {
    bitwise(call, "And", "Mul")
}

/// `self + value · (tensor1 ∘ tensor2)`.
fn addc(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let (x, a, b) =
        (call.operand("self", dtype)?, call.operand("tensor1", dtype)?, call.operand("tensor2", dtype)?);
    let mut term = call.op(operator, &[&a, &b], Vec::new());
    let value = call.optional_number("value")?.unwrap_or(Number::Known(Scalar::Int(1)));
    if value.known() != Some(1.0) {
        let value = call.number_value(&value, dtype)?;
        term = call.op("Mul", &[&term, &value], Vec::new());
    }
    Ok(vec![call.op("Add", &[&x, &term], Vec::new())])
}

/// Powers; those that are a product or a root are written as such.
fn power(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let x = call.operand("self", dtype)?;
    let exponent = call.number("exponent")?;
    match exponent.known() {
        Some(2.0) => Ok(vec![call.op("Mul", &[&x, &x], Vec::new())]),
        Some(0.5) if dtype.is_float() => Ok(vec![call.op("Sqrt", &[&x], Vec::new())]),
        Some(-1.0) if dtype.is_float() => Ok(vec![call.op("Reciprocal", &[&x], Vec::new())]),
        Some(-0.5) if dtype.is_float() => {
            let root = call.op("Sqrt", &[&x], Vec::new());
            Ok(vec![call.op("Reciprocal", &[&root], Vec::new())])
        }
        _ => {
            let exponent = call.number_value(&exponent, dtype)?;
            Ok(vec![call.op("Pow", &[&x, &exponent], Vec::new())])
        }
    }
}

/// The greater or lesser of two, or the one that is a number.
fn ignoring_nan(call: &mut Call<'_, '_>, operator: &str) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let [x, y] = operands(call, ["self", "other"])?;
    let chosen = call.op(of_dtype(operator, dtype), &[&x, &y], Vec::new());
    if !dtype.is_float() {
        return Ok(vec![chosen]);
    }
    let (no_x, no_y) = (call.op("IsNaN", &[&x], Vec::new()), call.op("IsNaN", &[&y], Vec::new()));
    let chosen = call.op("Where", &[&no_y, &x, &chosen], Vec::new());
    Ok(vec![call.op("Where", &[&no_x, &y, &chosen], Vec::new())])
}

/// The angle of the point `(other, self)` with the first axis.
fn atan2(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let [y, x] = operands(call, ["self", "other"])?;
    Ok(vec![call.kiln("Atan2", &[&y, &x], Vec::new())])
}

fn copysign(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let [x, y] = operands(call, ["self", "other"])?;
    let size = call.op("Abs", &[&x], Vec::new());
    let negative = call.op("Neg", &[&size], Vec::new());
    let below = has_sign(call, &y, dtype);
    Ok(vec![call.op("Where", &[&below, &negative, &size], Vec::new())])
}

fn heaviside(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let [x, at_zero] = operands(call, ["self", "values"])?;
    let zero = call.scalar(Scalar::Int(0), dtype);
    let above = call.op("Greater", &[&x, &zero], Vec::new());
    let above = call.cast(&above, DType::Bool, dtype);
    let equal = call.op("Equal", &[&x, &zero], Vec::new());
    Ok(vec![call.op("Where", &[&equal, &at_zero, &above], Vec::new())])
}

/// `self + weight · (end − self)`, from the end if that is nearer.
fn lerp(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let [x, end] = operands(call, ["self", "end"])?;
    let difference = call.op("Sub", &[&end, &x], Vec::new());
    let known = call.number("weight")?.known();
    let weight = call.operand("weight", dtype)?;
    let from_start = |call: &mut Call<'_, '_>| {
        let part = call.op("Mul", &[&weight, &difference], Vec::new());
        call.op("Add", &[&x, &part], Vec::new())
    };
    let from_end = |call: &mut Call<'_, '_>| {
        let one = call.number_of(1.0, dtype);
        let rest = call.op("Sub", &[&one, &weight], Vec::new());
        let part = call.op("Mul", &[&difference, &rest], Vec::new());
        call.op("Sub", &[&end, &part], Vec::new())
    };
    Ok(vec![match known {
        Some(weight) if weight.abs() < 0.5 => from_start(call),
        Some(_) => from_end(call),
        None => {
            let size = call.op("Abs", &[&weight], Vec::new());
            let half = call.number_of(0.5, dtype);
            let small = call.op("Less", &[&size, &half], Vec::new());
            let (from_start, from_end) = (from_start(call), from_end(call));
            call.op("Where", &[&small, &from_start, &from_end], Vec::new())
        }
    }])
}

fn scaled_log(call: &mut Call<'_, '_>, scale: f64) -> Result<Outputs> {
    let (x, dtype) = computed(call)?;
    let log = call.op("Log", &[&x], Vec::new());
    let scale = call.number_of(scale, dtype);
    Ok(vec![call.op("Mul", &[&log, &scale], Vec::new())])
}

/// `self · log(other)`, and 0 where `self` is, unless `other` is no number.
fn xlogy(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let [x, y] = operands(call, ["self", "other"])?;
    let zero = call.number_of(0.0, call.result_dtype()?);
    let log = call.op("Log", &[&y], Vec::new());
    Ok(vec![product_with_log(call, [&x, &y, &log], &zero)])
}

/// `max + log(1 + exp(−|difference|))`, to the base of e or of two.
fn logaddexp(call: &mut Call<'_, '_>, base: f64) -> Result<Outputs> {
    let [x, y] = operands(call, ["self", "other"])?;
    let greater = call.op("Max", &[&x, &y], Vec::new());
    let difference = call.op("Sub", &[&x, &y], Vec::new());
    let distance = call.op("Abs", &[&difference], Vec::new());
    // Equal infinities have no difference.
    let zero = call.number_of(0.0, call.result_dtype()?);
    let equal = call.op("Equal", &[&x, &y], Vec::new());
    let distance = call.op("Where", &[&equal, &zero, &distance], Vec::new());
    let negative = call.op("Neg", &[&distance], Vec::new());
    let scale = call.number_of(base.ln(), call.result_dtype()?);
    let is_natural = base == std::f64::consts::E;
    let scaled = if is_natural { negative } else { call.op("Mul", &[&negative, &scale], Vec::new()) };
    let mut rest = call.op("Softplus", &[&scaled], Vec::new());
    if !is_natural {
        rest = call.op("Div", &[&rest, &scale], Vec::new());
    }
    Ok(vec![call.op("Add", &[&greater, &rest], Vec::new())])
}

/// `log(x / (1 − x))`, of numbers that are kept `eps` away from 0 and 1.
fn logit(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (mut x, dtype) = computed(call)?;
    if let Some(eps) = call.optional_number("eps")?.and_then(|eps| eps.known()) {
        let (low, high) = (call.number_of(eps, dtype), call.number_of(1.0 - eps, dtype));
        let (below, above) =
            (call.op("Less", &[&x, &low], Vec::new()), call.op("Greater", &[&x, &high], Vec::new()));
        let bounded = call.op("Where", &[&above, &high, &x], Vec::new());
        x = call.op("Where", &[&below, &low, &bounded], Vec::new());
    }
    let one = call.number_of(1.0, dtype);
    let rest = call.op("Sub", &[&one, &x], Vec::new());
    let odds = call.op("Div", &[&x, &rest], Vec::new());
    Ok(vec![call.op("Log", &[&odds], Vec::new())])
}

fn clipped(call: &mut Call<'_, '_>, low: f64, high: f64) -> Result<Outputs> {
    let (x, dtype) = computed(call)?;
    // No unsigned integer is below 0.
    let low = if is_signed(dtype) { low } else { low.max(0.0) };
    let (low, high) = (call.number_of(low, dtype), call.number_of(high, dtype));
    Ok(vec![call.op("Clip", &[&x, &low, &high], Vec::new())])
}

/// Bounds that are numbers or tensors; an empty name is none.
fn clamp(call: &mut Call<'_, '_>, min: &str, max: &str) -> Result<Outputs> {
    let (x, dtype) = computed(call)?;
    let mut bounds = [String::new(), String::new()];
    let mut numbers = true;
    for (bound, name) in bounds.iter_mut().zip([min, max]) {
        if !name.is_empty() && call.has(name) {
            // At a bound that is a tensor, the gradient is shared.
            let shared = call.to.trainable && dtype.is_float();
            numbers &= call.optional_tensor(name)?.is_none_or(|tensor| tensor.rank() == 0 && !shared);
            *bound = match call.number(name)?.known() {
                // Numbers that the dtype does not have bound nothing, or everything.
                Some(known) if dtype.is_int() => {
                    let (least, most) = (reduce::bound(dtype, false), reduce::bound(dtype, true));
                    let known = if known < least.to_f64() {
                        Number::Known(least)
                    } else if known > most.to_f64() {
                        Number::Known(most)
                    } else {
                        call.number(name)?
                    };
                    call.number_value(&known, dtype)?
                }
                _ => call.operand(name, dtype)?,
            };
        }
    }
    let [low, high] = bounds;
    if numbers && dtype != DType::Bool {
        return Ok(vec![match (low.as_str(), high.as_str()) {
            ("", "") => call.op("Identity", &[&x], Vec::new()),
            (low, "") => call.op("Clip", &[&x, low], Vec::new()),
            (low, high) => call.op("Clip", &[&x, low, high], Vec::new()),
        }]);
    }
    let mut result = x;
    for (operator, bound) in [("Max", low), ("Min", high)] {
        if !bound.is_empty() {
            result = call.op(of_dtype(operator, dtype), &[&result, &bound], Vec::new());
        }
    }
    Ok(vec![result])
}

fn masked_fill(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, mask) = (call.tensor("self")?, call.tensor("mask")?);
    let dtype = call.result_dtype()?;
    let x = call.cast_tensor(&x, dtype);
    let value = call.operand("value", dtype)?;
    let mask = call.cast_tensor(&mask, DType::Bool);
    Ok(vec![call.op("Where", &[&mask, &value, &x], Vec::new())])
}

fn choose(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let condition = call.tensor("condition")?;
    let condition = call.cast_tensor(&condition, DType::Bool);
    let [x, y] = operands(call, ["self", "other"])?;
    Ok(vec![call.op("Where", &[&condition, &x, &y], Vec::new())])
}

fn nan_to_num(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (x, dtype) = computed(call)?;
    if !dtype.is_float() {
        call.ignore(&["nan", "neginf", "posinf"]);
        return Ok(vec![call.op("Identity", &[&x], Vec::new())]);
    }
    let greatest = match dtype {
        DType::F64 => f64::MAX,
        DType::F16 => 65504.0,
        DType::BF16 => f64::from(f32::from_bits(0x7f7f_0000)),
        _ => f64::from(f32::MAX),
    };
    let (nan, high) = (call.float_or("nan", 0.0)?, call.float_or("posinf", greatest)?);
    let low = call.float_or("neginf", -greatest)?;
    let infinite = [("IsNaN", nan, None), ("IsInf", high, Some([0, 1])), ("IsInf", low, Some([1, 0]))];
    let mut result = x.clone();
    for (operator, value, signs) in infinite {
        let signs = signs.map(|[negative, positive]| {
            vec![int("detect_negative", negative), int("detect_positive", positive)]
        });
        let found = call.op(operator, &[&x], signs.unwrap_or_default());
        let value = call.number_of(value, dtype);
        result = call.op("Where", &[&found, &value, &result], Vec::new());
    }
    Ok(vec![result])
}
