//! A range of another dataset.

use crate::dataset::Dataset;
use std::marker::PhantomData;
use std::sync::Arc;

/// The items of another dataset from one index up to another.
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
}

impl<D: Dataset<I>, I> PartialDataset<Arc<D>, I> {
    /// Splits a dataset into ranges, as equal as can be.
    pub fn split(dataset: D, count: usize) -> Vec<Self> {
        let dataset = Arc::new(dataset);
        let (len, count) = (dataset.len(), count.max(1));
        let bound = |n: usize| (len as u128 * n as u128 / count as u128) as usize;
        (0..count).map(|n| Self::new(dataset.clone(), bound(n), bound(n + 1))).collect()
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
        assert_eq!(parts.iter().flat_map(Dataset::iter).collect::<Vec<i32>>(), (0..10).collect::<Vec<_>>());
    }
}
