//! Datasets: collections of items that can be had by index.

#[cfg(feature = "dataframe")]
mod dataframe;
mod in_memory;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "dataframe")]
pub use dataframe::{DataframeDataset, DataframeDatasetError};
pub use in_memory::{InMemDataset, ReadError};
#[cfg(feature = "sqlite")]
pub use source::huggingface::{HuggingfaceDatasetLoader, ImporterError};
#[cfg(feature = "sqlite")]
pub use sqlite::{Result, SqliteDataset, SqliteDatasetError, SqliteDatasetStorage, SqliteDatasetWriter};

/// Polars, in the version of whose frames [`DataframeDataset`] is.
#[cfg(feature = "dataframe")]
pub use polars;

/// Where datasets come from.
#[cfg(feature = "sqlite")]
pub mod source {
    pub use crate::source::*;
}

/// Datasets of images.
#[cfg(feature = "vision")]
pub mod vision {
    pub use crate::vision::*;
}

/// Datasets made of others, where Burn keeps them.
pub mod transform {
    pub use crate::transform::*;
}

use std::sync::Arc;

/// A collection of a known number of items.
pub trait Dataset<I>: Send + Sync {
    /// An item; nothing beyond the last.
    fn get(&self, index: usize) -> Option<I>;

    /// The number of items.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The items in order.
    fn iter(&self) -> DatasetIterator<'_, I>
    where
        Self: Sized,
    {
        DatasetIterator::new(self)
    }
}

impl<D: Dataset<I> + ?Sized, I> Dataset<I> for Arc<D> {
    fn get(&self, index: usize) -> Option<I> {
        self.as_ref().get(index)
    }

    fn len(&self) -> usize {
        self.as_ref().len()
    }
}

impl<D: Dataset<I> + ?Sized, I> Dataset<I> for Box<D> {
    fn get(&self, index: usize) -> Option<I> {
        self.as_ref().get(index)
    }

    fn len(&self) -> usize {
        self.as_ref().len()
    }
}

/// Goes through a dataset in order.
pub struct DatasetIterator<'a, I> {
    dataset: &'a dyn Dataset<I>,
    next: usize,
}

impl<'a, I> DatasetIterator<'a, I> {
    /// From the first item on.
    pub fn new<D: Dataset<I>>(dataset: &'a D) -> Self {
        Self { dataset, next: 0 }
    }
}

impl<I> Iterator for DatasetIterator<'_, I> {
    type Item = I;

    fn next(&mut self) -> Option<I> {
        let item = self.dataset.get(self.next)?;
        self.next += 1;
        Some(item)
    }
}
