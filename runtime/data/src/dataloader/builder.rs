//! [`DataLoaderBuilder`].

use super::batch::BatchDataLoader;
use super::{DataLoader, batcher::Batcher};
use crate::dataset::Dataset;
use kiln_tensor::backend::Backend;
use std::sync::Arc;

/// Builds data loaders.
pub struct DataLoaderBuilder<B: Backend, I, O> {
    batcher: Arc<dyn Batcher<B, I, O>>,
    batch_size: usize,
    seed: Option<u64>,
    workers: usize,
    device: B::Device,
}

impl<B: Backend, I, O> DataLoaderBuilder<B, I, O>
where
    I: Send + Sync + Clone + 'static,
    O: Send + 'static,
{
    /// With a batcher; batches of one item, in order, made by the thread that asks for them.
    pub fn new<Bt: Batcher<B, I, O> + 'static>(batcher: Bt) -> Self {
        let device = B::Device::default();
        Self { batcher: Arc::new(batcher), batch_size: 1, seed: None, workers: 0, device }
    }

    /// The number of items in a batch; the last one of an epoch may have fewer.
    ///
    /// # Panics
    /// For 0.
    #[must_use]
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        assert!(batch_size > 0, "DataLoaderBuilder: batches of 0 items");
        self.batch_size = batch_size;
        self
    }

    /// Shuffles the items, each epoch in another order. The orders are the same for the same seed.
    #[must_use]
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The number of threads that make batches ahead of time. The batches are the same for any number; with 0, they are
    /// made when they are asked for.
    #[must_use]
    pub fn num_workers(mut self, num_workers: usize) -> Self {
        self.workers = num_workers;
        self
    }

    /// The device of the batches.
    #[must_use]
    pub fn set_device(mut self, device: B::Device) -> Self {
        self.device = device;
        self
    }

    /// The loader of a dataset.
    pub fn build<D: Dataset<I> + 'static>(self, dataset: D) -> Arc<dyn DataLoader<B, O>> {
        let Self { batcher, batch_size, seed, workers, device } = self;
        Arc::new(BatchDataLoader::new(Arc::new(dataset), batcher, batch_size, seed, workers, device))
    }
}
