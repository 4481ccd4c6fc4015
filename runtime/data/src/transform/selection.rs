//! Chosen items of another dataset, in a chosen order.

use super::RngSource;
use crate::dataset::Dataset;
use crate::random;
use rand::seq::SliceRandom;
use std::marker::PhantomData;
use std::sync::Arc;

/// The items of another dataset that indices name, in their order.
pub struct SelectionDataset<D, I> {
    /// The other dataset.
    pub wrapped: Arc<D>,
    /// The indices of its items; each may come several times.
    pub indices: Vec<usize>,
    item: PhantomData<fn() -> I>,
}

impl<D, I> Clone for SelectionDataset<D, I> {
    fn clone(&self) -> Self {
        Self { wrapped: self.wrapped.clone(), indices: self.indices.clone(), item: PhantomData }
    }
}

impl<D: Dataset<I>, I> SelectionDataset<D, I> {
    /// The items with these indices.
    ///
    /// # Panics
    /// When there is no such item.
    pub fn from_indices_checked<S: Into<Arc<D>>>(dataset: S, indices: impl Into<Vec<usize>>) -> Self {
        let selection = Self::from_indices_unchecked(dataset, indices);
        let len = selection.wrapped.len();
        if let Some(index) = selection.indices.iter().find(|&&index| index >= len) {
            panic!("SelectionDataset: index {index} of a dataset with {len} items");
        }
        selection
    }

    /// The items with these indices. An index beyond the last item has none.
    pub fn from_indices_unchecked<S: Into<Arc<D>>>(dataset: S, indices: impl Into<Vec<usize>>) -> Self {
        Self { wrapped: dataset.into(), indices: indices.into(), item: PhantomData }
    }

    /// All items in order.
    pub fn new_select_all<S: Into<Arc<D>>>(dataset: S) -> Self {
        let dataset = dataset.into();
        let indices: Vec<usize> = (0..dataset.len()).collect();
        Self::from_indices_unchecked(dataset, indices)
    }

    /// All items in random order.
    pub fn new_shuffled<S: Into<Arc<D>>, R: Into<RngSource>>(dataset: S, rng_source: R) -> Self {
        let mut selection = Self::new_select_all(dataset);
        selection.shuffle(rng_source);
        selection
    }

    /// Brings the chosen items into random order.
    pub fn shuffle<R: Into<RngSource>>(&mut self, rng_source: R) {
        self.indices.shuffle(&mut random::generator(rng_source.into().into_seed(), 0));
    }

    /// The chosen items `start..end`, as far as there are any.
    pub fn slice(&self, start: usize, end: usize) -> Self {
        let end = end.min(self.indices.len());
        Self::from_indices_unchecked(self.wrapped.clone(), &self.indices[start.min(end)..end])
    }

    /// Splits the chosen items into parts, as equal as can be.
    pub fn split(&self, num: usize) -> Vec<Self> {
        let (len, count) = (self.indices.len(), num.max(1));
        let bound = |n: usize| (len as u128 * n as u128 / count as u128) as usize;
        (0..count).map(|n| self.slice(bound(n), bound(n + 1))).collect()
    }
}

impl<D: Dataset<I>, I> Dataset<I> for SelectionDataset<D, I> {
    fn get(&self, index: usize) -> Option<I> {
        self.wrapped.get(*self.indices.get(index)?)
    }

    fn len(&self) -> usize {
        self.indices.len()
    }
}

/// All items of another dataset in random order.
pub struct ShuffledDataset<D, I>(SelectionDataset<D, I>);

impl<D: Dataset<I>, I> ShuffledDataset<D, I> {
    /// In an order drawn from a seed, a generator, or the system ([`RngSource::Default`]).
    pub fn new<R: Into<RngSource>>(dataset: D, rng_source: R) -> Self {
        Self(SelectionDataset::new_shuffled(dataset, rng_source))
    }

    /// In the order of a seed.
    pub fn with_seed(dataset: D, seed: u64) -> Self {
        Self::new(dataset, seed)
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

    fn numbers() -> InMemDataset<i32> {
        InMemDataset::new((0..100).collect())
    }

    #[test]
    fn a_seed_is_an_order() {
        let order = |source: RngSource| ShuffledDataset::new(numbers(), source).iter().collect::<Vec<_>>();
        let mut sorted = order(1.into());
        assert_eq!(order(1.into()), sorted);
        assert_eq!(ShuffledDataset::with_seed(numbers(), 1).iter().collect::<Vec<_>>(), sorted);
        assert_ne!(order(1.into()), order(2.into()));
        assert_ne!(order(RngSource::Default), order(RngSource::Default));
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_selection_is_sliced_and_split() {
        let all: SelectionDataset<_, i32> = SelectionDataset::new_select_all(numbers());
        assert_eq!(all.iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        let mut some: SelectionDataset<InMemDataset<i32>, i32> =
            SelectionDataset::from_indices_checked(all.wrapped.clone(), [5, 5, 7, 99]);
        assert_eq!(some.slice(1, 3).iter().collect::<Vec<i32>>(), [5, 7]);
        assert_eq!((some.slice(9, 3).len(), some.slice(2, 9).len()), (0, 2));
        let parts: Vec<Vec<i32>> = some.split(3).iter().map(|part| part.iter().collect()).collect();
        assert_eq!(parts, [vec![5], vec![5], vec![7, 99]]);
        some.shuffle(3);
        some.indices.sort_unstable();
        assert_eq!(some.indices, [5, 5, 7, 99]);
    }

    #[test]
    #[should_panic(expected = "index 100 of a dataset with 100 items")]
    fn indices_are_of_items() {
        SelectionDataset::<_, i32>::from_indices_checked(numbers(), [0, 100]);
    }
}
