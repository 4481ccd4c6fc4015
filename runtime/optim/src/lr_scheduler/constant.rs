//! The rate that never changes.

use super::LrScheduler;
use crate::LearningRate;
use kiln_core::tensor::backend::Backend;

/// One learning rate for all steps.
#[derive(Clone, Copy, Debug)]
pub struct ConstantLr {
    lr: LearningRate,
}

impl ConstantLr {
    /// With this rate.
    pub fn new(lr: LearningRate) -> Self {
        Self { lr }
    }
}

impl From<LearningRate> for ConstantLr {
    fn from(lr: LearningRate) -> Self {
        Self { lr }
    }
}

impl LrScheduler for ConstantLr {
    type Record<B: Backend> = ();

    fn step(&mut self) -> LearningRate {
        self.lr
    }

    fn to_record<B: Backend>(&self) {}

    fn load_record<B: Backend>(self, (): ()) -> Self {
        self
    }
}

impl LrScheduler for LearningRate {
    type Record<B: Backend> = ();

    fn step(&mut self) -> LearningRate {
        *self
    }

    fn to_record<B: Backend>(&self) {}

    fn load_record<B: Backend>(self, (): ()) -> Self {
        self
    }
}
