//! A range of another dataset.

use crate::dataset::Dataset;
use std::marker::PhantomData;
use std::sync::Arc;

/// The items of another dataset from one index up to another.
#[derive(Clone)]
pub struct PartialDataset<D, I> {
    dataset: D,
    start: usize,
    end: usize,
    item: PhantomData<fn() -> I>,
}

impl<D: Dataset<I>, I> PartialDataset<D, I> {
    /// The items `start..end`, as far as there are any.
    pub fn new(dataset: D, start: usize, end: usize) -> Self {
        let end = end.min(dataset.len());
        Self { dataset, start: start.min(end), end, item: PhantomData }
    }

    /// Splits a dataset into ranges, as equal as can be.
    pub fn split(dataset: D, count: usize) -> Vec<PartialDataset<Arc<D>, I>> {
        Self::split_chunks(dataset, count, 1)
    }

    /// Splits a dataset into ranges of whole batches, as equal as can be: all batches but the last one have `batch_size` items.
    ///
    /// # Panics
    /// For batches of 0 items.
    pub fn split_chunks(dataset: D, count: usize, batch_size: usize) -> Vec<PartialDataset<Arc<D>, I>> {
        let dataset = Arc::new(dataset);
        let (batches, count) = (dataset.len().div_ceil(batch_size), count.max(1));
        let bound = |n: usize| (batches as u128 * n as u128 / count as u128) as usize * batch_size;
        (0..count).map(|n| PartialDataset::new(dataset.clone(), bound(n), bound(n + 1))).collect()
    }
}

impl<D: Dataset<I>, I> Dataset<I> for PartialDataset<D, I> {
    fn get(&self, index: usize) -> Option<I> {
        let index = self.start.checked_add(index).filter(|&index| index < self.end)?;
        self.dataset.get(index)
    }

    fn len(&self) -> usize {
        self.end - self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::InMemDataset;

    #[test]
    fn ranges_end_where_the_dataset_does() {
        let dataset = || InMemDataset::new((0..10).collect());
        let items = |start, end| PartialDataset::new(dataset(), start, end).iter().collect::<Vec<i32>>();
        assert_eq!(items(2, 5), [2, 3, 4]);
        assert_eq!(items(8, 20), [8, 9]);
        assert!(items(5, 2).is_empty());
        assert!(items(usize::MAX, usize::MAX).is_empty());
        assert_eq!(PartialDataset::new(dataset(), 2, 5).get(usize::MAX), None);
        let parts = PartialDataset::split(dataset(), 3);
        assert_eq!(parts.iter().map(Dataset::len).collect::<Vec<_>>(), [3, 3, 4]);
        let chunks = PartialDataset::<InMemDataset<i32>, i32>::split_chunks(dataset(), 2, 4);
        assert_eq!(chunks.iter().map(Dataset::len).collect::<Vec<_>>(), [4, 6]);
        assert_eq!(parts.iter().flat_map(Dataset::iter).collect::<Vec<i32>>(), (0..10).collect::<Vec<_>>());
    }
}
