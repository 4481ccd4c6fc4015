//! AVX-512: sixteen lanes, masks in registers of their own.

use super::Simd;
use core::arch::x86_64::*;

/// AVX-512 F, BW, DQ and VL; a value exists only where the machine has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// The token.
    ///
    /// # Safety
    /// The machine has AVX-512 F, BW, DQ and VL.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Self(())
    }
}

/// Calls an intrinsic.
macro_rules! intrinsic {
    ($call:expr) => {
        // SAFETY: the token proves that the machine has the instruction; the method's own contract covers pointers.
        unsafe { $call }
    };
}

/// The inverse of what is larger is no normal number, that of infinity times it NaN.
const LARGE: f32 = 8.507_059e37;

/// `1 / a` for `a` between 1 and [`LARGE`]: 1 ulp.
#[inline(always)]
fn near_inverse(s: Avx512, a: __m512) -> __m512 {
    // 14 bits, then twice as many.
    let near = intrinsic!(_mm512_rcp14_ps(a));
    s.mul_add(near, s.sub_product(s.splat(1.0), a, near), near)
}

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    type M = __mmask16;

    const LANES: usize = 16;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        intrinsic!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::F {
        intrinsic!(_mm512_loadu_ps(from))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, x: Self::F) {
        intrinsic!(_mm512_storeu_ps(to, x))
    }
    #[inline(always)]
    fn prefetch(self, at: *const f32) {
        intrinsic!(_mm_prefetch::<_MM_HINT_T1>(at.cast()))
    }
    #[inline(always)]
    unsafe fn load_first(self, from: *const f32, n: usize) -> Self::F {
        intrinsic!(_mm512_maskz_loadu_ps(((1u32 << n) - 1) as u16, from))
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, n: usize, x: Self::F) {
        intrinsic!(_mm512_mask_storeu_ps(to, ((1u32 << n) - 1) as u16, x))
    }
    #[inline(always)]
    unsafe fn load_even(self, from: *const f32) -> Self::F {
        intrinsic!({
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            _mm512_permutex2var_ps(_mm512_loadu_ps(from), even, _mm512_loadu_ps(from.add(16)))
        })
    }
    #[inline(always)]
    fn permute(self, a: Self::F, at: Self::I) -> Self::F {
        intrinsic!(_mm512_permutexvar_ps(at, a))
    }
    #[inline(always)]
    unsafe fn splat_in_fours<const C: usize>(self, from: *const f32) -> Self::F {
        intrinsic!({
            let fours = _mm512_loadu_ps(from);
            match C {
                0 => _mm512_permute_ps::<0b00_00_00_00>(fours),
                1 => _mm512_permute_ps::<0b01_01_01_01>(fours),
                2 => _mm512_permute_ps::<0b10_10_10_10>(fours),
                _ => _mm512_permute_ps::<0b11_11_11_11>(fours),
            }
        })
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn inverse(self, a: Self::F) -> Self::F {
        let inverse = near_inverse(self, a);
        self.select(self.lt(self.splat(LARGE), a), self.splat(0.0), inverse)
    }
    #[inline(always)]
    fn quotient(self, a: Self::F, b: Self::F) -> Self::F {
        // The quotient's own error once more.
        let inverse = near_inverse(self, b);
        let y = self.mul(a, inverse);
        let y = self.mul_add(self.sub_product(a, b, y), inverse, y);
        self.select(self.lt(self.splat(LARGE), b), self.splat(0.0), y)
    }
    #[inline(always)]
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        intrinsic!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn sub_product(self, c: Self::F, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm512_fnmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        intrinsic!(_mm512_sqrt_ps(a))
    }
    #[inline(always)]
    fn bits(self, a: Self::F) -> Self::I {
        intrinsic!(_mm512_castps_si512(a))
    }
    #[inline(always)]
    fn float_of_bits(self, a: Self::I) -> Self::F {
        intrinsic!(_mm512_castsi512_ps(a))
    }
    #[inline(always)]
    fn to_int(self, a: Self::F) -> Self::I {
        intrinsic!(_mm512_cvtps_epi32(a))
    }
    #[inline(always)]
    fn to_float(self, a: Self::I) -> Self::F {
        intrinsic!(_mm512_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn int(self, x: i32) -> Self::I {
        intrinsic!(_mm512_set1_epi32(x))
    }
    #[inline(always)]
    fn int_add(self, a: Self::I, b: Self::I) -> Self::I {
        intrinsic!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn int_sub(self, a: Self::I, b: Self::I) -> Self::I {
        intrinsic!(_mm512_sub_epi32(a, b))
    }
    #[inline(always)]
    fn int_and(self, a: Self::I, b: Self::I) -> Self::I {
        intrinsic!(_mm512_and_si512(a, b))
    }
    #[inline(always)]
    fn int_or(self, a: Self::I, b: Self::I) -> Self::I {
        intrinsic!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn int_xor(self, a: Self::I, b: Self::I) -> Self::I {
        intrinsic!(_mm512_xor_si512(a, b))
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        intrinsic!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }
    #[inline(always)]
    fn floor(self, a: Self::F) -> Self::F {
        intrinsic!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(a))
    }
    #[inline(always)]
    fn ceil(self, a: Self::F) -> Self::F {
        intrinsic!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC }>(a))
    }
    #[inline(always)]
    fn trunc(self, a: Self::F) -> Self::F {
        intrinsic!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(a))
    }
    #[inline(always)]
    fn lt(self, a: Self::F, b: Self::F) -> Self::M {
        intrinsic!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b))
    }
    #[inline(always)]
    fn eq(self, a: Self::F, b: Self::F) -> Self::M {
        intrinsic!(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b))
    }
    #[inline(always)]
    fn select(self, mask: Self::M, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm512_mask_blend_ps(mask, b, a))
    }
    #[inline(always)]
    fn any(self, mask: Self::M) -> bool {
        mask != 0
    }
    #[inline(always)]
    fn shl<const N: i32>(self, a: Self::I) -> Self::I {
        intrinsic!(_mm512_sllv_epi32(a, _mm512_set1_epi32(N)))
    }
    #[inline(always)]
    fn shr<const N: i32>(self, a: Self::I) -> Self::I {
        intrinsic!(_mm512_srav_epi32(a, _mm512_set1_epi32(N)))
    }
    const ROOTS: usize = 16;

    #[inline(always)]
    fn root(self, x: Self::F) -> (Self::F, Self::F) {
        // 2^(i / 16).
        let roots = intrinsic!(_mm512_setr_ps(
            1.0,
            1.044_273_7,
            1.090_507_7,
            1.138_788_6,
            1.189_207_1,
            1.241_857_8,
            1.296_839_6,
            1.354_255_6,
            core::f32::consts::SQRT_2,
            1.476_826_2,
            1.542_210_8,
            1.610_490_3,
            1.681_792_9,
            1.756_252_2,
            1.834_008_1,
            1.915_206_6,
        ));
        // In this binade a unit is a sixteenth, and the last four bits count them.
        let binade = self.splat(786_432.0);
        let shifted = self.add(x, binade);
        (self.sub(shifted, binade), self.permute(roots, self.bits(shifted)))
    }

    #[inline(always)]
    fn split(self, x: Self::F) -> (Self::F, Self::F) {
        // Scaling takes the floor itself.
        (x, intrinsic!(_mm512_reduce_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(x)))
    }

    #[inline(always)]
    fn scale(self, a: Self::F, n: Self::F) -> Self::F {
        intrinsic!(_mm512_scalef_ps(a, n))
    }
    #[inline(always)]
    fn scale_normal(self, a: Self::F, n: Self::F) -> Self::F {
        self.scale(a, n)
    }
    #[inline(always)]
    fn scale_down(self, a: Self::F, n: Self::F) -> Self::F {
        // NaN is not less, and a lane that is left out makes no subnormal number.
        intrinsic!({
            let normal = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(n, _mm512_set1_ps(-125.0));
            _mm512_maskz_scalef_ps(normal, a, n)
        })
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        intrinsic!(_mm512_reduce_add_ps(a))
    }
    #[inline(always)]
    fn largest(self, a: Self::F) -> f32 {
        intrinsic!(_mm512_reduce_max_ps(a))
    }
    #[inline(always)]
    fn transpose(self, r: [Self::F; 16]) -> [Self::F; 16] {
        intrinsic!({
            // Pairs, then fours within 128-bit quarters, then the quarters in two steps.
            let mut fours = r;
            for i in [0, 4, 8, 12] {
                let low = (_mm512_unpacklo_ps(r[i], r[i + 1]), _mm512_unpacklo_ps(r[i + 2], r[i + 3]));
                let high = (_mm512_unpackhi_ps(r[i], r[i + 1]), _mm512_unpackhi_ps(r[i + 2], r[i + 3]));
                fours[i] = _mm512_shuffle_ps::<0b01_00_01_00>(low.0, low.1);
                fours[i + 1] = _mm512_shuffle_ps::<0b11_10_11_10>(low.0, low.1);
                fours[i + 2] = _mm512_shuffle_ps::<0b01_00_01_00>(high.0, high.1);
                fours[i + 3] = _mm512_shuffle_ps::<0b11_10_11_10>(high.0, high.1);
            }
            let mut out = r;
            for i in 0..4 {
                let (a, b) = (fours[i], fours[i + 4]);
                let (c, d) = (fours[i + 8], fours[i + 12]);
                let even = (
                    _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b),
                    _mm512_shuffle_f32x4::<0b10_00_10_00>(c, d),
                );
                let odd = (
                    _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b),
                    _mm512_shuffle_f32x4::<0b11_01_11_01>(c, d),
                );
                out[i] = _mm512_shuffle_f32x4::<0b10_00_10_00>(even.0, even.1);
                out[i + 4] = _mm512_shuffle_f32x4::<0b10_00_10_00>(odd.0, odd.1);
                out[i + 8] = _mm512_shuffle_f32x4::<0b11_01_11_01>(even.0, even.1);
                out[i + 12] = _mm512_shuffle_f32x4::<0b11_01_11_01>(odd.0, odd.1);
            }
            out
        })
    }
}
