//! Activations that are more than a comparison.
//!
//! Relative errors grow where a function tends to 0 from below (GELU, SiLU and Mish of large negative numbers); there the bounds
//! are absolute.

use super::{erf, exp, log1p, tanh};
use crate::simd::Simd;

/// `1 / (1 + e^-x)`: 3 ulp; 0 below -88.7.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    s.div(one, s.add(one, exp(s, s.neg(x))))
}

/// `x Φ(x)`: 4 ulp for x > -1, absolute 3e-7 below.
#[inline(always)]
pub(crate) fn gelu<S: Simd>(s: S, x: S::F) -> S::F {
    let half = s.mul(x, s.splat(0.5));
    let e = erf(s, s.mul(x, s.splat(core::f32::consts::FRAC_1_SQRT_2)));
    s.mul_add(half, e, half)
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
    s.mul(x, s.div(t, s.add(t, s.splat(2.0))))
}
