//! Scores of one batch: rows with nulls are left out, the others go through the model in parts.

use crate::config::{BatchSize, Nulls};
use crate::error::Problem;
use crate::input::ResolvedInput;
use crate::list::valid_rows;
use crate::output::ResolvedOutput;
use crate::tensors::{InputTensors, OutputTensors};
use arrow_array::{ArrayRef, BooleanArray, StructArray};
use arrow_buffer::{MutableBuffer, NullBuffer};
use arrow_schema::{DataType, Field, Fields};
use arrow_select::filter::filter;
use kiln_core::tensor::TensorData;
use kiln_core::tensor::backend::Backend;
use std::any::Any;
use std::error::Error;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Runs a model on the data of its inputs.
type Model = dyn Fn(Vec<TensorData>) -> Result<Vec<TensorData>, Problem> + Send + Sync;

/// A model, and what it takes and yields.
pub(crate) struct Scoring {
    pub(crate) inputs: Vec<ResolvedInput>,
    pub(crate) outputs: Vec<ResolvedOutput>,
    pub(crate) nulls: Nulls,
    pub(crate) batch_size: BatchSize,
    pub(crate) model: Box<Model>,
}

impl Scoring {
    /// The names of all arguments.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &String> {
        self.inputs.iter().flat_map(|input| &input.columns)
    }

    /// The types in which arguments are taken that have these.
    pub(crate) fn coerce(&self, types: &[DataType]) -> Result<Vec<DataType>, Problem> {
        let arguments =
            self.inputs.iter().flat_map(|input| input.columns.iter().map(move |column| (input, column)));
        if arguments.clone().count() != types.len() {
            let columns = self.columns().cloned().collect();
            return Err(Problem::ArgumentCount { actual: types.len(), columns });
        }
        arguments.zip(types).map(|((input, column), data_type)| input.coerce(column, data_type)).collect()
    }

    /// Whether there may be null among the scores.
    pub(crate) fn is_nullable(&self) -> bool {
        self.nulls == Nulls::Propagate
    }

    /// The type of the scores.
    pub(crate) fn data_type(&self) -> DataType {
        match &self.outputs[..] {
            [output] => output.data_type(),
            _ => DataType::Struct(self.fields()),
        }
    }

    fn fields(&self) -> Fields {
        let field =
            |output: &ResolvedOutput| Field::new(&output.name, output.data_type(), self.is_nullable());
        self.outputs.iter().map(field).collect()
    }

    /// The scores of some rows.
    pub(crate) fn score(&self, arguments: &[ArrayRef], rows: usize) -> Result<ArrayRef, Problem> {
        let validity = if self.is_nullable() {
            arguments
                .iter()
                .fold(None, |all, array| NullBuffer::union(all.as_ref(), valid_rows(array).as_ref()))
        } else {
            None
        };
        let columns = match &validity {
            None => self.score_all(arguments, rows, |row| row)?,
            Some(validity) => {
                let valid = BooleanArray::new(validity.inner().clone(), None);
                let filtered =
                    arguments.iter().map(|array| filter(array, &valid)).collect::<Result<Vec<_>, _>>();
                let filtered = filtered.map_err(|error| Problem::Internal(error.to_string()))?;
                let original = |row| validity.valid_indices().nth(row).unwrap_or(row);
                self.score_all(&filtered, rows - validity.null_count(), original)?
            }
        };
        let finished = self.outputs.iter().zip(columns);
        let finished = finished.map(|(output, column)| output.finish(column, rows, validity.as_ref()));
        let mut columns = finished.collect::<Result<Vec<_>, _>>()?;
        match (self.outputs.len(), columns.pop()) {
            (1, Some(column)) => Ok(column),
            (_, last) => {
                columns.extend(last);
                let scores = StructArray::try_new(self.fields(), columns, validity);
                Ok(Arc::new(scores.map_err(|error| Problem::Internal(error.to_string()))?))
            }
        }
    }

    /// The scores of rows that are all scored, a buffer for each output. `original` is the row of the batch that such a row was.
    fn score_all(
        &self,
        arguments: &[ArrayRef],
        rows: usize,
        original: impl Fn(usize) -> usize,
    ) -> Result<Vec<MutableBuffer>, Problem> {
        let mut columns: Vec<_> =
            iter::repeat_with(|| MutableBuffer::new(0)).take(self.outputs.len()).collect();
        if rows == 0 {
            return Ok(columns);
        }
        let mut others = arguments;
        let mut inputs = Vec::new();
        for input in &self.inputs {
            let (arrays, after) = others.split_at_checked(input.columns.len()).unwrap_or((others, &[]));
            others = after;
            let layout = input.layout(arrays).map_err(|unread| unread.into_problem(input, rows))?;
            inputs.push((input, arrays, layout));
        }
        let fill = if let Nulls::Fill(number) = self.nulls { Some(number) } else { None };
        for start in (0..rows).step_by(self.batch_size.rows()) {
            let end = rows.min(start.saturating_add(self.batch_size.rows()));
            let size = match self.batch_size {
                BatchSize::AtMost(_) => end - start,
                BatchSize::Exactly(size) => size,
            };
            let data = inputs.iter().map(|(input, arrays, layout)| {
                let data = input.read(arrays, layout, start..end, size, fill);
                data.map_err(|mut unread| {
                    unread.row = original(unread.row);
                    unread.into_problem(input, rows)
                })
            });
            let data = (self.model)(data.collect::<Result<_, _>>()?)?;
            for ((output, column), data) in self.outputs.iter().zip(&mut columns).zip(data) {
                output.append(column, data, end - start, size)?;
            }
        }
        Ok(columns)
    }
}

/// One forward pass. What panics is the model, or the device that has no memory for it.
pub(crate) fn run<I, O, E>(
    data: Vec<TensorData>,
    device: &<I::Backend as Backend>::Device,
    forward: &impl Fn(I) -> Result<O, E>,
) -> Result<Vec<TensorData>, Problem>
where
    I: InputTensors,
    O: OutputTensors,
    E: Error + Send + Sync + 'static,
{
    // A model is shared by reference; one that changes itself behind a lock finds that poisoned.
    let output = catch_unwind(AssertUnwindSafe(|| {
        let input = I::take(&mut data.into_iter(), device);
        let input = input.ok_or_else(|| Problem::Internal("the closure takes more inputs".to_owned()))?;
        let output = forward(input).map_err(|error| Problem::Model(Box::new(error)))?;
        Ok(output.register(Default::default()).try_execute()?)
    }));
    output.unwrap_or_else(|payload| Err(Problem::Panicked { message: message(&*payload) }))
}

/// What a panic says.
fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("it gave no message").to_owned()
}
