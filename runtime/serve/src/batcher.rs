//! [`DynamicBatcher`]: the queues, and the threads that run the model.

use crate::batch::{Batch, Signature};
use crate::forward::Forward;
use crate::queue::{Limits, Next, Queues};
use crate::response::Response;
use crate::{BatcherStats, DynamicBatcherConfig, ServeError};
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// A model, boxed: the batcher's type names inputs and outputs alone.
type Model<I, O> = Box<dyn Fn(I) -> Result<O, ServeError> + Send + Sync>;

/// What callers and workers share.
struct Shared<I, O> {
    queues: Mutex<Queues<I, O>>,
    /// There is something new for a free worker.
    news: Condvar,
    forward: Forward<Model<I, O>>,
}

impl<I, O> Shared<I, O> {
    fn lock(&self) -> MutexGuard<'_, Queues<I, O>> {
        // Nothing that changes the queues panics, so they are as they should be.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Joins requests of many callers into batches, and runs a model on them.
///
/// Requests whose shapes (but for the number of rows), dtypes and devices are equal wait in one queue; requests of different queues
/// never share a batch. A free worker takes the first requests of a queue, up to `max_batch_size` rows, when these are there or the first
/// has waited for `max_queue_delay`; of several such queues the one whose first request is the oldest.
///
/// When the model panics or returns an error, both halves of the batch are run again, down to single requests: those that fail alone get
/// [`ServeError::Panicked`] or [`ServeError::Model`], all others their answers. So a model may see a request more than once. (In a program
/// that aborts on panics, a panic of the model ends it.)
///
/// Answers of one batch are views of one output, whose memory stays until the last of them is dropped.
///
/// Dropping the batcher shuts it down, see [`shutdown`](Self::shutdown). Callers share it by reference or in an [`Arc`]. A model must not
/// call the batcher that runs it: its worker would wait for itself.
pub struct DynamicBatcher<I: Batch, O: Batch> {
    shared: Arc<Shared<I, O>>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl<I: Batch, O: Batch> DynamicBatcher<I, O> {
    /// See [`DynamicBatcherConfig::init`], which checked the config.
    pub(crate) fn start(
        config: &DynamicBatcherConfig,
        model: impl Fn(I) -> Result<O, ServeError> + Send + Sync + 'static,
    ) -> Result<Self, ServeError> {
        let DynamicBatcherConfig { max_batch_size, max_queue_delay, max_queue_size, .. } = *config;
        let forward = Forward {
            model: Box::new(model) as Model<I, O>,
            allowed_batch_sizes: config.allowed_batch_sizes.clone(),
            counters: Default::default(),
        };
        let queues = Mutex::new(Queues::new(Limits { max_batch_size, max_queue_delay, max_queue_size }));
        let shared = Arc::new(Shared { queues, news: Condvar::new(), forward });
        // If a thread does not start, those that did end when the batcher is dropped.
        let mut batcher = Self { shared, workers: Mutex::default() };
        for n in 0..config.workers {
            let shared = batcher.shared.clone();
            let worker = thread::Builder::new().name(format!("kiln-serve-{n}")).spawn(move || work(&shared));
            let worker = worker.map_err(|error| ServeError::Thread(Arc::new(error)))?;
            batcher.workers.get_mut().unwrap_or_else(PoisonError::into_inner).push(worker);
        }
        Ok(batcher)
    }

    /// Waits for the model's output for these rows. In async code [`call_async`](Self::call_async) does so without blocking the thread.
    ///
    /// # Errors
    /// When the request is no batch of equal rows or is too large, when the queue is full, when the model failed, and after a shutdown.
    pub fn call(&self, input: I) -> Result<O, ServeError> {
        self.call_async(input).wait()
    }

    /// Puts a request into its queue, at once; the response is a future for any executor. Where the request is refused, the
    /// response is that error.
    pub fn call_async(&self, input: I) -> Response<O> {
        self.submit(input).unwrap_or_else(|error| Response::ready(Err(error)))
    }

    fn submit(&self, input: I) -> Result<Response<O>, ServeError> {
        let signature = Signature::of(&input)?;
        let counters = &self.shared.forward.counters;
        let mut queues = self.shared.lock();
        let pushed = queues.push(signature, input, Instant::now());
        counters.abandoned(queues.take_removed());
        drop(queues);
        if let Err(ServeError::Overloaded { .. }) = pushed {
            counters.refused();
        }
        let (response, is_news) = pushed?;
        if is_news {
            self.shared.news.notify_one();
        }
        Ok(response)
    }

    /// What happened so far.
    pub fn stats(&self) -> BatcherStats {
        let waiting_rows = self.shared.lock().waiting();
        self.shared.forward.counters.read(waiting_rows)
    }

    /// Refuses requests from now on, has those that wait computed, and waits until the workers have ended. A second call does nothing.
    pub fn shutdown(&self) {
        self.shared.lock().close();
        self.shared.news.notify_all();
        let workers = mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        for worker in workers {
            // The last owner may be a future that a worker drops, and a thread does not wait for itself.
            if worker.thread().id() != thread::current().id() {
                // Workers catch panics; one that ended by one has nobody to tell.
                let _ = worker.join();
            }
        }
    }
}

impl<I: Batch, O: Batch> Drop for DynamicBatcher<I, O> {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl<I: Batch, O: Batch> fmt::Debug for DynamicBatcher<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamicBatcher").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// What a worker does until the end.
fn work<I: Batch, O: Batch>(shared: &Shared<I, O>) {
    let mut queues = shared.lock();
    loop {
        let now = Instant::now();
        let next = queues.next(now);
        shared.forward.counters.abandoned(queues.take_removed());
        queues = match next {
            Next::Run(batch) => {
                // For what remains there is another worker, if one is free: news of it came when this one was.
                if queues.waiting() > 0 {
                    shared.news.notify_one();
                }
                drop(queues);
                // Beside the model, which is caught where its requests are known, wakers of executors may panic.
                let _ = catch_unwind(AssertUnwindSafe(|| shared.forward.answer(batch)));
                shared.lock()
            }
            Next::WaitUntil(deadline) => {
                let time = deadline.saturating_duration_since(now);
                shared.news.wait_timeout(queues, time).unwrap_or_else(PoisonError::into_inner).0
            }
            Next::Wait => shared.news.wait(queues).unwrap_or_else(PoisonError::into_inner),
            Next::End => return,
        };
    }
}
