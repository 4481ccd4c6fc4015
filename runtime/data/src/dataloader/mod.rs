//! Data loaders: batches of a dataset's items.

mod batch;
pub mod batcher;
mod builder;
mod draws;
pub mod split;
mod workers;

pub use batch::BatchDataLoader;
pub use builder::DataLoaderBuilder;
pub use draws::random_seed;

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

/// Where in a training a loader is: what has to be stored to go on there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Epochs before this one.
    pub epoch: u64,
    /// Batches of this epoch before the next one. Where some were left out, since none of their items could be read, as many of those
    /// before come again.
    pub batch: usize,
    /// What random numbers of items and batches follow from, beside the loader's seed: the training's seed.
    pub seed: u64,
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

    /// The batches of an epoch from a place on; [`DataLoader::iter`] continues with the epoch after it.
    ///
    /// A loader whose epochs have different orders finds the order by the epoch's number. By default, all epochs are
    /// alike, and the batches before the place are made and dropped.
    fn iter_at<'a>(&'a self, place: Place) -> Box<dyn DataLoaderIterator<O> + 'a> {
        let mut batches = self.iter();
        for _ in 0..place.batch {
            if batches.next().is_none() {
                break;
            }
        }
        batches
    }

    /// Items in an epoch.
    fn num_items(&self) -> usize;

    /// The same batches on another device.
    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, O>>;

    /// A loader of the items `start..end`.
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, O>>;
}
