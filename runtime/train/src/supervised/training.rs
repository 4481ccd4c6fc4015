//! [`SupervisedTraining`].

use super::logger::Part;
use super::renderer::Parts;
use crate::checkpoint::CheckpointingStrategy;
use crate::logger::{ApplicationLoggerInstaller, MetricLogger};
use crate::metric::{Adaptor, ItemLazy, Metric, Numeric};
use crate::renderer::{MetricsRenderer, MetricsRendererEvaluation, MetricsRendererTraining};
use crate::{
    EarlyStoppingStrategy, Interrupter, LearnerBuilder, LearningStrategy, MetricRegistration, MixedPrecision,
    MixedTrainStep, TextMetricRegistration, TrainError, TrainStep, ValidStep,
};
use kiln_core::module::AutodiffModule;
use kiln_core::record::FileRecorder;
use kiln_core::tensor::backend::AutodiffBackend;
use kiln_data::dataloader::DataLoader;
use kiln_optim::Optimizer;
use kiln_optim::lr_scheduler::LrScheduler;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

/// A model, its optimizer and the scheduler of its learning rate.
#[derive(Clone, Debug)]
pub struct Learner<M, O, S> {
    model: M,
    optim: O,
    lr_scheduler: S,
}

impl<M, O, S> Learner<M, O, S> {
    /// Of a model; a number instead of a scheduler is the learning rate that never changes.
    pub fn new(model: M, optim: O, lr_scheduler: S) -> Self {
        Self { model, optim, lr_scheduler }
    }
}

impl<M: Clone, O, S> Learner<M, O, S> {
    /// The model.
    pub fn model(&self) -> M {
        self.model.clone()
    }
}

/// What a training yields.
pub struct LearningResult<M> {
    /// The trained model, without gradients.
    pub model: M,
    /// What showed the training, to show an [evaluation](super::EvaluatorBuilder::renderer) too.
    pub renderer: Box<dyn MetricsRenderer>,
}

/// Which device takes steps when there are several. Kiln has one way only: the first does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiDeviceOptim {
    /// The first one.
    OptimMainDevice,
    /// Each those of a part of the parameters: here, the first one all of them.
    OptimSharded,
}

/// Where a training runs.
#[derive(Clone, Debug)]
pub enum TrainingStrategy<B: AutodiffBackend> {
    /// On one device.
    SingleDevice(B::Device),
    /// On several; see [`LearningStrategy::MultiDeviceNaive`].
    MultiDevice(Vec<B::Device>, MultiDeviceOptim),
    /// On several, each of which takes the steps; see [`LearningStrategy::DistributedDataParallel`].
    DistributedDataParallel {
        /// The devices.
        devices: Vec<B::Device>,
    },
}

impl<B: AutodiffBackend> Default for TrainingStrategy<B> {
    fn default() -> Self {
        Self::SingleDevice(B::Device::default())
    }
}

impl<B: AutodiffBackend> From<TrainingStrategy<B>> for LearningStrategy<B> {
    fn from(strategy: TrainingStrategy<B>) -> Self {
        match strategy {
            TrainingStrategy::SingleDevice(device) => Self::SingleDevice(device),
            TrainingStrategy::MultiDevice(devices, _) => Self::MultiDeviceNaive(devices),
            TrainingStrategy::DistributedDataParallel { devices } => {
                Self::DistributedDataParallel { devices }
            }
        }
    }
}

/// A training on the batches of a loader, validated on those of another; [`LearnerBuilder`] says what its options do, and
/// which files it leaves.
///
/// `TI` and `VI` are the batches of training and validation, `TO` and `VO` what steps yield.
pub struct SupervisedTraining<B, M, O, S, TI, TO, VI, VO>
where
    B: AutodiffBackend,
    TO: ItemLazy,
    VO: ItemLazy,
{
    builder: LearnerBuilder<B, M, O, S, TI, TO, VI, VO>,
    interrupter: Interrupter,
    dataloader_train: Arc<dyn DataLoader<B, TI>>,
    dataloader_valid: Arc<dyn DataLoader<B::InnerBackend, VI>>,
}

impl<B, M, O, S, TI, TO, VI, VO> SupervisedTraining<B, M, O, S, TI, TO, VI, VO>
where
    B: AutodiffBackend,
    M: AutodiffModule<B> + TrainStep<TI, TO> + Display + 'static,
    M::InnerModule: ValidStep<VI, VO>,
    O: Optimizer<M, B> + 'static,
    S: LrScheduler + 'static,
    TO: ItemLazy + 'static,
    TO::ItemSync: 'static,
    VO: ItemLazy + 'static,
    VO::ItemSync: 'static,
{
    /// A training of one epoch on the usual device, whose files go to a directory.
    pub fn new(
        directory: impl AsRef<Path>,
        dataloader_train: Arc<dyn DataLoader<B, TI>>,
        dataloader_valid: Arc<dyn DataLoader<B::InnerBackend, VI>>,
    ) -> Self {
        let interrupter = Interrupter::new();
        let builder = LearnerBuilder::new(directory).with_interrupter(interrupter.clone());
        Self { builder, interrupter, dataloader_train, dataloader_valid }
    }

    /// The same training with other options.
    fn with(
        self,
        change: impl FnOnce(
            LearnerBuilder<B, M, O, S, TI, TO, VI, VO>,
        ) -> LearnerBuilder<B, M, O, S, TI, TO, VI, VO>,
    ) -> Self {
        Self { builder: change(self.builder), ..self }
    }

    /// Where it runs.
    #[must_use]
    pub fn with_training_strategy(self, training_strategy: TrainingStrategy<B>) -> Self {
        self.with(|builder| builder.learning_strategy(training_strategy.into()))
    }

    /// [`LearnerBuilder::metric_loggers`].
    #[must_use]
    pub fn metric_loggers<MT, MV>(self, logger_train: MT, logger_valid: MV) -> Self
    where
        MT: MetricLogger + 'static,
        MV: MetricLogger + 'static,
    {
        self.with(|builder| builder.metric_loggers(logger_train, logger_valid))
    }

    /// With one logger for training and validation, instead of files.
    #[must_use]
    pub fn with_metric_logger<ML: super::MetricLogger + 'static>(self, logger: ML) -> Self {
        let [train, valid] = Part::both(logger);
        self.with(|builder| builder.metric_loggers(train, valid))
    }

    /// [`LearnerBuilder::with_checkpointing_strategy`].
    #[must_use]
    pub fn with_checkpointing_strategy<CS: CheckpointingStrategy + 'static>(self, strategy: CS) -> Self {
        self.with(|builder| builder.with_checkpointing_strategy(strategy))
    }

    /// [`LearnerBuilder::renderer`], of one that has its methods in three traits, as Burn 0.20 has them.
    #[must_use]
    pub fn renderer<MR>(self, renderer: MR) -> Self
    where
        MR: MetricsRenderer + MetricsRendererTraining + MetricsRendererEvaluation + 'static,
    {
        self.with(|builder| builder.renderer(Parts(renderer)))
    }

    /// [`LearnerBuilder::metrics`].
    #[must_use]
    pub fn metrics<Me: MetricRegistration<TO::ItemSync, VO::ItemSync>>(self, metrics: Me) -> Self {
        self.with(|builder| builder.metrics(metrics))
    }

    /// [`LearnerBuilder::metrics_text`].
    #[must_use]
    pub fn metrics_text<Me: TextMetricRegistration<TO::ItemSync, VO::ItemSync>>(self, metrics: Me) -> Self {
        self.with(|builder| builder.metrics_text(metrics))
    }

    /// [`LearnerBuilder::metric_train`].
    #[must_use]
    pub fn metric_train<Me: Metric + 'static>(self, metric: Me) -> Self
    where
        TO::ItemSync: Adaptor<Me::Input>,
    {
        self.with(|builder| builder.metric_train(metric))
    }

    /// [`LearnerBuilder::metric_valid`].
    #[must_use]
    pub fn metric_valid<Me: Metric + 'static>(self, metric: Me) -> Self
    where
        VO::ItemSync: Adaptor<Me::Input>,
    {
        self.with(|builder| builder.metric_valid(metric))
    }

    /// [`LearnerBuilder::metric_train_numeric`].
    #[must_use]
    pub fn metric_train_numeric<Me: Metric + Numeric + 'static>(self, metric: Me) -> Self
    where
        TO::ItemSync: Adaptor<Me::Input>,
    {
        self.with(|builder| builder.metric_train_numeric(metric))
    }

    /// [`LearnerBuilder::metric_valid_numeric`].
    #[must_use]
    pub fn metric_valid_numeric<Me: Metric + Numeric + 'static>(self, metric: Me) -> Self
    where
        VO::ItemSync: Adaptor<Me::Input>,
    {
        self.with(|builder| builder.metric_valid_numeric(metric))
    }

    /// [`LearnerBuilder::grads_accumulation`].
    #[must_use]
    pub fn grads_accumulation(self, accumulation: usize) -> Self {
        self.with(|builder| builder.grads_accumulation(accumulation))
    }

    /// [`LearnerBuilder::num_epochs`].
    #[must_use]
    pub fn num_epochs(self, num_epochs: usize) -> Self {
        self.with(|builder| builder.num_epochs(num_epochs))
    }

    /// [`LearnerBuilder::checkpoint`].
    #[must_use]
    pub fn checkpoint(self, checkpoint: usize) -> Self {
        self.with(|builder| builder.checkpoint(checkpoint))
    }

    /// [`LearnerBuilder::resume`].
    #[must_use]
    pub fn resume(self) -> Self {
        self.with(LearnerBuilder::resume)
    }

    /// [`LearnerBuilder::checkpoint_every`].
    #[must_use]
    pub fn checkpoint_every(self, steps: usize) -> Self {
        self.with(|builder| builder.checkpoint_every(steps))
    }

    /// [`LearnerBuilder::seed`].
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.with(|builder| builder.seed(seed))
    }

    /// Ends the training from elsewhere.
    pub fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    /// With another interrupter, which may be that of other trainings too.
    #[must_use]
    pub fn with_interrupter(self, interrupter: Interrupter) -> Self {
        let builder = self.builder.with_interrupter(interrupter.clone());
        Self { builder, interrupter, ..self }
    }

    /// [`LearnerBuilder::early_stopping`].
    #[must_use]
    pub fn early_stopping<St: EarlyStoppingStrategy + 'static>(self, strategy: St) -> Self {
        self.with(|builder| builder.early_stopping(strategy))
    }

    /// [`LearnerBuilder::with_application_logger`].
    #[must_use]
    pub fn with_application_logger(self, logger: Option<Box<dyn ApplicationLoggerInstaller>>) -> Self {
        self.with(|builder| builder.with_application_logger(logger))
    }

    /// [`LearnerBuilder::with_file_checkpointer`].
    #[must_use]
    pub fn with_file_checkpointer<FR: FileRecorder<B> + 'static>(self, recorder: FR) -> Self {
        self.with(|builder| builder.with_file_checkpointer(recorder))
    }

    /// [`LearnerBuilder::summary`].
    #[must_use]
    pub fn summary(self) -> Self {
        self.with(LearnerBuilder::summary)
    }

    /// [`LearnerBuilder::log_to_file`].
    #[must_use]
    pub fn log_to_file(self, enabled: bool) -> Self {
        self.with(|builder| builder.log_to_file(enabled))
    }

    /// [`LearnerBuilder::mixed_precision`].
    #[must_use]
    pub fn mixed_precision(self, precision: MixedPrecision) -> Self
    where
        M: MixedTrainStep<TI, TO>,
    {
        self.with(|builder| builder.mixed_precision(precision))
    }

    /// [`SupervisedTraining::launch`], with an error where checkpoints cannot be written or read.
    ///
    /// # Errors
    /// As [`Learner::try_fit`](crate::Learner::try_fit).
    pub fn try_launch(self, learner: Learner<M, O, S>) -> Result<LearningResult<M::InnerModule>, TrainError> {
        let trainer = self.builder.build(learner.model, learner.optim, learner.lr_scheduler);
        let result = trainer.try_fit(self.dataloader_train, self.dataloader_valid)?;
        Ok(LearningResult { model: result.model, renderer: result.renderer })
    }

    /// Trains a model; see [`Learner::fit`](crate::Learner::fit).
    ///
    /// # Panics
    /// As [`Learner::fit`](crate::Learner::fit).
    pub fn launch(self, learner: Learner<M, O, S>) -> LearningResult<M::InnerModule> {
        let trainer = self.builder.build(learner.model, learner.optim, learner.lr_scheduler);
        let result = trainer.fit(self.dataloader_train, self.dataloader_valid);
        LearningResult { model: result.model, renderer: result.renderer }
    }
}
