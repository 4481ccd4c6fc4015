//! Random distributions.

use crate::{DType, DTypeKind, Scalar};
use num_traits::Float;
use rand_core::RngCore;

/// What random values follow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Distribution {
    /// Uniform over `[0, 1)` for floats, over all values for integers.
    #[default]
    Default,
    /// 1 with the given probability, else 0.
    Bernoulli(f64),
    /// Uniform over `[low, high)`.
    Uniform(f64, f64),
    /// Normal with mean and standard deviation.
    Normal(f64, f64),
}

impl Distribution {
    /// One value for a tensor of the given dtype.
    pub fn sample<R: RngCore>(self, dtype: DType, rng: &mut R) -> Scalar {
        // 53 bits fill a double's significand.
        let mut unit = || (rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
        match (self, dtype.kind()) {
            (Distribution::Default, DTypeKind::Float) => Scalar::Float(unit()),
            (Distribution::Default, DTypeKind::Bool) => Scalar::Bool(rng.next_u64() & 1 == 1),
            (Distribution::Default, DTypeKind::Int) => {
                let sign_at = 64 - if dtype.is_packed() { 4 } else { 8 * dtype.size() as u32 };
                let bits = rng.next_u64() >> sign_at;
                match dtype {
                    DType::U64 | DType::U32 | DType::U16 | DType::U8 | DType::U4 => Scalar::from(bits),
                    _ => Scalar::Int(((bits << sign_at) as i64) >> sign_at),
                }
            }
            (Distribution::Bernoulli(probability), _) => Scalar::Int(i64::from(unit() < probability)),
            (Distribution::Uniform(low, high), _) => Scalar::Float(low + (high - low) * unit()),
            (Distribution::Normal(mean, deviation), _) => {
                // Box–Muller; 1 - u keeps the logarithm's argument above 0.
                let radius = Float::sqrt(-2.0 * Float::ln(1.0 - unit()));
                let angle = 2.0 * core::f64::consts::PI * unit();
                Scalar::Float(mean + deviation * radius * Float::cos(angle))
            }
        }
    }
}
