//! A function of each item.

use crate::dataset::Dataset;
use std::marker::PhantomData;

/// A function of an item.
pub trait Mapper<I, O>: Send + Sync {
    /// The item's value.
    fn map(&self, item: &I) -> O;
}

/// A function of each item of another dataset.
pub struct MapperDataset<D, M, I> {
    dataset: D,
    mapper: M,
    input: PhantomData<fn() -> I>,
}

impl<D, M, I> MapperDataset<D, M, I> {
    /// With a function of the items of a dataset.
    pub fn new(dataset: D, mapper: M) -> Self {
        Self { dataset, mapper, input: PhantomData }
    }
}

impl<D: Dataset<I>, M: Mapper<I, O>, I, O> Dataset<O> for MapperDataset<D, M, I> {
    fn get(&self, index: usize) -> Option<O> {
        self.dataset.get(index).map(|item| self.mapper.map(&item))
    }

    fn len(&self) -> usize {
        self.dataset.len()
    }
}
