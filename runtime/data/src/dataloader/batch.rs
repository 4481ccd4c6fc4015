//! [`BatchDataLoader`]: batches of one size.

use super::batcher::Batcher;
use super::draws::{Draws, epoch_seed, part_seed};
use super::workers::Workers;
use super::{DataLoader, DataLoaderIterator, Place, Progress};
use crate::dataset::Dataset;
use crate::dataset::transform::PartialDataset;
use crate::random;
use kiln_tensor::backend::Backend;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes batches of one size of a dataset.
///
/// The order of an epoch follows from the seed and the epoch's number alone, not from how many threads make the batches; so do
/// random numbers that are drawn for an item or a batch ([`random_seed`](super::random_seed)).
pub struct BatchDataLoader<B: Backend, I, O> {
    dataset: Arc<dyn Dataset<I>>,
    batcher: Arc<dyn Batcher<B, I, O>>,
    batch_size: usize,
    seed: Option<u64>,
    workers: usize,
    device: B::Device,
    /// Tells apart what parts of a dataset draw.
    part: u64,
    /// Epochs begun so far.
    epoch: AtomicU64,
}

impl<B: Backend, I, O> BatchDataLoader<B, I, O> {
    pub(super) fn new(
        dataset: Arc<dyn Dataset<I>>,
        batcher: Arc<dyn Batcher<B, I, O>>,
        batch_size: usize,
        seed: Option<u64>,
        workers: usize,
        device: B::Device,
    ) -> Self {
        Self { dataset, batcher, batch_size, seed, workers, device, part: 0, epoch: AtomicU64::new(0) }
    }

    /// The same in other respects.
    fn with(&self, dataset: Arc<dyn Dataset<I>>, device: B::Device) -> Self {
        let epoch = AtomicU64::new(self.epoch.load(Ordering::Relaxed));
        let (batcher, batch_size, seed, workers, part) =
            (self.batcher.clone(), self.batch_size, self.seed, self.workers, self.part);
        Self { dataset, batcher, batch_size, seed, workers, device, part, epoch }
    }
}

/// Which items are in the batches of an epoch, and how a batch is made.
pub(super) struct Epoch<B: Backend, I, O> {
    dataset: Arc<dyn Dataset<I>>,
    batcher: Arc<dyn Batcher<B, I, O>>,
    device: B::Device,
    batch_size: usize,
    len: usize,
    /// What random numbers follow from.
    seed: u64,
    /// The items' indices; nothing when they come in order.
    order: Option<Vec<usize>>,
}

impl<B: Backend, I, O> Epoch<B, I, O> {
    /// The number of batches.
    pub(super) fn batches(&self) -> usize {
        self.len.div_ceil(self.batch_size)
    }

    /// A batch, and the number of its places. There is none where the dataset can read none of the items: a batcher joins what it gets,
    /// and would have nothing to join.
    pub(super) fn batch(&self, n: usize) -> (Option<O>, usize) {
        let start = n * self.batch_size;
        let places = start..(start + self.batch_size).min(self.len);
        let count = places.len();
        let index = |place: usize| self.order.as_ref().map_or(place, |order| order[place]);
        let draws = Draws::<B>::new(&self.device, self.seed);
        let get = |place| {
            let index = index(place);
            draws.item(index);
            self.dataset.get(index)
        };
        // A dataset may have items that it cannot read: they are left out.
        let items: Vec<I> = places.filter_map(get).collect();
        if items.is_empty() {
            return (None, count);
        }
        draws.batch(n);
        (Some(self.batcher.batch(items, &self.device)), count)
    }
}

impl<B: Backend, I: 'static, O: Send + 'static> BatchDataLoader<B, I, O> {
    /// The batches of an epoch from a place on.
    fn batches(&self, place: Place) -> Box<dyn DataLoaderIterator<O>> {
        let len = self.dataset.len();
        let order = self.seed.map(|seed| random::permutation(len, &mut random::generator(seed, place.epoch)));
        let epoch = Epoch {
            dataset: self.dataset.clone(),
            batcher: self.batcher.clone(),
            device: self.device.clone(),
            batch_size: self.batch_size,
            len,
            seed: epoch_seed([self.seed.unwrap_or(0), place.seed, self.part, place.epoch]),
            order,
        };
        let epoch = Arc::new(epoch);
        let batches = epoch.batches();
        let next = place.batch.min(batches);
        let source = match self.workers {
            0 => Source::Here(epoch),
            workers => Source::Workers(Workers::start(&epoch, next, workers)),
        };
        let progress = Progress::new(next.saturating_mul(self.batch_size).min(len), len);
        Box::new(BatchIterator { source, next, batches, progress })
    }
}

impl<B: Backend, I: 'static, O: Send + 'static> DataLoader<B, O> for BatchDataLoader<B, I, O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        let epoch = self.epoch.fetch_add(1, Ordering::Relaxed);
        self.batches(Place { epoch, ..Place::default() })
    }

    fn iter_at<'a>(&'a self, place: Place) -> Box<dyn DataLoaderIterator<O> + 'a> {
        self.epoch.store(place.epoch.saturating_add(1), Ordering::Relaxed);
        self.batches(place)
    }

    fn num_items(&self) -> usize {
        self.dataset.len()
    }

    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, O>> {
        Arc::new(self.with(self.dataset.clone(), device.clone()))
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, O>> {
        let part = PartialDataset::new(self.dataset.clone(), start, end);
        let loader = self.with(Arc::new(part), self.device.clone());
        Arc::new(Self { part: part_seed(self.part, start), ..loader })
    }
}

/// Who makes the batches.
enum Source<B: Backend, I, O> {
    Here(Arc<Epoch<B, I, O>>),
    Workers(Workers<O>),
}

/// Goes through the batches of an epoch.
struct BatchIterator<B: Backend, I, O> {
    source: Source<B, I, O>,
    next: usize,
    batches: usize,
    progress: Progress,
}

impl<B: Backend, I, O> Iterator for BatchIterator<B, I, O> {
    type Item = O;

    fn next(&mut self) -> Option<O> {
        while self.next < self.batches {
            let (batch, count) = match &mut self.source {
                Source::Here(epoch) => epoch.batch(self.next),
                Source::Workers(workers) => workers.batch(self.next)?,
            };
            self.next += 1;
            self.progress.items_processed += count;
            if batch.is_some() {
                return batch;
            }
        }
        None
    }
}

impl<B: Backend, I, O> DataLoaderIterator<O> for BatchIterator<B, I, O> {
    fn progress(&self) -> Progress {
        self.progress
    }
}
