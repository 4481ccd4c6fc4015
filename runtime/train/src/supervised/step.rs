//! What a model does with a batch, with associated types.

use crate::TrainOutput;
use crate::metric::ItemLazy;
use kiln_core::module::AutodiffModule;
use kiln_core::tensor::backend::AutodiffBackend;
use kiln_optim::{GradientsParams, LearningRate, Optimizer};

/// A model that trains.
pub trait TrainStep {
    /// A batch.
    type Input: Send + 'static;
    /// What metrics are computed from.
    type Output: ItemLazy + 'static;

    /// The gradients of a batch. The model stays as it is: [`TrainStep::optimize`] changes it.
    fn step(&self, item: Self::Input) -> TrainOutput<Self::Output>;

    /// The model after an optimizer's step. It is there to be overridden where a model does more, such as bounding its
    /// weights.
    #[must_use]
    fn optimize<B, O>(self, optim: &mut O, lr: LearningRate, grads: GradientsParams) -> Self
    where
        B: AutodiffBackend,
        O: Optimizer<Self, B>,
        Self: AutodiffModule<B>,
    {
        optim.step(lr, self, grads)
    }
}

/// A model that is validated, or used.
pub trait InferenceStep {
    /// A batch.
    type Input: Send + 'static;
    /// What metrics are computed from.
    type Output: ItemLazy + 'static;

    /// What comes of a batch.
    fn step(&self, item: Self::Input) -> Self::Output;
}

#[diagnostic::do_not_recommend]
impl<M: TrainStep> crate::TrainStep<M::Input, M::Output> for M {
    fn step(&self, item: M::Input) -> TrainOutput<M::Output> {
        TrainStep::step(self, item)
    }

    fn optimize<B, O>(self, optim: &mut O, lr: LearningRate, grads: GradientsParams) -> Self
    where
        B: AutodiffBackend,
        O: Optimizer<Self, B>,
        Self: AutodiffModule<B>,
    {
        TrainStep::optimize(self, optim, lr, grads)
    }
}

#[diagnostic::do_not_recommend]
impl<M: InferenceStep> crate::ValidStep<M::Input, M::Output> for M {
    fn step(&self, item: M::Input) -> M::Output {
        InferenceStep::step(self, item)
    }
}
