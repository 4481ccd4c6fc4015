//! What a model does with a batch.

use kiln_core::module::AutodiffModule;
use kiln_core::tensor::backend::AutodiffBackend;
use kiln_optim::{GradientsParams, LearningRate, Optimizer};

/// The gradients of a step, and what metrics are computed from.
#[derive(Debug)]
pub struct TrainOutput<TO> {
    /// The gradients by parameter.
    pub grads: GradientsParams,
    /// The item.
    pub item: TO,
}

impl<TO> TrainOutput<TO> {
    /// The gradients of a module's parameters, taken from those of its loss, and an item.
    pub fn new<B: AutodiffBackend, M: AutodiffModule<B>>(module: &M, grads: B::Gradients, item: TO) -> Self {
        Self { grads: GradientsParams::from_grads(grads, module), item }
    }
}

/// A model that trains: what it does with a batch of type `TI`, and the item `TO` that metrics are computed from.
pub trait TrainStep<TI, TO> {
    /// The gradients of a batch. The model stays as it is: [`TrainStep::optimize`] changes it.
    fn step(&self, item: TI) -> TrainOutput<TO>;

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

/// A model that is validated: what it does with a batch of type `VI`, and the item `VO` that metrics are computed from.
pub trait ValidStep<VI, VO> {
    /// What comes of a batch.
    fn step(&self, item: VI) -> VO;
}
