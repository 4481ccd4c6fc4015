//! Random tensors that follow from a key alone, so that backends draw the same numbers.

use super::Philox;
use crate::{Bytes, DType, Distribution, Shape, TensorData, bf16, f16};
use alloc::vec::Vec;
use num_traits::Float;

/// The random numbers of a device: the keys that follow from its seed, one after another. Every tensor that is drawn takes one, so
/// that backends which count alike draw alike.
#[derive(Clone, Copy, Debug)]
pub struct Draws {
    seed: u64,
    taken: u64,
}

impl Draws {
    /// All keys of a seed.
    pub const fn new(seed: u64) -> Self {
        Self { seed, taken: 0 }
    }

    /// The keys of a device that nobody seeded.
    pub const fn unseeded() -> Self {
        Self::new(0x6b69_6c6e)
    }

    /// The next key: the first two words of a block of the seed's [`Philox`].
    pub fn next_key(&mut self) -> u64 {
        let [low, high, ..] = Philox::new(self.seed).block(self.taken);
        self.taken += 1;
        u64::from(low) | u64::from(high) << 32
    }
}

/// Random values from a key: element `i` of a distribution that takes one word an element has the `i`-th word of the key's
/// [`Philox`], others the words `2 i` and `2 i + 1`. Uniform values over integers are floored; floats that would be rounded out of a range
/// that has others are the [next inside](bounds).
pub fn random_data(key: u64, shape: Shape, distribution: Distribution, dtype: DType) -> TensorData {
    let (philox, count) = (Philox::new(key), shape.num_elements());
    let mut values: Vec<f64> = Vec::with_capacity(count);
    match distribution {
        Distribution::Default if dtype.is_int() => return integers(&philox, shape, dtype),
        Distribution::Default if dtype.is_bool() => {
            philox.for_each(count, |_, word| values.push(f64::from(word & 1)));
        }
        Distribution::Default => {
            let bounds = bounds(0.0, 1.0, dtype);
            philox.for_each(count, |_, word| values.push(within(unit(word), bounds)));
        }
        Distribution::Bernoulli(probability) => {
            philox.for_each(count, |_, word| values.push(f64::from(u8::from(unit(word) < probability))));
        }
        Distribution::Uniform(low, high) => {
            let bounds = bounds(low, high, dtype);
            philox.for_each(count, |_, word| {
                let value = low + (high - low) * unit(word);
                values.push(if dtype.is_int() { Float::floor(value) } else { within(value, bounds) });
            });
        }
        Distribution::Normal(mean, deviation) => {
            let mut radius = 0.0;
            philox.for_each(2 * count, |at, word| match at % 2 {
                // Box and Muller 1958; 1 - u keeps the logarithm's argument above 0.
                0 => radius = Float::sqrt(-2.0 * Float::ln(1.0 - unit(word))),
                _ => values.push(mean + deviation * radius * Float::cos(core::f64::consts::TAU * unit(word))),
            });
        }
    }
    TensorData::new(values, shape).convert_dtype(dtype)
}

/// Uniform over `[0, 1)`: 24 bits, so that the value is exact in f32 too and never rounds up to 1.
fn unit(word: u32) -> f64 {
    f64::from(word >> 8) / f64::from(1_u32 << 24)
}

/// The least and the greatest float of a dtype over `[low, high)`; the least and the greatest of all where there is none, or the dtype is not
/// one of floats.
pub fn bounds(low: f64, high: f64, dtype: DType) -> [f64; 2] {
    let range = [low, high];
    let ends = match dtype {
        DType::F64 => inside(range, |x| x, |x, up| if up { x.next_up() } else { x.next_down() }),
        DType::F32 => {
            let next = |x: f32, up| if up { x.next_up() } else { x.next_down() };
            inside(range, |x| f64::from(x as f32), |x, up| f64::from(next(x as f32, up)))
        }
        DType::F16 => {
            let next = |x: f16, up| f16::from_bits(next_of_16(x.to_bits(), up));
            inside(range, |x| f16::from_f64(x).to_f64(), |x, up| next(f16::from_f64(x), up).to_f64())
        }
        DType::BF16 => {
            let next = |x: bf16, up| bf16::from_bits(next_of_16(x.to_bits(), up));
            inside(range, |x| bf16::from_f64(x).to_f64(), |x, up| next(bf16::from_f64(x), up).to_f64())
        }
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::I4
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::U4
        | DType::Bool => None,
    };
    ends.unwrap_or([f64::MIN, f64::MAX])
}

/// The least and the greatest float over `[low, high)`, if there is one, of those that `nearest` rounds to, with the `next` of each, up or down.
fn inside(
    [low, high]: [f64; 2],
    nearest: impl Fn(f64) -> f64,
    next: impl Fn(f64, bool) -> f64,
) -> Option<[f64; 2]> {
    let [least, greatest] = [nearest(low), nearest(high)];
    let least = if least < low { next(least, true) } else { least };
    let greatest = if greatest >= high { next(greatest, false) } else { greatest };
    let is_some = least <= greatest && least.is_finite() && greatest.is_finite();
    is_some.then_some([least, greatest])
}

/// The bits of the next float of 16 bits, up or down: farther from 0 they are larger.
fn next_of_16(bits: u16, up: bool) -> u16 {
    let (is_zero, is_positive) = (bits & 0x7fff == 0, bits >> 15 == 0);
    match (is_zero, is_positive == up) {
        (true, _) => u16::from(!up) << 15 | 1,
        (false, true) => bits + 1,
        (false, false) => bits - 1,
    }
}

/// A value no further than bounds; NaN stays.
fn within(value: f64, [least, greatest]: [f64; 2]) -> f64 {
    if value < least {
        least
    } else if value > greatest {
        greatest
    } else {
        value
    }
}

/// Uniform over all values of an integer dtype.
fn integers(philox: &Philox, shape: Shape, dtype: DType) -> TensorData {
    let mut bytes: Vec<u8> = Vec::with_capacity(shape.num_elements() * dtype.size());
    let mut low = 0;
    philox.for_each(2 * shape.num_elements(), |at, word| match at % 2 {
        0 => low = word,
        _ => {
            let bits = u64::from(low) | u64::from(word) << 32;
            bytes.extend_from_slice(&bits.to_le_bytes()[..dtype.size()]);
        }
    });
    TensorData { bytes: Bytes::from_vec(bytes), shape: shape.into(), dtype }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_from_the_key() {
        let draw = |key| random_data(key, [64].into(), Distribution::Default, DType::F32);
        assert_eq!(draw(1).bytes.to_vec(), draw(1).bytes.to_vec());
        assert_ne!(draw(1).bytes.to_vec(), draw(2).bytes.to_vec());
        // A longer tensor begins with the same numbers.
        let long = random_data(1, [256].into(), Distribution::Default, DType::F32);
        assert_eq!(draw(1).bytes.to_vec(), long.bytes[..256].to_vec());
    }

    #[test]
    fn distributions_have_their_moments() {
        let draw = |distribution| -> Vec<f64> {
            random_data(7, [20_000].into(), distribution, DType::F64).iter::<f64>().collect()
        };
        let moments = |values: &[f64]| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            (mean, values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / values.len() as f64)
        };
        let (mean, variance) = moments(&draw(Distribution::Normal(3.0, 2.0)));
        assert!((mean - 3.0).abs() < 0.05 && (variance - 4.0).abs() < 0.15, "{mean} {variance}");
        let (mean, variance) = moments(&draw(Distribution::Uniform(-1.0, 1.0)));
        assert!(mean.abs() < 0.02 && (variance - 1.0 / 3.0).abs() < 0.01, "{mean} {variance}");
        let (mean, _) = moments(&draw(Distribution::Bernoulli(0.25)));
        assert!((mean - 0.25).abs() < 0.01, "{mean}");
    }

    #[test]
    fn ranges_are_half_open_in_every_dtype() {
        struct Case {
            range: [f64; 2],
            dtype: DType,
            bounds: [f64; 2],
        }
        let case = |range, dtype, bounds| Case { range, dtype, bounds };
        let cases = [
            case([0.0, 1.0], DType::F64, [0.0, 1.0_f64.next_down()]),
            case([0.0, 1.0], DType::F32, [0.0, f64::from(1.0_f32.next_down())]),
            case([0.0, 1.0], DType::F16, [0.0, 1.0 - 2.0_f64.powi(-11)]),
            case([0.0, 1.0], DType::BF16, [0.0, 1.0 - 2.0_f64.powi(-8)]),
            case([-2.0, -1.0], DType::BF16, [-2.0, -1.0 - 2.0_f64.powi(-7)]),
            case([-1.0, 0.0], DType::F16, [-1.0, -(2.0_f64.powi(-24))]),
            case([1000.0, 1001.0], DType::F32, [1000.0, f64::from(1001.0_f32.next_down())]),
            // Neither end is a number of the dtype.
            case([0.1, 0.2], DType::BF16, [0.100_097_656_25, 0.199_218_75]),
            // None is, or there is no range, or an endless one.
            case([1000.1, 1000.2], DType::BF16, [f64::MIN, f64::MAX]),
            case([1.0, 1.0], DType::F32, [f64::MIN, f64::MAX]),
            case([0.0, f64::INFINITY], DType::F64, [0.0, f64::MAX]),
            case([0.0, 7.0], DType::I32, [f64::MIN, f64::MAX]),
        ];
        for Case { range: [low, high], dtype, bounds: expected } in cases {
            assert_eq!(bounds(low, high, dtype), expected, "{dtype} [{low}, {high})");
            if expected[0] > f64::MIN && high.is_finite() {
                let data = random_data(5, [20_000].into(), Distribution::Uniform(low, high), dtype);
                let (least, greatest) = data
                    .iter::<f64>()
                    .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), x| (least.min(x), most.max(x)));
                assert!(low <= least && greatest < high, "{dtype} [{low}, {high}): {least} to {greatest}");
            }
        }
    }

    #[test]
    fn integers_take_all_their_bits() {
        let data = random_data(3, [1000].into(), Distribution::Default, DType::I8);
        let values: Vec<i64> = data.iter().collect();
        assert!(values.iter().any(|&x| x < -100) && values.iter().any(|&x| x > 100));
    }
}
