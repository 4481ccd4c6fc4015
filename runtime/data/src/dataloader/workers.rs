//! Threads that make batches ahead of time.

use super::batch::Epoch;
use kiln_tensor::backend::Backend;
use std::panic;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

/// Batches that a thread has ready before it waits.
const AHEAD: usize = 2;

/// A thread and the batches that it has made.
struct Worker<O> {
    /// Each with its number of places, if there are items for it; gone when the epoch was left early.
    batches: Option<Receiver<(Option<O>, usize)>>,
    thread: Option<JoinHandle<()>>,
}

/// Threads that take the batches of an epoch in turn: of `n` threads, the first makes batches 0, n, 2n, …. So the batches
/// come in order, and no thread is further ahead than it may be.
pub(super) struct Workers<O> {
    workers: Vec<Worker<O>>,
    /// The first batch that is made.
    from: usize,
}

impl<O: Send + 'static> Workers<O> {
    /// Starts threads for the batches from one on, no more than there are batches.
    pub(super) fn start<B: Backend, I: 'static>(
        epoch: &Arc<Epoch<B, I, O>>,
        from: usize,
        count: usize,
    ) -> Self {
        let count = count.min(epoch.batches() - from).max(1);
        let start = |first: usize| {
            let (sender, batches) = sync_channel(AHEAD);
            let epoch = epoch.clone();
            let thread = thread::spawn(move || {
                for n in (from + first..epoch.batches()).step_by(count) {
                    // Nobody listens any more when the epoch was left early.
                    if sender.send(epoch.batch(n)).is_err() {
                        return;
                    }
                }
            });
            Worker { batches: Some(batches), thread: Some(thread) }
        };
        Self { workers: (0..count).map(start).collect(), from }
    }
}

impl<O> Workers<O> {
    /// The next batch, whose number says which thread makes it. `None` when that thread panicked before: whoever caught that and asks
    /// again is at the end.
    ///
    /// # Panics
    /// With the message of a batcher or dataset that panicked.
    pub(super) fn batch(&mut self, n: usize) -> Option<(Option<O>, usize)> {
        let count = self.workers.len();
        let worker = &mut self.workers[(n - self.from) % count];
        if let Some(Ok(batch)) = worker.batches.as_ref().map(Receiver::recv) {
            return Some(batch);
        }
        match worker.thread.take().map(JoinHandle::join) {
            Some(Err(message)) => panic::resume_unwind(message),
            Some(Ok(())) => unreachable!("a thread makes all its batches"),
            None => None,
        }
    }
}

impl<O> Drop for Workers<O> {
    fn drop(&mut self) {
        self.workers.iter_mut().for_each(|worker| worker.batches = None);
        for worker in &mut self.workers {
            // A panic was passed on where its batch was asked for; one of a batch that nobody asked for is of no interest.
            drop(worker.thread.take().map(JoinHandle::join));
        }
    }
}
