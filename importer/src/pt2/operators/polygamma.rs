//! Derivatives of the digamma function.

use super::Table;
use super::pointwise::computed;
use super::special::{digamma, mirrored, polynomial};
use crate::pt2::call::{Call, Outputs, Result, unsupported};
use kiln_types::DType;
use std::f64::consts::PI;

pub(super) const RULES: Table = &[("polygamma.default", polygamma), ("special_polygamma.default", polygamma)];

/// Derivatives beyond this one are refused: factorials become large.
const MOST: u8 = 20;

/// `ψₙ(x) = (−1)ⁿ⁺¹ n! ζ(n + 1, x)` from ½ on, and `(−1)ⁿ ψₙ(1 − x) − π dⁿ/dxⁿ cot πx` below (Abramowitz and Stegun, 6.4.10 and 6.4.7).
fn polygamma(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let order = call.int("n")?;
    let Some(order) = u8::try_from(order).ok().filter(|&order| order <= MOST) else {
        return Err(unsupported(format!(
            "derivative {order} of the digamma function; up to {MOST} are known"
        )));
    };
    if order == 0 {
        return digamma(call);
    }
    let (value, dtype) = computed(call)?;
    let x = call.cast(&value, dtype, DType::F64);
    let number = |call: &mut Call<'_, '_>, value: f64| call.number_of(value, DType::F64);
    let (argument, below) = mirrored(call, &x);
    let zeta = hurwitz_zeta(call, &argument, order + 1)?;
    let sign = if order % 2 == 1 { 1.0 } else { -1.0 };
    let factor = number(call, sign * (1..=order).map(f64::from).product::<f64>());
    let above = call.op("Mul", &[&zeta, &factor], Vec::new());
    // By the rest of `x`, as large multiples of π have few digits.
    let whole = call.op("Floor", &[&x], Vec::new());
    let rest = call.op("Sub", &[&x, &whole], Vec::new());
    let pi = number(call, PI);
    let angle = call.op("Mul", &[&rest, &pi], Vec::new());
    let (sine, cosine) = (call.op("Sin", &[&angle], Vec::new()), call.op("Cos", &[&angle], Vec::new()));
    let cotangent = call.op("Div", &[&cosine, &sine], Vec::new());
    let slope = polynomial(call, &cotangent, &slopes_of_cotangent(order), DType::F64);
    let factor = number(call, -PI.powi(i32::from(order) + 1));
    let slope = call.op("Mul", &[&slope, &factor], Vec::new());
    let mirror = if order % 2 == 1 { "Sub" } else { "Add" };
    let reflected = call.op(mirror, &[&slope, &above], Vec::new());
    let result = call.op("Where", &[&below, &reflected, &above], Vec::new());
    Ok(vec![call.cast(&result, DType::F64, dtype)])
}

/// The coefficients of `dⁿ/dyⁿ cot y` as a polynomial in `cot y`, whose own derivative is `−(1 + cot² y)`.
fn slopes_of_cotangent(order: u8) -> Vec<f64> {
    let mut terms = vec![0.0, 1.0];
    for _ in 0..order {
        let mut next = vec![0.0; terms.len() + 1];
        for (power, term) in terms.iter().enumerate().skip(1) {
            let slope = -term * power as f64;
            next[power - 1] += slope;
            next[power + 1] += slope;
        }
        terms = next;
    }
    terms
}

/// `ζ(s, x) = Σ (x + k)⁻ˢ`, whose terms from the `m`-th on are those of Euler and Maclaurin (as Cephes' `zeta` has them).
fn hurwitz_zeta(call: &mut Call<'_, '_>, x: &str, s: u8) -> Result<String> {
    /// `B₂ⱼ / (2j)!` of the numbers of Bernoulli.
    const SERIES: [f64; 7] = [
        1.0 / 12.0,
        -1.0 / 720.0,
        1.0 / 30_240.0,
        -1.0 / 1_209_600.0,
        1.0 / 47_900_160.0,
        -691.0 / 1_307_674_368_000.0,
        1.0 / 74_724_249_600.0,
    ];
    let number = |call: &mut Call<'_, '_>, value: f64| call.number_of(value, DType::F64);
    let (count, order) = (10 + s, f64::from(s));
    call.to.spend(usize::from(count) * 8)?;
    let exponent = number(call, -order);
    let mut sum = call.op("Pow", &[x, &exponent], Vec::new());
    for place in 1..count {
        let place = number(call, f64::from(place));
        let base = call.op("Add", &[x, &place], Vec::new());
        let term = call.op("Pow", &[&base, &exponent], Vec::new());
        sum = call.op("Add", &[&sum, &term], Vec::new());
    }
    let shift = number(call, f64::from(count));
    let large = call.op("Add", &[x, &shift], Vec::new());
    let power = call.op("Pow", &[&large, &exponent], Vec::new());
    let inverse = call.op("Reciprocal", &[&large], Vec::new());
    let square = call.op("Mul", &[&inverse, &inverse], Vec::new());
    // `w⁻ˢ (w / (s − 1) + ½ + Σ B₂ⱼ / (2j)! · s (s + 1) … (s + 2j − 2) · w¹⁻²ʲ)`.
    let mut rising = order;
    let terms: Vec<f64> = (0_u8..)
        .zip(SERIES)
        .map(|(n, term)| {
            if n > 0 {
                rising *= (order + f64::from(2 * n - 1)) * (order + f64::from(2 * n));
            }
            term * rising
        })
        .collect();
    let series = polynomial(call, &square, &terms, DType::F64);
    let series = call.op("Mul", &[&series, &inverse], Vec::new());
    let (divisor, half) = (number(call, order - 1.0), number(call, 0.5));
    let integral = call.op("Div", &[&large, &divisor], Vec::new());
    let rest = call.op("Add", &[&integral, &half], Vec::new());
    let rest = call.op("Add", &[&rest, &series], Vec::new());
    let rest = call.op("Mul", &[&rest, &power], Vec::new());
    // Infinite times 0.
    let infinite = call.op("IsInf", &[x], Vec::new());
    let zero = number(call, 0.0);
    let rest = call.op("Where", &[&infinite, &zero, &rest], Vec::new());
    Ok(call.op("Add", &[&sum, &rest], Vec::new()))
}
