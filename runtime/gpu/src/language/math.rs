//! Functions of 32-bit floats, to an error of a few ulp whatever the device's own functions are worth; what NaN and infinities become is
//! IEEE 754's. [`functions`](super::functions) has those of either width.
//!
//! WGSL leaves the exponential a relative error of `3 + 2|x|` ulp and the inverse tangent one of 4,096 ("Accuracy of
//! Concrete Floating Point Expressions"), and lets devices take NaN and infinities for absent: they are told by their bits
//! here. What a sum lost to rounding is had by subtracting it again: a compiler that may reorder sums (Metal's by its default, which wgpu leaves, and perhaps
//! DX12's) takes it for 0, and `exp` may be off by some 70 ulp then, `ln(1 + x)` of an `x` of 1e-6 by a twentieth. Neither was tried.
//! The formulas of `exp`, `log`, `erf` and the trigonometric functions are those of Kiln's CPU kernels
//! (`kiln-kernels`, `math`).

use super::{Storage, Type, Unary, Value};
use std::f32::consts::{FRAC_2_PI, FRAC_PI_2, FRAC_PI_4, LN_2, LOG2_E, PI};

/// ln 2 in two parts; the first has few bits, so that its multiples by the exponent are exact.
const LN2_HIGH: f32 = 0.693_145_75;
const LN2_LOW: f32 = 1.428_606_8e-6;

impl<'k> Value<'k> {
    /// Whether it is NaN; integers and truth values never are.
    pub fn is_nan(self) -> Value<'k> {
        match self.ty() {
            Type::F64 => !self.equals(self),
            Type::F32 => self.magnitude_bits().above(0x7f80_0000_u32),
            Type::I64 | Type::I32 | Type::U64 | Type::U32 | Type::Bool => self.of(false),
        }
    }

    /// The same in a type that has an order: truth values are 0 and 1.
    pub fn ordered(self) -> Value<'k> {
        if self.ty() == Type::Bool { self.to(Type::U32) } else { self }
    }

    /// Whether it is +∞ or -∞.
    pub fn is_infinite(self) -> Value<'k> {
        match self.ty() {
            Type::F64 => self.abs().equals(f64::INFINITY),
            Type::F32 | Type::I64 | Type::I32 | Type::U64 | Type::U32 | Type::Bool => {
                self.magnitude_bits().equals(0x7f80_0000_u32)
            }
        }
    }

    fn magnitude_bits(self) -> Value<'k> {
        self.bits(Type::U32) & 0x7fff_ffff_u32
    }

    /// Whether the sign bit is set: also of -0.
    fn is_sign_set(self) -> Value<'k> {
        self.bits(Type::U32).at_least(0x8000_0000_u32)
    }

    /// Its magnitude with the sign of another. By a choice, not by masks: a compiler of Mesa 22.3 joins those of several functions
    /// wrongly.
    fn with_sign_of(self, other: Value<'k>) -> Value<'k> {
        let magnitude = self.abs();
        other.is_sign_set().select(-magnitude, magnitude)
    }

    /// `|x|`; of the least integer itself.
    pub fn abs(self) -> Value<'k> {
        match self.ty() {
            Type::F64 | Type::F32 | Type::I64 | Type::I32 => self.unary(Unary::Abs),
            Type::U64 | Type::U32 | Type::Bool => self,
        }
    }

    /// -1, 0 or 1; NaN of NaN.
    pub fn sign(self) -> Value<'k> {
        match self.ty() {
            Type::F64 | Type::F32 => {
                let negative = self.below(0.0).select(-1.0, self);
                self.above(0.0).select(1.0, negative)
            }
            Type::I64 => self.above(0).select(1_i64, self.below(0).select(-1_i64, 0_i64)),
            Type::I32 => self.above(0).select(1, self.below(0).select(-1, 0)),
            Type::U64 | Type::U32 => self.min(1_u32),
            Type::Bool => self,
        }
    }

    /// The larger; NaN if either is.
    pub fn maximum(self, other: Value<'k>) -> Value<'k> {
        if !self.ty().is_float() {
            return self.max(other);
        }
        (self.above(other) | self.is_nan()).select(self, other)
    }

    /// The smaller; NaN if either is.
    pub fn minimum(self, other: Value<'k>) -> Value<'k> {
        if !self.ty().is_float() {
            return self.min(other);
        }
        (self.below(other) | self.is_nan()).select(self, other)
    }

    /// Largest integer not above.
    pub fn floor(self) -> Value<'k> {
        self.unary(Unary::Floor)
    }

    /// Smallest integer not below.
    pub fn ceil(self) -> Value<'k> {
        self.unary(Unary::Ceil)
    }

    /// Nearest integer, halves to even.
    pub fn round(self) -> Value<'k> {
        self.unary(Unary::Round)
    }

    /// Towards zero.
    pub fn trunc(self) -> Value<'k> {
        self.unary(Unary::Trunc)
    }

    /// What elements of a storage hold of a number of their [type](Storage::value): floats of 16 bits are rounded, of narrow integers the lowest bits
    /// kept, others are what they are.
    pub fn held_as(self, storage: Storage) -> Value<'k> {
        match storage {
            Storage::F16 => self.unary(Unary::ToF16),
            Storage::BF16 => self.unary(Unary::ToBF16),
            Storage::I16 | Storage::I8 | Storage::U16 | Storage::U8 => {
                let above = storage.narrow_bits().map_or(0, |bits| u32::BITS - bits);
                (self << above) >> above
            }
            Storage::F64
            | Storage::F32
            | Storage::I64
            | Storage::I32
            | Storage::U64
            | Storage::U32
            | Storage::Bool => self,
        }
    }

    /// Square root; NaN of negative numbers.
    pub fn sqrt(self) -> Value<'k> {
        self.below(0.0).select(f32::NAN, self.unary(Unary::Sqrt))
    }

    /// The same finite number, of which a compiler does not see how it was had: Mesa's takes `(a + b) - b` for `a`, where what rounding
    /// took from the sum is wanted.
    fn opaque(self) -> Value<'k> {
        self.min(f32::MAX)
    }

    /// The number as a sum of two of at most 12 bits each, whose products are exact.
    fn halves(self) -> (Value<'k>, Value<'k>) {
        let high = (self.bits(Type::U32) & 0xffff_f000_u32).bits(Type::F32);
        (high, self - high)
    }

    /// A sum, and what rounding took from it; `self` is not smaller in size than `other`, or 0.
    fn sum_with_rest(self, other: Value<'k>) -> (Value<'k>, Value<'k>) {
        let sum = (self + other).opaque();
        (sum, other - (sum - self))
    }

    /// `((… + c2) x + c1) x + c0`.
    fn polynomial(self, coefficients: &[f32]) -> Value<'k> {
        let mut from_highest = coefficients.iter().rev();
        let highest = self.of(from_highest.next().copied().unwrap_or_default());
        from_highest.fold(highest, |sum, &coefficient| sum.fma(self, coefficient))
    }

    /// `x · 2^n` for an integral float `n` within ±300, in two steps: neither power overflows.
    fn scale(self, n: Value<'k>) -> Value<'k> {
        let n = n.to(Type::I32);
        let half = n >> 1_u32;
        let power = |n: Value<'k>| ((n + 127) << 23_u32).bits(Type::F32);
        self * power(half) * power(n - half)
    }

    /// Splits `e^x` into `2^n (1 + q)`; `x` lies in ±150.
    fn split_exp(self) -> (Value<'k>, Value<'k>) {
        let n = (self * LOG2_E).round();
        // As products: a compiler of Mesa 22.3 adds up the two factors of nested `fma`s, and what the second is for is lost.
        let r = self - n * LN2_HIGH - n * LN2_LOW;
        // (e^r - 1 - r) / r² over ±0.347.
        let p = r.polynomial(&[0.5, 0.166_665_18, 0.041_666_202, 0.008_369_025, 0.001_395_072_1]);
        (n, (r * r).fma(p, r))
    }

    /// `e^x`: 2 ulp; 0 below -104 (where devices have no subnormal numbers, -87), ∞ above 88.72.
    pub(super) fn single_exp(self) -> Value<'k> {
        let (n, q) = self.max(-105.0).min(89.0).split_exp();
        let y = (q + 1.0).scale(n);
        self.is_nan().select(self, y)
    }

    /// `e^x - 1`: 3 ulp, also near 0.
    pub(super) fn single_exp_m1(self) -> Value<'k> {
        let (n, q) = self.max(-30.0).min(89.0).split_exp();
        // 2^n q + (2^n - 1), at half the scale, since 2^128 is no f32.
        let half = self.of(0.5).scale(n);
        let y = half.fma(q, half - 0.5);
        let y = y + y;
        (self.abs().below(1e-10) | self.is_nan()).select(self, y)
    }

    /// The logarithm of a positive, finite number as a sum of two: to about 2^-30, and 2^-30 of itself.
    fn split_log(self) -> (Value<'k>, Value<'k>) {
        // Subnormal numbers are made normal first.
        let tiny = self.below(f32::MIN_POSITIVE);
        let normal = tiny.select(self * 8_388_608.0, self);
        // m = x / 2^e lies in [√½, √2).
        let bits = normal.bits(Type::I32) - 0x3f35_04f3;
        let e = (bits >> 23_u32).to(Type::F32) + tiny.select(-23.0, 0.0);
        let m = ((bits & 0x007f_ffff) + 0x3f35_04f3).bits(Type::F32);
        let f = m - 1.0;
        let square = f * f;
        // (ln(1 + f) - f + f²/2) / f³ over [√½ - 1, √2 - 1].
        let q = f.polynomial(&[
            0.333_333_13,
            -0.250_000_1,
            0.200_021_24,
            -0.166_680_05,
            0.142_194_5,
            -0.124_053_456,
            0.118_887_246,
            -0.116_774_924,
            0.067_476_42,
        ]);
        let low = e.fma(LN2_LOW, square * f * q);
        // -f²/2 as a sum of two, of which the first is exact.
        let (first, second) = f.halves();
        let half = first * first * -0.5;
        let low = low - second * (f + first) * 0.5;
        // The product with the exponent is exact; |f| is below |e ln 2| or e is 0.
        let (sum, rest) = (e * LN2_HIGH).sum_with_rest(f);
        let (high, rest_of_half) = sum.sum_with_rest(half);
        high.sum_with_rest(low + (rest + rest_of_half))
    }

    /// Natural logarithm: 3 ulp; -∞ of 0, NaN of negative numbers.
    pub(super) fn single_log(self) -> Value<'k> {
        let (high, low) = self.split_log();
        let y = self.equals(0.0).select(f32::NEG_INFINITY, high + low);
        let y = self.below(0.0).select(f32::NAN, y);
        (self.is_nan() | self.equals(f32::INFINITY)).select(self, y)
    }

    /// `ln(1 + x)`: 4 ulp, also near 0.
    pub(super) fn single_log_1p(self) -> Value<'k> {
        let w = self + 1.0;
        // What rounding took from 1 + x comes back to first order.
        let lost = (self - (w.opaque() - 1.0)) / w;
        let y = w.equals(0.0).select(f32::NEG_INFINITY, w.log() + lost);
        (self.abs().below(1e-10) | self.equals(f32::INFINITY)).select(self, y)
    }

    /// Hyperbolic tangent: 4 ulp.
    pub(super) fn single_tanh(self) -> Value<'k> {
        let magnitude = self.abs().min(10.0);
        let e = (magnitude + magnitude).exp_m1();
        let y = (e / (e + 2.0)).with_sign_of(self);
        self.is_nan().select(self, y)
    }

    /// Hyperbolic sine: 4 ulp.
    pub(super) fn single_sinh(self) -> Value<'k> {
        let magnitude = self.abs();
        let e = magnitude.min(80.0).exp_m1();
        let small = (e + e / (e + 1.0)) * 0.5;
        let y = magnitude.above(80.0).select(magnitude.half_exp(), small);
        self.is_nan().select(self, y.with_sign_of(self))
    }

    /// Hyperbolic cosine: 4 ulp.
    pub(super) fn single_cosh(self) -> Value<'k> {
        let magnitude = self.abs();
        let e = magnitude.min(80.0).exp();
        let y = magnitude.above(80.0).select(magnitude.half_exp(), (e + self.of(1.0) / e) * 0.5);
        self.is_nan().select(self, y)
    }

    /// `e^x / 2`, also where `e^x` alone overflows.
    fn half_exp(self) -> Value<'k> {
        let root = (self * 0.5).exp();
        root * 0.5 * root
    }

    /// Inverse hyperbolic sine: 5 ulp.
    pub(super) fn single_asinh(self) -> Value<'k> {
        let t = self.abs();
        let square = t * t;
        let small = (t + square / ((square + 1.0).sqrt() + 1.0)).log_1p();
        let y = t.above(1e9).select(t.log() + LN_2, small);
        self.is_nan().select(self, y.with_sign_of(self))
    }

    /// Inverse hyperbolic cosine: 5 ulp; NaN below 1.
    pub(super) fn single_acosh(self) -> Value<'k> {
        let t = self - 1.0;
        let small = (t + (t + t + t * t).sqrt()).log_1p();
        let y = self.above(1e9).select(self.log() + LN_2, small);
        self.below(1.0).select(f32::NAN, y)
    }

    /// Inverse hyperbolic tangent: 5 ulp; ±∞ of ±1, NaN beyond.
    pub(super) fn single_atanh(self) -> Value<'k> {
        let t = self.abs();
        let y = ((t + t) / (self.of(1.0) - t)).log_1p() * 0.5;
        let y = t.equals(1.0).select(f32::INFINITY, y).with_sign_of(self);
        (t.above(1.0) | t.is_nan()).select(f32::NAN, y)
    }

    /// `e^x` of a 32-bit float that is rounded to 16 bits then: 2 ulp, and as many more as `1.173 |x|` has wholes (NVIDIA, "CUDA C++ Programming
    /// Guide", `__expf`); what is below `2^-126` may be 0. On CUDA it takes some twenty instructions less than [`exp`](Self::exp), with which
    /// layers of 16-bit floats waited for arithmetic rather than for memory.
    pub fn short_exp(self) -> Value<'k> {
        self.unary(Unary::ShortExp)
    }

    /// Gauss error function likewise.
    pub fn short_erf(self) -> Value<'k> {
        self.erf_by(Self::short_exp)
    }

    /// Gauss error function: 4 ulp.
    pub(super) fn single_erf(self) -> Value<'k> {
        self.erf_by(Self::exp)
    }

    /// Gauss error function of a 32-bit float, by an exponential.
    #[allow(clippy::approx_constant, reason = "the first coefficient is not quite 2/√π")]
    fn erf_by(self, exp: impl FnOnce(Self) -> Self) -> Value<'k> {
        let t = self.abs();
        // erf(x) / x in x² over |x| ≤ 1.
        let small = self
            * (self * self).polynomial(&[
                1.128_379_1,
                -0.376_126_26,
                0.112_835_854,
                -0.026_853_81,
                0.005_188_327_3,
                -0.000_801_019_14,
                7.853_854e-5,
            ]);
        // -ln(1 - erf(t)) over [0.95, 4]; beyond, erf is 1.
        let g = t.min(4.0).polynomial(&[
            -0.000_183_445_62,
            1.129_556_9,
            0.633_262_6,
            0.108_372_495,
            -0.025_178_98,
            0.004_193_615_6,
            -0.000_439_107_4,
            2.149_620_6e-5,
        ]);
        let large = (self.of(1.0) - exp(-g)).with_sign_of(self);
        let y = t.below(1.0).select(small, large);
        self.is_nan().select(self, y)
    }

    /// `x Φ(x)` (Hendrycks & Gimpel 2016, "Gaussian Error Linear Units") of a 32-bit float that is rounded to 16 bits then: what is taken from
    /// `max(x, 0)` is exact to 2e-5 of itself. It takes half the operations of that by [`erf`](Self::erf), with which layers of 16-bit floats
    /// waited for arithmetic rather than for memory.
    pub fn rough_gelu(self) -> Value<'k> {
        let size = self.abs().min(12.0);
        let t = size * std::f32::consts::FRAC_1_SQRT_2;
        // -log₂(1 - erf(t)) over [0, 5], where what is left is 1e-12; it goes on to grow up to 8.5.
        let g = t * t.polynomial(&[
            1.627_866_8,
            0.917_873_7,
            0.151_324_85,
            -0.033_190_14,
            0.004_984_617_5,
            -0.000_446_950_02,
            1.780_891_5e-5,
        ]);
        // 2^-g, which is a normal number; 2^r over ±0.5.
        let n = (-g).round();
        let power = ((n.to(Type::I32) + 127) << 23_u32).bits(Type::F32);
        let r = -g - n;
        let rest = r.polynomial(&[1.0, 0.693_124_2, 0.240_241, 0.055_906_51, 0.009_582_886]);
        let y = self.max(0.0) - size * (rest * power) * 0.5;
        self.is_nan().select(self, y)
    }

    /// Sine: 2 ulp up to 8,000 (absolute 1e-7 near the zeros), beyond what the printer has ([`Unary::Sin`]); NaN of ±∞.
    pub(super) fn single_sin(self) -> Value<'k> {
        let y = self.quadrant(0);
        let y = self.abs().above(8000.0).select(self.unary(Unary::Sin), y);
        let y = self.equals(0.0).select(self, y);
        (self.is_infinite() | self.is_nan()).select(f32::NAN, y)
    }

    /// Cosine, as exact as [`Value::sin`].
    pub(super) fn single_cos(self) -> Value<'k> {
        let y = self.abs().above(8000.0).select(self.unary(Unary::Cos), self.quadrant(1));
        (self.is_infinite() | self.is_nan()).select(f32::NAN, y)
    }

    /// Tangent.
    pub(super) fn single_tan(self) -> Value<'k> {
        self.sin() / self.cos()
    }

    /// sin(x + shift · π/2).
    fn quadrant(self, shift: i32) -> Value<'k> {
        let n = (self * FRAC_2_PI).round();
        // π/2 in four parts of few bits.
        let parts = [1.570_312_5, 4.837_513e-4, 7.549_533_6e-8, 2.563_344e-12];
        let r = parts.into_iter().fold(self, |r, part: f32| r - n * part);
        let z = r * r;
        // (sin(r)/r - 1) / r² and (cos(r) - 1 + r²/2) / r⁴ over ±0.793.
        let sine = z.polynomial(&[-0.166_666_67, 0.008_333_329, -0.000_198_392_56, 2.717_564_3e-6]);
        let sine = (sine * z).fma(r, r);
        let cosine = z.polynomial(&[0.041_666_668, -0.001_388_888_3, 2.479_943_6e-5, -2.720_330_2e-7]);
        let cosine = (cosine * z).fma(z, z.fma(-0.5, 1.0));
        let turn = n.max(-16_384.0).min(16_384.0).to(Type::I32) + shift;
        let y = (turn & 1).equals(1).select(cosine, sine);
        (y.bits(Type::I32) ^ ((turn & 2) << 30_u32)).bits(Type::F32)
    }

    /// Inverse tangent: 3 ulp (the reduction and polynomial of Cephes' `atanf`, Moshier 1992).
    pub(super) fn single_atan(self) -> Value<'k> {
        let t = self.abs();
        let (far, middle) = (t.above(2.414_213_7), t.above(0.414_213_57));
        let reduced = far.select(self.of(-1.0) / t, middle.select((t - 1.0) / (t + 1.0), t));
        let start = far.select(FRAC_PI_2, middle.select(FRAC_PI_4, 0.0));
        let z = reduced * reduced;
        let p = z.polynomial(&[-0.333_329_5, 0.199_777_11, -0.138_776_86, 0.080_537_446]);
        let y = (start + (p * z).fma(reduced, reduced)).with_sign_of(self);
        self.is_nan().select(self, y)
    }

    /// Angle of the point `(x, y)`, `self` being `y`.
    pub(super) fn single_atan2(self, x: Value<'k>) -> Value<'k> {
        let (rise, run) = (self.abs(), x.abs());
        let steep = rise.above(run);
        let (less, more) = (steep.select(run, rise), steep.select(rise, run));
        let ratio = more.equals(0.0).select(0.0, (less.is_infinite()).select(1.0, less / more));
        let angle = ratio.atan();
        let angle = steep.select(self.of(FRAC_PI_2) - angle, angle);
        let angle = x.is_sign_set().select(self.of(PI) - angle, angle);
        (self.is_nan() | x.is_nan()).select(f32::NAN, angle.with_sign_of(self))
    }

    /// Inverse sine: 3 ulp (the polynomial of Cephes' `asinf`); NaN beyond ±1.
    pub(super) fn single_asin(self) -> Value<'k> {
        let t = self.abs();
        let upper = t.above(0.5);
        let z = upper.select((self.of(1.0) - t) * 0.5, t * t);
        let s = upper.select(z.sqrt(), t);
        let p = z.polynomial(&[0.166_667_52, 0.074_953, 0.045_470_026, 0.024_181_31, 0.042_163_2]);
        let lower = (p * z).fma(s, s);
        let y = upper.select(self.of(FRAC_PI_2) - (lower + lower), lower).with_sign_of(self);
        (t.above(1.0) | t.is_nan()).select(f32::NAN, y)
    }

    /// Inverse cosine; NaN beyond ±1.
    pub(super) fn single_acos(self) -> Value<'k> {
        // Near 1, π/2 - asin(x) would cancel.
        let near = (((self.of(1.0) - self) * 0.5).sqrt()).asin();
        self.above(0.5).select(near + near, self.of(FRAC_PI_2) - self.asin())
    }

    /// `self` to the power of `exponent`: as C's `pow`, to about 4 ulp.
    pub(super) fn single_pow(self, exponent: Value<'k>) -> Value<'k> {
        let base = self.abs();
        // e^(y ln x), whose exponent is a sum of two: its error would be multiplied by it.
        let (high, low) = base.split_log();
        let ((high_first, high_second), (first, second)) = (high.halves(), exponent.halves());
        let rest = first * high_second + second * high + exponent * low;
        let (product, rest) = (first * high_first).sum_with_rest(rest);
        let close = product.exp() * (rest + 1.0);
        let simple =
            base.equals(0.0) | base.is_infinite() | exponent.is_infinite() | product.abs().above(100.0);
        let magnitude = simple.select((exponent * base.log()).exp(), close);
        let magnitude = self.abs().equals(1.0).select(1.0, magnitude);
        let whole = exponent.floor().equals(exponent);
        let halved = exponent * 0.5;
        let odd = whole & halved.floor().differs(halved);
        let signed = (self.is_sign_set() & odd).select(-magnitude, magnitude);
        let undefined = self.below(0.0) & !whole & !self.is_infinite() & !exponent.is_infinite();
        let y = undefined.select(f32::NAN, signed);
        let y = (self.is_nan() | exponent.is_nan()).select(f32::NAN, y);
        (exponent.equals(0.0) | self.equals(1.0)).select(1.0, y)
    }

    /// `self` to a power, of integers, by squaring; negative powers are 0, except those of 1 and -1.
    pub fn integer_pow(self, exponent: Value<'k>) -> Value<'k> {
        let one = self.of(1_u32).to(self.ty());
        let kernel = self.kernel();
        let (result, base) = (kernel.variable(one), kernel.variable(self));
        let (bits, count) = match self.ty() {
            Type::I64 | Type::U64 => (exponent.bits(Type::U64), 64_u32),
            Type::F64 | Type::F32 | Type::I32 | Type::U32 | Type::Bool => (exponent.bits(Type::U32), 32_u32),
        };
        kernel.range(0_u32, count, 1_u32, |bit| {
            let taken = ((bits >> bit) & 1_u32).equals(1_u32);
            result.set(taken.select(result.get() * base.get(), result.get()));
            base.set(base.get() * base.get());
        });
        if matches!(self.ty(), Type::U32 | Type::U64) {
            return result.get();
        }
        let odd = (exponent & 1).equals(1);
        let inverse = match self.ty() {
            Type::I64 => {
                self.equals(1).select(1_i64, self.equals(-1).select(odd.select(-1_i64, 1_i64), 0_i64))
            }
            Type::F64 | Type::F32 | Type::I32 | Type::U64 | Type::U32 | Type::Bool => {
                self.equals(1).select(1, self.equals(-1).select(odd.select(-1, 1), 0))
            }
        };
        exponent.below(0).select(inverse, result.get())
    }

    /// Remainder with the sign of the dividend, which is exact: both as whole numbers of the divisor's last places, divided eight bits at a time.
    pub(super) fn single_fmod(self, divisor: Value<'k>) -> Value<'k> {
        let kernel = self.kernel();
        let (a, b) = (self.abs(), divisor.abs());
        // A significand and the exponent of its last place, where the least is 1: subnormal numbers have that of the least normal ones.
        let parts = |x: Value<'k>| {
            let (bits, hidden) = (x.bits(Type::U32), 1_u32 << 23);
            let (exponent, fraction) = (bits >> 23_u32, bits & (hidden - 1));
            let is_normal = exponent.above(0_u32);
            (is_normal.select(fraction | hidden, fraction), exponent.maximum(kernel.value(1_u32)))
        };
        let ((significand, exponent), (unit, of_unit)) = (parts(a), parts(b));
        let unit = unit.maximum(kernel.value(1_u32));
        let rest = kernel.variable(significand % unit);
        let places = exponent.maximum(of_unit) - of_unit;
        kernel.range(0_u32, places, 8_u32, |place| {
            rest.set((rest.get() << (places - place).minimum(kernel.value(8_u32))) % unit);
        });
        let rest = rest.get();
        // The float that the rest is has another exponent, by that of the divisor's last place: 150 is that of 1. Below the least, its bits are the rest.
        let bits = rest.to(Type::F32).bits(Type::U32);
        let scaled = (bits >> 23_u32) + of_unit;
        let normal = bits + ((of_unit - 150_u32) << 23_u32);
        let subnormal = rest << (of_unit - 1_u32).minimum(kernel.value(31_u32));
        let is_normal = scaled.above(150_u32) & rest.above(0_u32);
        let r = is_normal.select(normal, subnormal).bits(Type::F32);
        let r = a.below(b).select(a, r);
        let undefined = a.is_infinite() | b.equals(0.0) | a.is_nan() | b.is_nan();
        undefined.select(f32::NAN, r.with_sign_of(self))
    }
}
