//! Random tensors that follow from a key alone, so that backends draw the same numbers.

use super::Philox;
use crate::{Bytes, DType, Distribution, Shape, TensorData};
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
/// [`Philox`], others the words `2 i` and `2 i + 1`. Uniform values over integers are floored.
pub fn random_data(key: u64, shape: Shape, distribution: Distribution, dtype: DType) -> TensorData {
    let (philox, count) = (Philox::new(key), shape.num_elements());
    let mut values: Vec<f64> = Vec::with_capacity(count);
    match distribution {
        Distribution::Default if dtype.is_int() => return integers(&philox, shape, dtype),
        Distribution::Default if dtype.is_bool() => {
            philox.for_each(count, |_, word| values.push(f64::from(word & 1)));
        }
        Distribution::Default => philox.for_each(count, |_, word| values.push(unit(word))),
        Distribution::Bernoulli(probability) => {
            philox.for_each(count, |_, word| values.push(f64::from(u8::from(unit(word) < probability))));
        }
        Distribution::Uniform(low, high) => philox.for_each(count, |_, word| {
            let value = low + (high - low) * unit(word);
            values.push(if dtype.is_int() { Float::floor(value) } else { value });
        }),
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
    fn integers_take_all_their_bits() {
        let data = random_data(3, [1000].into(), Distribution::Default, DType::I8);
        let values: Vec<i64> = data.iter().collect();
        assert!(values.iter().any(|&x| x < -100) && values.iter().any(|&x| x > 100));
    }
}
