//! A dataset of another size, drawn from another one.

use super::{RngSource, SizeConfig};
use crate::dataset::Dataset;
use crate::random;
use std::marker::PhantomData;

/// How a [`SamplerDataset`] draws.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerDatasetOptions {
    /// Whether an item may repeat before all were drawn.
    pub replace_samples: bool,
    /// How many items are drawn.
    pub size_config: SizeConfig,
    /// Where randomness comes from.
    pub rng_source: RngSource,
}

/// With replacement, as many items as there are, another draw each time.
impl Default for SamplerDatasetOptions {
    fn default() -> Self {
        Self { replace_samples: true, size_config: SizeConfig::Default, rng_source: RngSource::Default }
    }
}

/// So many items, with replacement.
impl From<usize> for SamplerDatasetOptions {
    fn from(size: usize) -> Self {
        Self::default().with_fixed_size(size)
    }
}

impl<T: Into<SamplerDatasetOptions>> From<Option<T>> for SamplerDatasetOptions {
    fn from(options: Option<T>) -> Self {
        options.map_or_else(Self::default, Into::into)
    }
}

impl SamplerDatasetOptions {
    /// Whether an item may repeat before all were drawn.
    #[must_use]
    pub fn with_replace_samples(mut self, replace_samples: bool) -> Self {
        self.replace_samples = replace_samples;
        self
    }

    /// Items may repeat.
    #[must_use]
    pub fn with_replacement(self) -> Self {
        self.with_replace_samples(true)
    }

    /// No item repeats before all were drawn.
    #[must_use]
    pub fn without_replacement(self) -> Self {
        self.with_replace_samples(false)
    }

    /// How many items are drawn.
    #[must_use]
    pub fn with_size<S: Into<SizeConfig>>(mut self, source: S) -> Self {
        self.size_config = source.into();
        self
    }

    /// As many items as there are.
    #[must_use]
    pub fn with_source_size(self) -> Self {
        self.with_size(SizeConfig::Default)
    }

    /// So many items.
    #[must_use]
    pub fn with_fixed_size(self, size: usize) -> Self {
        self.with_size(size)
    }

    /// So many times as many items as there are.
    #[must_use]
    pub fn with_size_ratio(self, size_ratio: f64) -> Self {
        self.with_size(size_ratio)
    }

    /// Where randomness comes from.
    #[must_use]
    pub fn with_rng<R: Into<RngSource>>(mut self, rng: R) -> Self {
        self.rng_source = rng.into();
        self
    }

    /// Another draw each time.
    #[must_use]
    pub fn with_system_rng(self) -> Self {
        self.with_rng(RngSource::Default)
    }

    /// The draw of a seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        self.with_rng(seed)
    }
}

/// Random items of another dataset, as many as wanted: what a loader goes through as one epoch.
///
/// The items are drawn once; each index has the same item every time, whichever thread asks.
pub struct SamplerDataset<D, I> {
    dataset: D,
    indices: Vec<usize>,
    item: PhantomData<fn() -> I>,
}

impl<D: Dataset<I>, I> SamplerDataset<D, I> {
    /// Drawn by options; a number is so many items, with replacement.
    ///
    /// # Panics
    /// When the dataset is empty and items are wanted.
    pub fn new<O: Into<SamplerDatasetOptions>>(dataset: D, options: O) -> Self {
        let SamplerDatasetOptions { replace_samples, size_config, rng_source } = options.into();
        let size = size_config.resolve(dataset.len());
        assert!(
            size == 0 || !dataset.is_empty(),
            "SamplerDataset: {size} items are wanted of an empty dataset"
        );
        let mut generator = random::generator(rng_source.into_seed(), 0);
        let indices = match replace_samples {
            true => random::draws(size, dataset.len(), &mut generator),
            false => random::rounds(size, dataset.len(), &mut generator),
        };
        Self { dataset, indices, item: PhantomData }
    }

    /// `size` items, which may repeat.
    ///
    /// # Panics
    /// When the dataset is empty and items are wanted.
    pub fn with_replacement(dataset: D, size: usize) -> Self {
        Self::new(dataset, size)
    }

    /// `size` items; none repeats before all were drawn.
    ///
    /// # Panics
    /// When the dataset is empty and items are wanted.
    pub fn without_replacement(dataset: D, size: usize) -> Self {
        Self::new(dataset, SamplerDatasetOptions::from(size).without_replacement())
    }
}

impl<D: Dataset<I>, I> Dataset<I> for SamplerDataset<D, I> {
    fn get(&self, index: usize) -> Option<I> {
        self.dataset.get(*self.indices.get(index)?)
    }

    fn len(&self) -> usize {
        self.indices.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::InMemDataset;

    fn numbers(len: usize) -> InMemDataset<usize> {
        InMemDataset::new((0..len).collect())
    }

    #[test]
    fn without_replacement_every_item_comes_equally_often() {
        let drawn = SamplerDataset::without_replacement(numbers(10), 35);
        let mut counts = [0; 10];
        drawn.iter().for_each(|item| counts[item] += 1);
        assert!(counts.iter().all(|count| [3, 4].contains(count)), "{counts:?}");
        assert_eq!(drawn.get(35), None);
        // The rounds come one after the other.
        let mut first: Vec<usize> = drawn.iter().take(10).collect();
        first.sort_unstable();
        assert_eq!(first, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn with_replacement_items_repeat_before_all_came() {
        let draw =
            |seed| SamplerDataset::new(numbers(1000), SamplerDatasetOptions::default().with_seed(seed));
        let mut items: Vec<usize> = draw(3).iter().collect();
        assert_eq!(items, draw(3).iter().collect::<Vec<_>>());
        assert_ne!(items, draw(4).iter().collect::<Vec<_>>());
        items.sort_unstable();
        items.dedup();
        assert!(items.len() < 800, "{}", items.len());
    }

    #[test]
    fn sizes_follow_the_options() {
        let options = SamplerDatasetOptions::default;
        let len = |options: SamplerDatasetOptions| SamplerDataset::new(numbers(10), options).len();
        assert_eq!(len(options()), 10);
        assert_eq!(len(options().with_fixed_size(3)), 3);
        assert_eq!(len(options().with_size_ratio(1.55).without_replacement()), 15);
        assert_eq!(len(options().with_size(4).with_source_size()), 10);
        assert_eq!(len(None::<usize>.into()), 10);
        assert_eq!(SamplerDataset::<_, usize>::new(numbers(0), options()).len(), 0);
    }

    #[test]
    #[should_panic(expected = "5 items are wanted of an empty dataset")]
    fn nothing_is_drawn_of_nothing() {
        SamplerDataset::<_, usize>::new(numbers(0), 5);
    }
}
