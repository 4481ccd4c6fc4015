//! Gradients.

use super::base::Tensor;
use super::kind::BasicAutodiffOps;
use crate::backend::{AutodiffBackend, Backend};

impl<B: Backend, const D: usize> Tensor<B, D> {
    /// Marks the tensor as one whose gradient is wanted; nothing on a backend that records no gradients.
    pub fn require_grad(self) -> Self {
        self.set_require_grad(true)
    }

    /// Marks the tensor, or takes the mark away.
    pub fn set_require_grad(self, require_grad: bool) -> Self {
        Self::wrap(B::set_require_grad(self.into_primitive(), require_grad))
    }

    /// Whether the tensor's gradient is wanted.
    pub fn is_require_grad(&self) -> bool {
        B::is_require_grad(self.primitive())
    }

    /// The tensor as a constant: gradients do not flow through it.
    pub fn detach(self) -> Self {
        Self::wrap(B::detach(self.into_primitive()))
    }
}

impl<B: AutodiffBackend, const D: usize> Tensor<B, D> {
    /// The gradients of this tensor, which has one element, with respect to all marked ones.
    pub fn backward(&self) -> B::Gradients {
        B::backward(self.primitive().clone())
    }

    /// This tensor's gradient, if it was tracked.
    pub fn grad(&self, gradients: &B::Gradients) -> Option<Tensor<B::InnerBackend, D>> {
        B::grad(self.primitive(), gradients).map(Tensor::from_primitive)
    }

    /// Takes this tensor's gradient out.
    pub fn grad_remove(&self, gradients: &mut B::Gradients) -> Option<Tensor<B::InnerBackend, D>> {
        B::grad_remove(self.primitive(), gradients).map(Tensor::from_primitive)
    }

    /// Replaces this tensor's gradient.
    pub fn grad_replace(&self, gradients: &mut B::Gradients, gradient: Tensor<B::InnerBackend, D>) {
        B::grad_replace(self.primitive(), gradients, gradient.into_primitive());
    }
}

impl<B: AutodiffBackend, const D: usize, K: BasicAutodiffOps<B>> Tensor<B, D, K> {
    /// The tensor on the backend that computes, without its history.
    pub fn inner(self) -> Tensor<B::InnerBackend, D, K::InnerKind> {
        Tensor::from_primitive(B::inner(self.into_primitive()))
    }

    /// A tensor of the backend that computes, as a constant.
    pub fn from_inner(inner: Tensor<B::InnerBackend, D, K::InnerKind>) -> Self {
        Self::from_primitive(B::from_inner(inner.into_primitive()))
    }
}
