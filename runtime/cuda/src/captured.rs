//! A computation that is captured by itself, once for each shape of its inputs.

use crate::graph::{Graph, Tensors};
use crate::{CaptureError, ReplayError};
use std::fmt;

/// Graphs that are kept unless [`Captured::with_capacity`] says otherwise.
const CAPACITY: usize = 8;

/// A computation, such as the forward pass of a model, that is [captured](Graph::capture) when it first meets inputs of a shape and replayed
/// from then on.
///
/// Inputs are static: each call copies them into the graph's own memory, and its outputs out of it. All that holds of [`Graph`] holds
/// here: what the computation reads besides its inputs are weights, and it can neither read what the device computes nor draw random
/// numbers.
///
/// ```no_run
/// # use kiln_cuda::{Captured, Cuda};
/// # use kiln_tensor::Tensor;
/// # struct Model;
/// # impl Model { fn forward(&self, ids: Tensor<Cuda, 2>, mask: Tensor<Cuda, 2>) -> Tensor<Cuda, 2> { ids * mask } }
/// # fn example(model: Model, ids: Tensor<Cuda, 2>, mask: Tensor<Cuda, 2>) -> Result<(), Box<dyn std::error::Error>> {
/// let mut forward = Captured::new(|(ids, mask)| model.forward(ids, mask));
/// let output = forward.run((ids, mask))?;
/// # Ok(())
/// # }
/// ```
pub struct Captured<F, I, O> {
    computation: F,
    /// The one that was used last comes last.
    graphs: Vec<Graph<I, O>>,
    capacity: usize,
}

impl<F, I, O> fmt::Debug for Captured<F, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captured").field("graphs", &self.graphs.len()).finish_non_exhaustive()
    }
}

impl<F, I, O> Captured<F, I, O>
where
    F: FnMut(I) -> O,
    I: Tensors + Clone,
    O: Tensors + Clone,
{
    /// A computation that was not captured yet. One with several inputs takes a tuple of them.
    pub fn new(computation: F) -> Self {
        Self { computation, graphs: Vec::new(), capacity: CAPACITY }
    }

    /// Keeps as many graphs (one at least); beyond that, the one that was not used for longest is forgotten. Each holds the memory of
    /// all that it computes.
    #[must_use]
    pub fn with_capacity(mut self, graphs: usize) -> Self {
        self.capacity = graphs.max(1);
        self
    }

    /// For how many shapes of inputs there is a graph.
    pub fn graphs(&self) -> usize {
        self.graphs.len()
    }

    /// Runs the computation: by a graph, which is captured if there is none for such inputs.
    ///
    /// # Errors
    /// When the computation cannot be captured, or the device fails.
    pub fn run(&mut self, inputs: I) -> Result<O, CapturedError> {
        self.graphs.retain(Graph::is_current);
        let all = inputs.clone().into_all();
        let graph = match self.graphs.iter().position(|graph| graph.fits(&all).is_ok()) {
            Some(known) => self.graphs.remove(known),
            None => {
                if self.graphs.len() >= self.capacity {
                    self.graphs.remove(0);
                }
                Graph::capture(inputs, &mut self.computation)?
            }
        };
        let outputs = graph.replay_all(&all);
        self.graphs.push(graph);
        Ok(outputs?)
    }
}

/// Why a computation does not run by a graph.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CapturedError {
    /// It cannot be captured.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// Its graph does not run.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}
