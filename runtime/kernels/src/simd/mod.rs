//! Vectors of f32 behind one trait, one file an instruction set, and the choice among them at run time.
//!
//! A kernel is written once over [`Simd`] and declared with [`dispatched!`], which compiles it for every instruction
//! set of the target under `#[target_feature]` and calls the best one that the machine has. Without `std` the machine cannot be asked,
//! and the features that the compiler was told of decide.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod scalar;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) mod simd128;

/// An instruction set, as a token: whoever holds a value has made sure that the machine understands it.
///
/// Lanes are independent. Methods are `inline(always)`, so that they become instructions inside of a function with the
/// right `#[target_feature]`, which [`dispatched!`] provides.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// A vector of f32.
    type F: Copy;
    /// A vector of i32 with as many lanes.
    type I: Copy;
    /// One truth value a lane.
    type M: Copy;

    /// Number of lanes.
    const LANES: usize;

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::F;
    /// Reads `LANES` elements.
    ///
    /// # Safety
    /// `from` is valid for reading `LANES` elements; no alignment is needed.
    unsafe fn load(self, from: *const f32) -> Self::F;
    /// Writes `LANES` elements.
    ///
    /// # Safety
    /// `to` is valid for writing `LANES` elements; no alignment is needed.
    unsafe fn store(self, to: *mut f32, x: Self::F);
    /// Reads `n < LANES` elements; the other lanes are 0.
    ///
    /// # Safety
    /// `from` is valid for reading `n` elements.
    unsafe fn load_first(self, from: *const f32, n: usize) -> Self::F;
    /// Writes the first `n < LANES` lanes.
    ///
    /// # Safety
    /// `to` is valid for writing `n` elements.
    unsafe fn store_first(self, to: *mut f32, n: usize, x: Self::F);
    /// Reads every second element: `from[0], from[2], …`.
    ///
    /// # Safety
    /// `from` is valid for reading `2 · LANES` elements.
    unsafe fn load_even(self, from: *const f32) -> Self::F;

    /// Asks for the cache line at an address, which may be any, to come to the second-level cache; nothing where the machine cannot be asked.
    #[inline(always)]
    fn prefetch(self, _at: *const f32) {}

    /// The lanes of `a` at `at`, each below [`Simd::LANES`].
    fn permute(self, a: Self::F, at: Self::I) -> Self::F;

    /// A vector of memory of which each run of four lanes gets its `C`-th.
    ///
    /// # Safety
    /// `from` is valid for reading a vector.
    unsafe fn splat_in_fours<const C: usize>(self, from: *const f32) -> Self::F;

    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b` for `b` of at least 1: 1 ulp; 0 for a `b` above 2^126. Faster than a division where the machine divides slowly.
    #[inline(always)]
    fn quotient(self, a: Self::F, b: Self::F) -> Self::F {
        self.div(a, b)
    }
    /// `1 / a` for `a` of at least 1: 1 ulp; 0 of what is above 2^126, or the subnormal number.
    #[inline(always)]
    fn inverse(self, a: Self::F) -> Self::F {
        self.div(self.splat(1.0), a)
    }
    /// `a · b + c`, rounded once where the machine can.
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a > b ? a : b`, so `b` when either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a < b ? a : b`, so `b` when either is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    fn sqrt(self, a: Self::F) -> Self::F;
    /// To the nearest integer, halves to even.
    fn round(self, a: Self::F) -> Self::F;
    fn floor(self, a: Self::F) -> Self::F;
    fn ceil(self, a: Self::F) -> Self::F;
    fn trunc(self, a: Self::F) -> Self::F;

    fn lt(self, a: Self::F, b: Self::F) -> Self::M;
    fn eq(self, a: Self::F, b: Self::F) -> Self::M;
    /// `mask ? a : b`.
    fn select(self, mask: Self::M, a: Self::F, b: Self::F) -> Self::F;
    /// Whether any lane is true.
    fn any(self, mask: Self::M) -> bool;

    /// The bits of each lane.
    fn bits(self, a: Self::F) -> Self::I;
    /// The floats that have these bits.
    fn float_of_bits(self, a: Self::I) -> Self::F;
    /// Converts to integers, rounding to nearest; values out of range (and NaN) become `i32::MIN`, or saturate.
    fn to_int(self, a: Self::F) -> Self::I;
    /// Converts integers to floats.
    fn to_float(self, a: Self::I) -> Self::F;
    fn int(self, x: i32) -> Self::I;
    fn int_add(self, a: Self::I, b: Self::I) -> Self::I;
    fn int_sub(self, a: Self::I, b: Self::I) -> Self::I;
    fn int_and(self, a: Self::I, b: Self::I) -> Self::I;
    fn int_or(self, a: Self::I, b: Self::I) -> Self::I;
    fn int_xor(self, a: Self::I, b: Self::I) -> Self::I;
    fn shl<const N: i32>(self, a: Self::I) -> Self::I;
    /// Arithmetic shift.
    fn shr<const N: i32>(self, a: Self::I) -> Self::I;

    /// Exchanges rows and columns of the square of the first `LANES` vectors.
    fn transpose(self, rows: [Self::F; 16]) -> [Self::F; 16];

    /// How many steps [`Simd::root`] makes from an integer to the next.
    const ROOTS: usize = 1;

    /// `x` rounded to a multiple `n` of `1 / ROOTS`, and `2^(n - ⌊n⌋)`, so that `2^x = 2^(x - n) · root · 2^⌊n⌋`; `x` lies in ±1000.
    #[inline(always)]
    fn root(self, x: Self::F) -> (Self::F, Self::F) {
        (self.round(x), self.splat(1.0))
    }

    /// What [`Simd::scale_down`] takes for `⌊x⌋`, and `x - ⌊x⌋`; `x` lies in ±1000, or is -∞ or NaN, where the second is any number or NaN.
    #[inline(always)]
    fn split(self, x: Self::F) -> (Self::F, Self::F) {
        let whole = self.floor(x);
        (whole, self.sub(x, whole))
    }

    /// `a · 2^⌊n⌋` for what [`Simd::root`] yields, between -300 and 300.
    #[inline(always)]
    fn scale(self, a: Self::F, n: Self::F) -> Self::F {
        // Two steps, since 2^n itself may not be a normal number.
        let n = self.to_int(n);
        let half = self.shr::<1>(n);
        let pow2 = |n| self.float_of_bits(self.shl::<23>(self.int_add(n, self.int(127))));
        self.mul(self.mul(a, pow2(half)), pow2(self.int_sub(n, half)))
    }

    /// [`Simd::scale`] for an `n` of at most 128, in fewer steps: 0 where `n` is below -126, ∞ where it is 128, or only what is so itself.
    #[inline(always)]
    fn scale_normal(self, a: Self::F, n: Self::F) -> Self::F {
        let n = self.to_int(self.max(self.splat(-127.0), n));
        self.mul(a, self.float_of_bits(self.shl::<23>(self.int_add(n, self.int(127)))))
    }

    /// [`Simd::scale`] for what [`Simd::split`] yields of a number of at most 128: 0 where `n` is below -125, so
    /// that an `a` of at least a half becomes no subnormal number; NaN where both are.
    #[inline(always)]
    fn scale_down(self, a: Self::F, n: Self::F) -> Self::F {
        self.select(self.lt(n, self.splat(-125.0)), self.splat(0.0), self.scale_normal(a, n))
    }

    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        self.float_of_bits(self.int_and(self.bits(a), self.int(0x7fff_ffff)))
    }

    #[inline(always)]
    fn neg(self, a: Self::F) -> Self::F {
        self.float_of_bits(self.int_xor(self.bits(a), self.int(i32::MIN)))
    }

    /// `|a|` with the sign of `sign`.
    #[inline(always)]
    fn with_sign_of(self, a: Self::F, sign: Self::F) -> Self::F {
        let sign = self.int_and(self.bits(sign), self.int(i32::MIN));
        let magnitude = self.int_and(self.bits(a), self.int(0x7fff_ffff));
        self.float_of_bits(self.int_or(magnitude, sign))
    }

    /// `c - a · b`.
    #[inline(always)]
    fn sub_product(self, c: Self::F, a: Self::F, b: Self::F) -> Self::F {
        self.mul_add(self.neg(a), b, c)
    }

    /// `mask ? a : 0`.
    #[inline(always)]
    fn select_or_zero(self, mask: Self::M, a: Self::F) -> Self::F {
        self.select(mask, a, self.splat(0.0))
    }

    /// The lanes, into the front of an array.
    #[inline(always)]
    fn to_array(self, a: Self::F) -> [f32; 16] {
        let mut lanes = [0.0; 16];
        // SAFETY: no instruction set has more than 16 lanes.
        unsafe { self.store(lanes.as_mut_ptr(), a) };
        lanes
    }

    /// The sum of all lanes.
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        let mut lanes = self.to_array(a);
        let mut n = Self::LANES;
        while n > 1 {
            n /= 2;
            for i in 0..n {
                lanes[i] += lanes[i + n];
            }
        }
        lanes[0]
    }

    /// The largest lane; NaN may or may not be seen.
    #[inline(always)]
    fn largest(self, a: Self::F) -> f32 {
        let mut lanes = self.to_array(a);
        let mut n = Self::LANES;
        while n > 1 {
            n /= 2;
            for i in 0..n {
                lanes[i] = if lanes[i] > lanes[i + n] { lanes[i] } else { lanes[i + n] };
            }
        }
        lanes[0]
    }

    /// Reads `n` elements, any number up to `LANES`; the other lanes are 0.
    ///
    /// # Safety
    /// `from` is valid for reading `n` elements.
    #[inline(always)]
    unsafe fn load_up_to(self, from: *const f32, n: usize) -> Self::F {
        // SAFETY: the caller's promise.
        unsafe { if n >= Self::LANES { self.load(from) } else { self.load_first(from, n) } }
    }

    /// Writes the first `n` lanes, any number up to `LANES`.
    ///
    /// # Safety
    /// `to` is valid for writing `n` elements.
    #[inline(always)]
    unsafe fn store_up_to(self, to: *mut f32, n: usize, x: Self::F) {
        // SAFETY: the caller's promise.
        unsafe { if n >= Self::LANES { self.store(to, x) } else { self.store_first(to, n, x) } }
    }
}

/// An instruction set by name, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Level {
    /// What every machine of the target has.
    Scalar = 1,
    /// AVX2 with FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2 = 2,
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512 = 3,
    /// NEON, on every 64-bit ARM.
    #[cfg(target_arch = "aarch64")]
    Neon = 4,
    /// WebAssembly's vectors.
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    Simd128 = 5,
}

impl Level {
    /// Every level of this target.
    #[cfg(test)]
    pub const ALL: &'static [Level] = &[
        Level::Scalar,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512,
        #[cfg(target_arch = "aarch64")]
        Level::Neon,
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        Level::Simd128,
    ];

    /// Whether [`Simd::mul_add`] rounds once.
    #[cfg(test)]
    pub fn fuses(self) -> bool {
        match self {
            Level::Scalar => false,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::Avx512 => true,
            #[cfg(target_arch = "aarch64")]
            Level::Neon => true,
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 => false,
        }
    }

    /// The best that the machine has; `KILN_SIMD` (`scalar`, `avx2`, `avx512`) lowers it.
    fn detect() -> Level {
        #[cfg(all(feature = "std", target_arch = "x86_64"))]
        {
            let wish = crate::environment::choice("KILN_SIMD", &["scalar", "avx2", "avx512"]);
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            return match wish {
                Some("scalar") => Level::Scalar,
                Some("avx2") if avx2 => Level::Avx2,
                _ if avx512 => Level::Avx512,
                _ if avx2 => Level::Avx2,
                _ => Level::Scalar,
            };
        }
        #[cfg(all(not(feature = "std"), target_arch = "x86_64"))]
        {
            if cfg!(all(
                target_feature = "avx512f",
                target_feature = "avx512bw",
                target_feature = "avx512dq",
                target_feature = "avx512vl",
                target_feature = "avx2",
                target_feature = "fma"
            )) {
                return Level::Avx512;
            }
            if cfg!(all(target_feature = "avx2", target_feature = "fma")) {
                return Level::Avx2;
            }
            return Level::Scalar;
        }
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        {
            return Level::Neon;
        }
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        {
            return Level::Simd128;
        }
        #[allow(unreachable_code, reason = "the targets above have returned")]
        Level::Scalar
    }

    fn from_u8(level: u8) -> Option<Level> {
        Some(match level {
            1 => Level::Scalar,
            #[cfg(target_arch = "x86_64")]
            2 => Level::Avx2,
            #[cfg(target_arch = "x86_64")]
            3 => Level::Avx512,
            #[cfg(target_arch = "aarch64")]
            4 => Level::Neon,
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            5 => Level::Simd128,
            _ => return None,
        })
    }
}

/// The level that kernels run at.
#[inline]
pub(crate) fn level() -> Level {
    use core::sync::atomic::{AtomicU8, Ordering};
    static LEVEL: AtomicU8 = AtomicU8::new(0);
    #[cfg(test)]
    if let Some(level) = forced::get() {
        return level;
    }
    if let Some(level) = Level::from_u8(LEVEL.load(Ordering::Relaxed)) {
        return level;
    }
    let level = Level::detect();
    LEVEL.store(level as u8, Ordering::Relaxed);
    level
}

/// Levels chosen by tests, for the calling thread (where they also keep [`crate::threads`] on that thread).
#[cfg(test)]
pub(crate) mod forced {
    use super::Level;
    use std::cell::Cell;

    std::thread_local!(static FORCED: Cell<Option<Level>> = const { Cell::new(None) });

    pub fn get() -> Option<Level> {
        FORCED.get()
    }

    /// Runs `test` at every level that the machine has.
    pub fn at_each_level(mut test: impl FnMut(Level)) {
        for &level in Level::ALL.iter().filter(|&&level| level <= Level::detect()) {
            FORCED.set(Some(level));
            test(level);
            FORCED.set(None);
        }
    }
}

/// Declares a function over a [`Simd`] type and the one that runs it at the machine's level.
///
/// The body is an unsafe block; the function's `# Safety` section says what it relies on.
/// `unsafe fn name<S>(s, arguments…) -> result { body }`: `S` is the instruction set and `s` its token inside of the
/// body. What the body calls must be `inline(always)` as far as it touches vectors.
macro_rules! dispatched {
    (
        $(#[$meta:meta])*
        $vis:vis unsafe fn $name:ident<$S:ident>($s:ident $(, $arg:ident: $ty:ty)* $(,)?) $(-> $ret:ty)? $body:block
    ) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "kernels take flat arguments")]
        $vis unsafe fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(unused_unsafe, clippy::too_many_arguments, reason = "some bodies have nothing unsafe; as above")]
            unsafe fn generic<$S: $crate::simd::Simd>($s: $S, $($arg: $ty),*) $(-> $ret)? {
                // SAFETY: what the body reads and writes is what the function's contract allows.
                unsafe { $body }
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            #[allow(clippy::too_many_arguments, reason = "as above")]
            unsafe fn avx512($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the token is right here; the rest is the caller's promise.
                unsafe { generic($crate::simd::avx512::Avx512::new(), $($arg),*) }
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments, reason = "as above")]
            unsafe fn avx2($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the token is right here; the rest is the caller's promise.
                unsafe { generic($crate::simd::avx2::Avx2::new(), $($arg),*) }
            }

            // SAFETY: `level` says that the machine has these features; the rest is the caller's promise.
            unsafe {
                match $crate::simd::level() {
                    #[cfg(target_arch = "x86_64")]
                    $crate::simd::Level::Avx512 => avx512($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::simd::Level::Avx2 => avx2($($arg),*),
                    #[cfg(target_arch = "aarch64")]
                    $crate::simd::Level::Neon => generic($crate::simd::neon::Neon::new(), $($arg),*),
                    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
                    $crate::simd::Level::Simd128 => generic($crate::simd::simd128::Simd128, $($arg),*),
                    $crate::simd::Level::Scalar => generic($crate::simd::scalar::Scalar, $($arg),*),
                }
            }
        }
    };
}
pub(crate) use dispatched;

#[cfg(test)]
mod tests;
