//! Backends that record gradients.

use super::Backend;

/// A backend that records what it does and can go backwards.
pub trait AutodiffBackend: Backend {
    /// The backend that computes.
    type InnerBackend: Backend<Device = Self::Device, FloatElem = Self::FloatElem, IntElem = Self::IntElem>;
    /// Gradients by tensor.
    type Gradients: Send + 'static;

    /// Computes the gradients of the sum of a tensor's elements.
    fn backward(tensor: Self::Primitive) -> Self::Gradients;

    /// The gradient of a tensor, if it was tracked.
    fn grad(
        tensor: &Self::Primitive,
        gradients: &Self::Gradients,
    ) -> Option<<Self::InnerBackend as Backend>::Primitive>;

    /// Takes the gradient of a tensor out.
    fn grad_remove(
        tensor: &Self::Primitive,
        gradients: &mut Self::Gradients,
    ) -> Option<<Self::InnerBackend as Backend>::Primitive>;

    /// Replaces the gradient of a tensor.
    fn grad_replace(
        tensor: &Self::Primitive,
        gradients: &mut Self::Gradients,
        gradient: <Self::InnerBackend as Backend>::Primitive,
    );

    /// The tensor without its history.
    fn inner(tensor: Self::Primitive) -> <Self::InnerBackend as Backend>::Primitive;

    /// An untracked tensor.
    fn from_inner(tensor: <Self::InnerBackend as Backend>::Primitive) -> Self::Primitive;
}
