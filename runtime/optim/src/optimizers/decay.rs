//! Weight decay: a pull of each parameter towards 0.

use kiln_core::Tensor;
use kiln_core::config::Config;
use kiln_core::tensor::backend::Backend;

/// Config of [`WeightDecay`].
#[derive(Config, Debug)]
pub struct WeightDecayConfig {
    /// The part of a parameter that is added to its gradient.
    pub penalty: f32,
}

impl WeightDecayConfig {
    /// Makes it.
    pub fn init(&self) -> WeightDecay {
        WeightDecay { penalty: self.penalty }
    }
}

/// An L2 penalty: its gradient is `penalty · parameter`.
#[derive(Clone, Copy, Debug)]
pub struct WeightDecay {
    penalty: f32,
}

impl WeightDecay {
    /// The part of a parameter that is added to its gradient.
    pub(super) fn penalty(self) -> f64 {
        self.penalty.into()
    }

    /// The gradient with the penalty's.
    pub fn transform<B: Backend, const D: usize>(
        &self,
        grad: Tensor<B, D>,
        tensor: Tensor<B, D>,
    ) -> Tensor<B, D> {
        grad + tensor * self.penalty
    }
}

/// The gradient with the penalty's, if there is one.
pub(super) fn decayed<B: Backend, const D: usize>(
    decay: Option<WeightDecay>,
    grad: Tensor<B, D>,
    tensor: &Tensor<B, D>,
) -> Tensor<B, D> {
    match decay {
        Some(decay) => decay.transform(grad, tensor.clone()),
        None => grad,
    }
}
