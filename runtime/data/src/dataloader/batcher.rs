//! Items to batches.

use kiln_tensor::backend::Backend;

/// Makes a batch of items.
pub trait Batcher<B: Backend, I, O>: Send + Sync {
    /// The batch, on a device.
    fn batch(&self, items: Vec<I>, device: &B::Device) -> O;
}
