//! What a module keeps of a sequence that grows, so that it computes each position once.

use crate::tensor::{Tensor, backend::Backend};

/// A tensor that is kept between calls; empty at first.
#[derive(Clone, Debug)]
pub struct TensorCache<B: Backend, const D: usize> {
    kept: Option<Tensor<B, D>>,
}

impl<B: Backend, const D: usize> TensorCache<B, D> {
    /// With nothing in it.
    pub fn empty() -> Self {
        Self { kept: None }
    }

    /// Size along `dim` of what is kept.
    pub(crate) fn len(&self, dim: usize) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.dims()[dim])
    }

    /// What is kept, if it is something.
    pub(crate) fn kept(&self) -> Option<Tensor<B, D>> {
        self.kept.clone()
    }

    /// Keeps `new` after what is kept, and yields both.
    pub(crate) fn append(&mut self, new: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
        let whole = match self.kept.take() {
            Some(kept) => Tensor::cat(alloc::vec![kept, new], dim),
            None => new,
        };
        self.kept.insert(whole).clone()
    }

    /// What is kept; at first, what `compute` yields.
    pub(crate) fn or_compute(&mut self, compute: impl FnOnce() -> Tensor<B, D>) -> Tensor<B, D> {
        self.kept.get_or_insert_with(compute).clone()
    }
}

impl<B: Backend, const D: usize> Default for TensorCache<B, D> {
    fn default() -> Self {
        Self::empty()
    }
}
