//! The training loop.

use super::TrainingInterrupter;
use super::early_stopping::EarlyStoppingStrategy;
use super::keeper::Keeper;
use super::worker::Worker;
use crate::checkpoint::{Recorded, TrainingPlace};
use crate::metric::store::{EventStoreClient, Split};
use crate::metric::{ItemLazy, MetricMetadata};
use crate::precision::Stepper;
use crate::random::step_seed;
use crate::{TrainError, TrainOutput, TrainStep, ValidStep};
use kiln_core::module::AutodiffModule;
use kiln_core::tensor::backend::AutodiffBackend;
use kiln_data::dataloader::{DataLoader, DataLoaderIterator, Place, Progress};
use kiln_optim::lr_scheduler::LrScheduler;
use kiln_optim::{GradientsAccumulator, GradientsParams, LearningRate, Optimizer};
use std::sync::Arc;

/// The stream of random numbers of validation; the shards of training have those after it.
const VALIDATION: usize = 0;

/// What stays the same while a training goes on, and what it reports to.
pub(super) struct Loop<B: AutodiffBackend, M, O, S, TI, TO: ItemLazy, VO: ItemLazy> {
    pub(super) devices: Vec<B::Device>,
    pub(super) stepper: Stepper<M, TI, TO>,
    pub(super) num_epochs: usize,
    /// Steps whose gradients are summed for one of the optimizer.
    pub(super) accumulation: usize,
    pub(super) interrupter: TrainingInterrupter,
    pub(super) keeper: Keeper<B, M, O, S>,
    pub(super) worker: Worker<TO, VO>,
    pub(super) store: Arc<EventStoreClient>,
    pub(super) early_stopping: Option<Box<dyn EarlyStoppingStrategy>>,
}

/// Whether a part of the training came to its end, or was interrupted.
#[derive(PartialEq, Eq)]
enum End {
    Over,
    Interrupted,
}

impl<B, M, O, S, TI, TO, VO> Loop<B, M, O, S, TI, TO, VO>
where
    B: AutodiffBackend,
    M: AutodiffModule<B> + TrainStep<TI, TO>,
    O: Optimizer<M, B>,
    S: LrScheduler,
    TO: ItemLazy + 'static,
    TO::ItemSync: 'static,
    VO: ItemLazy + 'static,
    VO::ItemSync: 'static,
{
    /// Trains from a place on. The result says where the training ended.
    pub(super) fn run<VI>(
        &mut self,
        mut recorded: Recorded<M, O, S>,
        mut place: TrainingPlace,
        train: &[Arc<dyn DataLoader<B, TI>>],
        valid: &dyn DataLoader<B::InnerBackend, VI>,
    ) -> Result<(Recorded<M, O, S>, TrainingPlace), TrainError>
    where
        M::InnerModule: ValidStep<VI, VO>,
    {
        while place.epochs < self.num_epochs {
            let epoch = place.epochs + 1;
            let (trained, end) = self.train(recorded, &mut place, train)?;
            recorded = trained;
            if end == End::Over {
                self.worker.end(Split::Train, epoch);
            }
            if end == End::Interrupted || self.validate(&recorded.model, &place, valid) == End::Interrupted {
                let reason = self.interrupter.message().unwrap_or_else(|| "no reason was given".to_owned());
                log::info!("interrupted in epoch {epoch}, after {} steps: {reason}", place.steps);
                break;
            }
            self.worker.end(Split::Valid, epoch);
            self.worker.wait();
            place = TrainingPlace { epochs: epoch, steps: 0, items: 0, seed: place.seed };
            self.keeper.end_epoch(place, &recorded, &self.store)?;
            log::info!("epoch {epoch} of {} is over", self.num_epochs);
            if self.early_stopping.as_mut().is_some_and(|rule| rule.should_stop(epoch, &self.store)) {
                log::info!("stopped early after epoch {epoch}");
                break;
            }
        }
        Ok((recorded, place))
    }

    fn metadata(
        &self,
        epoch: usize,
        iteration: usize,
        progress: Progress,
        lr: Option<f64>,
    ) -> MetricMetadata {
        MetricMetadata { progress, epoch, epoch_total: self.num_epochs, iteration, lr }
    }

    /// The rest of an epoch's steps.
    fn train(
        &mut self,
        mut recorded: Recorded<M, O, S>,
        place: &mut TrainingPlace,
        loaders: &[Arc<dyn DataLoader<B, TI>>],
    ) -> Result<(Recorded<M, O, S>, End), TrainError> {
        let from = Place { epoch: place.epochs as u64, batch: place.steps, seed: place.seed };
        let mut shards: Vec<_> = loaders.iter().map(|loader| loader.iter_at(from)).collect();
        let mut sum = GradientsAccumulator::new();
        let mut summed = 0;
        let end = loop {
            if self.interrupter.should_stop() {
                break End::Interrupted;
            }
            let outputs = self.outputs(&recorded, place, &mut shards);
            if outputs.is_empty() {
                break End::Over;
            }
            let lr = recorded.scheduler.step();
            place.steps += 1;
            place.items += outputs.len();
            let metadata = self.metadata(place.epochs + 1, place.steps, progress(&shards), Some(lr));
            for output in outputs {
                sum.accumulate(&recorded.model, output.grads);
                self.worker.train(output.item, metadata.clone());
            }
            summed += 1;
            if summed == self.accumulation {
                recorded = optimized::<B, M, O, S, TI, TO>(recorded, lr, sum.grads());
                summed = 0;
                if self.keeper.is_due(place) {
                    self.worker.wait();
                    self.keeper.save_state(*place, &recorded)?;
                }
            }
        };
        if end == End::Over && place.steps < self.accumulation {
            log::warn!(
                "epoch {} had {} steps, and the gradients of {} are summed for one of the optimizer: none was taken",
                place.epochs + 1,
                place.steps,
                self.accumulation
            );
        } else if end == End::Interrupted && summed == 0 && place.steps > 0 {
            // Between two steps of the optimizer, nothing is lost when it goes on here.
            self.worker.wait();
            self.keeper.save_state(*place, &recorded)?;
        }
        Ok((recorded, end))
    }

    /// A step on each device that has a batch left. Devices work while they are told what is next; their gradients come to
    /// the first one.
    fn outputs(
        &self,
        recorded: &Recorded<M, O, S>,
        place: &TrainingPlace,
        shards: &mut [Box<dyn DataLoaderIterator<TI> + '_>],
    ) -> Vec<TrainOutput<TO>> {
        let (main, model, scaler) = (&self.devices[0], &recorded.model, recorded.scaler.as_ref());
        let mut outputs = Vec::with_capacity(shards.len());
        for (shard, (batches, device)) in shards.iter_mut().zip(&self.devices).enumerate() {
            B::seed(device, step_seed(place.seed, place.epochs + 1, place.steps + 1, VALIDATION + 1 + shard));
            let Some(batch) = batches.next() else { continue };
            outputs.push(if device == main {
                self.stepper.step(model, batch, scaler)
            } else {
                let output = self.stepper.step(&model.clone().fork(device), batch, scaler);
                TrainOutput { grads: output.grads.to_device(main, model), item: output.item }
            });
        }
        outputs
    }

    /// The validation of an epoch.
    fn validate<VI>(
        &mut self,
        model: &M,
        place: &TrainingPlace,
        loader: &dyn DataLoader<B::InnerBackend, VI>,
    ) -> End
    where
        M::InnerModule: ValidStep<VI, VO>,
    {
        let model = model.valid();
        let epoch = place.epochs + 1;
        let mut batches = loader.iter_at(Place { epoch: place.epochs as u64, batch: 0, seed: !place.seed });
        for iteration in 1.. {
            if self.interrupter.should_stop() {
                return End::Interrupted;
            }
            B::seed(&self.devices[0], step_seed(place.seed, epoch, iteration, VALIDATION));
            let Some(batch) = batches.next() else { break };
            let item = ValidStep::step(&model, batch);
            let metadata = self.metadata(epoch, iteration, batches.progress(), None);
            self.worker.valid(item, metadata);
        }
        End::Over
    }
}

/// What a step of the optimizer makes of gradients. There is none when they are those of a scaled loss and not finite.
fn optimized<B, M, O, S, TI, TO>(
    mut recorded: Recorded<M, O, S>,
    lr: LearningRate,
    grads: GradientsParams,
) -> Recorded<M, O, S>
where
    B: AutodiffBackend,
    M: AutodiffModule<B> + TrainStep<TI, TO>,
    O: Optimizer<M, B>,
{
    let grads = match &mut recorded.scaler {
        Some(scaler) => scaler.unscale::<B, M>(&recorded.model, grads),
        None => Some(grads),
    };
    if let Some(grads) = grads {
        recorded.model = recorded.model.optimize(&mut recorded.optim, lr, grads);
    }
    recorded
}

/// How far all shards together are.
fn progress<TI>(shards: &[Box<dyn DataLoaderIterator<TI> + '_>]) -> Progress {
    shards.iter().map(|shard| shard.progress()).fold(Progress::default(), |sum, shard| {
        let items = sum.items_processed + shard.items_processed;
        Progress::new(items, sum.items_total + shard.items_total)
    })
}
