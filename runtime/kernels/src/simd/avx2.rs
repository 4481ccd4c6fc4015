//! AVX2 with FMA: eight lanes, masks are vectors of sign bits.

use super::Simd;
use core::arch::x86_64::*;

/// AVX2 and FMA; a value exists only where the machine has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// The token.
    ///
    /// # Safety
    /// The machine has AVX2 and FMA.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Self(())
    }
}

/// A mask of the first `n` lanes.
#[inline(always)]
unsafe fn first_lanes(n: usize) -> __m256i {
    const SLIDING: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    debug_assert!(n <= 8);
    // SAFETY: the window of eight starts at 8 - n, inside of the table.
    unsafe { _mm256_loadu_si256(SLIDING.as_ptr().add(8 - n).cast()) }
}

/// Calls an intrinsic.
macro_rules! intrinsic {
    ($call:expr) => {
        // SAFETY: the token proves that the machine has the instruction; the method's own contract covers pointers.
        unsafe { $call }
    };
}

impl Simd for Avx2 {
    type F = __m256;
    type I = __m256i;
    type M = __m256;

    const LANES: usize = 8;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        intrinsic!(_mm256_set1_ps(x))
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::F {
        intrinsic!(_mm256_loadu_ps(from))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, x: Self::F) {
        intrinsic!(_mm256_storeu_ps(to, x))
    }
    #[inline(always)]
    fn prefetch(self, at: *const f32) {
        intrinsic!(_mm_prefetch::<_MM_HINT_T1>(at.cast()))
    }
    #[inline(always)]
    unsafe fn load_first(self, from: *const f32, n: usize) -> Self::F {
        intrinsic!(_mm256_maskload_ps(from, first_lanes(n)))
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, n: usize, x: Self::F) {
        // In pieces: some CPUs take a dozen cycles for a masked store.
        intrinsic!({
            let (mut to, mut rest) = (to, _mm256_castps256_ps128(x));
            if n & 4 != 0 {
                _mm_storeu_ps(to, rest);
                (to, rest) = (to.add(4), _mm256_extractf128_ps::<1>(x));
            }
            if n & 2 != 0 {
                _mm_storel_pd(to.cast(), _mm_castps_pd(rest));
                (to, rest) = (to.add(2), _mm_movehl_ps(rest, rest));
            }
            if n & 1 != 0 {
                _mm_store_ss(to, rest);
            }
        })
    }
    #[inline(always)]
    unsafe fn load_even(self, from: *const f32) -> Self::F {
        intrinsic!({
            let (low, high) = (_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8)));
            // Within 128-bit halves: low0 low2 high0 high2; then the middle pairs change places.
            let mixed = _mm256_shuffle_ps::<0b10_00_10_00>(low, high);
            _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_castps_pd(mixed)))
        })
    }
    #[inline(always)]
    fn permute(self, a: Self::F, at: Self::I) -> Self::F {
        intrinsic!(_mm256_permutevar8x32_ps(a, at))
    }
    #[inline(always)]
    unsafe fn splat_in_fours<const C: usize>(self, from: *const f32) -> Self::F {
        intrinsic!({
            let fours = _mm256_loadu_ps(from);
            match C {
                0 => _mm256_permute_ps::<0b00_00_00_00>(fours),
                1 => _mm256_permute_ps::<0b01_01_01_01>(fours),
                2 => _mm256_permute_ps::<0b10_10_10_10>(fours),
                _ => _mm256_permute_ps::<0b11_11_11_11>(fours),
            }
        })
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        intrinsic!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn sub_product(self, c: Self::F, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm256_fnmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm256_min_ps(a, b))
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        intrinsic!(_mm256_sqrt_ps(a))
    }
    #[inline(always)]
    fn bits(self, a: Self::F) -> Self::I {
        intrinsic!(_mm256_castps_si256(a))
    }
    #[inline(always)]
    fn float_of_bits(self, a: Self::I) -> Self::F {
        intrinsic!(_mm256_castsi256_ps(a))
    }
    #[inline(always)]
    fn to_int(self, a: Self::F) -> Self::I {
        intrinsic!(_mm256_cvtps_epi32(a))
    }
    #[inline(always)]
    fn to_float(self, a: Self::I) -> Self::F {
        intrinsic!(_mm256_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn int(self, x: i32) -> Self::I {
        intrinsic!(_mm256_set1_epi32(x))
    }
    #[inline(always)]
    fn int_add(self, a: Self::I, b: Self::I) -> Self::I {
        intrinsic!(_mm256_add_epi32(a, b))
    }
    #[inline(always)]
    fn int_sub(self, a: Self::I, b: Self::I) -> Self::I {
        intrinsic!(_mm256_sub_epi32(a, b))
    }
    #[inline(always)]
    fn int_and(self, a: Self::I, b: Self::I) -> Self::I {
        intrinsic!(_mm256_and_si256(a, b))
    }
    #[inline(always)]
    fn int_or(self, a: Self::I, b: Self::I) -> Self::I {
        intrinsic!(_mm256_or_si256(a, b))
    }
    #[inline(always)]
    fn int_xor(self, a: Self::I, b: Self::I) -> Self::I {
        intrinsic!(_mm256_xor_si256(a, b))
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        intrinsic!(_mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }
    #[inline(always)]
    fn floor(self, a: Self::F) -> Self::F {
        intrinsic!(_mm256_round_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(a))
    }
    #[inline(always)]
    fn ceil(self, a: Self::F) -> Self::F {
        intrinsic!(_mm256_round_ps::<{ _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC }>(a))
    }
    #[inline(always)]
    fn trunc(self, a: Self::F) -> Self::F {
        intrinsic!(_mm256_round_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(a))
    }
    #[inline(always)]
    fn lt(self, a: Self::F, b: Self::F) -> Self::M {
        intrinsic!(_mm256_cmp_ps::<_CMP_LT_OQ>(a, b))
    }
    #[inline(always)]
    fn eq(self, a: Self::F, b: Self::F) -> Self::M {
        intrinsic!(_mm256_cmp_ps::<_CMP_EQ_OQ>(a, b))
    }
    #[inline(always)]
    fn select(self, mask: Self::M, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm256_blendv_ps(b, a, mask))
    }
    #[inline(always)]
    fn any(self, mask: Self::M) -> bool {
        intrinsic!(_mm256_movemask_ps(mask) != 0)
    }
    #[inline(always)]
    fn shl<const N: i32>(self, a: Self::I) -> Self::I {
        intrinsic!(_mm256_slli_epi32::<N>(a))
    }
    #[inline(always)]
    fn shr<const N: i32>(self, a: Self::I) -> Self::I {
        intrinsic!(_mm256_srai_epi32::<N>(a))
    }
    #[inline(always)]
    fn transpose(self, mut r: [Self::F; 16]) -> [Self::F; 16] {
        intrinsic!({
            // Pairs, then fours within 128-bit halves, then the halves.
            let mut fours = r;
            for i in [0, 4] {
                let low = (_mm256_unpacklo_ps(r[i], r[i + 1]), _mm256_unpacklo_ps(r[i + 2], r[i + 3]));
                let high = (_mm256_unpackhi_ps(r[i], r[i + 1]), _mm256_unpackhi_ps(r[i + 2], r[i + 3]));
                fours[i] = _mm256_shuffle_ps::<0b01_00_01_00>(low.0, low.1);
                fours[i + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(low.0, low.1);
                fours[i + 2] = _mm256_shuffle_ps::<0b01_00_01_00>(high.0, high.1);
                fours[i + 3] = _mm256_shuffle_ps::<0b11_10_11_10>(high.0, high.1);
            }
            for i in 0..4 {
                r[i] = _mm256_permute2f128_ps::<0x20>(fours[i], fours[i + 4]);
                r[i + 4] = _mm256_permute2f128_ps::<0x31>(fours[i], fours[i + 4]);
            }
            r
        })
    }
}
