//! Batch scoring: models as scalar functions of [Apache DataFusion](https://datafusion.apache.org), in SQL and on data frames.
//!
//! ```
//! use datafusion::arrow::array::{ArrayRef, Float64Array, RecordBatch};
//! use datafusion::prelude::SessionContext;
//! use kiln_core::Tensor;
//! use kiln_core::nn::{Linear, LinearConfig};
//! use kiln_datafusion::{Input, Output, ScoringFunctionConfig};
//! use kiln_ndarray::NdArray;
//! use std::sync::Arc;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Default::default();
//! let model: Linear<NdArray> = LinearConfig::new(2, 1).init(&device);
//! let score = ScoringFunctionConfig::new("score")
//!     .with_input(Input::columns(["age", "income"]))
//!     .with_output(Output::number("score"))
//!     .init(&device, move |x: Tensor<NdArray, 2>| model.forward(x))?;
//!
//! let context = SessionContext::new();
//! let age: ArrayRef = Arc::new(Float64Array::from(vec![31.0, 54.0]));
//! let income: ArrayRef = Arc::new(Float64Array::from(vec![1.2, 0.9]));
//! context.register_batch("people", RecordBatch::try_from_iter([("a", age), ("i", income)])?)?;
//! context.register_udf(score);
//! let scored = context.sql("SELECT a, score(a, i) FROM people WHERE score(a, i) > -1e9").await?;
//! assert_eq!(scored.count().await?, 2);
//! # Ok(())
//! # }
//! ```
//!
//! - [`ScoringFunctionConfig`] says what the function is called, what it takes ([`Input`]) and yields ([`Output`]).
//!   [`init`](ScoringFunctionConfig::init) makes it of a closure: of a generated model it is `move |x| model.forward(x)`, of one with several
//!   inputs `move |(ids, mask)| model.forward(ids, mask)`.
//! - The function is immutable: a call of literals is computed once. Partitions that run at the same time share the model.
//! - Every error is a [`ScoringError`], in [`DataFusionError::External`](datafusion_common::DataFusionError::External). Arguments of wrong
//!   types fail the query when it is planned; nulls, numbers without a place in the dtype, shapes that were not declared, and panics of the model
//!   fail it when it runs.
//!
//! A model whose results depend on which rows share a batch (batch normalization while it trains, a sum over the batch) cannot be called like
//! this: each row must be computed from that row alone.
//!
//! # Columns and tensors
//!
//! [`Input::columns`] joins columns of numbers to `[rows, features]`, [`Input::list`] makes `[rows, n, …]` of a column of lists. What these
//! hold becomes numbers of the input's dtype:
//!
//! | dtype of the input | takes |
//! | --- | --- |
//! | a float | integers, floats and booleans, rounded to the dtype; decimals, which the query converts to `Float64` first |
//! | an integer | integers and booleans; floats are for the query to round |
//! | bool | booleans |
//!
//! A number that the dtype does not hold (an integer beyond its range, a finite float that would be infinite) is an error. Dictionaries are
//! unpacked by the query. What is missing is an error, filled in, or has no score: [`Nulls`].
//!
//! Of a model's outputs, `[rows]` and `[rows, 1]` become a column of numbers, `[rows, n, …]` one of `FixedSizeList`s, and several outputs a
//! struct with a field for each. Their dtypes are those declared ([`Output::with_dtype`]): floats are rounded to them, integers must fit.
//!
//! A tensor reads the memory of lists, and of a single column, where this has its dtype and no nulls. Other inputs are copied once, while they
//! are joined and converted, and outputs once into their column.
//!
//! # Clusters
//!
//! `examples/cluster` scores a table on a Ballista cluster (version 55), and `scripts/ballista.sh` runs one of four processes.
//! A plan that goes to other processes names the function; its model stays where it is. So on Ballista each process registers the function under
//! the same name, made of the same model: the client in its session, the scheduler in the sessions that it plans with
//! (`SchedulerConfig::override_session_builder`), executors in their function registry (`ExecutorProcessConfig::override_function_registry`).
//! No extension codec is needed, as DataFusion's default one encodes scalar functions by their names.
#![forbid(unsafe_code)]

mod column;
mod config;
mod dtype;
mod error;
mod function;
mod input;
mod list;
mod number;
mod output;
mod scoring;
mod tensors;

pub use config::{Nulls, ScoringFunctionConfig};
pub use error::{Problem, ScoringError};
pub use input::Input;
pub use output::Output;
pub use tensors::{InputTensors, OutputTensors, TensorType};
