//! One forward pass for many requests: join, fill up, run, split.

use crate::ServeError;
use crate::batch::{Batch, check_output};
use crate::queue::Request;
use crate::response::Sender;
use crate::stats::Counters;
use std::any::Any;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The model, and how batches are run by it.
pub(crate) struct Forward<F> {
    pub(crate) model: F,
    pub(crate) allowed_batch_sizes: Vec<usize>,
    pub(crate) counters: Counters,
}

impl<F> Forward<F> {
    /// Answers the requests of a batch, without those whose callers left.
    pub(crate) fn answer<I: Batch, O: Batch>(&self, mut requests: Vec<Request<I, O>>)
    where
        F: Fn(I) -> Result<O, ServeError>,
    {
        let taken = requests.len();
        requests.retain(|request| !request.sender.is_abandoned());
        self.counters.abandoned(taken - requests.len());
        if requests.is_empty() {
            return;
        }
        let rows: Vec<usize> = requests.iter().map(|request| request.rows).collect();
        self.counters.batch(rows.iter().sum(), requests.iter().map(|request| request.since.elapsed()));
        let (inputs, senders) = requests.into_iter().map(|request| (request.input, request.sender)).unzip();
        self.run(inputs, &rows, senders);
    }

    /// Runs the model and answers. If it panics or returns an error, each half of the batch is run again, down to single requests: a request that the model
    /// cannot compute fails alone.
    fn run<I: Batch, O: Batch>(&self, inputs: Vec<I>, rows: &[usize], mut senders: Vec<Sender<O>>)
    where
        F: Fn(I) -> Result<O, ServeError>,
    {
        // The input of a single request is the model's alone, which may write into its memory.
        let mut again = if inputs.len() > 1 { inputs.clone() } else { Vec::new() };
        match self.outputs(inputs, rows) {
            Ok(outputs) => {
                for (sender, output) in senders.into_iter().zip(outputs) {
                    sender.send(Ok(output));
                }
            }
            Err(ServeError::Panicked { .. } | ServeError::Model(_)) if !again.is_empty() => {
                let half = again.len() / 2;
                let others = (again.split_off(half), senders.split_off(half));
                self.run(again, &rows[..half], senders);
                self.run(others.0, &rows[half..], others.1);
            }
            Err(error) => {
                self.counters.failed(senders.len());
                for sender in senders {
                    sender.send(Err(error.clone()));
                }
            }
        }
    }

    /// The output of each input. What panics is the model, or what joins and splits if the device has no memory for it.
    fn outputs<I: Batch, O: Batch>(&self, inputs: Vec<I>, rows: &[usize]) -> Result<Vec<O>, ServeError>
    where
        F: Fn(I) -> Result<O, ServeError>,
    {
        let total = rows.iter().sum();
        let size = self.allowed_batch_sizes.iter().copied().find(|&size| size >= total).unwrap_or(total);
        self.counters.padding(size - total);
        // A model is shared by reference; one that changes itself behind a lock finds that poisoned.
        let outputs = catch_unwind(AssertUnwindSafe(|| {
            let output = (self.model)(join(inputs, rows, size - total))?;
            check_output(&output, size)?;
            Ok(split(output, rows, size))
        }));
        outputs.unwrap_or_else(|payload| {
            self.counters.panicked();
            Err(ServeError::Panicked { message: message(&*payload) })
        })
    }
}

/// All inputs along their rows, and copies of the last row as padding.
pub(crate) fn join<I: Batch>(mut inputs: Vec<I>, rows: &[usize], padding: usize) -> I {
    if padding > 0
        && let (Some(last), Some(&rows)) = (inputs.last(), rows.last())
    {
        let row = last.rows(rows - 1..rows);
        inputs.extend(iter::repeat_n(row, padding));
    }
    match <[I; 1]>::try_from(inputs) {
        Ok([input]) => input,
        Err(inputs) => I::join(inputs),
    }
}

/// The rows of each request, of an output with `size` rows; what is behind them is padding.
pub(crate) fn split<O: Batch>(output: O, rows: &[usize], size: usize) -> Vec<O> {
    if rows == [size] {
        return vec![output];
    }
    let mut end = 0;
    let part = |&rows: &usize| {
        end += rows;
        output.rows(end - rows..end)
    };
    rows.iter().map(part).collect()
}

/// What a panic says.
fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("it gave no message").to_owned()
}

#[cfg(test)]
mod tests;
