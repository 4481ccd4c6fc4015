//! Functions of one or two numbers that are computed of others.

use super::Table;
use super::norm::vector_norm;
use super::pointwise::{common, computed, negated, operands};
use super::reduce::{as_before, with_axis};
use crate::pt2::call::{Call, Outputs, Result, flag, int, unsupported};
use kiln_types::DType;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

pub(super) const RULES: Table = &[
    ("_safe_softmax.default", safe_softmax),
    ("deg2rad.default", |call| times(call, PI / 180.0)),
    ("dist.default", |call| {
        let [x, y] = operands(call, ["self", "other"])?;
        let dtype = call.result_dtype()?;
        let order = call.float_or("p", 2.0)?;
        let difference = call.op("Sub", &[&x, &y], Vec::new());
        Ok(vec![vector_norm(call, &difference, dtype, order, &[], false)])
    }),
    ("digamma.default", digamma),
    ("erfc.default", |call| {
        let (x, dtype) = computed(call)?;
        let x = call.cast(&x, dtype, DType::F64);
        let rest = complementary_error(call, &x);
        Ok(vec![call.cast(&rest, DType::F64, dtype)])
    }),
    ("erfinv.default", inverse_error_function),
    ("float_power.Scalar", power),
    ("float_power.Tensor_Scalar", power),
    ("float_power.Tensor_Tensor", power),
    ("isclose.default", is_close),
    ("isneginf.default", |call| infinite(call, [1, 0])),
    ("isposinf.default", |call| infinite(call, [0, 1])),
    ("isreal.default", |call| {
        let x = call.tensor("self")?;
        let none = call.op("Equal", &[&x, &x], Vec::new());
        let differs = call.op("Not", &[&none], Vec::new());
        Ok(vec![call.op("Or", &[&none, &differs], Vec::new())])
    }),
    ("ldexp.Tensor", |call| {
        let dtype = call.result_dtype()?;
        let [x, exponent] = operands(call, ["self", "other"])?;
        let two = call.number_of(2.0, dtype);
        let power = call.op("Pow", &[&two, &exponent], Vec::new());
        Ok(vec![call.op("Mul", &[&x, &power], Vec::new())])
    }),
    ("lgamma.default", log_gamma),
    ("mvlgamma.default", multivariate_log_gamma),
    ("rad2deg.default", |call| times(call, 180.0 / PI)),
    ("sinc.default", |call| {
        let (x, dtype) = computed(call)?;
        let (pi, zero, one) =
            (call.number_of(PI, dtype), call.number_of(0.0, dtype), call.number_of(1.0, dtype));
        let angle = call.op("Mul", &[&x, &pi], Vec::new());
        let sine = call.op("Sin", &[&angle], Vec::new());
        let none = call.op("Equal", &[&x, &zero], Vec::new());
        // What is not taken has a gradient, too, of 0 times what it would be.
        let angle = call.op("Where", &[&none, &one, &angle], Vec::new());
        let ratio = call.op("Div", &[&sine, &angle], Vec::new());
        Ok(vec![call.op("Where", &[&none, &one, &ratio], Vec::new())])
    }),
    ("special_entr.default", |call| {
        // `−x · log x`, which is 0 where `x` is, and −∞ where it is negative.
        let (x, dtype) = computed(call)?;
        let zero = call.number_of(0.0, dtype);
        let log = call.op("Log", &[&x], Vec::new());
        let product = call.op("Mul", &[&x, &log], Vec::new());
        let entropy = call.op("Neg", &[&product], Vec::new());
        let none = call.op("Equal", &[&x, &zero], Vec::new());
        let entropy = call.op("Where", &[&none, &zero, &entropy], Vec::new());
        let negative = call.op("Less", &[&x, &zero], Vec::new());
        let least = call.number_of(f64::NEG_INFINITY, dtype);
        Ok(vec![call.op("Where", &[&negative, &least, &entropy], Vec::new())])
    }),
    ("special_gammaln.default", log_gamma),
    ("special_multigammaln.default", multivariate_log_gamma),
    ("special_ndtr.default", |call| {
        // The part of a normal distribution below `x`.
        let (x, dtype) = computed(call)?;
        let (scale, half, one) =
            (call.number_of(FRAC_1_SQRT_2, dtype), call.number_of(0.5, dtype), call.number_of(1.0, dtype));
        let scaled = call.op("Mul", &[&x, &scale], Vec::new());
        let erf = call.op("Erf", &[&scaled], Vec::new());
        let sum = call.op("Add", &[&erf, &one], Vec::new());
        Ok(vec![call.op("Mul", &[&sum, &half], Vec::new())])
    }),
    ("special_psi.default", digamma),
    ("special_xlog1py.default", xlog1py),
    ("special_xlog1py.other_scalar", xlog1py),
    ("special_xlog1py.self_scalar", xlog1py),
];

fn times(call: &mut Call<'_, '_>, factor: f64) -> Result<Outputs> {
    let (x, dtype) = computed(call)?;
    let factor = call.number_of(factor, dtype);
    Ok(vec![call.op("Mul", &[&x, &factor], Vec::new())])
}

/// PyTorch computes it in floats of 64 bits.
fn power(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let [x, exponent] = operands(call, ["self", "exponent"])?;
    Ok(vec![call.op("Pow", &[&x, &exponent], Vec::new())])
}

fn infinite(call: &mut Call<'_, '_>, [negative, positive]: [i64; 2]) -> Result<Outputs> {
    let x = call.tensor("self")?;
    if !x.dtype.is_float() {
        // No integer is.
        let same = call.op("Equal", &[&x, &x], Vec::new());
        return negated(call, vec![same]);
    }
    let signs = vec![int("detect_negative", negative), int("detect_positive", positive)];
    Ok(vec![call.op("IsInf", &[&x], signs)])
}

/// `|x − y| ≤ atol + |rtol · y|`; infinities are only close to themselves.
fn is_close(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (relative, absolute) = (call.float_or("rtol", 1e-5)?, call.float_or("atol", 1e-8)?);
    let exact = common(call, ["self", "other"])?;
    let (x, y) = (call.operand("self", exact)?, call.operand("other", exact)?);
    let equal = call.op("Equal", &[&x, &y], Vec::new());
    // PyTorch tells by floats how near integers are, but not whether they are equal.
    let dtype = if exact.is_float() { exact } else { DType::F32 };
    if !exact.is_float() && relative == 0.0 && absolute == 0.0 {
        call.ignore(&["equal_nan"]);
        return Ok(vec![equal]);
    }
    let (x, y) = (call.cast(&x, exact, dtype), call.cast(&y, exact, dtype));
    let (relative, absolute) = (call.number_of(relative, dtype), call.number_of(absolute, dtype));
    let difference = call.op("Sub", &[&x, &y], Vec::new());
    let distance = call.op("Abs", &[&difference], Vec::new());
    let allowed = call.op("Mul", &[&y, &relative], Vec::new());
    let allowed = call.op("Abs", &[&allowed], Vec::new());
    let allowed = call.op("Add", &[&allowed, &absolute], Vec::new());
    let near = call.op("LessOrEqual", &[&distance, &allowed], Vec::new());
    let infinity = call.number_of(f64::INFINITY, dtype);
    let finite = call.op("Less", &[&distance, &infinity], Vec::new());
    let near = call.op("And", &[&near, &finite], Vec::new());
    let mut close = call.op("Or", &[&equal, &near], Vec::new());
    if call.bool_or("equal_nan", false)? {
        let (no_x, no_y) = (call.op("IsNaN", &[&x], Vec::new()), call.op("IsNaN", &[&y], Vec::new()));
        let neither = call.op("And", &[&no_x, &no_y], Vec::new());
        close = call.op("Or", &[&close, &neither], Vec::new());
    }
    Ok(vec![close])
}

/// `self · log(1 + other)`, and 0 where `self` is, unless `other` is no number.
fn xlog1py(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let [x, y] = operands(call, ["self", "other"])?;
    let dtype = call.result_dtype()?;
    let zero = call.number_of(0.0, dtype);
    let log = call.kiln("Log1p", &[&y], Vec::new());
    Ok(vec![product_with_log(call, [&x, &y, &log], &zero)])
}

/// `x · log`, and 0 where `x` is, unless what the logarithm is of is no number.
pub(super) fn product_with_log(call: &mut Call<'_, '_>, [x, of, log]: [&str; 3], zero: &str) -> String {
    let product = call.op("Mul", &[x, log], Vec::new());
    let none = call.op("Equal", &[x, zero], Vec::new());
    let nan = call.op("IsNaN", &[of], Vec::new());
    let number = call.op("Not", &[&nan], Vec::new());
    let none = call.op("And", &[&none, &number], Vec::new());
    call.op("Where", &[&none, zero, &product], Vec::new())
}

/// Softmax, of which a row of nothing but −∞ is 0.
fn safe_softmax(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let dtype = call.result_dtype()?;
    let axis = call.axis("dim", -1, &x)?;
    let mut listed = with_axis(call, &x);
    listed.name = call.cast(&listed, x.dtype, dtype);
    let axes = call.int64s(&[axis]);
    let greatest = call.op("ReduceMax", &[&listed, &axes], vec![flag("keepdims", true)]);
    let (least, zero) = (call.number_of(f64::NEG_INFINITY, dtype), call.number_of(0.0, dtype));
    let none = call.op("Equal", &[&greatest, &least], Vec::new());
    let softmax = call.op("Softmax", &[&listed], vec![int("axis", axis)]);
    let result = call.op("Where", &[&none, &zero, &softmax], Vec::new());
    Ok(vec![as_before(call, &x, &result)])
}

// ---- approximations ----

/// `c₀ + x (c₁ + x (c₂ + …))`.
pub(super) fn polynomial(call: &mut Call<'_, '_>, x: &str, coefficients: &[f64], dtype: DType) -> String {
    let mut terms = coefficients.iter().rev();
    let first = terms.next().copied().unwrap_or(0.0);
    let mut sum = call.number_of(first, dtype);
    for &coefficient in terms {
        let coefficient = call.number_of(coefficient, dtype);
        let product = call.op("Mul", &[&sum, x], Vec::new());
        sum = call.op("Add", &[&product, &coefficient], Vec::new());
    }
    sum
}

/// Of floats of 64 bits `x ≥ 0`, `t` and `Σ cₖ Tₖ(2t − 1)` with `t = 2 / (2 + x)`, so that `erfc x = t · exp(Σ − x²)`. The terms are those
/// of Chebyshev for `log(exp(x²) · erfc(x) / t)`.
pub(super) fn error_series(call: &mut Call<'_, '_>, size: &str) -> (String, String) {
    const TERMS: [f64; 24] = [
        -0.651_326_859_890_854_7,
        0.641_969_792_356_490_2,
        1.947_647_320_418_583_6e-2,
        -9.561_514_786_808_63e-3,
        -9.465_953_444_820_369e-4,
        3.668_394_978_527_614_5e-4,
        4.252_332_480_690_777e-5,
        -2.027_857_811_253_423_4e-5,
        -1.624_290_004_647_025_5e-6,
        1.303_655_835_580_532_3e-6,
        1.562_644_172_206_614_3e-8,
        -8.523_809_591_492_654e-8,
        6.529_054_439_098_852e-9,
        5.059_343_495_551_469e-9,
        -9.913_641_564_930_33e-10,
        -2.273_651_222_931_836e-10,
        9.646_791_102_015_527e-11,
        2.394_038_083_039_114_7e-12,
        -6.886_027_526_497_553e-12,
        8.944_879_273_090_726e-13,
        3.130_921_399_342_958e-13,
        -1.127_082_236_136_725_3e-13,
        3.810_905_255_189_232e-16,
        7.106_097_613_609_237e-15,
    ];
    let number = |call: &mut Call<'_, '_>, value: f64| call.number_of(value, DType::F64);
    let (one, two) = (number(call, 1.0), number(call, 2.0));
    let sum = call.op("Add", &[size, &two], Vec::new());
    let t = call.op("Div", &[&two, &sum], Vec::new());
    let twice = call.op("Mul", &[&t, &two], Vec::new());
    let u = call.op("Sub", &[&twice, &one], Vec::new());
    let double = call.op("Mul", &[&u, &two], Vec::new());
    // Clenshaw's sum.
    let (mut next, mut after) = (number(call, 0.0), number(call, 0.0));
    for &term in TERMS.iter().skip(1).rev() {
        let term = number(call, term);
        let product = call.op("Mul", &[&double, &next], Vec::new());
        let rest = call.op("Sub", &[&product, &after], Vec::new());
        after = std::mem::replace(&mut next, call.op("Add", &[&rest, &term], Vec::new()));
    }
    let first = number(call, TERMS[0]);
    let product = call.op("Mul", &[&u, &next], Vec::new());
    let rest = call.op("Sub", &[&product, &after], Vec::new());
    (t, call.op("Add", &[&rest, &first], Vec::new()))
}

/// `1 − erf x` of floats of 64 bits, and `2 −` that of `−x` below 0. The difference has few digits where it is small.
fn complementary_error(call: &mut Call<'_, '_>, x: &str) -> String {
    let number = |call: &mut Call<'_, '_>, value: f64| call.number_of(value, DType::F64);
    let (one, two) = (number(call, 1.0), number(call, 2.0));
    let size = call.op("Abs", &[x], Vec::new());
    let (t, sum) = error_series(call, &size);
    let square = call.op("Mul", &[&size, &size], Vec::new());
    let exponent = call.op("Sub", &[&sum, &square], Vec::new());
    let power = call.op("Exp", &[&exponent], Vec::new());
    let above = call.op("Mul", &[&t, &power], Vec::new());
    let below = call.op("Sub", &[&two, &above], Vec::new());
    let zero = number(call, 0.0);
    let is_below = call.op("Less", &[x, &zero], Vec::new());
    let far = call.op("Where", &[&is_below, &below, &above], Vec::new());
    let (bound, erf) = (number(call, 0.5), call.op("Erf", &[x], Vec::new()));
    let near = call.op("Sub", &[&one, &erf], Vec::new());
    let is_near = call.op("Less", &[&size, &bound], Vec::new());
    call.op("Where", &[&is_near, &near, &far], Vec::new())
}

/// A first guess of few digits, `s · sqrt(sqrt(b² − l / a) − b)` with `l = log(1 − x²)` and `b = 2 / (π a) + l / 2` (Winitzki), made
/// exact by steps of Newton's.
fn inverse_error_function(call: &mut Call<'_, '_>) -> Result<Outputs> {
    const A: f64 = 0.147;
    let (value, dtype) = computed(call)?;
    // What is rounded once, at the end; near ±1 floats of 32 bits leave few digits of `1 − x²`.
    let x = call.cast(&value, dtype, DType::F64);
    let number = |call: &mut Call<'_, '_>, value: f64| call.number_of(value, DType::F64);
    let one = number(call, 1.0);
    let square = call.op("Mul", &[&x, &x], Vec::new());
    let rest = call.op("Sub", &[&one, &square], Vec::new());
    let log = call.op("Log", &[&rest], Vec::new());
    let (half, offset, factor) = (number(call, 0.5), number(call, 2.0 / (PI * A)), number(call, 1.0 / A));
    let b = call.op("Mul", &[&log, &half], Vec::new());
    let b = call.op("Add", &[&b, &offset], Vec::new());
    let inner = call.op("Mul", &[&b, &b], Vec::new());
    let part = call.op("Mul", &[&log, &factor], Vec::new());
    let inner = call.op("Sub", &[&inner, &part], Vec::new());
    let root = call.op("Sqrt", &[&inner], Vec::new());
    let root = call.op("Sub", &[&root, &b], Vec::new());
    let zero = number(call, 0.0);
    let root = call.op("Max", &[&root, &zero], Vec::new());
    let root = call.op("Sqrt", &[&root], Vec::new());
    let sign = call.op("Sign", &[&x], Vec::new());
    let mut guess = call.op("Mul", &[&sign, &root], Vec::new());
    let slope = number(call, PI.sqrt() / 2.0);
    for step in 0..3 {
        if step == 2 {
            // The last step has the whole gradient; that of the first guess is not finite everywhere.
            guess = call.kiln("Detach", &[&guess], Vec::new());
        }
        let erf = call.op("Erf", &[&guess], Vec::new());
        let error = call.op("Sub", &[&erf, &x], Vec::new());
        let square = call.op("Mul", &[&guess, &guess], Vec::new());
        let inverse = call.op("Exp", &[&square], Vec::new());
        let step = call.op("Mul", &[&error, &inverse], Vec::new());
        let step = call.op("Mul", &[&step, &slope], Vec::new());
        guess = call.op("Sub", &[&guess, &step], Vec::new());
    }
    // ±1 are the errors of ±∞.
    let size = call.op("Abs", &[&x], Vec::new());
    let end = call.op("Equal", &[&size, &one], Vec::new());
    let [least, most] = [f64::NEG_INFINITY, f64::INFINITY].map(|value| number(call, value));
    let negative = call.op("Less", &[&x, &zero], Vec::new());
    let infinite = call.op("Where", &[&negative, &least, &most], Vec::new());
    let result = call.op("Where", &[&end, &infinite, &guess], Vec::new());
    Ok(vec![call.cast(&result, DType::F64, dtype)])
}

/// Numbers that are mirrored at ½ where they are below it: these, and whether they were.
pub(super) fn mirrored(call: &mut Call<'_, '_>, x: &str) -> (String, String) {
    let (half, one) = (call.number_of(0.5, DType::F64), call.number_of(1.0, DType::F64));
    let below = call.op("Less", &[x, &half], Vec::new());
    let mirrored = call.op("Sub", &[&one, x], Vec::new());
    (call.op("Where", &[&below, &mirrored, x], Vec::new()), below)
}

fn log_gamma(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (value, dtype) = computed(call)?;
    // Terms cancel, so that they are of 64 bits.
    let x = call.cast(&value, dtype, DType::F64);
    let result = log_gamma_of(call, &x);
    Ok(vec![call.cast(&result, DType::F64, dtype)])
}

/// `log Γₚ(x) = p (p − 1) / 4 · log π + Σ log Γ(x − j / 2)`, over `j` from 0 to `p − 1`.
fn multivariate_log_gamma(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (value, dtype) = computed(call)?;
    let x = call.cast(&value, dtype, DType::F64);
    let count = call.int("p")?;
    let Some(count) = u8::try_from(count).ok().filter(|&count| count > 0) else {
        return Err(unsupported(format!("a multivariate gamma function of {count} dimensions")));
    };
    call.to.spend(usize::from(count) * 64)?;
    let dims = f64::from(count);
    let mut sum = call.number_of(dims * (dims - 1.0) / 4.0 * PI.ln(), DType::F64);
    for place in 0..count {
        let shift = call.number_of(f64::from(place) / 2.0, DType::F64);
        let argument = call.op("Sub", &[&x, &shift], Vec::new());
        let term = log_gamma_of(call, &argument);
        sum = call.op("Add", &[&sum, &term], Vec::new());
    }
    Ok(vec![call.cast(&sum, DType::F64, dtype)])
}

/// `log |Γ(x)|` of floats of 64 bits: Lanczos' sum of nine terms from ½ on, and `log(π / |sin πx|) − log Γ(1 − x)` below.
fn log_gamma_of(call: &mut Call<'_, '_>, x: &str) -> String {
    const G: f64 = 7.0;
    const TERMS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let number = |call: &mut Call<'_, '_>, value: f64| call.number_of(value, DType::F64);
    let (argument, below) = mirrored(call, x);
    let one = number(call, 1.0);
    let z = call.op("Sub", &[&argument, &one], Vec::new());
    let mut sum = number(call, TERMS[0]);
    for (place, &term) in (1..).zip(&TERMS[1..]) {
        let (place, term) = (number(call, f64::from(place)), number(call, term));
        let divisor = call.op("Add", &[&z, &place], Vec::new());
        let part = call.op("Div", &[&term, &divisor], Vec::new());
        sum = call.op("Add", &[&sum, &part], Vec::new());
    }
    let (shift, half) = (number(call, G + 0.5), number(call, 0.5));
    let t = call.op("Add", &[&z, &shift], Vec::new());
    let log_t = call.op("Log", &[&t], Vec::new());
    let exponent = call.op("Add", &[&z, &half], Vec::new());
    let power = call.op("Mul", &[&exponent, &log_t], Vec::new());
    let log_sum = call.op("Log", &[&sum], Vec::new());
    let constant = number(call, 0.5 * (2.0 * PI).ln());
    let result = call.op("Sub", &[&power, &t], Vec::new());
    let result = call.op("Add", &[&result, &log_sum], Vec::new());
    let above = call.op("Add", &[&result, &constant], Vec::new());
    // By the rest of `x`, as large multiples of π have few digits.
    let whole = call.op("Floor", &[x], Vec::new());
    let rest = call.op("Sub", &[x, &whole], Vec::new());
    let pi = number(call, PI);
    let angle = call.op("Mul", &[&rest, &pi], Vec::new());
    let sine = call.op("Sin", &[&angle], Vec::new());
    let ratio = call.op("Div", &[&pi, &sine], Vec::new());
    let log = call.op("Log", &[&ratio], Vec::new());
    let reflected = call.op("Sub", &[&log, &above], Vec::new());
    let result = call.op("Where", &[&below, &reflected, &above], Vec::new());
    let infinite = call.op("IsInf", &[x], Vec::new());
    let infinity = number(call, f64::INFINITY);
    call.op("Where", &[&infinite, &infinity, &result], Vec::new())
}

/// The derivative of `log Γ`: `ψ(x) = ψ(x + 8) − Σ 1 / (x + k)`, whose argument is large enough for the asymptotic series, and
/// `ψ(1 − x) − π / tan πx` below ½.
pub(super) fn digamma(call: &mut Call<'_, '_>) -> Result<Outputs> {
    const SHIFT: u8 = 8;
    /// `B₂ₙ / 2n` of the numbers of Bernoulli.
    const SERIES: [f64; 7] =
        [1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32_760.0, 1.0 / 12.0];
    let (value, dtype) = computed(call)?;
    let x = call.cast(&value, dtype, DType::F64);
    let number = |call: &mut Call<'_, '_>, value: f64| call.number_of(value, DType::F64);
    let (argument, below) = mirrored(call, &x);
    let mut sum = call.op("Reciprocal", &[&argument], Vec::new());
    for place in 1..SHIFT {
        let place = number(call, f64::from(place));
        let divisor = call.op("Add", &[&argument, &place], Vec::new());
        let part = call.op("Reciprocal", &[&divisor], Vec::new());
        sum = call.op("Add", &[&sum, &part], Vec::new());
    }
    let shift = number(call, f64::from(SHIFT));
    let large = call.op("Add", &[&argument, &shift], Vec::new());
    let inverse = call.op("Reciprocal", &[&large], Vec::new());
    let square = call.op("Mul", &[&inverse, &inverse], Vec::new());
    let series = polynomial(call, &square, &SERIES, DType::F64);
    let series = call.op("Mul", &[&series, &square], Vec::new());
    let half = number(call, 0.5);
    let part = call.op("Mul", &[&inverse, &half], Vec::new());
    let log = call.op("Log", &[&large], Vec::new());
    let result = call.op("Sub", &[&log, &part], Vec::new());
    let result = call.op("Sub", &[&result, &series], Vec::new());
    let above = call.op("Sub", &[&result, &sum], Vec::new());
    let whole = call.op("Floor", &[&x], Vec::new());
    let rest = call.op("Sub", &[&x, &whole], Vec::new());
    let pi = number(call, PI);
    let angle = call.op("Mul", &[&rest, &pi], Vec::new());
    let tangent = call.op("Tan", &[&angle], Vec::new());
    let part = call.op("Div", &[&pi, &tangent], Vec::new());
    let reflected = call.op("Sub", &[&above, &part], Vec::new());
    let mut result = call.op("Where", &[&below, &reflected, &above], Vec::new());
    // Negative integers are poles of both signs; 0 has that of its own.
    let zero = number(call, 0.0);
    let is_whole = call.op("Equal", &[&rest, &zero], Vec::new());
    let pole = call.op("And", &[&below, &is_whole], Vec::new());
    let nan = number(call, f64::NAN);
    result = call.op("Where", &[&pole, &nan, &result], Vec::new());
    let origin = call.op("Equal", &[&x, &zero], Vec::new());
    let inverse = call.op("Reciprocal", &[&x], Vec::new());
    let at_origin = call.op("Neg", &[&inverse], Vec::new());
    result = call.op("Where", &[&origin, &at_origin, &result], Vec::new());
    Ok(vec![call.cast(&result, DType::F64, dtype)])
}
