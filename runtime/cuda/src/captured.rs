//! A computation that is captured by itself, once for each shape of its inputs.

#[cfg(feature = "autodiff")]
mod gradients;

#[cfg(feature = "autodiff")]
pub use gradients::CapturedGradients;

use crate::device::context;
use crate::graph::{Graph, Tensors};
use crate::{CaptureError, CudaTensor, ReplayError};
use std::fmt;

/// Graphs that are kept unless [`Captured::with_capacity`] says otherwise.
const CAPACITY: usize = 8;

/// A computation, such as the forward pass of a model, that is [captured](Graph::capture) when it first meets inputs of a shape and replayed
/// from then on.
///
/// Inputs are static: each call copies them into the graph's own memory. Outputs stay there until it runs again; who still has one then has a copy. All that holds
/// of [`Graph`] holds here: what the computation reads besides its inputs are weights, and it cannot read what the device computes.
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
    graphs: Graphs<Graph<I, O>>,
}

/// Graphs of one computation.
struct Graphs<G> {
    /// The one that was used last comes last.
    all: Vec<G>,
    capacity: usize,
}

impl<G> Default for Graphs<G> {
    fn default() -> Self {
        Self { all: Vec::new(), capacity: CAPACITY }
    }
}

impl<G> Graphs<G> {
    fn set_capacity(&mut self, graphs: usize) {
        self.capacity = graphs.max(1);
    }

    fn len(&self) -> usize {
        self.all.len()
    }

    /// The graph that fits such inputs, captured if none does; those of a device that was opened again are forgotten.
    fn find_or_capture(
        &mut self,
        inputs: &[CudaTensor],
        is_current: impl FnMut(&G) -> bool,
        fits: impl FnMut(&G) -> bool,
        mut capture: impl FnMut() -> Result<G, CapturedError>,
    ) -> Result<&G, CapturedError> {
        self.all.retain(is_current);
        let graph = match self.all.iter().position(fits) {
            Some(known) => self.all.remove(known),
            None => {
                let before = lacks(inputs);
                let mut captured = capture();
                // A capture that fails leaves all graphs, unless their memory may be what is missing.
                if captured.is_err() && lacks(inputs) > before && self.make_room() {
                    captured = capture();
                }
                let graph = captured?;
                self.make_room();
                graph
            }
        };
        Ok(self.all.push_mut(graph))
    }

    /// Forgets those that were not used for longest, so that one more is not too many; says whether there were any.
    fn make_room(&mut self) -> bool {
        let excess = (self.all.len() + 1).saturating_sub(self.capacity);
        self.all.drain(..excess);
        excess > 0
    }
}

/// How often the device of tensors had no memory for something.
fn lacks(tensors: &[CudaTensor]) -> u64 {
    let context = tensors.first().and_then(|tensor| context(tensor.device()).ok());
    context.map_or(0, |context| context.lacks())
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
        Self { computation, graphs: Graphs::default() }
    }

    /// Keeps as many graphs (one at least); beyond that, the one that was not used for longest is forgotten, when another was captured or lacks its memory. Each holds
    /// the memory of all that it computes.
    #[must_use]
    pub fn with_capacity(mut self, graphs: usize) -> Self {
        self.graphs.set_capacity(graphs);
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
        let all = inputs.clone().into_all();
        let graph = self.graphs.find_or_capture(
            &all,
            Graph::is_current,
            |graph| graph.fits(&all).is_ok(),
            || Ok(Graph::capture(inputs.clone(), &mut self.computation)?),
        )?;
        Ok(graph.replay_all(&all)?)
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
