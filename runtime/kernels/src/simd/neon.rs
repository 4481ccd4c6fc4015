//! NEON: four lanes, on every 64-bit ARM.

use super::Simd;
use core::arch::aarch64::*;

/// NEON; a value exists only where the machine has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon(());

impl Neon {
    /// The token.
    ///
    /// # Safety
    /// The machine has NEON.
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

impl Simd for Neon {
    type F = float32x4_t;
    type I = int32x4_t;
    type M = uint32x4_t;

    const LANES: usize = 4;
    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        intrinsic!(vdupq_n_f32(x))
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::F {
        intrinsic!(vld1q_f32(from))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, x: Self::F) {
        intrinsic!(vst1q_f32(to, x))
    }
    #[inline(always)]
    fn prefetch(self, at: *const f32) {
        // SAFETY: a prefetch reads nothing that the program sees, and faults nowhere.
        unsafe {
            core::arch::asm!("prfm pldl2keep, [{at}]", at = in(reg) at, options(nostack, readonly, preserves_flags));
        }
    }
    #[inline(always)]
    unsafe fn load_first(self, from: *const f32, n: usize) -> Self::F {
        intrinsic!({
            let mut x = [0.0; 4];
            core::ptr::copy_nonoverlapping(from, x.as_mut_ptr(), n);
            vld1q_f32(x.as_ptr())
        })
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, n: usize, x: Self::F) {
        intrinsic!({
            let mut lanes = [0.0; 4];
            vst1q_f32(lanes.as_mut_ptr(), x);
            core::ptr::copy_nonoverlapping(lanes.as_ptr(), to, n);
        })
    }
    #[inline(always)]
    unsafe fn load_even(self, from: *const f32) -> Self::F {
        intrinsic!(vld2q_f32(from).0)
    }
    #[inline(always)]
    unsafe fn splat_in_fours<const C: usize>(self, from: *const f32) -> Self::F {
        // SAFETY: the caller's promise.
        self.splat(unsafe { *from.add(C) })
    }
    #[inline(always)]
    fn permute(self, a: Self::F, at: Self::I) -> Self::F {
        intrinsic!({
            // The places of a lane's four bytes.
            let bytes = vmlaq_n_s32(vdupq_n_s32(0x0302_0100), at, 0x0404_0404);
            vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(a), vreinterpretq_u8_s32(bytes)))
        })
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(vaddq_f32(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(vsubq_f32(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(vmulq_f32(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(vdivq_f32(a, b))
    }
    #[inline(always)]
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        intrinsic!(vfmaq_f32(c, a, b))
    }
    #[inline(always)]
    fn sub_product(self, c: Self::F, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(vfmsq_f32(c, a, b))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(vbslq_f32(vcgtq_f32(a, b), a, b))
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(vbslq_f32(vcltq_f32(a, b), a, b))
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        intrinsic!(vsqrtq_f32(a))
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        intrinsic!(vrndnq_f32(a))
    }
    #[inline(always)]
    fn floor(self, a: Self::F) -> Self::F {
        intrinsic!(vrndmq_f32(a))
    }
    #[inline(always)]
    fn ceil(self, a: Self::F) -> Self::F {
        intrinsic!(vrndpq_f32(a))
    }
    #[inline(always)]
    fn trunc(self, a: Self::F) -> Self::F {
        intrinsic!(vrndq_f32(a))
    }
    #[inline(always)]
    fn lt(self, a: Self::F, b: Self::F) -> Self::M {
        intrinsic!(vcltq_f32(a, b))
    }
    #[inline(always)]
    fn eq(self, a: Self::F, b: Self::F) -> Self::M {
        intrinsic!(vceqq_f32(a, b))
    }
    #[inline(always)]
    fn select(self, mask: Self::M, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(vbslq_f32(mask, a, b))
    }
    #[inline(always)]
    fn any(self, mask: Self::M) -> bool {
        intrinsic!(vmaxvq_u32(mask) != 0)
    }
    #[inline(always)]
    fn bits(self, a: Self::F) -> Self::I {
        intrinsic!(vreinterpretq_s32_f32(a))
    }
    #[inline(always)]
    fn float_of_bits(self, a: Self::I) -> Self::F {
        intrinsic!(vreinterpretq_f32_s32(a))
    }
    #[inline(always)]
    fn to_int(self, a: Self::F) -> Self::I {
        intrinsic!(vcvtnq_s32_f32(a))
    }
    #[inline(always)]
    fn to_float(self, a: Self::I) -> Self::F {
        intrinsic!(vcvtq_f32_s32(a))
    }
    #[inline(always)]
    fn int(self, x: i32) -> Self::I {
        intrinsic!(vdupq_n_s32(x))
    }
    #[inline(always)]
    fn int_add(self, a: Self::I, b: Self::I) -> Self::I {
        intrinsic!(vaddq_s32(a, b))
    }
    #[inline(always)]
    fn int_sub(self, a: Self::I, b: Self::I) -> Self::I {
        intrinsic!(vsubq_s32(a, b))
    }
    #[inline(always)]
    fn int_and(self, a: Self::I, b: Self::I) -> Self::I {
        intrinsic!(vandq_s32(a, b))
    }
    #[inline(always)]
    fn int_or(self, a: Self::I, b: Self::I) -> Self::I {
        intrinsic!(vorrq_s32(a, b))
    }
    #[inline(always)]
    fn int_xor(self, a: Self::I, b: Self::I) -> Self::I {
        intrinsic!(veorq_s32(a, b))
    }
    #[inline(always)]
    fn shl<const N: i32>(self, a: Self::I) -> Self::I {
        intrinsic!(vshlq_s32(a, vdupq_n_s32(N)))
    }
    #[inline(always)]
    fn shr<const N: i32>(self, a: Self::I) -> Self::I {
        intrinsic!(vshlq_s32(a, vdupq_n_s32(-N)))
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        intrinsic!(vaddvq_f32(a))
    }
    #[inline(always)]
    fn transpose(self, mut r: [Self::F; 16]) -> [Self::F; 16] {
        intrinsic!({
            let pairs = |a, b| {
                let both = vtrnq_f32(a, b);
                (vreinterpretq_f64_f32(both.0), vreinterpretq_f64_f32(both.1))
            };
            let ((a, b), (c, d)) = (pairs(r[0], r[1]), pairs(r[2], r[3]));
            r[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
            r[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
            r[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
            r[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
            r
        })
    }
}
