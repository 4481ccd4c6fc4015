//! Sine and cosine.

use super::polynomial;
use crate::simd::Simd;
use num_traits::Float;

/// Beyond this, the quadrant's multiples of π/2 are no longer exact, and a slower function takes over.
const LIMIT: f32 = 8000.0;

/// Sine: 2 ulp (absolute 1e-7 near the zeros other than 0); NaN of ±∞.
#[inline(always)]
pub(crate) fn sin<S: Simd>(s: S, x: S::F) -> S::F {
    if s.any(s.lt(s.splat(LIMIT), s.abs(x))) {
        return lane_by_lane(s, x, Float::sin);
    }
    let y = quadrant(s, x, 0);
    // Keeps the sign of zero.
    s.select(s.eq(x, s.splat(0.0)), x, y)
}

/// Cosine: 2 ulp (absolute 1e-7 near the zeros); NaN of ±∞.
#[inline(always)]
pub(crate) fn cos<S: Simd>(s: S, x: S::F) -> S::F {
    if s.any(s.lt(s.splat(LIMIT), s.abs(x))) {
        return lane_by_lane(s, x, Float::cos);
    }
    quadrant(s, x, 1)
}

/// sin(x + shift · π/2).
#[inline(always)]
fn quadrant<S: Simd>(s: S, x: S::F, shift: i32) -> S::F {
    let n = s.round(s.mul(x, s.splat(core::f32::consts::FRAC_2_PI)));
    // π/2 in four parts of few bits.
    let mut r = x;
    for part in [1.570_312_5, 4.837_513e-4, 7.549_533_6e-8, 2.563_344e-12] {
        r = s.sub_product(r, n, s.splat(part));
    }
    let z = s.mul(r, r);
    // (sin(r)/r - 1) / r² and (cos(r) - 1 + r²/2) / r⁴ over ±0.793.
    let sine = polynomial(s, z, [-0.166_666_67, 0.008_333_329, -0.000_198_392_56, 2.717_564_3e-6]);
    let sine = s.mul_add(s.mul(sine, z), r, r);
    let cosine = polynomial(s, z, [0.041_666_668, -0.001_388_888_3, 2.479_943_6e-5, -2.720_330_2e-7]);
    let cosine = s.mul_add(s.mul(cosine, z), z, s.mul_add(z, s.splat(-0.5), s.splat(1.0)));
    let turn = s.int_add(s.to_int(n), s.int(shift));
    let odd = s.eq(s.to_float(s.int_and(turn, s.int(1))), s.splat(1.0));
    let y = s.select(odd, cosine, sine);
    let sign = s.shl::<30>(s.int_and(turn, s.int(2)));
    s.float_of_bits(s.int_xor(s.bits(y), sign))
}

/// Applies a function of one number to each lane.
#[inline(always)]
pub(super) fn lane_by_lane<S: Simd>(s: S, x: S::F, f: impl Fn(f32) -> f32) -> S::F {
    let mut lanes = s.to_array(x);
    for lane in lanes.iter_mut().take(S::LANES) {
        *lane = f(*lane);
    }
    // SAFETY: no instruction set has more than 16 lanes.
    unsafe { s.load(lanes.as_ptr()) }
}
