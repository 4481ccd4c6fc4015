//! Functions of complex numbers that are not linear.

use super::{Table, by_rule, parts_of, products};
use crate::pt2::call::{Call, Result, Tensor, unsupported};
use crate::pt2::operators::pointwise::{exp_less_one, greater_size, hypotenuse};
use crate::pt2::value::{Output, Part, Value};
use kiln_types::{DType, Scalar};

macro_rules! unary {
    ($function:expr) => {
        |call| {
            let z = operand(call, "self")?;
            let result = $function(call, &z);
            Ok(vec![Output::Complex([result.real, result.imaginary])])
        }
    };
}

pub(super) const RULES: Table = &[
    ("abs.default", |call| {
        let z = operand(call, "self")?;
        Ok(vec![Output::Real(size(call, &z))])
    }),
    ("add.Scalar", sum),
    ("add.Tensor", sum),
    ("addcmul.default", |call| {
        let product = products(call, ["tensor1", "tensor2"], |call| {
            let dtype = call.result_dtype()?;
            let (a, b) = (call.operand("tensor1", dtype)?, call.operand("tensor2", dtype)?);
            Ok(call.op("Mul", &[&a, &b], Vec::new()))
        })?;
        let dtype = call.of_parts(&[]).result_dtype()?;
        let value = call.optional_number("value")?.filter(|value| value.known() != Some(1.0));
        let mut added = |part, product: &str| -> Result<String> {
            let x = call.of_parts(&[("self", part)]).operand("self", dtype)?;
            let mut product = product.to_owned();
            if let Some(value) = &value {
                let value = call.number_value(value, dtype)?;
                product = call.op("Mul", &[&product, &value], Vec::new());
            }
            Ok(call.op("Add", &[&x, &product], Vec::new()))
        };
        let [real, imaginary] = &product;
        Ok(vec![Output::Complex([added(Part::Real, real)?, added(Part::Imaginary, imaginary)?])])
    }),
    ("angle.default", |call| {
        let z = operand(call, "self")?;
        Ok(vec![Output::Real(angle(call, &z))])
    }),
    (
        "cos.default",
        unary!(|call: &mut Call<'_, '_>, z: &Parts| {
            let [sin, cos, sinh, cosh] = waves(call, &z.real, &z.imaginary);
            let (real, imaginary) = (times(call, &cos, &cosh), times(call, &sin, &sinh));
            z.with(real, call.op("Neg", &[&imaginary], Vec::new()))
        }),
    ),
    (
        "cosh.default",
        unary!(|call: &mut Call<'_, '_>, z: &Parts| {
            let [sin, cos, sinh, cosh] = waves(call, &z.imaginary, &z.real);
            z.with(times(call, &cosh, &cos), times(call, &sinh, &sin))
        }),
    ),
    ("div.Scalar", quotient),
    ("div.Tensor", quotient),
    ("divide.Scalar", quotient),
    ("divide.Tensor", quotient),
    ("eq.Scalar", |call| equal(call).map(|equal| vec![Output::Real(equal)])),
    ("eq.Tensor", |call| equal(call).map(|equal| vec![Output::Real(equal)])),
    ("exp.default", unary!(exponential)),
    (
        "expm1.default",
        unary!(|call: &mut Call<'_, '_>, z: &Parts| {
            // `eˣ cos y − 1 = (eˣ − 1) cos y − 2 sin²(y / 2)`.
            let power = exponential(call, z);
            let (half, two) = (call.number_of(0.5, z.dtype), call.number_of(2.0, z.dtype));
            let (less, cos) =
                (exp_less_one(call, &z.real, z.dtype), call.op("Cos", &[&z.imaginary], Vec::new()));
            let angle = times(call, &z.imaginary, &half);
            let sine = call.op("Sin", &[&angle], Vec::new());
            let square = times(call, &sine, &sine);
            let (part, rest) = (times(call, &less, &cos), times(call, &square, &two));
            z.with(call.op("Sub", &[&part, &rest], Vec::new()), power.imaginary)
        }),
    ),
    ("isfinite.default", |call| of_both(call, "And")),
    ("isinf.default", |call| of_both(call, "Or")),
    ("isnan.default", |call| of_both(call, "Or")),
    ("log.default", unary!(logarithm)),
    (
        "log10.default",
        unary!(|call: &mut Call<'_, '_>, z: &Parts| {
            let log = logarithm(call, z);
            scaled(call, &log, std::f64::consts::LOG10_E)
        }),
    ),
    (
        "log1p.default",
        unary!(|call: &mut Call<'_, '_>, z: &Parts| {
            let one = call.number_of(1.0, z.dtype);
            let real = call.op("Add", &[&z.real, &one], Vec::new());
            let next = z.with(real, z.imaginary.clone());
            logarithm(call, &next)
        }),
    ),
    (
        "log2.default",
        unary!(|call: &mut Call<'_, '_>, z: &Parts| {
            let log = logarithm(call, z);
            scaled(call, &log, std::f64::consts::LOG2_E)
        }),
    ),
    ("ne.Scalar", |call| unequal(call)),
    ("ne.Tensor", |call| unequal(call)),
    ("polar.default", |call| {
        let dtype = call.of_parts(&[]).result_dtype()?;
        let (size, angle) = (call.operand("abs", dtype)?, call.operand("angle", dtype)?);
        let [real, imaginary] = turned(call, &size, &angle);
        Ok(vec![Output::Complex([real, imaginary])])
    }),
    ("pow.Scalar", power_of_number),
    ("pow.Tensor_Scalar", power),
    ("pow.Tensor_Tensor", power_of_tensors),
    ("reciprocal.default", unary!(reciprocal)),
    ("rsqrt.default", unary!(|call: &mut Call<'_, '_>, z: &Parts| root(call, z, -0.5))),
    (
        "sgn.default",
        unary!(|call: &mut Call<'_, '_>, z: &Parts| {
            let size = size(call, z);
            let (zero, one) = (call.number_of(0.0, z.dtype), call.number_of(1.0, z.dtype));
            let none = call.op("Equal", &[&size, &zero], Vec::new());
            let size = call.op("Where", &[&none, &one, &size], Vec::new());
            z.map(|part| call.op("Div", &[part, &size], Vec::new()))
        }),
    ),
    (
        "sigmoid.default",
        unary!(|call: &mut Call<'_, '_>, z: &Parts| {
            let negative = z.map(|part| call.op("Neg", &[part], Vec::new()));
            let power = exponential(call, &negative);
            let one = call.number_of(1.0, z.dtype);
            let real = call.op("Add", &[&power.real, &one], Vec::new());
            reciprocal(call, &z.with(real, power.imaginary))
        }),
    ),
    (
        "sin.default",
        unary!(|call: &mut Call<'_, '_>, z: &Parts| {
            let [sin, cos, sinh, cosh] = waves(call, &z.real, &z.imaginary);
            z.with(times(call, &sin, &cosh), times(call, &cos, &sinh))
        }),
    ),
    (
        "sinh.default",
        unary!(|call: &mut Call<'_, '_>, z: &Parts| {
            let [sin, cos, sinh, cosh] = waves(call, &z.imaginary, &z.real);
            z.with(times(call, &sinh, &cos), times(call, &cosh, &sin))
        }),
    ),
    ("sqrt.default", unary!(|call: &mut Call<'_, '_>, z: &Parts| root(call, z, 0.5))),
    ("square.default", unary!(|call: &mut Call<'_, '_>, z: &Parts| product(call, z, z))),
    ("sub.Scalar", sum),
    ("sub.Tensor", sum),
    ("subtract.Scalar", sum),
    ("subtract.Tensor", sum),
    (
        "tan.default",
        unary!(|call: &mut Call<'_, '_>, z: &Parts| {
            let [imaginary, real] = hyperbolic_tangent(call, &z.imaginary, &z.real, z.dtype);
            z.with(real, imaginary)
        }),
    ),
    (
        "tanh.default",
        unary!(|call: &mut Call<'_, '_>, z: &Parts| {
            let [real, imaginary] = hyperbolic_tangent(call, &z.real, &z.imaginary, z.dtype);
            z.with(real, imaginary)
        }),
    ),
    ("true_divide.Scalar", quotient),
    ("true_divide.Tensor", quotient),
];

/// Both parts of a value.
struct Parts {
    real: String,
    imaginary: String,
    dtype: DType,
}

impl Parts {
    fn with(&self, real: String, imaginary: String) -> Self {
        Self { real, imaginary, dtype: self.dtype }
    }

    fn map(&self, mut f: impl FnMut(&str) -> String) -> Self {
        self.with(f(&self.real), f(&self.imaginary))
    }

    fn output(self) -> Vec<Output> {
        vec![Output::Complex([self.real, self.imaginary])]
    }
}

/// The parts of an argument, in the dtype of the parts of a complex result.
fn operand(call: &mut Call<'_, '_>, name: &str) -> Result<Parts> {
    let dtype = if call.yields_complex() {
        call.of_parts(&[]).result_dtype()?
    } else {
        match call.value(name)? {
            Value::Complex(complex) => complex.dtype,
            Value::Tensor(tensor) => tensor.dtype,
        }
    };
    let mut part = |part| call.of_parts(&[(name, part)]).operand(name, dtype);
    Ok(Parts { real: part(Part::Real)?, imaginary: part(Part::Imaginary)?, dtype })
}

fn times(call: &mut Call<'_, '_>, left: &str, right: &str) -> String {
    call.op("Mul", &[left, right], Vec::new())
}

fn scaled(call: &mut Call<'_, '_>, z: &Parts, factor: f64) -> Parts {
    let factor = call.number_of(factor, z.dtype);
    z.map(|part| times(call, part, &factor))
}

/// The absolute value.
fn size(call: &mut Call<'_, '_>, z: &Parts) -> String {
    hypotenuse(call, [&z.real, &z.imaginary], z.dtype)
}

fn angle(call: &mut Call<'_, '_>, z: &Parts) -> String {
    call.kiln("Atan2", &[&z.imaginary, &z.real], Vec::new())
}

/// The number of an absolute value and an angle.
fn turned(call: &mut Call<'_, '_>, size: &str, angle: &str) -> [String; 2] {
    ["Cos", "Sin"].map(|wave| {
        let wave = call.op(wave, &[angle], Vec::new());
        times(call, size, &wave)
    })
}

/// Sine and cosine of the one, hyperbolic ones of the other.
fn waves(call: &mut Call<'_, '_>, angle: &str, hyperbolic: &str) -> [String; 4] {
    [("Sin", angle), ("Cos", angle), ("Sinh", hyperbolic), ("Cosh", hyperbolic)]
        .map(|(wave, of)| call.op(wave, &[of], Vec::new()))
}

/// `tanh(x + iy)`, of the tangents `t = tanh x` and `u = tan y`: `(t · (1 + u²) + iu · (1 − t²)) / (1 + t²u²)`.
fn hyperbolic_tangent(call: &mut Call<'_, '_>, x: &str, y: &str, dtype: DType) -> [String; 2] {
    let (t, u, one) =
        (call.op("Tanh", &[x], Vec::new()), call.op("Tan", &[y], Vec::new()), call.number_of(1.0, dtype));
    let (t_squared, u_squared) = (times(call, &t, &t), times(call, &u, &u));
    let both = times(call, &t_squared, &u_squared);
    let below = call.op("Add", &[&one, &both], Vec::new());
    let (more, less) =
        (call.op("Add", &[&one, &u_squared], Vec::new()), call.op("Sub", &[&one, &t_squared], Vec::new()));
    [times(call, &t, &more), times(call, &u, &less)]
        .map(|above| call.op("Div", &[&above, &below], Vec::new()))
}

fn exponential(call: &mut Call<'_, '_>, z: &Parts) -> Parts {
    let size = call.op("Exp", &[&z.real], Vec::new());
    let [real, imaginary] = turned(call, &size, &z.imaginary);
    z.with(real, imaginary)
}

fn logarithm(call: &mut Call<'_, '_>, z: &Parts) -> Parts {
    let size = size(call, z);
    let real = call.op("Log", &[&size], Vec::new());
    z.with(real, angle(call, z))
}

/// A power with an exponent that is real.
fn root(call: &mut Call<'_, '_>, z: &Parts, exponent: f64) -> Parts {
    let (size, angle, exponent) = (size(call, z), angle(call, z), call.number_of(exponent, z.dtype));
    let size = call.op("Pow", &[&size, &exponent], Vec::new());
    let angle = times(call, &angle, &exponent);
    let [real, imaginary] = turned(call, &size, &angle);
    z.with(real, imaginary)
}

fn product(call: &mut Call<'_, '_>, z: &Parts, w: &Parts) -> Parts {
    let (rr, ii) = (times(call, &z.real, &w.real), times(call, &z.imaginary, &w.imaginary));
    let (ri, ir) = (times(call, &z.real, &w.imaginary), times(call, &z.imaginary, &w.real));
    z.with(call.op("Sub", &[&rr, &ii], Vec::new()), call.op("Add", &[&ri, &ir], Vec::new()))
}

/// What quotients have of their divisor `c + id`, whose squares may be too large or too small: `c / m`, `d / m`, and `(c² + d²) / m`, with the
/// greater of `|c|` and `|d|` for `m`.
struct Divisor {
    real: String,
    imaginary: String,
    square: String,
}

impl Divisor {
    fn of(call: &mut Call<'_, '_>, w: &Parts) -> Self {
        let greater = greater_size(call, [&w.real, &w.imaginary], w.dtype);
        let [real, imaginary] =
            [&w.real, &w.imaginary].map(|part| call.op("Div", &[part, &greater], Vec::new()));
        let squares = [times(call, &w.real, &real), times(call, &w.imaginary, &imaginary)];
        let square = call.op("Add", &[&squares[0], &squares[1]], Vec::new());
        Self { real, imaginary, square }
    }

    /// What is left of a real number that is divided.
    fn divide(&self, call: &mut Call<'_, '_>, real: &str, like: &Parts) -> Parts {
        let (above, below) = (times(call, real, &self.real), times(call, real, &self.imaginary));
        let parts = like.with(above, call.op("Neg", &[&below], Vec::new()));
        parts.map(|part| call.op("Div", &[part, &self.square], Vec::new()))
    }
}

fn reciprocal(call: &mut Call<'_, '_>, z: &Parts) -> Parts {
    let divisor = Divisor::of(call, z);
    let parts = z.with(divisor.real, call.op("Neg", &[&divisor.imaginary], Vec::new()));
    parts.map(|part| call.op("Div", &[part, &divisor.square], Vec::new()))
}

/// `(a + ib) / (c + id)`.
fn divided(call: &mut Call<'_, '_>, z: &Parts, w: &Parts) -> Parts {
    let Divisor { real, imaginary, square } = Divisor::of(call, w);
    let conjugate = z.with(real, call.op("Neg", &[&imaginary], Vec::new()));
    let above = product(call, z, &conjugate);
    above.map(|part| call.op("Div", &[part, &square], Vec::new()))
}

/// Sums and differences. What is added to complex numbers that is real leaves imaginary parts as they are.
fn sum(call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
    let real = by_rule(&mut call.of_parts(&[("self", Part::Real), ("other", Part::Real)]))?;
    let added = if call.takes_complex("other") { None } else { call.value("other").ok() };
    let (Value::Complex(x), Some(Value::Tensor(other))) = (call.value("self")?, added) else {
        let imaginary =
            by_rule(&mut call.of_parts(&[("self", Part::Imaginary), ("other", Part::Imaginary)]))?;
        return Ok(vec![Output::Complex([real, imaginary])]);
    };
    let Tensor { dtype, sizes, .. } = call.of_parts(&[]).result(0)?;
    let mut imaginary = call.cast_tensor(&x.part(Part::Imaginary), dtype);
    let grows = other.rank() > 0 && !(x.sizes == sizes && sizes.iter().all(Option::is_some));
    if grows {
        let shape = call.shape(&real);
        imaginary = call.op("Expand", &[&imaginary, &shape], Vec::new());
    }
    Ok(vec![Output::Complex([real, imaginary])])
}

fn quotient(call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
    if call.has("rounding_mode") {
        return Err(unsupported("quotients of complex numbers that are rounded"));
    }
    if !call.takes_complex("other") {
        let mut part = |part| by_rule(&mut call.of_parts(&[("self", part), ("other", Part::Real)]));
        return Ok(vec![Output::Complex([part(Part::Real)?, part(Part::Imaginary)?])]);
    }
    let w = operand(call, "other")?;
    if !call.takes_complex("self") {
        let real = call.operand("self", w.dtype)?;
        return Ok(Divisor::of(call, &w).divide(call, &real, &w).output());
    }
    let z = operand(call, "self")?;
    Ok(divided(call, &z, &w).output())
}

fn equal(call: &mut Call<'_, '_>) -> Result<String> {
    let mut equal = |part| -> Result<String> {
        let parts = [("self", part), ("other", part)];
        let mut call = call.of_parts(&parts);
        let (x, y) = (call.tensor("self")?, call.tensor("other")?);
        let dtype =
            [x.dtype, y.dtype].into_iter().filter(|dtype| dtype.is_float()).max_by_key(|dtype| dtype.size());
        let dtype = dtype.unwrap_or(DType::F32);
        let (x, y) = (call.cast_tensor(&x, dtype), call.cast_tensor(&y, dtype));
        Ok(call.op("Equal", &[&x, &y], Vec::new()))
    };
    let (real, imaginary) = (equal(Part::Real)?, equal(Part::Imaginary)?);
    Ok(call.op("And", &[&real, &imaginary], Vec::new()))
}

fn unequal(call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
    let equal = equal(call)?;
    Ok(vec![Output::Real(call.op("Not", &[&equal], Vec::new()))])
}

/// What is true of either part, or of both.
fn of_both(call: &mut Call<'_, '_>, operator: &str) -> Result<Vec<Output>> {
    parts_of(call, "self")?;
    let mut of = |part| by_rule(&mut call.of_parts(&[("self", part)]));
    let (real, imaginary) = (of(Part::Real)?, of(Part::Imaginary)?);
    Ok(vec![Output::Real(call.op(operator, &[&real, &imaginary], Vec::new()))])
}

// ---- powers ----

/// The parts of a number that must be known.
fn known_parts(call: &mut Call<'_, '_>, name: &str) -> Result<[f64; 2]> {
    let mut part = |part| call.of_parts(&[(name, part)]).float(name);
    Ok([part(Part::Real)?, part(Part::Imaginary)?])
}

fn power(call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
    /// Powers up to here are products.
    const MOST: f64 = 16.0;
    let z = operand(call, "self")?;
    let [exponent, imaginary] = known_parts(call, "exponent")?;
    if imaginary != 0.0 {
        let log = logarithm(call, &z);
        let w = constant(call, [exponent, imaginary], z.dtype);
        let exponent = product(call, &log, &w);
        return Ok(exponential(call, &exponent).output());
    }
    if exponent.fract() != 0.0 || exponent.abs() > MOST || exponent == 0.0 {
        return Ok(root(call, &z, exponent).output());
    }
    // The exponent's binary digits, the greatest first.
    let whole = exponent.abs() as u32;
    let mut result = z.with(z.real.clone(), z.imaginary.clone());
    for digit in (0..whole.ilog2()).rev() {
        result = product(call, &result, &result);
        if whole >> digit & 1 == 1 {
            result = product(call, &result, &z);
        }
    }
    let result = if exponent < 0.0 { reciprocal(call, &result) } else { result };
    Ok(result.output())
}

fn constant(call: &mut Call<'_, '_>, [real, imaginary]: [f64; 2], dtype: DType) -> Parts {
    let mut part = |part| call.scalar(Scalar::Float(part), dtype);
    Parts { real: part(real), imaginary: part(imaginary), dtype }
}

/// A number to powers.
fn power_of_number(call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
    let [real, imaginary] = known_parts(call, "self")?;
    if real == 0.0 && imaginary == 0.0 {
        return Err(unsupported("complex powers of 0"));
    }
    let exponent = operand(call, "exponent")?;
    let log = constant(call, [real.hypot(imaginary).ln(), imaginary.atan2(real)], exponent.dtype);
    let exponent = product(call, &exponent, &log);
    Ok(exponential(call, &exponent).output())
}

fn power_of_tensors(call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
    let (z, exponent) = (operand(call, "self")?, operand(call, "exponent")?);
    let log = logarithm(call, &z);
    let exponent = product(call, &log, &exponent);
    Ok(exponential(call, &exponent).output())
}
