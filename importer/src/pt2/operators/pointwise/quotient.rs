//! Quotients, what is left of them, and rounding.

use super::{operands, wide};
use crate::pt2::call::{Call, Outputs, Result, Tensor, int};
use kiln_types::DType;

pub(super) fn divide(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let mode = call.string_or("rounding_mode", "")?;
    if mode == "floor" {
        return floor_divide(call);
    }
    let dtype = call.result_dtype()?;
    let [x, y] = operands(call, ["self", "other"])?;
    let quotient = call.op("Div", &[&x, &y], Vec::new());
    // Quotients of integers are truncated already.
    if mode != "trunc" || !dtype.is_float() {
        return Ok(vec![quotient]);
    }
    let quotient = Tensor { name: quotient, dtype, sizes: Vec::new() };
    Ok(vec![truncated(call, &quotient)])
}

pub(super) fn floor_divide(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let [x, y] = operands(call, ["self", "other"])?;
    if !dtype.is_float() {
        return Ok(vec![floored_quotient(call, &x, &y, dtype)]);
    }
    // As PyTorch computes it, by the remainder: the quotient may be rounded up to the next integer.
    let wide = wide(dtype);
    let (x, y) = (call.cast(&x, dtype, wide), call.cast(&y, dtype, wide));
    let (rest, below) = parts(call, &x, &y, wide);
    let whole = call.op("Sub", &[&x, &rest], Vec::new());
    let whole = call.op("Div", &[&whole, &y], Vec::new());
    let whole = call.op("Round", &[&whole], Vec::new());
    let below = call.cast(&below, DType::Bool, wide);
    let whole = call.op("Sub", &[&whole, &below], Vec::new());
    let (quotient, zero) = (call.op("Div", &[&x, &y], Vec::new()), call.number_of(0.0, wide));
    let none = call.op("Equal", &[&y, &zero], Vec::new());
    let result = call.op("Where", &[&none, &quotient, &whole], Vec::new());
    Ok(vec![call.cast(&result, wide, dtype)])
}

/// The quotient, rounded down. Of floats that is what the nearest float to the quotient is rounded to.
pub(in crate::pt2::operators) fn floored_quotient(
    call: &mut Call<'_, '_>,
    x: &str,
    y: &str,
    dtype: DType,
) -> String {
    if dtype.is_float() {
        let quotient = call.op("Div", &[x, y], Vec::new());
        return call.op("Floor", &[&quotient], Vec::new());
    }
    // The remainder has the divisor's sign, so that the rest divides without one. It may be less than narrow integers are.
    let wide = if dtype.size() < 4 { DType::I32 } else { dtype };
    let (x, y) = (call.cast(x, dtype, wide), call.cast(y, dtype, wide));
    let remainder = call.op("Mod", &[&x, &y], Vec::new());
    let rest = call.op("Sub", &[&x, &remainder], Vec::new());
    let quotient = call.op("Div", &[&rest, &y], Vec::new());
    call.cast(&quotient, wide, dtype)
}

pub(super) fn remainder(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let [x, y] = operands(call, ["self", "other"])?;
    let wide = wide(dtype);
    let (x, y) = (call.cast(&x, dtype, wide), call.cast(&y, dtype, wide));
    let rest = remainder_of(call, &x, &y, wide);
    Ok(vec![call.cast(&rest, wide, dtype)])
}

/// The remainder with the divisor's sign.
pub(in crate::pt2::operators) fn remainder_of(
    call: &mut Call<'_, '_>,
    x: &str,
    y: &str,
    dtype: DType,
) -> String {
    if !dtype.is_float() {
        return call.op("Mod", &[x, y], Vec::new());
    }
    let (rest, below) = parts(call, x, y, dtype);
    let moved = call.op("Add", &[&rest, y], Vec::new());
    call.op("Where", &[&below, &moved, &rest], Vec::new())
}

/// The remainder of floats with the dividend's sign, which is exact, and whether it has another sign than the divisor.
fn parts(call: &mut Call<'_, '_>, x: &str, y: &str, dtype: DType) -> (String, String) {
    let rest = call.op("Mod", &[x, y], vec![int("fmod", 1)]);
    let zero = call.number_of(0.0, dtype);
    let (of_rest, of_y) =
        (call.op("Less", &[&rest, &zero], Vec::new()), call.op("Less", &[y, &zero], Vec::new()));
    let unlike = call.op("Xor", &[&of_rest, &of_y], Vec::new());
    let none = call.op("Equal", &[&rest, &zero], Vec::new());
    let some = call.op("Not", &[&none], Vec::new());
    let below = call.op("And", &[&some, &unlike], Vec::new());
    (rest, below)
}

pub(super) fn fmod(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let [x, y] = operands(call, ["self", "other"])?;
    Ok(vec![call.op("Mod", &[&x, &y], vec![int("fmod", 1)])])
}

/// Rounded towards zero.
pub(super) fn truncated(call: &mut Call<'_, '_>, x: &Tensor) -> String {
    if !x.dtype.is_float() {
        return call.op("Identity", &[x], Vec::new());
    }
    let size = call.op("Abs", &[x], Vec::new());
    let whole = call.op("Floor", &[&size], Vec::new());
    let sign = call.op("Sign", &[x], Vec::new());
    call.op("Mul", &[&sign, &whole], Vec::new())
}
