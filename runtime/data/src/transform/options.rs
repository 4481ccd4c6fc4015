//! Where randomness comes from, and how large a dataset made of another one is.

use crate::random;
use rand::Rng;
use rand::rngs::StdRng;

/// Where random orders and draws come from. Each use takes one seed of it, so that what a seed gives does not depend on how
/// much is drawn.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "made once a dataset; programs name the variant as it is in Burn"
)]
pub enum RngSource {
    /// The system: another order each time.
    #[default]
    Default,
    /// A seed: the same order each time.
    Seed(u64),
    /// A generator.
    Rng(StdRng),
}

impl RngSource {
    /// The seed of one use.
    pub(crate) fn into_seed(self) -> u64 {
        match self {
            Self::Default => random::fresh_seed(),
            Self::Seed(seed) => seed,
            Self::Rng(mut generator) => generator.random(),
        }
    }
}

impl From<u64> for RngSource {
    fn from(seed: u64) -> Self {
        Self::Seed(seed)
    }
}

impl From<StdRng> for RngSource {
    fn from(generator: StdRng) -> Self {
        Self::Rng(generator)
    }
}

/// Draws a seed of the generator, which goes on.
impl From<&mut StdRng> for RngSource {
    fn from(generator: &mut StdRng) -> Self {
        Self::Seed(generator.random())
    }
}

impl<T: Into<RngSource>> From<Option<T>> for RngSource {
    fn from(source: Option<T>) -> Self {
        source.map_or_else(Self::default, Into::into)
    }
}

/// The size of a dataset made of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum SizeConfig {
    /// As many items as the other has.
    #[default]
    Default,
    /// So many items.
    Fixed(usize),
    /// So many times as many items as the other has, rounded down.
    Ratio(f64),
}

impl SizeConfig {
    /// The number of items, made of `source_size` items.
    ///
    /// # Panics
    /// When a ratio is negative or no number.
    pub fn resolve(self, source_size: usize) -> usize {
        match self {
            Self::Default => source_size,
            Self::Fixed(size) => size,
            Self::Ratio(ratio) => {
                assert!(ratio >= 0.0 && ratio.is_finite(), "SizeConfig: {ratio} is no ratio of sizes");
                (source_size as f64 * ratio) as usize
            }
        }
    }
}

impl From<usize> for SizeConfig {
    fn from(size: usize) -> Self {
        Self::Fixed(size)
    }
}

impl From<f64> for SizeConfig {
    fn from(ratio: f64) -> Self {
        Self::Ratio(ratio)
    }
}

impl<T: Into<SizeConfig>> From<Option<T>> for SizeConfig {
    fn from(size: Option<T>) -> Self {
        size.map_or_else(Self::default, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn sizes_are_of_the_source_or_fixed() {
        let sizes = [SizeConfig::Default, 3.into(), 2.5.into(), Some(7).into(), None::<usize>.into()];
        assert_eq!(sizes.map(|size| size.resolve(5)), [5, 3, 12, 7, 5]);
    }

    #[test]
    fn a_generator_goes_on() {
        let mut generator = StdRng::seed_from_u64(1);
        let [first, second] = [0; 2].map(|_| RngSource::from(&mut generator));
        assert_ne!(first, second);
        let kept = RngSource::from(generator);
        assert_eq!(kept.clone().into_seed(), kept.into_seed());
        assert_eq!(RngSource::from(Some(5)), RngSource::Seed(5));
    }
}
