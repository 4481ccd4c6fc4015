//! [`ServeError`].

use std::error::Error;
use std::io;
use std::sync::Arc;

/// A batcher was not made, or a request was not answered.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A value of the config makes no batcher.
    #[error("{field} is {value}: {rule}")]
    Config {
        /// The config's field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: String,
    },
    /// The operating system started no thread for a worker.
    #[error("a worker thread did not start: {0}")]
    Thread(#[source] Arc<io::Error>),
    /// The queue is full. The request was not taken.
    #[error(
        "overloaded: {waiting} rows wait and {max_queue_size} may, so {rows} more were refused; try again later"
    )]
    Overloaded {
        /// Rows of the request.
        rows: usize,
        /// Rows that wait.
        waiting: usize,
        /// Rows that may wait.
        max_queue_size: usize,
    },
    /// The request is larger than a batch may be.
    #[error(
        "a request has {rows} rows, and a batch at most {max_batch_size}: send it in parts, or raise max_batch_size"
    )]
    TooManyRows {
        /// Rows of the request.
        rows: usize,
        /// Rows of the largest batch.
        max_batch_size: usize,
    },
    /// The request asks for nothing.
    #[error("a request has no rows: dim 0 of its tensors must be at least 1")]
    NoRows,
    /// A tensor of the request has rank 0, so that it has no rows.
    #[error("a tensor of a request has rank 0: dim 0 of every input must count the rows")]
    NoRowDim,
    /// The tensors of one request have different numbers of rows.
    #[error("the tensors of a request have {rows:?} rows: dim 0 must be the same in all of them")]
    UnequalRows {
        /// The rows of each tensor.
        rows: Vec<usize>,
    },
    /// The model returned an error when it computed this request.
    #[error("the model returned an error: {0}")]
    Model(#[source] Arc<dyn Error + Send + Sync>),
    /// The model panicked when it computed this request.
    #[error("the model panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// The model's output has not one row for each row of its input, so that nobody knows whose they are.
    #[error(
        "of {rows} rows the model made an output of shape {shape:?}: dim 0 must have one row for each row of the input"
    )]
    OutputRows {
        /// Rows that the model was given, padding included.
        rows: usize,
        /// The shape of its output.
        shape: Vec<usize>,
    },
    /// The batcher was shut down before this request.
    #[error("the batcher was shut down")]
    ShutDown,
}
