//! Logarithms.

use super::exp::{LN2_HIGH, LN2_LOW};
use super::polynomial;
use crate::simd::Simd;

/// Natural logarithm: 2 ulp; -∞ of 0, NaN of negative numbers and NaN.
#[inline(always)]
pub(crate) fn log<S: Simd>(s: S, x: S::F) -> S::F {
    // Subnormal numbers are made normal first.
    let tiny = s.lt(x, s.splat(f32::MIN_POSITIVE));
    let normal = s.select(tiny, s.mul(x, s.splat(8_388_608.0)), x);
    let correction = s.select_or_zero(tiny, s.splat(-23.0));
    // m = x / 2^e lies in [√½, √2).
    let bits = s.int_sub(s.bits(normal), s.int(0x3f35_04f3));
    let e = s.add(s.to_float(s.shr::<23>(bits)), correction);
    let m = s.float_of_bits(s.int_add(s.int_and(bits, s.int(0x007f_ffff)), s.int(0x3f35_04f3)));
    let f = s.sub(m, s.splat(1.0));
    let square = s.mul(f, f);
    // (ln(1 + f) - f + f²/2) / f³ over [√½ - 1, √2 - 1].
    let q = polynomial(
        s,
        f,
        [
            0.333_333_13,
            -0.250_000_09,
            0.200_021_24,
            -0.166_680_05,
            0.142_194_5,
            -0.124_053_456,
            0.118_887_246,
            -0.116_774_924,
            0.067_476_42,
        ],
    );
    let low = s.mul(s.mul(square, f), q);
    let low = s.mul_add(e, s.splat(LN2_LOW), low);
    let low = s.mul_add(square, s.splat(-0.5), low);
    let y = s.mul_add(e, s.splat(LN2_HIGH), s.add(low, f));
    let y = s.select(s.eq(x, s.splat(0.0)), s.splat(f32::NEG_INFINITY), y);
    let y = s.select(s.lt(x, s.splat(f32::INFINITY)), y, x);
    s.select(s.lt(x, s.splat(0.0)), s.splat(f32::NAN), y)
}

/// `ln(1 + x)`: 4 ulp, also near 0.
#[inline(always)]
pub(crate) fn log1p<S: Simd>(s: S, x: S::F) -> S::F {
    let w = s.add(x, s.splat(1.0));
    // What rounding took from 1 + x comes back to first order.
    let lost = s.div(s.sub(x, s.sub(w, s.splat(1.0))), w);
    let y = s.add(log(s, w), lost);
    let small = s.lt(s.abs(x), s.splat(1e-10));
    let y = s.select(small, x, y);
    let edge = s.eq(w, s.splat(0.0));
    let y = s.select(edge, s.splat(f32::NEG_INFINITY), y);
    s.select(s.eq(x, s.splat(f32::INFINITY)), x, y)
}
