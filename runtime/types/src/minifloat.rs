//! Floats of eight bits and fewer.

use crate::DType;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// A float of eight bits or fewer, as files keep weights and casts round to.
///
/// No tensor is made of such floats: one of [`dtype`](Self::dtype), which has 16 bits, holds all of their values exactly, and
/// [`round`](Self::round) yields the nearest of these.
///
/// Names are those of ONNX and of `ml_dtypes`: bits of exponent and of mantissa, then `Fn` where there are no infinities, and `uz` where there is one zero and the
/// only number that is none stands where -0 would. Formats are those of the "OCP 8-bit Floating Point Specification", of "8-bit Numerical Formats for Deep Neural
/// Networks" (Noune and others, 2022) where they end in `uz`, and of the "OCP Microscaling Formats Specification" (MX) for six and four bits, and for scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Minifloat {
    /// 8 bits, to ±448.
    E4M3Fn,
    /// 8 bits, to ±240, without -0.
    E4M3Fnuz,
    /// 8 bits, to ±57,344 and infinity.
    E5M2,
    /// 8 bits, to ±57,344, without -0.
    E5M2Fnuz,
    /// 8 bits, the powers of two from 2^-127 to 2^127: a scale.
    E8M0Fnu,
    /// 6 bits, to ±7.5; all are numbers.
    E2M3Fn,
    /// 6 bits, to ±28; all are numbers.
    E3M2Fn,
    /// 4 bits, to ±6; all are numbers.
    E2M1Fn,
}

impl Minifloat {
    /// Every format, in declaration order.
    pub const ALL: [Minifloat; 8] = [
        Minifloat::E4M3Fn,
        Minifloat::E4M3Fnuz,
        Minifloat::E5M2,
        Minifloat::E5M2Fnuz,
        Minifloat::E8M0Fnu,
        Minifloat::E2M3Fn,
        Minifloat::E3M2Fn,
        Minifloat::E2M1Fn,
    ];

    /// How many bits it has.
    pub const fn bits(self) -> u32 {
        match self {
            Minifloat::E4M3Fn
            | Minifloat::E4M3Fnuz
            | Minifloat::E5M2
            | Minifloat::E5M2Fnuz
            | Minifloat::E8M0Fnu => 8,
            Minifloat::E2M3Fn | Minifloat::E3M2Fn => 6,
            Minifloat::E2M1Fn => 4,
        }
    }

    /// How many of its bits are the mantissa's.
    pub const fn mantissa_bits(self) -> u32 {
        match self {
            Minifloat::E4M3Fn | Minifloat::E4M3Fnuz | Minifloat::E2M3Fn => 3,
            Minifloat::E5M2 | Minifloat::E5M2Fnuz | Minifloat::E3M2Fn => 2,
            Minifloat::E2M1Fn => 1,
            Minifloat::E8M0Fnu => 0,
        }
    }

    /// The exponent of its least normal number, a power of two.
    pub const fn least_exponent(self) -> i32 {
        match self {
            Minifloat::E4M3Fn => -6,
            Minifloat::E4M3Fnuz => -7,
            Minifloat::E5M2 => -14,
            Minifloat::E5M2Fnuz => -15,
            Minifloat::E8M0Fnu => -127,
            Minifloat::E3M2Fn => -2,
            Minifloat::E2M3Fn | Minifloat::E2M1Fn => 0,
        }
    }

    /// The exponent of its greatest numbers.
    pub const fn greatest_exponent(self) -> i32 {
        match self {
            Minifloat::E4M3Fn => 8,
            Minifloat::E4M3Fnuz => 7,
            Minifloat::E5M2 | Minifloat::E5M2Fnuz => 15,
            Minifloat::E8M0Fnu => 127,
            Minifloat::E3M2Fn => 4,
            Minifloat::E2M3Fn | Minifloat::E2M1Fn => 2,
        }
    }

    /// Its greatest number.
    pub const fn greatest(self) -> f64 {
        match self {
            Minifloat::E4M3Fn => 448.0,
            Minifloat::E4M3Fnuz => 240.0,
            Minifloat::E5M2 | Minifloat::E5M2Fnuz => 57_344.0,
            Minifloat::E8M0Fnu => power_of_two(127),
            Minifloat::E3M2Fn => 28.0,
            Minifloat::E2M3Fn => 7.5,
            Minifloat::E2M1Fn => 6.0,
        }
    }

    /// What stands for numbers beyond the greatest where nothing is saturated: infinity, or what is no number; nothing where the format has neither.
    pub const fn overflow(self) -> Option<f64> {
        match self {
            Minifloat::E5M2 => Some(f64::INFINITY),
            Minifloat::E4M3Fn | Minifloat::E4M3Fnuz | Minifloat::E5M2Fnuz | Minifloat::E8M0Fnu => {
                Some(f64::NAN)
            }
            Minifloat::E2M3Fn | Minifloat::E3M2Fn | Minifloat::E2M1Fn => None,
        }
    }

    /// Whether it has a number of its own for -0.
    pub const fn has_negative_zero(self) -> bool {
        !matches!(self, Minifloat::E4M3Fnuz | Minifloat::E5M2Fnuz | Minifloat::E8M0Fnu)
    }

    /// The dtype of tensors that hold its values, every one exactly.
    pub const fn dtype(self) -> DType {
        match self {
            // Its powers of two need as many exponents as an f32 has.
            Minifloat::E8M0Fnu => DType::BF16,
            _ => DType::F16,
        }
    }

    /// Of each of its bit patterns, the bits of the value in its [`dtype`](Self::dtype); bits above its own do not count.
    pub fn widened(self) -> [u16; 256] {
        core::array::from_fn(|bits| {
            let value = self.from_bits(bits as u8);
            match self.dtype() == DType::BF16 {
                true => bf16::from_f64(value).to_bits(),
                false => f16::from_f64(value).to_bits(),
            }
        })
    }

    /// The name used in messages: that of `ml_dtypes`, without `float`.
    pub const fn name(self) -> &'static str {
        match self {
            Minifloat::E4M3Fn => "f8_e4m3fn",
            Minifloat::E4M3Fnuz => "f8_e4m3fnuz",
            Minifloat::E5M2 => "f8_e5m2",
            Minifloat::E5M2Fnuz => "f8_e5m2fnuz",
            Minifloat::E8M0Fnu => "f8_e8m0fnu",
            Minifloat::E2M3Fn => "f6_e2m3fn",
            Minifloat::E3M2Fn => "f6_e3m2fn",
            Minifloat::E2M1Fn => "f4_e2m1fn",
        }
    }

    /// The value of a bit pattern; bits above its own do not count.
    pub fn from_bits(self, bits: u8) -> f64 {
        let mantissa_bits = self.mantissa_bits();
        if self == Minifloat::E8M0Fnu {
            return if bits == 0xff { f64::NAN } else { power_of_two(i32::from(bits) - 127) };
        }
        let magnitude = bits & ((1 << (self.bits() - 1)) - 1);
        let is_negative = bits >> (self.bits() - 1) & 1 == 1;
        if !self.has_negative_zero() && is_negative && magnitude == 0 {
            return f64::NAN;
        }
        let mantissa = f64::from(magnitude & ((1 << mantissa_bits) - 1));
        let steps = f64::from(1u8 << mantissa_bits);
        let value = match i32::from(magnitude >> mantissa_bits) {
            0 => mantissa / steps * power_of_two(self.least_exponent()),
            exponent => (1.0 + mantissa / steps) * power_of_two(self.least_exponent() + exponent - 1),
        };
        let value = match self.overflow() {
            Some(overflow) if value > self.greatest() => {
                // Of the highest exponent, E5M2 has one infinity, and others are no numbers.
                if overflow.is_infinite() && mantissa == 0.0 { overflow } else { f64::NAN }
            }
            _ => value,
        };
        if is_negative { -value } else { value }
    }

    /// The nearest of its values: of two, that whose last bit is 0 (of [scales](Minifloat::E8M0Fnu), which have no such bit, always the next above). What is
    /// beyond the greatest is the greatest if `saturate`, else what stands for it. What is no number stays so, or is 0 where the format has
    /// only numbers. ("Cast" in ONNX's operators.)
    pub fn round(self, x: f64, saturate: bool) -> f64 {
        if x.is_nan() {
            return if self.overflow().is_some() { x } else { 0.0 };
        }
        let least = power_of_two(self.least_exponent());
        let nearest = match x.is_infinite() {
            true => x,
            false => {
                // The exponent of a number of f64 that is normal, as all are that any of these formats tells from 0.
                let exponent = (x.to_bits() >> 52 & 0x7ff) as i32 - 1023;
                let step = power_of_two(exponent.max(self.least_exponent()))
                    / f64::from(1u8 << self.mantissa_bits());
                let steps = x / step;
                let whole = if self == Minifloat::E8M0Fnu { ceil(steps) } else { round_ties_even(steps) };
                whole * step
            }
        };
        let nearest = match self.overflow() {
            Some(overflow) if !saturate && nearest.abs() > self.greatest() => overflow.copysign(nearest),
            _ => nearest.clamp(-self.greatest(), self.greatest()),
        };
        match self {
            Minifloat::E8M0Fnu if nearest < least => least,
            _ if nearest == 0.0 && !self.has_negative_zero() => 0.0,
            _ => nearest,
        }
    }
}

/// 2 to the power of a number that is no less than -1022 and no more than 1023.
pub const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// The nearest whole number, of magnitudes up to 2^51; without the standard library there is no such function.
fn round_ties_even(x: f64) -> f64 {
    // Where the last bit of a sum is a one, what is added rounds to it.
    const ONES: f64 = 4_503_599_627_370_496.0;
    let whole = x.abs() + ONES - ONES;
    whole.copysign(x)
}

/// The least whole number that is no less, of magnitudes up to 2^51.
fn ceil(x: f64) -> f64 {
    let whole = round_ties_even(x);
    if whole < x { whole + 1.0 } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn values(format: Minifloat) -> Vec<f64> {
        (0..1u16 << format.bits()).map(|bits| format.from_bits(bits as u8)).collect()
    }

    #[test]
    fn bits_have_the_values_of_their_specifications() {
        let cases = [
            // OFP8, table 2.
            (Minifloat::E4M3Fn, 0x7e, 448.0),
            (Minifloat::E4M3Fn, 0x08, 0.015_625),
            (Minifloat::E4M3Fn, 0x01, 0.001_953_125),
            (Minifloat::E5M2, 0x7b, 57_344.0),
            (Minifloat::E5M2, 0x7c, f64::INFINITY),
            (Minifloat::E5M2, 0xfc, f64::NEG_INFINITY),
            (Minifloat::E5M2, 0x01, 0.000_015_258_789_062_5),
            (Minifloat::E4M3Fnuz, 0x7f, 240.0),
            (Minifloat::E5M2Fnuz, 0xff, -57_344.0),
            // MX, tables 2 to 5.
            (Minifloat::E2M3Fn, 0x1f, 7.5),
            (Minifloat::E2M3Fn, 0x21, -0.125),
            (Minifloat::E3M2Fn, 0x1f, 28.0),
            (Minifloat::E3M2Fn, 0x01, 0.0625),
            (Minifloat::E2M1Fn, 0x07, 6.0),
            (Minifloat::E2M1Fn, 0x09, -0.5),
            (Minifloat::E8M0Fnu, 127, 1.0),
        ];
        for (format, bits, value) in cases {
            assert_eq!(format.from_bits(bits), value, "{format:?} {bits:#x}");
        }
        for (format, bits) in [
            (Minifloat::E4M3Fn, 0x7f),
            (Minifloat::E5M2, 0x7d),
            (Minifloat::E4M3Fnuz, 0x80),
            (Minifloat::E5M2Fnuz, 0x80),
            (Minifloat::E8M0Fnu, 0xff),
        ] {
            assert!(format.from_bits(bits).is_nan(), "{format:?}");
        }
    }

    #[test]
    fn the_greatest_is_the_greatest_and_the_dtype_holds_all() {
        for format in Minifloat::ALL {
            let finite = || values(format).into_iter().filter(|value| value.is_finite());
            assert_eq!(finite().fold(0.0, f64::max), format.greatest(), "{format:?}");
            let exact = |value: f64| match format.dtype() {
                DType::BF16 => bf16::from_f64(value).to_f64() == value,
                _ => f16::from_f64(value).to_f64() == value,
            };
            assert!(finite().all(exact), "{format:?}");
        }
    }

    #[test]
    fn rounding_is_to_the_nearest_of_all() {
        for format in Minifloat::ALL.into_iter().filter(|format| *format != Minifloat::E8M0Fnu) {
            let mut all: Vec<f64> = values(format).into_iter().filter(|value| value.is_finite()).collect();
            all.sort_by(f64::total_cmp);
            all.dedup();
            for pair in all.windows(2) {
                let [low, high] = [pair[0], pair[1]];
                for part in [0.0, 0.25, 0.499, 0.501, 0.75] {
                    let x = low + (high - low) * part;
                    let nearest = if part < 0.5 { low } else { high };
                    assert_eq!(format.round(x, true), nearest, "{format:?} {x}");
                    assert_eq!(format.round(x, false), nearest, "{format:?} {x}");
                }
                // Halfway: that whose last bit is 0 is an even multiple of the step between both.
                let even = if (low / (high - low)) % 2.0 == 0.0 { low } else { high };
                assert_eq!(format.round(low.midpoint(high), true), even, "{format:?} {low} {high}");
            }
        }
    }

    #[test]
    fn what_is_beyond_is_the_greatest_or_what_stands_for_it() {
        for format in Minifloat::ALL.into_iter().filter(|format| *format != Minifloat::E8M0Fnu) {
            for x in [1e6, f64::INFINITY] {
                assert_eq!(format.round(x, true), format.greatest());
                assert_eq!(format.round(-x, true), -format.greatest());
                let [above, below] = [x, -x].map(|x| format.round(x, false));
                match format.overflow() {
                    None => assert_eq!([above, below], [format.greatest(), -format.greatest()]),
                    Some(overflow) if overflow.is_nan() => assert!(above.is_nan() && below.is_nan()),
                    Some(overflow) => assert_eq!([above, below], [overflow, -overflow]),
                }
            }
            assert_eq!(format.round(f64::NAN, true).is_nan(), format.overflow().is_some());
            assert_eq!(format.round(-1e-9, true).is_sign_negative(), format.has_negative_zero());
        }
        // Between the greatest and the next that there would be, what is nearer counts.
        assert_eq!(Minifloat::E4M3Fn.round(463.9, false), 448.0);
        assert!(Minifloat::E4M3Fn.round(464.1, false).is_nan());
    }

    #[test]
    fn scales_round_up() {
        let scale = |x| Minifloat::E8M0Fnu.round(x, true);
        assert_eq!([0.124, 0.25, 1.1, 2.0].map(scale), [0.125, 0.25, 2.0, 2.0]);
        assert_eq!(scale(0.0), power_of_two(-127));
        assert_eq!(scale(f64::INFINITY), power_of_two(127));
        assert!(Minifloat::E8M0Fnu.round(f64::INFINITY, false).is_nan());
    }
}
