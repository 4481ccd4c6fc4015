//! [`Learner`].

use super::early_stopping::EarlyStoppingStrategy;
use super::epoch::Loop;
use super::keeper::{Begin, Keeper};
use super::summary::LearnerSummary;
use super::worker::{Desk, Worker};
use super::{TrainingInterrupter, TrainingResult};
use crate::checkpoint::Recorded;
use crate::metric::ItemLazy;
use crate::precision::Stepper;
use crate::{TrainError, TrainStep, ValidStep, curves, random};
use kiln_core::module::{AutodiffModule, Module};
use kiln_core::tensor::backend::AutodiffBackend;
use kiln_data::dataloader::DataLoader;
use kiln_data::dataloader::split::split_dataloader;
use kiln_optim::Optimizer;
use kiln_optim::lr_scheduler::LrScheduler;
use std::fmt::Display;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a training runs.
#[derive(Clone, Debug)]
pub enum LearningStrategy<B: AutodiffBackend> {
    /// On one device.
    SingleDevice(B::Device),
    /// On several: each computes the gradients of batches from its own part of the items, and the first one takes steps
    /// along their sum. The others have a copy of the model while they compute, and nothing between steps.
    MultiDeviceNaive(Vec<B::Device>),
    /// On several: each computes the gradients of batches from its own part of the items, and all take the same step along their
    /// mean, each with a model and an optimizer's state of its own (Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel
    /// Training"). Only gradients go from device to device; on GPUs of NVIDIA's by NCCL, where it is found. Random numbers are drawn and running statistics
    /// are gathered on each device; those of the first one are validated and kept.
    DistributedDataParallel {
        /// The devices.
        devices: Vec<B::Device>,
    },
}

impl<B: AutodiffBackend> From<LearningStrategy<B>> for Devices<B::Device> {
    fn from(strategy: LearningStrategy<B>) -> Self {
        match strategy {
            LearningStrategy::SingleDevice(device) => Self { all: vec![device], have_copies: false },
            LearningStrategy::MultiDeviceNaive(all) => Self { all, have_copies: false },
            LearningStrategy::DistributedDataParallel { devices: all } => Self { all, have_copies: true },
        }
    }
}

/// The devices of a training.
#[derive(Clone, Debug)]
pub(super) struct Devices<D> {
    /// At least one; the first has the model.
    pub(super) all: Vec<D>,
    /// Whether each of the others has a copy of the model, and takes the same steps.
    pub(super) have_copies: bool,
}

/// Trains a model; [`LearnerBuilder`](super::LearnerBuilder) makes one.
///
/// `TI` and `VI` are the batches of training and validation, `TO` and `VO` what steps yield.
pub struct Learner<B, M, O, S, TI, TO, VI, VO>
where
    B: AutodiffBackend,
    TO: ItemLazy,
    VO: ItemLazy,
{
    pub(super) recorded: Recorded<M, O, S>,
    pub(super) directory: PathBuf,
    pub(super) devices: Devices<B::Device>,
    pub(super) num_epochs: usize,
    pub(super) accumulation: usize,
    pub(super) stepper: Stepper<M, TI, TO>,
    pub(super) seed: Option<u64>,
    pub(super) begin: Begin,
    pub(super) keeper: Keeper<B, M, O, S>,
    pub(super) desk: Desk<TO::ItemSync, VO::ItemSync>,
    pub(super) early_stopping: Option<Box<dyn EarlyStoppingStrategy>>,
    pub(super) interrupter: TrainingInterrupter,
    pub(super) summary: bool,
    pub(super) batches: PhantomData<fn(VI)>,
}

impl<B, M, O, S, TI, TO, VI, VO> Learner<B, M, O, S, TI, TO, VI, VO>
where
    B: AutodiffBackend,
    M: AutodiffModule<B> + TrainStep<TI, TO> + Display,
    M::InnerModule: ValidStep<VI, VO>,
    O: Optimizer<M, B>,
    S: LrScheduler,
    TO: ItemLazy + 'static,
    TO::ItemSync: 'static,
    VO: ItemLazy + 'static,
    VO::ItemSync: 'static,
{
    /// Trains the model on the batches of one loader, and measures it after each epoch on those of another.
    ///
    /// All random numbers of a step on its device (those of a loader without workers, too) follow from the training's seed,
    /// the epoch and the step. The seed is that of the builder, or else drawn from the device, so that it follows from
    /// `B::seed`.
    ///
    /// # Panics
    /// With the message of a [`TrainError`]; see [`Learner::try_fit`]. With that of a metric, logger or renderer that
    /// panicked.
    pub fn fit(
        self,
        dataloader_train: Arc<dyn DataLoader<B, TI>>,
        dataloader_valid: Arc<dyn DataLoader<B::InnerBackend, VI>>,
    ) -> TrainingResult<B, M> {
        match self.try_fit(dataloader_train, dataloader_valid) {
            Ok(result) => result,
            Err(error) => panic!("the training ended: {error}"),
        }
    }

    /// [`Learner::fit`], with an error where checkpoints cannot be written or read.
    ///
    /// # Errors
    /// What could not be written or read.
    pub fn try_fit(
        mut self,
        dataloader_train: Arc<dyn DataLoader<B, TI>>,
        dataloader_valid: Arc<dyn DataLoader<B::InnerBackend, VI>>,
    ) -> Result<TrainingResult<B, M>, TrainError> {
        let main = self.devices.all[0].clone();
        let recorded = on_device(self.recorded, &main);
        let seed = self.seed;
        let new_seed = || seed.unwrap_or_else(|| random::draw_seed::<B>(&main));
        let (place, recorded) = self.keeper.begin(self.begin, recorded, &main, new_seed)?;
        self.desk.resume_at(place.epochs + 1, place.items);
        let store = self.desk.store.clone();
        // Strategies are asked again about what is over, each time with what was known then.
        let mut stopped = false;
        for epoch in 1..=place.epochs {
            self.desk.recall(epoch, true);
            self.keeper.recall(epoch, &store, |split, name| self.desk.is_logged(split, name, epoch));
            stopped |= self.early_stopping.as_mut().is_some_and(|rule| rule.should_stop(epoch, &store));
        }
        self.desk.recall(place.epochs + 1, false);
        self.keeper.clear(place.epochs)?;
        log::info!(
            "training from epoch {} of {}, after {} steps of it; checkpoints in {}",
            place.epochs + 1,
            self.num_epochs,
            place.steps,
            self.keeper.folder().display()
        );
        self.desk.register();
        let train = shards(&dataloader_train, &self.devices.all);
        let valid = dataloader_valid.to_device(&main);
        let mut training = Loop {
            devices: self.devices,
            stepper: self.stepper,
            num_epochs: self.num_epochs,
            accumulation: self.accumulation,
            interrupter: self.interrupter,
            keeper: self.keeper,
            worker: Worker::start(self.desk),
            store,
            early_stopping: self.early_stopping,
        };
        let (recorded, place) = match stopped {
            true => (recorded, place),
            false => training.run(recorded, place, &train, valid.as_ref())?,
        };
        let mut desk = training.worker.finish();
        let histories = desk.store.histories();
        if let Err(error) = curves::write(&self.directory.join("curves"), &histories) {
            // The model is trained, whatever becomes of drawings.
            log::error!("the curves were not drawn: {error}");
        }
        log::info!("the training is over after {} epochs", place.epochs);
        let model = recorded.model.to_string();
        let summary = self.summary.then(|| LearnerSummary::new(model, place.epochs, histories));
        if let Err(error) = desk.renderer.on_train_end(summary) {
            log::error!("the summary was not shown: {error}");
        }
        Ok(TrainingResult::new(recorded.model, desk.renderer))
    }
}

/// The model on its device, as leaves there.
fn on_device<B, M: Module<B>, O, S>(recorded: Recorded<M, O, S>, device: &B::Device) -> Recorded<M, O, S>
where
    B: AutodiffBackend,
{
    let elsewhere = recorded.model.devices().iter().any(|other| other != device);
    let model = if elsewhere { recorded.model.fork(device) } else { recorded.model };
    Recorded { model, ..recorded }
}

/// A loader for each device, which puts there what it loads.
fn shards<B: AutodiffBackend, TI>(
    loader: &Arc<dyn DataLoader<B, TI>>,
    devices: &[B::Device],
) -> Vec<Arc<dyn DataLoader<B, TI>>> {
    match devices {
        [device] => vec![loader.to_device(device)],
        _ => split_dataloader(loader.clone(), devices),
    }
}
