//! [`ScoringFunctionConfig`].

use crate::error::{Problem, ScoringError};
use crate::function::ScoringFunction;
use crate::input::{Input, ResolvedInput};
use crate::output::{Output, ResolvedOutput};
use crate::scoring::{Scoring, run};
use crate::tensors::{InputTensors, OutputTensors, TensorType};
use datafusion_expr::ScalarUDF;
use kiln_core::tensor::Scalar;
use kiln_core::tensor::backend::Backend;
use std::collections::HashSet;
use std::convert::Infallible;
use std::error::Error;

/// What becomes of rows in which an argument is null, or an element of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Nulls {
    /// The query fails, and its error names the argument and the row.
    #[default]
    Error,
    /// The model is given this number instead, in every input, which must be able to hold it. A list that is null has it everywhere. For values that
    /// differ from column to column there is `coalesce` in the query.
    Fill(Scalar),
    /// The row's scores are null. The model is not given the row.
    Propagate,
}

/// How many rows the model is given at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchSize {
    AtMost(usize),
    Exactly(usize),
}

impl BatchSize {
    pub(crate) fn rows(self) -> usize {
        match self {
            Self::AtMost(rows) | Self::Exactly(rows) => rows,
        }
    }
}

/// Config of a scoring function: its name, what it takes, and what it yields.
#[derive(Clone, Debug)]
pub struct ScoringFunctionConfig {
    name: String,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    nulls: Nulls,
    batch_size: BatchSize,
}

impl ScoringFunctionConfig {
    /// A function that queries call by this name. SQL makes names that are not quoted lowercase.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            nulls: Nulls::Error,
            batch_size: BatchSize::AtMost(1024),
        }
    }

    /// Adds an input, in the order in which the closure takes them.
    #[must_use]
    pub fn with_input(mut self, input: Input) -> Self {
        self.inputs.push(input);
        self
    }

    /// Adds an output, in the order in which the closure yields them.
    #[must_use]
    pub fn with_output(mut self, output: Output) -> Self {
        self.outputs.push(output);
        self
    }

    /// What becomes of nulls; by default they are errors.
    #[must_use]
    pub fn with_nulls(mut self, nulls: Nulls) -> Self {
        self.nulls = nulls;
        self
    }

    /// The most rows that the model is given at once, 1024 by default. Batches of DataFusion (8192 rows by default) are scored in parts of that size, which bounds
    /// the memory of a forward pass.
    #[must_use]
    pub fn with_max_batch_size(mut self, rows: usize) -> Self {
        self.batch_size = BatchSize::AtMost(rows);
        self
    }

    /// The rows that the model is given every time: for models with a bound batch dim, and captured graphs. Fewer are filled up with copies of the last, whose
    /// scores are dropped.
    #[must_use]
    pub fn with_exact_batch_size(mut self, rows: usize) -> Self {
        self.batch_size = BatchSize::Exactly(rows);
        self
    }

    /// A function over a model, such as `move |x| model.forward(x)`, on a device.
    ///
    /// # Errors
    /// When values of the config contradict each other, or the closure's tensors.
    pub fn init<I, O, F>(
        self,
        device: &<I::Backend as Backend>::Device,
        forward: F,
    ) -> Result<ScalarUDF, ScoringError>
    where
        I: InputTensors,
        O: OutputTensors,
        F: Fn(I) -> O + Send + Sync + 'static,
    {
        self.init_fallible(device, move |input: I| Ok::<O, Infallible>(forward(input)))
    }

    /// Like [`init`](Self::init), over a model that returns errors, such as `move |x| model.try_forward(x)`. They fail the query as [`Problem::Model`].
    ///
    /// # Errors
    /// When values of the config contradict each other, or the closure's tensors.
    pub fn init_fallible<I, O, E, F>(
        self,
        device: &<I::Backend as Backend>::Device,
        forward: F,
    ) -> Result<ScalarUDF, ScoringError>
    where
        I: InputTensors,
        O: OutputTensors,
        E: Error + Send + Sync + 'static,
        F: Fn(I) -> Result<O, E> + Send + Sync + 'static,
    {
        let name = self.name.clone();
        let device = device.clone();
        let scoring = self.resolve(&I::types(), &O::types()).map(|parts| Scoring {
            inputs: parts.inputs,
            outputs: parts.outputs,
            nulls: self.nulls,
            batch_size: self.batch_size,
            model: Box::new(move |data| run(data, &device, &forward)),
        });
        let function = scoring.and_then(|scoring| ScoringFunction::new(name.clone(), scoring));
        function.map(ScalarUDF::from).map_err(|problem| ScoringError { function: name, problem })
    }

    /// Inputs and outputs as the closure has them.
    fn resolve(&self, inputs: &[TensorType], outputs: &[TensorType]) -> Result<Parts, Problem> {
        let count = |field, actual: usize, expected: usize| {
            let value = format!("{actual} in number");
            let rule = format!("the closure has {expected}, each of which must be declared");
            if actual == expected { Ok(()) } else { Err(Problem::Config { field, value, rule }) }
        };
        count("inputs", self.inputs.len(), inputs.len())?;
        count("outputs", self.outputs.len(), outputs.len())?;
        if self.batch_size.rows() == 0 {
            let rule = "the model is given at least one row".to_owned();
            return Err(Problem::Config { field: "batch size", value: "0".to_owned(), rule });
        }
        let resolved = self.inputs.iter().cloned().zip(inputs).map(|(input, &tensor)| input.resolve(tensor));
        let inputs = resolved.collect::<Result<Vec<_>, _>>()?;
        let resolved =
            self.outputs.iter().cloned().zip(outputs).map(|(output, &tensor)| output.resolve(tensor));
        let outputs = resolved.collect::<Result<Vec<_>, _>>()?;
        unique("input", inputs.iter().flat_map(|input| &input.columns))?;
        unique("output", outputs.iter().map(|output| &output.name))?;
        let rows = if let BatchSize::Exactly(rows) = self.batch_size { rows } else { 1 };
        inputs.iter().try_for_each(|input| input.check_size(rows))?;
        if let Nulls::Fill(number) = self.nulls {
            inputs.iter().try_for_each(|input| input.check_fill(number))?;
        }
        Ok(Parts { inputs, outputs })
    }
}

struct Parts {
    inputs: Vec<ResolvedInput>,
    outputs: Vec<ResolvedOutput>,
}

/// Whether all names differ.
fn unique<'a>(field: &'static str, names: impl Iterator<Item = &'a String>) -> Result<(), Problem> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            let rule = "names must differ".to_owned();
            return Err(Problem::Config { field, value: name.clone(), rule });
        }
    }
    Ok(())
}
