//! Plain Rust on arrays of four: every machine has it, and compilers turn much of it into the vectors that are there.

use super::Simd;
use num_traits::Float;

/// No instruction set in particular.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

#[inline(always)]
fn map<T: Copy, U: Copy + Default>(a: [T; 4], f: impl Fn(T) -> U) -> [U; 4] {
    [f(a[0]), f(a[1]), f(a[2]), f(a[3])]
}

#[inline(always)]
fn zip<T: Copy, U: Copy + Default>(a: [T; 4], b: [T; 4], f: impl Fn(T, T) -> U) -> [U; 4] {
    [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3])]
}

impl Simd for Scalar {
    type F = [f32; 4];
    type I = [i32; 4];
    type M = [bool; 4];

    const LANES: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; 4]
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::F {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<[f32; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, x: Self::F) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(x) }
    }
    #[inline(always)]
    unsafe fn load_first(self, from: *const f32, n: usize) -> Self::F {
        let mut x = [0.0; 4];
        for (i, x) in x.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's promise.
            *x = unsafe { *from.add(i) };
        }
        x
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, n: usize, x: Self::F) {
        for (i, x) in x.into_iter().enumerate().take(n) {
            // SAFETY: the caller's promise.
            unsafe { *to.add(i) = x };
        }
    }
    #[inline(always)]
    unsafe fn load_even(self, from: *const f32) -> Self::F {
        // SAFETY: the caller's promise.
        unsafe { [*from, *from.add(2), *from.add(4), *from.add(6)] }
    }

    #[inline(always)]
    unsafe fn splat_in_fours<const C: usize>(self, from: *const f32) -> Self::F {
        // SAFETY: the caller's promise.
        self.splat(unsafe { *from.add(C) })
    }
    #[inline(always)]
    fn permute(self, a: Self::F, at: Self::I) -> Self::F {
        map(at, |at| a[at as usize & 3])
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // Rounded twice: a machine without FMA would call a slow function.
        self.add(self.mul(a, b), c)
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        map(a, Float::sqrt)
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        map(a, |x| {
            // Adding and taking off 2^23 rounds to an integer, halves to even.
            let magnitude = Float::abs(x);
            let rounded = (magnitude + 8_388_608.0) - 8_388_608.0;
            let rounded = if magnitude < 8_388_608.0 { rounded } else { magnitude };
            Float::copysign(rounded, x)
        })
    }
    #[inline(always)]
    fn floor(self, a: Self::F) -> Self::F {
        map(a, Float::floor)
    }
    #[inline(always)]
    fn ceil(self, a: Self::F) -> Self::F {
        map(a, Float::ceil)
    }
    #[inline(always)]
    fn trunc(self, a: Self::F) -> Self::F {
        map(a, Float::trunc)
    }

    #[inline(always)]
    fn lt(self, a: Self::F, b: Self::F) -> Self::M {
        zip(a, b, |a, b| a < b)
    }
    #[inline(always)]
    fn eq(self, a: Self::F, b: Self::F) -> Self::M {
        zip(a, b, |a, b| a == b)
    }
    #[inline(always)]
    fn select(self, mask: Self::M, a: Self::F, b: Self::F) -> Self::F {
        let pick = |i: usize| if mask[i] { a[i] } else { b[i] };
        [pick(0), pick(1), pick(2), pick(3)]
    }
    #[inline(always)]
    fn any(self, mask: Self::M) -> bool {
        mask.contains(&true)
    }

    #[inline(always)]
    fn bits(self, a: Self::F) -> Self::I {
        map(a, |x| x.to_bits() as i32)
    }
    #[inline(always)]
    fn float_of_bits(self, a: Self::I) -> Self::F {
        map(a, |x| f32::from_bits(x as u32))
    }
    #[inline(always)]
    fn to_int(self, a: Self::F) -> Self::I {
        map(self.round(a), |x| x as i32)
    }
    #[inline(always)]
    fn to_float(self, a: Self::I) -> Self::F {
        map(a, |x| x as f32)
    }
    #[inline(always)]
    fn int(self, x: i32) -> Self::I {
        [x; 4]
    }
    #[inline(always)]
    fn int_add(self, a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::wrapping_add)
    }
    #[inline(always)]
    fn int_sub(self, a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::wrapping_sub)
    }
    #[inline(always)]
    fn int_and(self, a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |a, b| a & b)
    }
    #[inline(always)]
    fn int_or(self, a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |a, b| a | b)
    }
    #[inline(always)]
    fn int_xor(self, a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |a, b| a ^ b)
    }
    #[inline(always)]
    fn shl<const N: i32>(self, a: Self::I) -> Self::I {
        map(a, |x| x << N)
    }
    #[inline(always)]
    fn shr<const N: i32>(self, a: Self::I) -> Self::I {
        map(a, |x| x >> N)
    }
    #[inline(always)]
    fn transpose(self, rows: [Self::F; 16]) -> [Self::F; 16] {
        let mut columns = rows;
        for i in 0..4 {
            columns[i] = [rows[0][i], rows[1][i], rows[2][i], rows[3][i]];
        }
        columns
    }
}
