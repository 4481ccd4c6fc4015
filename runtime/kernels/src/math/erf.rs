//! The Gauss error function.

use super::{exp, polynomial};
use crate::simd::Simd;

/// erf: 3 ulp.
#[inline(always)]
pub(crate) fn erf<S: Simd>(s: S, x: S::F) -> S::F {
    let t = s.abs(x);
    // erf(x) / x in x² over |x| ≤ 1.
    let z = s.mul(x, x);
    let small = polynomial(
        s,
        z,
        [
            1.128_379_1,
            -0.376_126_26,
            0.112_835_854,
            -0.026_853_81,
            0.005_188_327_3,
            -0.000_801_019_14,
            7.853_854e-5,
        ],
    );
    let small = s.mul(small, x);
    // -ln(1 - erf(t)) over [0.95, 4]; beyond, erf is 1.
    let clamped = s.min(s.splat(4.0), t);
    let g = polynomial(
        s,
        clamped,
        [
            -0.000_183_445_62,
            1.129_556_9,
            0.633_262_6,
            0.108_372_495,
            -0.025_178_98,
            0.004_193_615_6,
            -0.000_439_107_4,
            2.149_620_6e-5,
        ],
    );
    let large = s.sub(s.splat(1.0), exp(s, s.neg(g)));
    let large = s.with_sign_of(large, x);
    // NaN is not below 1, and min() let it become 4.
    let y = s.select(s.lt(t, s.splat(1.0)), small, large);
    s.select(s.eq(x, x), y, x)
}
