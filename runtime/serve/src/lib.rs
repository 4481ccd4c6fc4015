//! Serving: many callers share the forward passes of one model.
//!
//! A model often computes a batch of sixteen rows in little more time than one row. A [`DynamicBatcher`] takes requests of one or a few rows
//! from any number of threads and async tasks, joins those of equal shapes along their first dim, runs the model once on its own worker
//! threads, and gives each caller the rows of its own request.
//!
//! ```
//! use kiln_core::Tensor;
//! use kiln_core::nn::{Linear, LinearConfig};
//! use kiln_ndarray::NdArray;
//! use kiln_serve::DynamicBatcherConfig;
//! use std::time::Duration;
//!
//! let device = Default::default();
//! let model: Linear<NdArray> = LinearConfig::new(4, 2).init(&device);
//! let batcher = DynamicBatcherConfig::new()
//!     .with_max_batch_size(16)
//!     .with_max_queue_delay(Duration::from_millis(1))
//!     .init(move |x: Tensor<NdArray, 2>| model.forward(x))?;
//!
//! std::thread::scope(|scope| {
//!     for _ in 0..8 {
//!         scope.spawn(|| {
//!             let answer = batcher.call(Tensor::ones([1, 4], &device));
//!             assert!(answer.is_ok_and(|answer| answer.dims() == [1, 2]));
//!         });
//!     }
//! });
//! assert_eq!(batcher.stats().rows, 8);
//! # Ok::<(), kiln_serve::ServeError>(())
//! ```
//!
//! - [`DynamicBatcherConfig`] says how large batches get, how long requests wait for others, and how many may wait.
//! - Inputs and outputs are a [`Batch`]: a tensor of any kind and rank from 1 on, or a tuple of them. A model of several inputs is
//!   `|(ids, mask)| model.forward(ids, mask)`.
//! - [`DynamicBatcher::call`] blocks; [`DynamicBatcher::call_async`] yields a future that any executor runs.
//! - Every error is a [`ServeError`]; a model that panics or returns an error fails the requests that it cannot
//!   compute, and no others.
//! - [`DynamicBatcher::stats`] counts what happened.
//!
//! A model whose results depend on which rows share a batch (batch normalization while it trains, a sum over the batch) cannot be
//! served like this: each row must be computed from that row alone.
#![forbid(unsafe_code)]

mod batch;
mod batcher;
mod config;
mod error;
mod forward;
mod queue;
mod response;
mod stats;

pub use batch::{Batch, TensorInfo};
pub use batcher::DynamicBatcher;
pub use config::DynamicBatcherConfig;
pub use error::ServeError;
pub use response::Response;
pub use stats::BatcherStats;
