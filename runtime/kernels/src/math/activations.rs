//! Activations that are more than a comparison.
//!
//! Relative errors grow where a function tends to 0 from below (GELU, SiLU and Mish of large negative numbers); there the bounds
//! are absolute.

use super::{exp, log1p, polynomial, tanh};
use crate::simd::Simd;

/// `1 / (1 + e^-x)`: 3 ulp; 0 below -88.7.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    s.quotient(one, s.add(one, exp(s, s.neg(x))))
}

/// `x Φ(x)`: 4 ulp for x > -1, absolute 3e-7 below.
#[inline(always)]
pub(crate) fn gelu<S: Simd>(s: S, x: S::F) -> S::F {
    // max(x, 0) - |x| Φ(-|x|). Beyond 13, Φ(-|x|) is 0 here, and the bound keeps ∞ · 0 away. The operand order lets NaN through.
    let t = s.min(s.splat(13.0), s.abs(x));
    // -ln Φ(-t): for t up to 5.6, where an error counts for little, within 4.4e-8 / max(3 t Φ(-t), 1 if t ≤ 1); growing beyond.
    let g = polynomial(
        s,
        t,
        [
            0.693_147_1,
            0.797_887_15,
            0.318_284_36,
            0.036_431_71,
            -0.004_961_192_6,
            0.000_146_273_74,
            0.000_107_137_6,
            -2.254_413_9e-5,
            1.557_245_1e-6,
        ],
    );
    s.sub_product(s.max(s.splat(0.0), x), t, exp(s, s.neg(g)))
}

/// The tanh approximation of GELU: 6 ulp for x > -1, absolute 3e-7 below.
#[inline(always)]
pub(crate) fn gelu_tanh<S: Simd>(s: S, x: S::F) -> S::F {
    // √(2/π) (x + 0.044715 x³)
    let cubic = s.mul_add(s.mul(s.splat(0.035_677_407), x), x, s.splat(0.797_884_6));
    let half = s.mul(x, s.splat(0.5));
    s.mul_add(half, tanh(s, s.mul(cubic, x)), half)
}

/// `ln(1 + e^x)`: 4 ulp for x > -80.
#[inline(always)]
pub(crate) fn softplus<S: Simd>(s: S, x: S::F) -> S::F {
    let rest = log1p(s, exp(s, s.neg(s.abs(x))));
    // The operand order lets NaN through.
    s.add(s.max(s.splat(0.0), x), rest)
}

/// `x tanh(softplus(x))`: 6 ulp for x > -80.
#[inline(always)]
pub(crate) fn mish<S: Simd>(s: S, x: S::F) -> S::F {
    // tanh(ln(1 + w)) = (w² + 2w) / (w² + 2w + 2); above 20 it is 1.
    let w = exp(s, s.min(s.splat(20.0), x));
    let t = s.mul(w, s.add(w, s.splat(2.0)));
    s.mul(x, s.quotient(t, s.add(t, s.splat(2.0))))
}
