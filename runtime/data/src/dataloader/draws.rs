//! Random numbers that are drawn while batches are made.

use crate::random::{Generator, fresh_seed, generator, mixed};
use kiln_tensor::backend::Backend;
use rand::Rng;
use std::cell::Cell;

thread_local! {
    /// What seeds are drawn from while this thread makes an item or a batch.
    static CURRENT: Cell<Option<Generator>> = const { Cell::new(None) };
}

/// A seed for random numbers that a dataset, one of its transformations or a batcher draws by a generator of its own. Each call
/// yields another one.
///
/// While a loader makes a batch, seeds follow from the loader's seed, the epoch, and the item that is asked for or the batch that is
/// put together, so that batches are the same for any number of workers, and in a training that was resumed. The same holds for
/// numbers that are drawn as tensors, on the loader's device. Elsewhere, seeds are those of chance.
pub fn random_seed() -> u64 {
    let Some(mut generator) = CURRENT.take() else { return fresh_seed() };
    let seed = generator.random();
    CURRENT.set(Some(generator));
    seed
}

/// While it lives, what its thread draws for an item or a batch follows from a seed.
pub(super) struct Draws<'a, B: Backend> {
    device: &'a B::Device,
    seed: u64,
}

impl<'a, B: Backend> Draws<'a, B> {
    /// Of an epoch.
    pub(super) fn new(device: &'a B::Device, seed: u64) -> Self {
        Self { device, seed }
    }

    /// From here on, for an item.
    pub(super) fn item(&self, index: usize) {
        self.begin(2 * index as u64);
    }

    /// From here on, for a batch.
    pub(super) fn batch(&self, n: usize) {
        self.begin(2 * n as u64 + 1);
    }

    fn begin(&self, n: u64) {
        let mut generator = generator(self.seed, n);
        B::seed_thread(self.device, Some(generator.random()));
        CURRENT.set(Some(generator));
    }
}

impl<B: Backend> Drop for Draws<'_, B> {
    fn drop(&mut self) {
        CURRENT.set(None);
        B::seed_thread(self.device, None);
    }
}

/// The seed of an epoch's draws.
pub(super) fn epoch_seed(parts: [u64; 4]) -> u64 {
    parts.into_iter().fold(0, mixed)
}

/// The seed of a part of a loader that has this seed.
pub(super) fn part_seed(seed: u64, start: usize) -> u64 {
    mixed(seed, start as u64)
}
