//! Mixed precision in a learner.

use crate::{TrainOutput, TrainStep};
use kiln_core::Tensor;
use kiln_core::module::AutodiffModule;
use kiln_core::tensor::DType;
use kiln_core::tensor::backend::AutodiffBackend;
use kiln_optim::{LossScaler, LossScalerConfig, compute_in};

/// A model that trains with mixed precision, by
/// [`LearnerBuilder::mixed_precision`](crate::LearnerBuilder::mixed_precision): steps compute in 16 bits, while its parameters
/// and the optimizer's state stay as they are.
///
/// ```ignore
/// fn step_in(&self, batch: Batch<B>, precision: &StepPrecision) -> TrainOutput<ClassificationOutput<B>> {
///     let model = precision.model(self);
///     let output = model.forward(batch.images.cast(precision.dtype())).cast(DType::F32);
///     let loss = CrossEntropyLossConfig::new().init(&output.device()).forward(output.clone(), batch.targets.clone());
///     let grads = precision.backward(loss.clone());
///     TrainOutput::new(self, grads, ClassificationOutput::new(loss, output, batch.targets))
/// }
/// ```
pub trait MixedTrainStep<TI, TO>: TrainStep<TI, TO> {
    /// The gradients of a batch, computed in a dtype and of a loss that is scaled.
    fn step_in(&self, item: TI, precision: &StepPrecision) -> TrainOutput<TO>;
}

/// What a step of mixed precision computes in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepPrecision {
    dtype: DType,
    scale: f64,
}

impl StepPrecision {
    /// The dtype: what the step's floats are converted to.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The model as it computes in the dtype; gradients flow back to the model's own parameters ([`compute_in`]).
    pub fn model<B: AutodiffBackend, M: AutodiffModule<B>>(&self, model: &M) -> M {
        compute_in::<B, M>(model, self.dtype)
    }

    /// The gradients of the loss, times the factor that keeps small ones from vanishing; the learner takes the factor out again.
    pub fn backward<B: AutodiffBackend, const D: usize>(&self, loss: Tensor<B, D>) -> B::Gradients {
        (loss * self.scale).backward()
    }
}

/// How a learner trains with mixed precision.
#[derive(Clone, Debug)]
pub struct MixedPrecision {
    dtype: DType,
    scaler: Option<LossScalerConfig>,
}

impl MixedPrecision {
    /// In a dtype. Losses are scaled for [`DType::F16`]; all others have the range that gradients need.
    ///
    /// # Panics
    /// When the dtype is none of floats.
    pub fn new(dtype: DType) -> Self {
        assert!(dtype.is_float(), "MixedPrecision: {dtype:?} is no dtype of floats");
        Self { dtype, scaler: (dtype == DType::F16).then(LossScalerConfig::new) }
    }

    /// How losses are scaled, if they are.
    #[must_use]
    pub fn with_scaler(self, scaler: Option<LossScalerConfig>) -> Self {
        Self { scaler, ..self }
    }

    /// The scaler of a training.
    pub(crate) fn scaler(&self) -> Option<LossScaler> {
        self.scaler.as_ref().map(LossScalerConfig::init)
    }
}

/// How a step computes.
pub(crate) enum Stepper<M, TI, TO> {
    /// As the model says.
    Plain,
    /// In another dtype.
    Mixed { dtype: DType, step: fn(&M, TI, &StepPrecision) -> TrainOutput<TO> },
}

impl<M: TrainStep<TI, TO>, TI, TO> Stepper<M, TI, TO> {
    pub(crate) fn mixed(precision: &MixedPrecision) -> Self
    where
        M: MixedTrainStep<TI, TO>,
    {
        Self::Mixed { dtype: precision.dtype, step: M::step_in }
    }

    /// The gradients of a batch: of the loss, or of the loss times the scaler's factor.
    pub(crate) fn step(&self, model: &M, item: TI, scaler: Option<&LossScaler>) -> TrainOutput<TO> {
        match self {
            Self::Plain => TrainStep::step(model, item),
            Self::Mixed { dtype, step } => step(
                model,
                item,
                &StepPrecision { dtype: *dtype, scale: scaler.map_or(1.0, LossScaler::factor) },
            ),
        }
    }
}
