//! The exponential and what is made of it.

use super::polynomial;
use crate::simd::Simd;

/// ln 2 in two parts; the first has few bits, so that its multiples by the exponent are exact.
pub(super) const LN2_HIGH: f32 = 0.693_145_75;
pub(super) const LN2_LOW: f32 = 1.428_606_8e-6;

/// `(e^r - 1 - r) / r²` over ±0.347.
const REST: [f32; 5] = [0.5, 0.166_665_18, 0.041_666_202, 0.008_369_025, 0.001_395_072_1];

/// Splits `e^x` into `2^n · (1 + q)` with |ln(1 + q)| ≤ ln 2 / 2; `x` lies in ±150.
#[inline(always)]
fn split<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    let n = s.round(s.mul(x, s.splat(core::f32::consts::LOG2_E)));
    let r = s.sub_product(x, n, s.splat(LN2_HIGH));
    let r = s.sub_product(r, n, s.splat(LN2_LOW));
    let p = polynomial(s, r, REST);
    (n, s.mul_add(s.mul(r, r), p, r))
}

/// `e^x`: 1 ulp, 1 more where the result is subnormal; 0 below -104, ∞ above 88.72, NaN of NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    // The operand order lets NaN through.
    let x = s.min(s.splat(89.0), s.max(s.splat(-105.0), x));
    let (n, q) = split(s, x);
    s.scale(s.add(q, s.splat(1.0)), n)
}

/// `e^x` for `x` between -87.33 and 89: 1.2 ulp, ∞ above 88.72, or from 88.37 on, NaN of NaN. Faster than [`exp`].
#[inline(always)]
pub(crate) fn bounded_exp<S: Simd>(s: S, x: S::F) -> S::F {
    let (n, root) = s.root(s.mul(x, s.splat(core::f32::consts::LOG2_E)));
    let r = s.sub_product(x, n, s.splat(LN2_HIGH));
    let r = s.sub_product(r, n, s.splat(LN2_LOW));
    // (e^r - 1 - r) / r² over ±0.0219 or ±0.347.
    let p =
        if S::ROOTS == 16 { polynomial(s, r, [0.500_016_5, 0.166_670_32]) } else { polynomial(s, r, REST) };
    s.scale_normal(s.mul_add(root, s.mul_add(s.mul(r, r), p, r), root), n)
}

/// `2^x` for `x` between -290 and 128.4: 1.2 ulp, ∞ from 128 on, or from 127.5 on; below -126 0, or 1 ulp more and 0 below -150; NaN of NaN.
#[inline(always)]
pub(crate) fn bounded_exp2<S: Simd>(s: S, x: S::F) -> S::F {
    let (n, root) = s.root(x);
    let r = s.sub(x, n);
    // (2^r - 1) / r over ±0.0316 or ±0.5.
    let p = if S::ROOTS == 16 {
        polynomial(s, r, [0.693_147_2, 0.240_234_45, 0.055_505_987])
    } else {
        polynomial(
            s,
            r,
            [0.693_147_2, 0.240_226_46, 0.055_503_286, 0.009_618_489, 0.001_339_993, 0.000_153_458_12],
        )
    };
    s.scale_normal(s.mul_add(s.mul(root, r), p, root), n)
}

/// `2^x` for `x` of at most 0: 1.2 ulp; 0 where it would be subnormal, since some CPUs take a hundred times as long for such numbers.
#[inline(always)]
pub(crate) fn weight_of_two<S: Simd>(s: S, x: S::F) -> S::F {
    let least = s.splat(-126.0);
    // The operand order lets NaN through.
    let power = bounded_exp2(s, s.max(least, x));
    s.select(s.lt(x, least), s.splat(0.0), power)
}

/// [`weight_of_two`] for weights that are rounded to bf16: within 2^-18. `x` is at most 0, or what rounding made of 0.
#[inline(always)]
pub(crate) fn rounded_weight_of_two<S: Simd>(s: S, x: S::F) -> S::F {
    let (n, fraction) = s.split(x);
    // 2^f over 0..1. With a coefficient less, errors are 2^-14, and sums of many weights show them.
    let p = polynomial(s, fraction, [1.000_002_6, 0.693_003_83, 0.241_442_75, 0.052_011_46, 0.013_534_168]);
    s.scale_down(p, n)
}

/// `e^x - 1`: 2 ulp, also near 0; -1 for large negative `x`.
#[inline(always)]
pub(crate) fn exp_m1<S: Simd>(s: S, x: S::F) -> S::F {
    let clamped = s.min(s.splat(89.0), s.max(s.splat(-30.0), x));
    let (n, q) = split(s, clamped);
    // 2^n q + (2^n - 1), at half the scale, since 2^128 is no f32.
    let half = s.scale(s.splat(0.5), n);
    let y = s.mul_add(half, q, s.sub(half, s.splat(0.5)));
    let y = s.add(y, y);
    // Keeps the sign of zero and subnormal numbers as they are.
    s.select(s.lt(s.abs(x), s.splat(1e-10)), x, y)
}

/// Hyperbolic tangent: 3 ulp.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let magnitude = s.min(s.splat(10.0), s.abs(x));
    let e = exp_m1(s, s.add(magnitude, magnitude));
    let y = s.quotient(e, s.add(e, s.splat(2.0)));
    s.with_sign_of(y, x)
}
