//! WebAssembly's vectors: four lanes, where the module was compiled with `-C target-feature=+simd128`. A module that has them runs only
//! where they are, so that nothing is asked at run time.

use super::Simd;
use core::arch::wasm32::*;

/// WebAssembly's vectors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Simd128;

impl Simd for Simd128 {
    type F = v128;
    type I = v128;
    type M = v128;

    const LANES: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        f32x4_splat(x)
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::F {
        // SAFETY: the caller's promise; no alignment is needed.
        unsafe { v128_load(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, x: Self::F) {
        // SAFETY: the caller's promise; no alignment is needed.
        unsafe { v128_store(to.cast(), x) }
    }
    #[inline(always)]
    unsafe fn load_first(self, from: *const f32, n: usize) -> Self::F {
        let mut x = [0.0; 4];
        // SAFETY: the caller's promise, and `n` is less than the lanes.
        unsafe {
            core::ptr::copy_nonoverlapping(from, x.as_mut_ptr(), n);
            self.load(x.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, n: usize, x: Self::F) {
        let mut lanes = [0.0; 4];
        // SAFETY: as above.
        unsafe {
            self.store(lanes.as_mut_ptr(), x);
            core::ptr::copy_nonoverlapping(lanes.as_ptr(), to, n);
        }
    }
    #[inline(always)]
    unsafe fn load_even(self, from: *const f32) -> Self::F {
        // SAFETY: the caller's promise.
        let (low, high) = unsafe { (self.load(from), self.load(from.add(4))) };
        i32x4_shuffle::<0, 2, 4, 6>(low, high)
    }

    #[inline(always)]
    unsafe fn splat_in_fours<const C: usize>(self, from: *const f32) -> Self::F {
        // SAFETY: the caller's promise.
        self.splat(unsafe { *from.add(C) })
    }
    #[inline(always)]
    fn permute(self, a: Self::F, at: Self::I) -> Self::F {
        // The places of a lane's four bytes.
        let bytes = i32x4_add(i32x4_splat(0x0302_0100), i32x4_mul(at, i32x4_splat(0x0404_0404)));
        i8x16_swizzle(a, bytes)
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        f32x4_add(a, b)
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        f32x4_sub(a, b)
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        f32x4_mul(a, b)
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        f32x4_div(a, b)
    }
    #[inline(always)]
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // Rounded twice: what rounds once is in the relaxed instructions, which not every browser has.
        f32x4_add(f32x4_mul(a, b), c)
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        // `pmax(x, y)` is `x < y ? y : x`.
        f32x4_pmax(b, a)
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        // `pmin(x, y)` is `y < x ? y : x`.
        f32x4_pmin(b, a)
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        f32x4_sqrt(a)
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        f32x4_nearest(a)
    }
    #[inline(always)]
    fn floor(self, a: Self::F) -> Self::F {
        f32x4_floor(a)
    }
    #[inline(always)]
    fn ceil(self, a: Self::F) -> Self::F {
        f32x4_ceil(a)
    }
    #[inline(always)]
    fn trunc(self, a: Self::F) -> Self::F {
        f32x4_trunc(a)
    }

    #[inline(always)]
    fn lt(self, a: Self::F, b: Self::F) -> Self::M {
        f32x4_lt(a, b)
    }
    #[inline(always)]
    fn eq(self, a: Self::F, b: Self::F) -> Self::M {
        f32x4_eq(a, b)
    }
    #[inline(always)]
    fn select(self, mask: Self::M, a: Self::F, b: Self::F) -> Self::F {
        v128_bitselect(a, b, mask)
    }
    #[inline(always)]
    fn any(self, mask: Self::M) -> bool {
        v128_any_true(mask)
    }

    #[inline(always)]
    fn bits(self, a: Self::F) -> Self::I {
        a
    }
    #[inline(always)]
    fn float_of_bits(self, a: Self::I) -> Self::F {
        a
    }
    #[inline(always)]
    fn to_int(self, a: Self::F) -> Self::I {
        i32x4_trunc_sat_f32x4(f32x4_nearest(a))
    }
    #[inline(always)]
    fn to_float(self, a: Self::I) -> Self::F {
        f32x4_convert_i32x4(a)
    }
    #[inline(always)]
    fn int(self, x: i32) -> Self::I {
        i32x4_splat(x)
    }
    #[inline(always)]
    fn int_add(self, a: Self::I, b: Self::I) -> Self::I {
        i32x4_add(a, b)
    }
    #[inline(always)]
    fn int_sub(self, a: Self::I, b: Self::I) -> Self::I {
        i32x4_sub(a, b)
    }
    #[inline(always)]
    fn int_and(self, a: Self::I, b: Self::I) -> Self::I {
        v128_and(a, b)
    }
    #[inline(always)]
    fn int_or(self, a: Self::I, b: Self::I) -> Self::I {
        v128_or(a, b)
    }
    #[inline(always)]
    fn int_xor(self, a: Self::I, b: Self::I) -> Self::I {
        v128_xor(a, b)
    }
    #[inline(always)]
    fn shl<const N: i32>(self, a: Self::I) -> Self::I {
        i32x4_shl(a, N as u32)
    }
    #[inline(always)]
    fn shr<const N: i32>(self, a: Self::I) -> Self::I {
        i32x4_shr(a, N as u32)
    }

    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        f32x4_abs(a)
    }
    #[inline(always)]
    fn neg(self, a: Self::F) -> Self::F {
        f32x4_neg(a)
    }
    #[inline(always)]
    fn sub_product(self, c: Self::F, a: Self::F, b: Self::F) -> Self::F {
        f32x4_sub(c, f32x4_mul(a, b))
    }
    #[inline(always)]
    fn select_or_zero(self, mask: Self::M, a: Self::F) -> Self::F {
        v128_and(mask, a)
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        let halves = f32x4_add(a, i32x4_shuffle::<2, 3, 0, 1>(a, a));
        f32x4_extract_lane::<0>(halves) + f32x4_extract_lane::<1>(halves)
    }
    #[inline(always)]
    fn transpose(self, mut r: [Self::F; 16]) -> [Self::F; 16] {
        let low = |a, b| i32x4_shuffle::<0, 4, 1, 5>(a, b);
        let high = |a, b| i32x4_shuffle::<2, 6, 3, 7>(a, b);
        let (a, b, c, d) = (low(r[0], r[1]), high(r[0], r[1]), low(r[2], r[3]), high(r[2], r[3]));
        r[0] = i32x4_shuffle::<0, 1, 4, 5>(a, c);
        r[1] = i32x4_shuffle::<2, 3, 6, 7>(a, c);
        r[2] = i32x4_shuffle::<0, 1, 4, 5>(b, d);
        r[3] = i32x4_shuffle::<2, 3, 6, 7>(b, d);
        r
    }
}
