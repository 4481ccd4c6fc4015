//! Activations that are more than a comparison.
//!
//! Relative errors grow where a function tends to 0 from below (GELU, SiLU and Mish of large negative numbers); there the bounds
//! are absolute.

use super::{bounded_exp, bounded_exp2, exp, log1p, polynomial};
use crate::simd::Simd;

/// `1 / (1 + e^-x)` for `x` of at least -89: 3 ulp; 0 below -88.8, or from -87.4 on.
#[inline(always)]
fn logistic<S: Simd>(s: S, x: S::F) -> S::F {
    // Beyond, the result is 1. The operand order lets NaN through.
    let x = s.min(s.splat(87.33), x);
    s.inverse(s.add(s.splat(1.0), bounded_exp(s, s.neg(x))))
}

/// `1 / (1 + e^-x)`: 3 ulp; 0 below -88.8, or from -87.4 on.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    // The operand order lets NaN through.
    logistic(s, s.max(s.splat(-89.0), x))
}

/// `x / (1 + e^-x)`: 4 ulp; 0 below -88.8, or from -87.4 on.
#[inline(always)]
pub(crate) fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    // Below, the product is 0, and the bound keeps ∞ · 0 away. The operand order lets NaN through.
    let x = s.max(s.splat(-89.0), x);
    s.mul(x, logistic(s, x))
}

/// `x Φ(x)`: 4 ulp for x > -1, absolute 3e-7 below.
#[inline(always)]
pub(crate) fn gelu<S: Simd>(s: S, x: S::F) -> S::F {
    // max(x, 0) - |x| Φ(-|x|). From 10 on, Φ(-|x|) is 0 here: soon it would be subnormal, and some CPUs take a hundred times as long for such
    // numbers. The bound keeps ∞ · 0 away. The operand order lets NaN through.
    let bound = s.splat(10.0);
    let t = s.min(bound, s.abs(x));
    // log2 Φ(-t): for t up to 5.6, where an error counts for little, within 6.4e-8 / max(3 t Φ(-t), 1 if t ≤ 1); growing beyond.
    let g = polynomial(
        s,
        t,
        [
            -1.0,
            -1.151_107_8,
            -0.459_187_27,
            -0.052_559_847,
            0.007_157_488,
            -0.000_211_028_4,
            -0.000_154_566_9,
            3.252_431_7e-5,
            -2.246_629_8e-6,
        ],
    );
    let beyond = s.select_or_zero(s.lt(t, bound), bounded_exp2(s, g));
    s.sub_product(s.max(s.splat(0.0), x), t, beyond)
}

/// The tanh approximation of GELU: 6 ulp for x > -1, absolute 3e-7 below.
#[inline(always)]
pub(crate) fn gelu_tanh<S: Simd>(s: S, x: S::F) -> S::F {
    // x / (1 + e^-2u) of u = √(2/π) (x + 0.044715 x³), for -2 u log2 e. Beyond, it is x or 0, and the bound keeps ∞ · 0 away. The operand order
    // lets NaN through.
    let x = s.max(s.splat(-10.06), x);
    let t = s.min(s.splat(9.0), x);
    let cubic = s.mul_add(s.mul(s.splat(-0.102_943_24), t), t, s.splat(-2.302_208_2));
    let power = bounded_exp2(s, s.mul(cubic, t));
    s.mul(x, s.inverse(s.add(s.splat(1.0), power)))
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
