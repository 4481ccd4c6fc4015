//! [`DynamicBatcherConfig`].

use crate::batch::Batch;
use crate::{DynamicBatcher, ServeError};
use kiln_core::config::Config;
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Config of [`DynamicBatcher`].
#[derive(Config, Debug)]
pub struct DynamicBatcherConfig {
    /// The most rows that the model gets at once. A request with more is refused ([`ServeError::TooManyRows`]): this bounds the memory of a
    /// pass, and captured graphs and bound dims take no more.
    #[config(default = 32)]
    pub max_batch_size: usize,
    /// How long a request waits for others while a worker is free. With zero, which is the default, a free worker takes what is there:
    /// batches are then of the requests that came while all workers were busy.
    #[config(default = "Duration::ZERO")]
    pub max_queue_delay: Duration,
    /// The most rows that wait, in all queues together. What comes above it is refused at once ([`ServeError::Overloaded`]).
    #[config(default = 1024)]
    pub max_queue_size: usize,
    /// The numbers of rows that the model is run with, from the smallest to `max_batch_size`; any number if there are none. A batch is filled
    /// up to the next of them with copies of its last row, which are cut off the result: for models with a bound batch, and for captured graphs of
    /// CUDA, of which there is one for each shape (in a lock, since one call at a time replays them: `init_fallible` takes their errors).
    #[config(default = "Vec::new()")]
    pub allowed_batch_sizes: Vec<usize>,
    /// Threads that run the model, each its own batch. One makes the largest batches, and suits a GPU; on the CPU more suit models whose single
    /// passes do not gain from several threads.
    #[config(default = 1)]
    pub workers: usize,
}

impl DynamicBatcherConfig {
    /// A batcher over a model, such as `move |x| model.forward(x)`, and its worker threads.
    ///
    /// # Errors
    /// When values of the config contradict each other, or a thread does not start.
    pub fn init<I, O, F>(&self, forward: F) -> Result<DynamicBatcher<I, O>, ServeError>
    where
        I: Batch,
        O: Batch,
        F: Fn(I) -> O + Send + Sync + 'static,
    {
        self.init_fallible(move |input| Ok::<O, Infallible>(forward(input)))
    }

    /// Like [`init`](Self::init), over a model that returns errors, such as `move |x| model.try_forward(x)`. They come to the callers as
    /// [`ServeError::Model`].
    ///
    /// # Errors
    /// When values of the config contradict each other, or a thread does not start.
    pub fn init_fallible<I, O, E, F>(&self, forward: F) -> Result<DynamicBatcher<I, O>, ServeError>
    where
        I: Batch,
        O: Batch,
        E: Error + Send + Sync + 'static,
        F: Fn(I) -> Result<O, E> + Send + Sync + 'static,
    {
        self.check()?;
        DynamicBatcher::start(self, move |input| {
            forward(input).map_err(|error| ServeError::Model(Arc::new(error)))
        })
    }

    fn check(&self) -> Result<(), ServeError> {
        let at_least = |field, value: usize, least: usize, rule: &str| {
            let error = || ServeError::Config { field, value: value.to_string(), rule: rule.to_owned() };
            if value >= least { Ok(()) } else { Err(error()) }
        };
        at_least("max_batch_size", self.max_batch_size, 1, "a batch has at least one row")?;
        at_least("workers", self.workers, 1, "somebody must run the model")?;
        let batch_waits =
            format!("a whole batch must be able to wait, and max_batch_size is {}", self.max_batch_size);
        at_least("max_queue_size", self.max_queue_size, self.max_batch_size, &batch_waits)?;
        let sizes = &self.allowed_batch_sizes;
        let increase = sizes.first() != Some(&0) && sizes.is_sorted_by(|a, b| a < b);
        if increase && sizes.last().is_none_or(|&last| last == self.max_batch_size) {
            return Ok(());
        }
        Err(ServeError::Config {
            field: "allowed_batch_sizes",
            value: format!("{sizes:?}"),
            rule: format!(
                "sizes must increase from at least 1 to max_batch_size, which is {}",
                self.max_batch_size
            ),
        })
    }
}
