//! What is kept of a training in files, and where it goes on.

use crate::TrainError;
use crate::checkpoint::{
    CheckpointingAction, CheckpointingStrategy, Recorded, Records, StateFiles, TrainingPlace,
};
use crate::metric::store::{EventStoreClient, Split};
use kiln_core::module::{AutodiffModule, LowRankPairs};
use kiln_core::tensor::backend::AutodiffBackend;
use kiln_optim::Optimizer;
use kiln_optim::lr_scheduler::LrScheduler;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where a training begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// With the first epoch.
    Anew,
    /// After an epoch that was trained before.
    After(usize),
    /// Where the last run was stopped, or with the first epoch.
    Latest,
}

/// Keeps checkpoints.
pub(super) struct Keeper<B, M, O, S> {
    folder: PathBuf,
    /// The checkpoints that the user's recorder writes.
    records: Option<Box<dyn Records<B, M, O, S>>>,
    /// States in full precision.
    states: Option<StateFiles<B, M, O, S>>,
    strategy: Box<dyn CheckpointingStrategy>,
    /// Steps after which a state is written within an epoch.
    every: Option<usize>,
    /// Epochs whose checkpoints are kept.
    kept: BTreeSet<usize>,
    /// Epochs up to this one are kept, too, for good: what the strategy chooses by is not known of all of them any more.
    unjudged: usize,
    /// The last state.
    last: Option<TrainingPlace>,
}

impl<B, M, O, S> Keeper<B, M, O, S>
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    O: Optimizer<M, B>,
    S: LrScheduler,
{
    pub(super) fn new(
        folder: PathBuf,
        records: Option<Box<dyn Records<B, M, O, S>>>,
        resumable: bool,
        every: Option<usize>,
        strategy: Box<dyn CheckpointingStrategy>,
    ) -> Self {
        let has_states = resumable || every.is_some() || records.is_some();
        let states = has_states.then(|| StateFiles::new(folder.clone()));
        Self { folder, records, states, strategy, every, kept: BTreeSet::new(), unjudged: 0, last: None }
    }

    /// The files of an epoch's checkpoint, such as `model-3`.
    fn files(&self, epoch: usize) -> impl Fn(&str) -> PathBuf + use<B, M, O, S> {
        let folder = self.folder.clone();
        move |name| folder.join(format!("{name}-{epoch}"))
    }

    /// Goes back to where the training is to begin. States after it are removed, once it is known that it can begin there. A
    /// training that begins anew has a new seed.
    pub(super) fn begin(
        &mut self,
        begin: Begin,
        recorded: Recorded<M, O, S>,
        device: &B::Device,
        new_seed: impl FnOnce() -> u64,
    ) -> Result<(TrainingPlace, Recorded<M, O, S>), TrainError> {
        self.states.as_ref().map_or(Ok(()), StateFiles::clear_parts)?;
        let all = self.states.as_ref().map_or(Ok(Vec::new()), StateFiles::all)?;
        let found = match begin {
            Begin::Anew => None,
            Begin::Latest => all.last().copied(),
            Begin::After(epoch) => all.iter().copied().find(|state| *state == (epoch, 0)),
        };
        let begun = |epochs| TrainingPlace { epochs, steps: 0, items: 0, seed: new_seed() };
        let (place, recorded) = match (found, &self.states, begin) {
            (Some((epochs, steps)), Some(states), _) => {
                let place = states.place(epochs, steps)?;
                self.last = Some(place);
                (place, states.load(&place, recorded, device)?)
            }
            (_, _, Begin::After(epoch)) => (begun(epoch), self.load_recorded(epoch, &all, recorded, device)?),
            (_, _, Begin::Anew | Begin::Latest) => (begun(0), recorded),
        };
        if let Some(states) = &self.states {
            let mut after = all.iter().filter(|state| **state > (place.epochs, place.steps));
            after.try_for_each(|(epochs, steps)| states.delete(*epochs, *steps))?;
        }
        Ok((place, recorded))
    }

    /// Goes back to what the user's recorder kept of an epoch.
    fn load_recorded(
        &self,
        epoch: usize,
        states: &[(usize, usize)],
        recorded: Recorded<M, O, S>,
        device: &B::Device,
    ) -> Result<Recorded<M, O, S>, TrainError> {
        let Some(records) = &self.records else {
            let states = states.iter().filter(|(_, steps)| *steps == 0).map(|(epochs, _)| *epochs).collect();
            return Err(TrainError::NoCheckpoint { folder: self.folder.clone(), epoch, states });
        };
        if LowRankPairs::are_in(&recorded.model) {
            return Err(TrainError::MergedPairs { folder: self.folder.clone(), epoch });
        }
        log::warn!(
            "there is no state of epoch {epoch} in full precision: it goes on from what the recorder kept"
        );
        records.load(&self.files(epoch), recorded, device)
    }

    /// Finds out which checkpoints are kept after an epoch that is over already. `is_logged` says whether an earlier run logged a
    /// metric that the learner does not have.
    pub(super) fn recall(
        &mut self,
        epoch: usize,
        store: &EventStoreClient,
        mut is_logged: impl FnMut(Split, &str) -> bool,
    ) {
        let observed = store.observed(|| self.strategy.checkpointing(epoch, store));
        let mut unknown = observed.unknown.into_iter();
        let missed = observed.missed.or_else(|| {
            let (_, name) = unknown.find(|(split, name)| is_logged(*split, name))?;
            Some(format!(
                "an earlier run had the metric {name}, by which they are chosen, and this one has not"
            ))
        });
        if let Some(reason) = missed {
            if self.unjudged == 0 {
                log::warn!(
                    "no checkpoint of the epochs that are over is removed, since it is not known which are to be kept: {reason}"
                );
            }
            self.unjudged = epoch;
        }
        for action in observed.seen {
            match action {
                CheckpointingAction::Save => self.kept.insert(epoch),
                CheckpointingAction::Delete(old) => self.kept.remove(&old),
            };
        }
    }

    /// Whether an epoch's checkpoint, if there is one, stays.
    fn is_kept(&self, epoch: usize) -> bool {
        epoch <= self.unjudged || self.kept.contains(&epoch)
    }

    /// Removes what is not kept of the epochs that are over, but was still there when the training was stopped.
    pub(super) fn clear(&self, epochs: usize) -> Result<(), TrainError> {
        for epoch in (1..=epochs).filter(|epoch| !self.is_kept(*epoch)) {
            if let Some(records) = &self.records {
                records.delete(&self.files(epoch))?;
            }
        }
        let Some(states) = &self.states else { return Ok(()) };
        let is_kept = |epochs: usize, steps: usize| {
            let is_last = self.last.is_some_and(|last| (last.epochs, last.steps) == (epochs, steps));
            is_last || (steps == 0 && self.is_kept(epochs))
        };
        let old = states.all()?.into_iter().filter(|(epochs, steps)| !is_kept(*epochs, *steps));
        old.into_iter().try_for_each(|(epochs, steps)| states.delete(epochs, steps))
    }

    /// Whether a state is written after a step, so many of its epoch being over.
    pub(super) fn is_due(&self, place: &TrainingPlace) -> bool {
        let since = match &self.last {
            Some(last) if last.epochs == place.epochs => place.steps.saturating_sub(last.steps),
            Some(_) | None => place.steps,
        };
        self.every.is_some_and(|every| since >= every)
    }

    /// Writes a state, in place of the last one unless that is kept.
    pub(super) fn save_state(
        &mut self,
        place: TrainingPlace,
        recorded: &Recorded<M, O, S>,
    ) -> Result<(), TrainError> {
        let Some(states) = &self.states else { return Ok(()) };
        if self.last == Some(place) {
            return Ok(());
        }
        states.save(&place, &recorded.by_ref())?;
        let last = self.last.replace(place);
        match last.filter(|last| last.steps > 0 || !self.is_kept(last.epochs)) {
            Some(last) => states.delete(last.epochs, last.steps),
            None => Ok(()),
        }
    }

    /// Keeps what is to be kept after an epoch.
    pub(super) fn end_epoch(
        &mut self,
        place: TrainingPlace,
        recorded: &Recorded<M, O, S>,
        store: &EventStoreClient,
    ) -> Result<(), TrainError> {
        let epoch = place.epochs;
        let actions = self.strategy.checkpointing(epoch, store);
        if actions.contains(&CheckpointingAction::Save) {
            if let Some(records) = &self.records {
                records.save(&self.files(epoch), &recorded.by_ref())?;
            }
            self.kept.insert(epoch);
        }
        self.save_state(place, recorded)?;
        for action in actions {
            let CheckpointingAction::Delete(old) = action else { continue };
            self.kept.remove(&old);
            if self.is_kept(old) {
                continue;
            }
            if let Some(records) = &self.records {
                records.delete(&self.files(old))?;
            }
            if let Some(states) = self.states.as_ref().filter(|_| old != epoch) {
                states.delete(old, 0)?;
            }
        }
        Ok(())
    }

    /// Where checkpoints are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl<M, O, S> Recorded<M, O, S> {
    fn by_ref(&self) -> Recorded<&M, &O, &S> {
        let Self { model, optim, scheduler, scaler } = self;
        Recorded { model, optim, scheduler, scaler: scaler.clone() }
    }
}
