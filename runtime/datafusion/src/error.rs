//! [`ScoringError`].

use arrow_schema::DataType;
use datafusion_common::DataFusionError;
use kiln_core::tensor::DType;
use kiln_core::tensor::backend::ExecutionError;
use std::error::Error;

/// A scoring function was not made, or a query that calls it failed. Queries return it in [`DataFusionError::External`].
#[derive(Debug, thiserror::Error)]
#[error("{function}: {problem}")]
pub struct ScoringError {
    /// The function's name in queries.
    pub function: String,
    /// What is wrong.
    #[source]
    pub problem: Problem,
}

/// What is wrong with a scoring function, its arguments, or what its model yields.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A value of the config makes no function.
    #[error("{field} is {value}: {rule}")]
    Config {
        /// The config's field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: String,
    },
    /// A call has more or fewer arguments than the inputs have columns.
    #[error("it was called with {actual} arguments and takes {}: {}", .columns.len(), .columns.join(", "))]
    ArgumentCount {
        /// How many it was given.
        actual: usize,
        /// The names of those that it takes.
        columns: Vec<String>,
    },
    /// An argument has a type from which its input is not made.
    #[error("the argument `{column}` is of type {data_type}: {rule}")]
    ArgumentType {
        /// The argument.
        column: String,
        /// Its type.
        data_type: DataType,
        /// What it must be, and what to do.
        rule: String,
    },
    /// An argument is null, or an element of its list is.
    #[error(
        "the argument `{column}` is null in row {row} of a batch of {rows}: leave such rows out (IS NOT NULL), replace what is missing \
         (coalesce), or say otherwise by `with_nulls`"
    )]
    Null {
        /// The argument.
        column: String,
        /// The row, from 0 in the batch.
        row: usize,
        /// Rows of the batch.
        rows: usize,
    },
    /// A number has no place in the input's dtype.
    #[error("the argument `{column}` is {value} in row {row}, which {dtype} does not hold")]
    Number {
        /// The argument.
        column: String,
        /// The row, from 0 in the batch.
        row: usize,
        /// The number.
        value: String,
        /// The dtype of the input.
        dtype: DType,
    },
    /// A list has another length than those of other rows, or than the input's dims say.
    #[error(
        "the argument `{column}` has in row {row} a list of {actual} elements where {expected} are needed: all rows make one tensor, so \
         lists must be padded to one length"
    )]
    ListLength {
        /// The argument.
        column: String,
        /// The row, from 0 in the batch.
        row: usize,
        /// Elements there are.
        actual: usize,
        /// Elements that are needed.
        expected: usize,
    },
    /// Every list of a batch is null or empty, and the input's dims are not declared.
    #[error(
        "every list of `{column}` is null or empty, so nothing tells how many elements to fill in: declare `with_dims`"
    )]
    UnknownDims {
        /// The argument.
        column: String,
    },
    /// The model returned a tensor of another shape than is declared.
    #[error("the model's output `{output}` is of shape {actual:?} where {expected:?} was declared{hint}")]
    OutputShape {
        /// The output.
        output: String,
        /// Its shape.
        actual: Vec<usize>,
        /// The number of rows that the model was given, and the declared dims.
        expected: Vec<usize>,
        /// What to do, if that is clear.
        hint: &'static str,
    },
    /// The model returned a tensor of another dtype, from which the declared one is not made.
    #[error(
        "the model's output `{output}` is of {actual} where {declared} was declared: convert it in the closure"
    )]
    OutputDType {
        /// The output.
        output: String,
        /// Its dtype.
        actual: DType,
        /// The dtype declared.
        declared: DType,
    },
    /// A number that the model returned has no place in the declared dtype.
    #[error("the model's output `{output}` is {value}, which {dtype} does not hold")]
    OutputNumber {
        /// The output.
        output: String,
        /// The number.
        value: String,
        /// The dtype declared.
        dtype: DType,
    },
    /// The model returned an error.
    #[error("the model returned an error: {0}")]
    Model(#[source] Box<dyn Error + Send + Sync>),
    /// The model panicked.
    #[error("the model panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] ExecutionError),
    /// Arrow refused an array that was made here, which should not be.
    #[error("internal error: {0}")]
    Internal(String),
}

impl From<ScoringError> for DataFusionError {
    fn from(error: ScoringError) -> Self {
        Self::External(Box::new(error))
    }
}
