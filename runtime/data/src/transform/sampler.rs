//! A dataset of another size, drawn from another one.

use crate::dataset::Dataset;
use crate::random;
use std::marker::PhantomData;

/// Random items of another dataset, as many as wanted: what a loader goes through as one epoch.
///
/// The items are drawn once; each index has the same item every time.
pub struct SamplerDataset<D, I> {
    dataset: D,
    indices: Vec<usize>,
    item: PhantomData<fn() -> I>,
}

impl<D: Dataset<I>, I> SamplerDataset<D, I> {
    /// `size` items, which may repeat.
    ///
    /// # Panics
    /// When the dataset is empty and items are wanted.
    pub fn new(dataset: D, size: usize) -> Self {
        Self::with_replacement(dataset, size)
    }

    /// `size` items, which may repeat.
    ///
    /// # Panics
    /// When the dataset is empty and items are wanted.
    pub fn with_replacement(dataset: D, size: usize) -> Self {
        Self::with_replacement_seeded(dataset, size, random::fresh_seed())
    }

    /// [`SamplerDataset::with_replacement`], the same for the same seed.
    ///
    /// # Panics
    /// When the dataset is empty and items are wanted.
    pub fn with_replacement_seeded(dataset: D, size: usize, seed: u64) -> Self {
        assert_not_empty(&dataset, size);
        let indices = random::draws(size, dataset.len(), &mut random::generator(seed, 0));
        Self { dataset, indices, item: PhantomData }
    }

    /// `size` items; none repeats before all were drawn.
    ///
    /// # Panics
    /// When the dataset is empty and items are wanted.
    pub fn without_replacement(dataset: D, size: usize) -> Self {
        Self::without_replacement_seeded(dataset, size, random::fresh_seed())
    }

    /// [`SamplerDataset::without_replacement`], the same for the same seed.
    ///
    /// # Panics
    /// When the dataset is empty and items are wanted.
    pub fn without_replacement_seeded(dataset: D, size: usize, seed: u64) -> Self {
        assert_not_empty(&dataset, size);
        let mut generator = random::generator(seed, 0);
        let mut indices = Vec::with_capacity(size);
        while indices.len() < size {
            let round = random::permutation(dataset.len(), &mut generator);
            indices.extend(round.into_iter().take(size - indices.len()));
        }
        Self { dataset, indices, item: PhantomData }
    }
}

fn assert_not_empty<I>(dataset: &impl Dataset<I>, size: usize) {
    assert!(size == 0 || !dataset.is_empty(), "SamplerDataset: {size} items are wanted of an empty dataset");
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

    #[test]
    fn without_replacement_every_item_comes_equally_often() {
        let dataset = InMemDataset::new((0..10).collect::<Vec<usize>>());
        let drawn = SamplerDataset::without_replacement(dataset, 35);
        let mut counts = [0; 10];
        drawn.iter().for_each(|item| counts[item] += 1);
        assert!(counts.iter().all(|count| [3, 4].contains(count)), "{counts:?}");
        assert_eq!(drawn.get(35), None);
    }

    #[test]
    fn with_replacement_items_repeat_before_all_came() {
        let dataset = || InMemDataset::new((0..1000).collect::<Vec<usize>>());
        let draw = |seed| SamplerDataset::with_replacement_seeded(dataset(), 1000, seed);
        let mut items: Vec<usize> = draw(3).iter().collect();
        assert_eq!(items, draw(3).iter().collect::<Vec<_>>());
        items.sort_unstable();
        items.dedup();
        assert!(items.len() < 800, "{}", items.len());
    }
}
