//! What an optimizer is: for one tensor, and for a module.

use crate::{GradientsParams, LearningRate, MultiGradientsParams};
use kiln_core::Tensor;
use kiln_core::module::AutodiffModule;
use kiln_core::record::{Record, RecorderError};
use kiln_core::tensor::backend::{AutodiffBackend, Backend};
use kiln_core::tensor::{DType, Device, Shape};

/// An optimizer of a single tensor. [`OptimizerAdaptor`](crate::OptimizerAdaptor) makes an [`Optimizer`] of it.
pub trait SimpleOptimizer<B: Backend>: Send + Sync + Clone {
    /// What it remembers of a tensor of rank `D` from step to step.
    type State<const D: usize>: Record<B> + Clone + 'static;

    /// The tensor after a step, and what to remember.
    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>);

    /// The state on another device.
    fn to_device<const D: usize>(state: Self::State<D>, device: &Device<B>) -> Self::State<D>;

    /// The state for a tensor of a dtype; it may come from a record, which has a dtype of its own for all floats. It stays as
    /// it is, unless the optimizer computes with it in the tensor's dtype.
    #[must_use]
    fn to_dtype<const D: usize>(state: Self::State<D>, _dtype: DType) -> Self::State<D> {
        state
    }

    /// Whether a state can be that of a tensor of this shape.
    fn fits<const D: usize>(_state: &Self::State<D>, _shape: &Shape) -> bool {
        true
    }
}

/// An optimizer of a module.
pub trait Optimizer<M, B>: Send + Clone
where
    M: AutodiffModule<B>,
    B: AutodiffBackend,
{
    /// What it remembers, to store beside the module.
    type Record: Record<B>;

    /// The module after a step. Parameters without a gradient stay as they are.
    fn step(&mut self, lr: LearningRate, module: M, grads: GradientsParams) -> M;

    /// A step by the sum of several gradients, as several devices yield them.
    fn step_multi(&mut self, lr: LearningRate, module: M, grads: MultiGradientsParams) -> M {
        let grads = grads.sum(&module);
        self.step(lr, module, grads)
    }

    /// What it remembers.
    fn to_record(&self) -> Self::Record;

    /// Whether a record can be that of this optimizer of a module.
    ///
    /// # Errors
    /// When it is of other parameters, with what is different.
    fn check_record(&self, _record: &Self::Record, _module: &M) -> Result<(), RecorderError> {
        Ok(())
    }

    /// The optimizer as it was when the record was made.
    #[must_use]
    fn load_record(self, record: Self::Record) -> Self;
}
