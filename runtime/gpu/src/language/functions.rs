//! Functions of floats of either width: those of 32 bits are formulas ([`math`](super::math)), those of 64 bits CUDA's own, whose error
//! is at most 3 ulp (NVIDIA, "CUDA C++ Programming Guide", appendix "Mathematical Functions"), or written in WGSL to the error that
//! [`wgsl`](super::wgsl) says.

use super::{Binary, Type, Unary, Value};

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident: $single:ident, $function:ident;)*) => {
        impl<'k> Value<'k> {
            $($(#[$doc])*
            pub fn $name(self) -> Value<'k> {
                if self.ty() == Type::F64 { self.unary(Unary::$function) } else { self.$single() }
            })*
        }
    };
}

functions! {
    /// `e^x`, of 32 bits: 2 ulp; 0 below -104 (where devices have no subnormal numbers, -87), ∞ above 88.72.
    exp: single_exp, Exp;
    /// `e^x - 1`, of 32 bits: 3 ulp, also near 0.
    exp_m1: single_exp_m1, ExpM1;
    /// Natural logarithm, of 32 bits: 3 ulp; -∞ of 0, NaN of negative numbers.
    log: single_log, Log;
    /// `ln(1 + x)`, of 32 bits: 4 ulp, also near 0.
    log_1p: single_log_1p, Log1p;
    /// Sine, of 32 bits: 2 ulp up to 8,000 (absolute 1e-7 near the zeros, and everywhere beyond); NaN of ±∞.
    sin: single_sin, Sin;
    /// Cosine, as exact as [`Value::sin`].
    cos: single_cos, Cos;
    /// Tangent.
    tan: single_tan, Tan;
    /// Inverse sine, of 32 bits: 3 ulp; NaN beyond ±1.
    asin: single_asin, Asin;
    /// Inverse cosine; NaN beyond ±1.
    acos: single_acos, Acos;
    /// Inverse tangent, of 32 bits: 3 ulp.
    atan: single_atan, Atan;
    /// Hyperbolic sine, of 32 bits: 4 ulp.
    sinh: single_sinh, Sinh;
    /// Hyperbolic cosine, of 32 bits: 4 ulp.
    cosh: single_cosh, Cosh;
    /// Hyperbolic tangent, of 32 bits: 4 ulp.
    tanh: single_tanh, Tanh;
    /// Inverse hyperbolic sine, of 32 bits: 5 ulp.
    asinh: single_asinh, Asinh;
    /// Inverse hyperbolic cosine, of 32 bits: 5 ulp; NaN below 1.
    acosh: single_acosh, Acosh;
    /// Inverse hyperbolic tangent, of 32 bits: 5 ulp; ±∞ of ±1, NaN beyond.
    atanh: single_atanh, Atanh;
    /// Gauss error function, of 32 bits: 4 ulp.
    erf: single_erf, Erf;
}

impl<'k> Value<'k> {
    /// Angle of the point `(x, y)`, `self` being `y`.
    pub fn atan2(self, x: Value<'k>) -> Value<'k> {
        if self.ty() == Type::F64 { self.binary(Binary::Atan2, x) } else { self.single_atan2(x) }
    }

    /// `self` to the power of `exponent`: as C's `pow`, of 32 bits to about 4 ulp, of 64 bits to 2; where whole numbers come
    /// of whole ones, to the last bit.
    pub fn pow(self, exponent: Value<'k>) -> Value<'k> {
        if self.ty() == Type::F64 { self.double_pow(exponent) } else { self.single_pow(exponent) }
    }

    /// CUDA's function may be off by 2 ulp where the result is whole too ("CUDA C++ Programming Guide", "Mathematical Functions"), which
    /// shows as soon as that is made an integer: 30³ would be 26,999. Powers of whole numbers, and of their whole roots, are products as long
    /// as these have 53 bits.
    fn double_pow(self, exponent: Value<'k>) -> Value<'k> {
        let kernel = self.kernel();
        let is_whole = exponent.floor().equals(exponent);
        let root = self.sqrt();
        // Roots of what is not positive are the function's.
        let has_root =
            root.floor().equals(root) & (root * root).equals(self) & self.above(kernel.double(0.0));
        let base = is_whole.select(self, root);
        let factors = is_whole.select(exponent, exponent + exponent);
        let bits = 6_u32;
        let is_counted = factors.floor().equals(factors)
            & factors.at_least(kernel.double(0.0))
            & factors.below(kernel.double(f64::from(1_u32 << bits)))
            & base.floor().equals(base)
            & (is_whole | has_root);
        let count = is_counted.select(factors, kernel.double(0.0)).to(Type::U32);
        let (product, power) = (kernel.variable(kernel.double(1.0)), kernel.variable(base));
        kernel.range(0_u32, bits, 1_u32, |bit| {
            let is_taken = ((count >> bit) & 1_u32).equals(1_u32);
            product.set(is_taken.select(product.get() * power.get(), product.get()));
            power.set(power.get() * power.get());
        });
        let product = product.get();
        let is_exact = is_counted & product.abs().below(kernel.double(9_007_199_254_740_992.0));
        let is_root = exponent.equals(kernel.double(0.5)) & self.above(kernel.double(0.0));
        let general = is_root.select(root, self.binary(Binary::Pow, exponent));
        is_exact.select(product, general)
    }

    /// Remainder with the sign of the dividend, which is exact.
    pub fn fmod(self, divisor: Value<'k>) -> Value<'k> {
        if self.ty() == Type::F64 { self.binary(Binary::Rem, divisor) } else { self.single_fmod(divisor) }
    }

    /// A 64-bit float as one of 32 bits, rounded so that rounding that to 16 bits yields what rounding the number itself would: where it
    /// is not exact, to the neighbour whose last bit is set (Boldo & Melquiond 2008, "rounding to odd").
    pub fn to_odd(self) -> Value<'k> {
        let nearest = self.to(Type::F32);
        let back = nearest.to(Type::F64);
        let bits = nearest.bits(Type::U32);
        let towards = self.abs().above(back.abs()).select(bits + 1_u32, bits - 1_u32);
        let is_even_and_inexact = (bits & 1_u32).equals(0_u32) & back.differs(self) & !self.is_nan();
        is_even_and_inexact.select(towards, bits).bits(Type::F32)
    }
}
