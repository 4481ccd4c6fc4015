//! Gradients.

use super::base::Tensor;
use super::kind::BasicAutodiffOps;
use crate::backend::{AutodiffBackend, Backend};

impl<B: Backend, const D: usize> Tensor<B, D> {
    /// The tensor as a leaf whose gradient is wanted; the same on a backend that records no gradients. See
    /// [`Tensor::set_require_grad`].
    pub fn require_grad(self) -> Self {
        self.set_require_grad(true)
    }

    /// The tensor as a leaf whose gradient is wanted, or as a constant. Either way it forgets what it was computed from;
    /// a leaf whose gradient is wanted already stays the same leaf. On a backend with gradients over one with gradients, the inner one
    /// still knows where its tensor came from, as second derivatives need it.
    pub fn set_require_grad(self, require_grad: bool) -> Self {
        if require_grad && self.is_require_grad() {
            return self;
        }
        Self::wrap(B::set_require_grad(self.into_backend(), require_grad))
    }

    /// Whether the tensor is a leaf whose gradient is wanted.
    pub fn is_require_grad(&self) -> bool {
        B::is_require_grad(self.primitive())
    }

    /// Whether gradients flow through the tensor: it is a leaf whose gradient is wanted, or was computed from one.
    pub fn is_tracked(&self) -> bool {
        B::is_tracked(self.primitive())
    }

    /// The tensor as a constant: gradients do not flow through it.
    pub fn detach(self) -> Self {
        Self::wrap(B::detach(self.into_backend()))
    }
}

impl<B: AutodiffBackend, const D: usize> Tensor<B, D> {
    /// The gradients of the sum of this tensor's elements with respect to all marked tensors: for a loss of one element, those
    /// of the loss.
    pub fn backward(&self) -> B::Gradients {
        B::backward(self.primitive().clone())
    }

    /// This tensor's gradient, if it was tracked.
    pub fn grad(&self, gradients: &B::Gradients) -> Option<Tensor<B::InnerBackend, D>> {
        B::grad(self.primitive(), gradients).map(Tensor::from_backend)
    }

    /// Takes this tensor's gradient out.
    pub fn grad_remove(&self, gradients: &mut B::Gradients) -> Option<Tensor<B::InnerBackend, D>> {
        B::grad_remove(self.primitive(), gradients).map(Tensor::from_backend)
    }

    /// Replaces this tensor's gradient.
    pub fn grad_replace(&self, gradients: &mut B::Gradients, gradient: Tensor<B::InnerBackend, D>) {
        B::grad_replace(self.primitive(), gradients, gradient.into_backend());
    }
}

impl<B: AutodiffBackend, const D: usize, K: BasicAutodiffOps<B>> Tensor<B, D, K> {
    /// The tensor on the backend that computes, without its history.
    pub fn inner(self) -> Tensor<B::InnerBackend, D, K::InnerKind> {
        Tensor::from_backend(B::inner(self.into_backend()))
    }

    /// A tensor of the backend that computes, as a constant.
    pub fn from_inner(inner: Tensor<B::InnerBackend, D, K::InnerKind>) -> Self {
        Self::from_backend(B::from_inner(inner.into_backend()))
    }
}
