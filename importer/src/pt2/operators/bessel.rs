//! Modified functions of Bessel, of orders 0 and 1.

use super::Table;
use super::pointwise::computed;
use super::special::polynomial;
use crate::pt2::call::{Call, Outputs, Result};
use kiln_types::DType;
use std::f64::consts::PI;

pub(super) const RULES: Table = &[
    ("i0.default", |call| bessel(call, 0, false)),
    ("special_i0e.default", |call| bessel(call, 0, true)),
    ("special_i1.default", |call| bessel(call, 1, false)),
    ("special_i1e.default", |call| bessel(call, 1, true)),
];

/// From here on the asymptotic series has more digits than floats of 64 bits.
const NEAR: f64 = 16.0;
const TERMS: u8 = 48;
const ASYMPTOTIC: u8 = 30;

/// `I₀` or `I₁`; `scaled` times `exp(−|x|)`. By the power series (Abramowitz and Stegun, 9.6.10) up to [`NEAR`], and by the asymptotic one
/// (9.7.1), which needs no more terms, beyond.
fn bessel(call: &mut Call<'_, '_>, order: u8, scaled: bool) -> Result<Outputs> {
    let (value, dtype) = computed(call)?;
    let x = call.cast(&value, dtype, DType::F64);
    let size = call.op("Abs", &[&x], Vec::new());
    let bound = call.number_of(NEAR, DType::F64);
    let near = call.op("Min", &[&size, &bound], Vec::new());
    let series = power_series(call, &near, order, scaled);
    let far = call.op("Max", &[&size, &bound], Vec::new());
    let asymptotic = asymptotic_series(call, &far, order, scaled);
    let is_far = call.op("Greater", &[&size, &bound], Vec::new());
    let mut result = call.op("Where", &[&is_far, &asymptotic, &series], Vec::new());
    if !scaled {
        let infinite = call.op("IsInf", &[&x], Vec::new());
        result = call.op("Where", &[&infinite, &size, &result], Vec::new());
    }
    if order == 1 {
        // It is odd.
        let sign = call.op("Sign", &[&x], Vec::new());
        result = call.op("Mul", &[&result, &sign], Vec::new());
    }
    Ok(vec![call.cast(&result, DType::F64, dtype)])
}

/// `(x/2)ⁿ Σ (x²/4)ᵏ / (k! (k + n)!)`.
fn power_series(call: &mut Call<'_, '_>, x: &str, order: u8, scaled: bool) -> String {
    let quarter = call.number_of(0.25, DType::F64);
    let square = call.op("Mul", &[x, x], Vec::new());
    let square = call.op("Mul", &[&square, &quarter], Vec::new());
    let terms = (1..TERMS).scan(1.0, |term, k| {
        *term /= f64::from(k) * f64::from(k + order);
        Some(*term)
    });
    let terms: Vec<f64> = std::iter::once(1.0).chain(terms).collect();
    let mut series = polynomial(call, &square, &terms, DType::F64);
    if order == 1 {
        let half = call.number_of(0.5, DType::F64);
        let factor = call.op("Mul", &[x, &half], Vec::new());
        series = call.op("Mul", &[&series, &factor], Vec::new());
    }
    if scaled {
        let negative = call.op("Neg", &[x], Vec::new());
        let power = call.op("Exp", &[&negative], Vec::new());
        series = call.op("Mul", &[&series, &power], Vec::new());
    }
    series
}

/// `eˣ / √(2πx) · Σ Π ((2j − 1)² − 4n²) / (k! (8x)ᵏ)`, the product over `j` from 1 to `k`.
fn asymptotic_series(call: &mut Call<'_, '_>, x: &str, order: u8, scaled: bool) -> String {
    let inverse = call.op("Reciprocal", &[x], Vec::new());
    let orders = 4.0 * f64::from(order) * f64::from(order);
    let terms = (1..ASYMPTOTIC).scan(1.0, |term, k| {
        let odd = f64::from(2 * k - 1);
        *term *= (odd * odd - orders) / (8.0 * f64::from(k));
        Some(*term)
    });
    let terms: Vec<f64> = std::iter::once(1.0).chain(terms).collect();
    let sum = polynomial(call, &inverse, &terms, DType::F64);
    let scale = call.number_of(0.5 / PI, DType::F64);
    let scale = call.op("Mul", &[&inverse, &scale], Vec::new());
    let scale = call.op("Sqrt", &[&scale], Vec::new());
    let scale = match scaled {
        true => scale,
        false => {
            let power = call.op("Exp", &[x], Vec::new());
            call.op("Mul", &[&power, &scale], Vec::new())
        }
    };
    call.op("Mul", &[&scale, &sum], Vec::new())
}
