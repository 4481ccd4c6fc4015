//! [`TrainingResult`].

use crate::renderer::MetricsRenderer;
use kiln_core::module::AutodiffModule;
use kiln_core::tensor::backend::AutodiffBackend;
use std::fmt;
use std::ops::Deref;

/// What a training yields. It stands for the trained model, so that `result.save_file(…)` and `result.valid()` are the
/// model's; [`TrainingResult::model`] is the model without gradients.
pub struct TrainingResult<B: AutodiffBackend, M: AutodiffModule<B>> {
    /// The model for inference, as `valid` makes it.
    pub model: M::InnerModule,
    /// What showed the training.
    pub renderer: Box<dyn MetricsRenderer>,
    trained: M,
}

impl<B: AutodiffBackend, M: AutodiffModule<B>> TrainingResult<B, M> {
    pub(super) fn new(trained: M, renderer: Box<dyn MetricsRenderer>) -> Self {
        Self { model: trained.valid(), renderer, trained }
    }

    /// The model with gradients, to be trained further.
    pub fn into_trained(self) -> M {
        self.trained
    }

    /// The trained model's record.
    pub fn into_record(self) -> M::Record {
        self.trained.into_record()
    }
}

impl<B: AutodiffBackend, M: AutodiffModule<B>> Deref for TrainingResult<B, M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.trained
    }
}

impl<B: AutodiffBackend, M: AutodiffModule<B>> fmt::Debug for TrainingResult<B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrainingResult").field("trained", &self.trained).finish_non_exhaustive()
    }
}

impl<B: AutodiffBackend, M: AutodiffModule<B> + fmt::Display> fmt::Display for TrainingResult<B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.trained, f)
    }
}
