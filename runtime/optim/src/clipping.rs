//! Bounds on gradients.

use kiln_core::Tensor;
use kiln_core::config::Config;
use kiln_core::tensor::backend::Backend;

/// How gradients are bounded.
#[derive(Config, Debug)]
pub enum GradientClippingConfig {
    /// Each element to `±threshold`.
    Value(f32),
    /// Each parameter's gradient to this Euclidean norm.
    Norm(f32),
}

impl GradientClippingConfig {
    /// Makes the clipping.
    pub fn init(&self) -> GradientClipping {
        match *self {
            Self::Value(threshold) => GradientClipping::Value(threshold),
            Self::Norm(threshold) => GradientClipping::Norm(threshold),
        }
    }
}

/// Bounds gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GradientClipping {
    /// Each element to `±threshold`.
    Value(f32),
    /// Each parameter's gradient to this Euclidean norm.
    Norm(f32),
}

impl GradientClipping {
    /// The gradient within bounds.
    pub fn clip_gradient<B: Backend, const D: usize>(&self, gradient: Tensor<B, D>) -> Tensor<B, D> {
        match *self {
            Self::Value(threshold) => gradient.clamp(-threshold, threshold),
            Self::Norm(threshold) => {
                let norm = (gradient.clone() * gradient.clone()).sum().sqrt();
                // The factor stays on the device: nothing waits for it. 1e-6 as in `torch.nn.utils.clip_grad_norm_`.
                let factor = (norm + 1e-6).recip() * threshold;
                gradient * factor.clamp_max(1.0).reshape([1; D])
            }
        }
    }
}
