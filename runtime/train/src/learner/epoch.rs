//! The training loop.

use super::TrainingInterrupter;
use super::base::Devices;
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
use kiln_optim::{
    GradientsAccumulator, GradientsParams, LearningRate, LossScaler, Optimizer, ReduceOperation,
};
use std::sync::Arc;

/// The stream of random numbers of validation; the shards of training have those after it.
const VALIDATION: usize = 0;

/// What stays the same while a training goes on, and what it reports to.
pub(super) struct Loop<B: AutodiffBackend, M, O, S, TI, TO: ItemLazy, VO: ItemLazy> {
    pub(super) devices: Devices<B::Device>,
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

/// A copy of what is trained, on a device beside the first one.
struct Replica<M, O> {
    model: M,
    optim: O,
    scaler: Option<LossScaler>,
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
            let interrupted = match end {
                End::Interrupted => true,
                End::Over if self.validate(&recorded.model, &place, valid) == End::Over => false,
                End::Over => {
                    // The epoch's steps are taken: what goes on from here begins with the validation.
                    self.worker.wait();
                    self.keeper.save_state(place, &recorded)?;
                    true
                }
            };
            if interrupted {
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
        let mut replicas = self.replicas(&recorded);
        // The gradients of each copy of the model; of all devices, where there is one.
        let mut sums: Vec<_> = (0..=replicas.len()).map(|_| GradientsAccumulator::new()).collect();
        let mut summed = 0;
        let end = loop {
            if self.interrupter.should_stop() {
                break End::Interrupted;
            }
            let outputs = self.outputs(&recorded, &replicas, place, &mut shards);
            if outputs.is_empty() {
                break End::Over;
            }
            let lr = recorded.scheduler.step();
            place.steps += 1;
            place.items += outputs.len();
            let metadata = self.metadata(place.epochs + 1, place.steps, progress(&shards), Some(lr));
            for (shard, output) in outputs {
                let replica = shard.checked_sub(1).and_then(|other| replicas.get(other));
                let (copy, model) = replica.map_or((0, &recorded.model), |replica| (shard, &replica.model));
                sums[copy].accumulate(model, output.grads);
                self.worker.train(output.item, metadata.clone());
            }
            summed += 1;
            if summed == self.accumulation {
                let grads = sums.iter_mut().map(GradientsAccumulator::grads).collect();
                (recorded, replicas) = self.optimized(recorded, replicas, lr, grads);
                summed = 0;
                if self.keeper.is_due(place) {
                    self.worker.wait();
                    self.keeper.save_state(*place, &recorded)?;
                }
            }
        };
        if end == End::Over && place.steps == 0 {
            log::warn!("epoch {} had no step: the loader of the training has no batches", place.epochs + 1);
        } else if end == End::Over && place.steps < self.accumulation {
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

    /// The copies on the other devices, where these have some. They begin each epoch as the first device's model is.
    fn replicas(&self, recorded: &Recorded<M, O, S>) -> Vec<Replica<M, O>> {
        let others = if self.devices.have_copies { &self.devices.all[1..] } else { &[] };
        let replica = |device| Replica {
            model: recorded.model.clone().fork(device),
            optim: recorded.optim.clone(),
            scaler: recorded.scaler.clone(),
        };
        others.iter().map(replica).collect()
    }

    /// A step on each device that has a batch left, with its number. Devices work while they are told what is next; gradients of devices without
    /// a copy of the model come to the first one.
    fn outputs(
        &self,
        recorded: &Recorded<M, O, S>,
        replicas: &[Replica<M, O>],
        place: &TrainingPlace,
        shards: &mut [Box<dyn DataLoaderIterator<TI> + '_>],
    ) -> Vec<(usize, TrainOutput<TO>)> {
        let (main, model, scaler) = (&self.devices.all[0], &recorded.model, recorded.scaler.as_ref());
        let draws = Draws::<B> { devices: &self.devices.all };
        let mut outputs = Vec::with_capacity(shards.len());
        for (shard, (batches, device)) in shards.iter_mut().zip(&self.devices.all).enumerate() {
            let seed = step_seed(place.seed, place.epochs + 1, place.steps + 1, VALIDATION + 1 + shard);
            let Some(batch) = draws.batch(device, seed, || batches.next()) else { continue };
            let replica = shard.checked_sub(1).and_then(|other| replicas.get(other));
            let output = match replica {
                Some(replica) => self.stepper.step(&replica.model, batch, replica.scaler.as_ref()),
                None if device == main => self.stepper.step(model, batch, scaler),
                None => {
                    let output = self.stepper.step(&model.clone().fork(device), batch, scaler);
                    TrainOutput { grads: output.grads.to_device(main, model), item: output.item }
                }
            };
            outputs.push((shard, output));
        }
        outputs
    }

    /// What a step of the optimizer makes of gradients: one set of each copy of the model.
    fn optimized(
        &self,
        mut recorded: Recorded<M, O, S>,
        replicas: Vec<Replica<M, O>>,
        lr: LearningRate,
        grads: Vec<GradientsParams>,
    ) -> (Recorded<M, O, S>, Vec<Replica<M, O>>) {
        let grads = match replicas.is_empty() {
            true => grads,
            false => {
                let (devices, model) = (&self.devices.all, &recorded.model);
                GradientsParams::all_reduce::<B, M>(grads, devices, model, ReduceOperation::Mean)
            }
        };
        let mut grads = grads.into_iter();
        let mut own = || grads.next().unwrap_or_default();
        recorded.model = stepped::<B, M, O, TI, TO>(
            recorded.model,
            &mut recorded.optim,
            recorded.scaler.as_mut(),
            (lr, own()),
        );
        let step = |mut replica: Replica<M, O>| {
            let (optim, scaler) = (&mut replica.optim, replica.scaler.as_mut());
            replica.model = stepped::<B, M, O, TI, TO>(replica.model, optim, scaler, (lr, own()));
            replica
        };
        let replicas = replicas.into_iter().map(step).collect();
        (recorded, replicas)
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
        let draws = Draws::<B> { devices: &self.devices.all };
        for iteration in 1.. {
            if self.interrupter.should_stop() {
                return End::Interrupted;
            }
            let seed = step_seed(place.seed, epoch, iteration, VALIDATION);
            let Some(batch) = draws.batch(&self.devices.all[0], seed, || batches.next()) else { break };
            let item = ValidStep::step(&model, batch);
            let metadata = self.metadata(epoch, iteration, batches.progress(), None);
            self.worker.valid(item, metadata);
        }
        End::Over
    }
}

/// While it lives, what the thread of a training draws follows from the training's seeds, whatever other threads of the process draw,
/// other trainings among them.
struct Draws<'a, B: AutodiffBackend> {
    devices: &'a [B::Device],
}

impl<B: AutodiffBackend> Draws<'_, B> {
    /// A batch, made with random numbers of a seed; the step that follows has those of the seed, too, from the first on. A loader may
    /// have drawn by seeds of its own, and have ended the thread's sequence with that.
    fn batch<T>(&self, device: &B::Device, seed: u64, next: impl FnOnce() -> Option<T>) -> Option<T> {
        B::seed_thread(device, Some(!seed));
        let batch = next();
        B::seed_thread(device, Some(seed));
        batch
    }
}

impl<B: AutodiffBackend> Drop for Draws<'_, B> {
    fn drop(&mut self) {
        self.devices.iter().for_each(|device| B::seed_thread(device, None));
    }
}

/// The model after a step of the optimizer. There is none when the gradients are those of a scaled loss and not finite.
fn stepped<B, M, O, TI, TO>(
    model: M,
    optim: &mut O,
    scaler: Option<&mut LossScaler>,
    (lr, grads): (LearningRate, GradientsParams),
) -> M
where
    B: AutodiffBackend,
    M: AutodiffModule<B> + TrainStep<TI, TO>,
    O: Optimizer<M, B>,
{
    let grads = match scaler {
        Some(scaler) => {
            let was_smallest = scaler.is_smallest();
            let unscaled = scaler.unscale::<B, M>(&model, grads);
            if unscaled.is_none() && was_smallest {
                log::warn!(
                    "gradients are not finite though losses are multiplied by no more than {}: there was no step",
                    scaler.factor()
                );
            }
            unscaled
        }
        None => Some(grads),
    };
    match grads {
        Some(grads) => model.optimize(optim, lr, grads),
        None => model,
    }
}

/// How far all shards together are.
fn progress<TI>(shards: &[Box<dyn DataLoaderIterator<TI> + '_>]) -> Progress {
    shards.iter().map(|shard| shard.progress()).fold(Progress::default(), |sum, shard| {
        let items = sum.items_processed + shard.items_processed;
        Progress::new(items, sum.items_total + shard.items_total)
    })
}
