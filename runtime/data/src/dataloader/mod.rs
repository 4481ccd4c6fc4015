//! Data loaders: batches of a dataset's items.

mod batch;
pub mod batcher;
mod builder;
mod workers;

pub use batch::BatchDataLoader;
pub use builder::DataLoaderBuilder;

use kiln_tensor::backend::Backend;
use std::sync::Arc;

/// How far something has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Items so far.
    pub items_processed: usize,
    /// All items.
    pub items_total: usize,
}

impl Progress {
    /// `items_processed` of `items_total`.
    pub fn new(items_processed: usize, items_total: usize) -> Self {
        Self { items_processed, items_total }
    }
}

/// Goes through the batches of one epoch.
pub trait DataLoaderIterator<O>: Iterator<Item = O> {
    /// How many items are in the batches so far.
    fn progress(&self) -> Progress;
}

/// Makes the batches of each epoch.
pub trait DataLoader<B: Backend, O>: Send + Sync {
    /// The batches of the next epoch.
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a>;

    /// Items in an epoch.
    fn num_items(&self) -> usize;

    /// The same batches on another device.
    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, O>>;

    /// A loader of the items `start..end`.
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, O>>;
}
