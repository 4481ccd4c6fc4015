//! Chosen items of another dataset, in a chosen order.

use crate::dataset::Dataset;
use crate::random;
use std::marker::PhantomData;

/// The items of another dataset that indices name, in their order.
pub struct SelectionDataset<D, I> {
    dataset: D,
    indices: Vec<usize>,
    item: PhantomData<fn() -> I>,
}

impl<D: Dataset<I>, I> SelectionDataset<D, I> {
    /// The items with these indices.
    ///
    /// # Panics
    /// When there is no such item.
    pub fn from_indices_checked(dataset: D, indices: impl Into<Vec<usize>>) -> Self {
        let (indices, len) = (indices.into(), dataset.len());
        if let Some(index) = indices.iter().find(|&&index| index >= len) {
            panic!("SelectionDataset: index {index} of a dataset with {len} items");
        }
        Self { dataset, indices, item: PhantomData }
    }

    /// All items in random order.
    pub fn new_shuffled(dataset: D, seed: u64) -> Self {
        let indices = random::permutation(dataset.len(), &mut random::generator(seed, 0));
        Self { dataset, indices, item: PhantomData }
    }
}

impl<D: Dataset<I>, I> Dataset<I> for SelectionDataset<D, I> {
    fn get(&self, index: usize) -> Option<I> {
        self.dataset.get(*self.indices.get(index)?)
    }

    fn len(&self) -> usize {
        self.indices.len()
    }
}

/// All items of another dataset in random order.
pub struct ShuffledDataset<D, I>(SelectionDataset<D, I>);

impl<D: Dataset<I>, I> ShuffledDataset<D, I> {
    /// In the order of a seed.
    pub fn with_seed(dataset: D, seed: u64) -> Self {
        Self(SelectionDataset::new_shuffled(dataset, seed))
    }

    /// In an order that is another each time.
    pub fn new(dataset: D) -> Self {
        Self::with_seed(dataset, random::fresh_seed())
    }
}

impl<D: Dataset<I>, I> Dataset<I> for ShuffledDataset<D, I> {
    fn get(&self, index: usize) -> Option<I> {
        self.0.get(index)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::InMemDataset;

    #[test]
    fn a_seed_is_an_order() {
        let order = |seed| {
            let dataset = InMemDataset::new((0..100).collect::<Vec<i32>>());
            ShuffledDataset::with_seed(dataset, seed).iter().collect::<Vec<_>>()
        };
        let mut sorted = order(1);
        assert_eq!(order(1), sorted);
        assert_ne!(order(1), order(2));
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    }
}
