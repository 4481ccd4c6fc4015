//! [`LearnerBuilder`].

use super::base::Devices;
use super::early_stopping::EarlyStoppingStrategy;
use super::keeper::{Begin, Keeper};
use super::metrics::{Metrics, check_names};
use super::registration::{Both, MetricRegistration, TextMetricRegistration};
use super::worker::Desk;
use super::{Learner, LearningStrategy, TrainingInterrupter};
use crate::checkpoint::{
    By, CheckpointingStrategy, ComposedCheckpointingStrategy, KeepLastNCheckpoints,
    MetricCheckpointingStrategy, Recorded, Records,
};
use crate::logger::{
    ApplicationLoggerInstaller, FileApplicationLoggerInstaller, FileMetricLogger, MetricLogger,
};
use crate::metric::store::{Aggregate, Direction, EventStoreClient, Split};
use crate::metric::{Adaptor, ItemLazy, LossMetric, Metric, Numeric};
use crate::precision::Stepper;
use crate::renderer::{MetricsRenderer, default_renderer};
use crate::{MixedPrecision, MixedTrainStep, TrainStep, ValidStep};
use kiln_core::module::AutodiffModule;
use kiln_core::record::FileRecorder;
use kiln_core::tensor::backend::AutodiffBackend;
use kiln_optim::Optimizer;
use kiln_optim::lr_scheduler::LrScheduler;
use std::fmt::Display;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Builds a [`Learner`]. All that a training writes goes to one directory, which is one training's. One that begins anew in the directory of
/// another, as it does without [`resume`](Self::resume) or [`checkpoint`](Self::checkpoint), takes its place: it empties the logs of metrics,
/// writes checkpoints over those of the same epochs, and removes what the other could have been resumed from if it keeps checkpoints itself.
/// The directory then has:
///
/// ```text
/// ├── experiment.log          what the program logs
/// ├── checkpoint
/// │   ├── model-1.mpk         of the epochs that are kept, as the recorder writes them
/// │   ├── optim-1.mpk
/// │   ├── scheduler-1.mpk
/// │   └── resume-1            in full precision, to go on from
/// ├── train
/// │   └── epoch-1
/// │       └── Loss.log        a metric's values, a line a step
/// ├── valid
/// └── curves
///     └── Loss.svg            a metric's values, drawn
/// ```
pub struct LearnerBuilder<B, M, O, S, TI, TO, VI, VO>
where
    B: AutodiffBackend,
    TO: ItemLazy,
    VO: ItemLazy,
{
    directory: PathBuf,
    num_epochs: usize,
    begin: Begin,
    seed: Option<u64>,
    accumulation: usize,
    precision: Option<MixedPrecision>,
    stepper: Stepper<M, TI, TO>,
    devices: Devices<B::Device>,
    records: Option<Box<dyn Records<B, M, O, S>>>,
    strategy: Option<Box<dyn CheckpointingStrategy>>,
    every: Option<usize>,
    train: Metrics<TO::ItemSync>,
    valid: Metrics<VO::ItemSync>,
    loggers: Option<[Box<dyn MetricLogger>; 2]>,
    renderer: Option<Box<dyn MetricsRenderer>>,
    application_logger: Option<Box<dyn ApplicationLoggerInstaller>>,
    early_stopping: Option<Box<dyn EarlyStoppingStrategy>>,
    interrupter: TrainingInterrupter,
    summary: bool,
    batches: PhantomData<fn(VI)>,
}

impl<B, M, O, S, TI, TO, VI, VO> LearnerBuilder<B, M, O, S, TI, TO, VI, VO>
where
    B: AutodiffBackend,
    M: AutodiffModule<B> + TrainStep<TI, TO> + Display + 'static,
    M::InnerModule: ValidStep<VI, VO>,
    O: Optimizer<M, B> + 'static,
    S: LrScheduler + 'static,
    TO: ItemLazy + 'static,
    VO: ItemLazy + 'static,
{
    /// A training of one epoch on the usual device, whose files go to a directory: a new one, or that of the training to
    /// [`resume`](Self::resume), which otherwise is lost.
    pub fn new(directory: impl AsRef<Path>) -> Self {
        let directory = directory.as_ref().to_owned();
        let experiment = FileApplicationLoggerInstaller::new(directory.join("experiment.log"));
        Self {
            directory,
            num_epochs: 1,
            begin: Begin::Anew,
            seed: None,
            accumulation: 1,
            precision: None,
            stepper: Stepper::Plain,
            devices: LearningStrategy::<B>::SingleDevice(B::Device::default()).into(),
            records: None,
            strategy: None,
            every: None,
            train: Metrics::new(),
            valid: Metrics::new(),
            loggers: None,
            renderer: None,
            application_logger: Some(Box::new(experiment)),
            early_stopping: None,
            interrupter: TrainingInterrupter::new(),
            summary: false,
            batches: PhantomData,
        }
    }

    /// Measures and logs each step of training.
    #[must_use]
    pub fn metric_train<Me: Metric + 'static>(mut self, metric: Me) -> Self
    where
        TO::ItemSync: Adaptor<Me::Input>,
    {
        self.train.add(metric);
        self
    }

    /// Measures and logs each step of validation.
    #[must_use]
    pub fn metric_valid<Me: Metric + 'static>(mut self, metric: Me) -> Self
    where
        VO::ItemSync: Adaptor<Me::Input>,
    {
        self.valid.add(metric);
        self
    }

    /// Measures, logs and plots each step of training.
    #[must_use]
    pub fn metric_train_numeric<Me: Metric + Numeric + 'static>(mut self, metric: Me) -> Self
    where
        TO::ItemSync: Adaptor<Me::Input>,
    {
        self.train.add_numeric(metric);
        self
    }

    /// Measures, logs and plots each step of validation.
    #[must_use]
    pub fn metric_valid_numeric<Me: Metric + Numeric + 'static>(mut self, metric: Me) -> Self
    where
        VO::ItemSync: Adaptor<Me::Input>,
    {
        self.valid.add_numeric(metric);
        self
    }

    /// Measures, logs and plots each step of training and of validation: `metrics((AccuracyMetric::new(), LossMetric::new()))`.
    #[must_use]
    pub fn metrics<Me: MetricRegistration<TO::ItemSync, VO::ItemSync>>(mut self, metrics: Me) -> Self {
        metrics.register(&mut Both { train: &mut self.train, valid: &mut self.valid });
        self
    }

    /// Measures and logs each step of training and of validation, without plots.
    #[must_use]
    pub fn metrics_text<Me: TextMetricRegistration<TO::ItemSync, VO::ItemSync>>(
        mut self,
        metrics: Me,
    ) -> Self {
        metrics.register(&mut Both { train: &mut self.train, valid: &mut self.valid });
        self
    }

    /// Where metrics are logged, instead of in files.
    #[must_use]
    pub fn metric_loggers<MT, MV>(mut self, logger_train: MT, logger_valid: MV) -> Self
    where
        MT: MetricLogger + 'static,
        MV: MetricLogger + 'static,
    {
        self.loggers = Some([Box::new(logger_train), Box::new(logger_valid)]);
        self
    }

    /// What shows the training, instead of a dashboard on a terminal (feature `tui`) and plain lines elsewhere.
    #[must_use]
    pub fn renderer<MR: MetricsRenderer + 'static>(mut self, renderer: MR) -> Self {
        self.renderer = Some(Box::new(renderer));
        self
    }

    /// Where messages of the `log` crate go, instead of to `experiment.log`; `None` leaves them as they are.
    #[must_use]
    pub fn with_application_logger(mut self, logger: Option<Box<dyn ApplicationLoggerInstaller>>) -> Self {
        self.application_logger = logger;
        self
    }

    /// Messages of the `log` crate go to `experiment.log`, or stay as they are.
    #[must_use]
    pub fn log_to_file(self, enabled: bool) -> Self {
        let path = self.directory.join("experiment.log");
        let installer: Box<dyn ApplicationLoggerInstaller> =
            Box::new(FileApplicationLoggerInstaller::new(path));
        self.with_application_logger(enabled.then_some(installer))
    }

    /// Keeps checkpoints of epochs: model, optimizer and scheduler, as the recorder writes them, and all of it once more in
    /// full precision. Those of the last two epochs and of the lowest loss in validation are kept, unless
    /// [`with_checkpointing_strategy`](Self::with_checkpointing_strategy) says otherwise.
    #[must_use]
    pub fn with_file_checkpointer<FR: FileRecorder<B> + 'static>(mut self, recorder: FR) -> Self {
        self.records = Some(Box::new(By::new(recorder)));
        self
    }

    /// [`with_file_checkpointer`](Self::with_file_checkpointer).
    #[must_use]
    pub fn with_file_checkpoint<FR: FileRecorder<B> + 'static>(self, recorder: FR) -> Self {
        self.with_file_checkpointer(recorder)
    }

    /// Which checkpoints are kept: the last two and that of the lowest loss in validation, if nothing else is said.
    #[must_use]
    pub fn with_checkpointing_strategy<CS: CheckpointingStrategy + 'static>(mut self, strategy: CS) -> Self {
        self.strategy = Some(Box::new(strategy));
        self
    }

    /// Goes on after an epoch of an earlier run in this directory, of which there is a checkpoint: with the same numbers as if
    /// it had not ended there, if the state in full precision is there too.
    #[must_use]
    pub fn checkpoint(mut self, checkpoint: usize) -> Self {
        self.begin = Begin::After(checkpoint);
        self
    }

    /// Goes on where the last run in this directory was stopped, killed or over, with the same numbers as if it had not been;
    /// begins anew if there was none. A state is written after each epoch, and as
    /// [`checkpoint_every`](Self::checkpoint_every) says; what came after it is done again. Of the earlier epochs those checkpoints stay that this learner's
    /// [strategy](Self::with_checkpointing_strategy) keeps: say the same one as before, or copy what must not go.
    #[must_use]
    pub fn resume(mut self) -> Self {
        self.begin = Begin::Latest;
        self
    }

    /// Writes the state after so many steps of an epoch, too, for [`resume`](Self::resume).
    ///
    /// # Panics
    /// For 0.
    #[must_use]
    pub fn checkpoint_every(mut self, steps: usize) -> Self {
        assert!(steps > 0, "LearnerBuilder: a checkpoint every 0 steps");
        self.every = Some(steps);
        self
    }

    /// What all random numbers of the training follow from; see [`Learner::fit`].
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Ends the training before the last epoch.
    #[must_use]
    pub fn early_stopping<St: EarlyStoppingStrategy + 'static>(mut self, strategy: St) -> Self {
        self.early_stopping = Some(Box::new(strategy));
        self
    }

    /// The number of epochs.
    #[must_use]
    pub fn num_epochs(mut self, num_epochs: usize) -> Self {
        self.num_epochs = num_epochs;
        self
    }

    /// Sums the gradients of so many steps for one of the optimizer. What is left at the end of an epoch, of fewer steps, is
    /// dropped, as Burn does.
    ///
    /// # Panics
    /// For 0.
    #[must_use]
    pub fn grads_accumulation(mut self, accumulation: usize) -> Self {
        assert!(accumulation > 0, "LearnerBuilder: the gradients of 0 steps");
        self.accumulation = accumulation;
        self
    }

    /// Computes steps in 16 bits, while parameters and the optimizer's state keep their precision. The scaler of losses is part
    /// of checkpoints; where a gradient is not finite, the optimizer's step is left out.
    #[must_use]
    pub fn mixed_precision(mut self, precision: MixedPrecision) -> Self
    where
        M: MixedTrainStep<TI, TO>,
    {
        self.stepper = Stepper::mixed(&precision);
        self.precision = Some(precision);
        self
    }

    /// The devices, of which the first one takes the steps: [`LearningStrategy::MultiDeviceNaive`].
    ///
    /// # Panics
    /// For none.
    #[must_use]
    pub fn devices(self, devices: Vec<B::Device>) -> Self {
        self.learning_strategy(LearningStrategy::MultiDeviceNaive(devices))
    }

    /// The devices, and what each of them does.
    ///
    /// # Panics
    /// For none.
    #[must_use]
    pub fn learning_strategy(mut self, strategy: LearningStrategy<B>) -> Self {
        self.devices = strategy.into();
        assert!(!self.devices.all.is_empty(), "LearnerBuilder: no devices");
        self
    }

    /// Ends the training from elsewhere.
    pub fn interrupter(&self) -> TrainingInterrupter {
        self.interrupter.clone()
    }

    /// With another interrupter, which may be that of other trainings too.
    #[must_use]
    pub fn with_interrupter(mut self, interrupter: impl Into<TrainingInterrupter>) -> Self {
        self.interrupter = interrupter.into();
        self
    }

    /// Shows a summary at the end.
    #[must_use]
    pub fn summary(mut self) -> Self {
        self.summary = true;
        self
    }

    /// The learner of a model, with an optimizer and a scheduler of learning rates; a number is the rate that never changes.
    ///
    /// # Panics
    /// When two metrics of training, or of validation, have one name, or names that are one as that of a file.
    pub fn build(self, model: M, optim: O, lr_scheduler: S) -> Learner<B, M, O, S, TI, TO, VI, VO> {
        check_names("LearnerBuilder", "training", self.train.names());
        check_names("LearnerBuilder", "validation", self.valid.names());
        if let Some(logger) = &self.application_logger
            && let Err(reason) = logger.install()
        {
            log::warn!("messages do not go where the learner was to send them: {reason}");
        }
        let [train_logger, valid_logger] = self.loggers.unwrap_or_else(|| {
            ["train", "valid"].map(|part| -> Box<dyn MetricLogger> {
                Box::new(FileMetricLogger::new(self.directory.join(part)))
            })
        });
        let strategy = self.strategy.unwrap_or_else(default_strategy::<B>);
        let resumable = self.begin != Begin::Anew;
        let folder = self.directory.join("checkpoint");
        Learner {
            recorded: Recorded {
                model,
                optim,
                scheduler: lr_scheduler,
                scaler: self.precision.as_ref().and_then(MixedPrecision::scaler),
            },
            stepper: self.stepper,
            directory: self.directory,
            devices: self.devices,
            num_epochs: self.num_epochs,
            accumulation: self.accumulation,
            seed: self.seed,
            begin: self.begin,
            keeper: Keeper::new(folder, self.records, resumable, self.every, strategy),
            desk: Desk {
                train: self.train,
                valid: self.valid,
                train_logger,
                valid_logger,
                renderer: self.renderer.unwrap_or_else(|| default_renderer(&self.interrupter)),
                store: Arc::new(EventStoreClient::default()),
            },
            early_stopping: self.early_stopping,
            interrupter: self.interrupter,
            summary: self.summary,
            batches: PhantomData,
        }
    }
}

/// The last two epochs, and the lowest loss in validation.
fn default_strategy<B: AutodiffBackend>() -> Box<dyn CheckpointingStrategy> {
    let loss = LossMetric::<B>::new();
    let best = MetricCheckpointingStrategy::new(&loss, Aggregate::Mean, Direction::Lowest, Split::Valid);
    let strategy = ComposedCheckpointingStrategy::builder().add(KeepLastNCheckpoints::new(2)).add(best);
    Box::new(strategy.build())
}
