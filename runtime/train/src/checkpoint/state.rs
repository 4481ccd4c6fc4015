//! The whole state of a training, as it was after a step, to go on from there with the same numbers.
//!
//! A state is a folder, `checkpoint/resume-2-137`: two epochs and 137 steps of the third one are over. It is written under
//! another name first, so that one that is there is whole, and is on the disk before the one that it replaces is removed.

use super::files::{By, Recorded, Records, remove, settle};
use crate::TrainError;
use kiln_core::module::{AutodiffModule, LowRankPairs};
use kiln_core::record::{BinFileRecorder, ExactPrecisionSettings};
use kiln_core::tensor::backend::AutodiffBackend;
use kiln_optim::Optimizer;
use kiln_optim::lr_scheduler::LrScheduler;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

/// The version of what is in a state. An older one loads for good.
const VERSION: u32 = 1;

/// How far a training is, as it is stored.
#[derive(Serialize, Deserialize)]
struct StoredPlace {
    version: u32,
    #[serde(flatten)]
    place: TrainingPlace,
}

/// How far a training is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrainingPlace {
    /// Epochs that are over, validation and all.
    pub(crate) epochs: usize,
    /// Steps of the next epoch that are over.
    pub(crate) steps: usize,
    /// Outputs of these steps: each device yields one.
    pub(crate) items: usize,
    /// What all random numbers follow from.
    pub(crate) seed: u64,
}

/// The name of the state after so many epochs, and steps of the next one.
fn state_name(epochs: usize, steps: usize) -> String {
    match steps {
        0 => format!("{PREFIX}{epochs}"),
        steps => format!("{PREFIX}{epochs}-{steps}"),
    }
}

const PREFIX: &str = "resume-";
const PLACE: &str = "place.json";
/// The low-rank pairs of a model that has some; its own record has the weights without them.
const PAIRS: &str = "pairs";

/// What a state is of: types alone, of which nothing is held.
type OfTypes<M, O, S> = fn() -> (M, O, S);

/// The states in a folder.
pub(crate) struct StateFiles<B, M, O, S> {
    folder: PathBuf,
    records: By<BinFileRecorder<ExactPrecisionSettings>, B>,
    recorded: PhantomData<OfTypes<M, O, S>>,
}

impl<B, M, O, S> StateFiles<B, M, O, S>
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    O: Optimizer<M, B>,
    S: LrScheduler,
{
    /// In a folder, which need not exist. Floats are stored as they are: a parameter, and what is remembered of it, may have
    /// another dtype than the backend's.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, records: By::new(BinFileRecorder::new()), recorded: PhantomData }
    }

    /// Writes a state.
    pub(crate) fn save(
        &self,
        place: &TrainingPlace,
        recorded: &Recorded<&M, &O, &S>,
    ) -> Result<(), TrainError> {
        let name = state_name(place.epochs, place.steps);
        let part = self.folder.join(format!("{name}.part"));
        let target = self.folder.join(name);
        remove(&part, |path| fs::remove_dir_all(path))?;
        fs::create_dir_all(&part).map_err(|source| TrainError::file(&part, source))?;
        let (base, pairs) = LowRankPairs::take(recorded.model.clone());
        let scaler = recorded.scaler.clone();
        let apart = Recorded { model: &base, optim: recorded.optim, scheduler: recorded.scheduler, scaler };
        self.records.save(&|name| part.join(name), &apart)?;
        if !pairs.is_empty() {
            self.records.write(pairs.into_record(), part.join(PAIRS))?;
        }
        let path = part.join(PLACE);
        write_json(&path, place).map_err(|source| TrainError::file(&path, source))?;
        settle(&path)?;
        // Only a state of the same place stands in the way, of which the files are the same.
        remove(&target, |path| fs::remove_dir_all(path))?;
        fs::rename(&part, &target).map_err(|source| TrainError::file(&target, source))?;
        settle(&target)
    }

    /// Goes back to a state.
    pub(crate) fn load(
        &self,
        place: &TrainingPlace,
        recorded: Recorded<M, O, S>,
        device: &B::Device,
    ) -> Result<Recorded<M, O, S>, TrainError> {
        let folder = self.folder.join(state_name(place.epochs, place.steps));
        let (model, pairs) = LowRankPairs::take(recorded.model);
        let apart = Recorded { model, ..recorded };
        let loaded = self.records.load(&|name| folder.join(name), apart, device)?;
        let path = folder.join(PAIRS);
        if pairs.is_empty() && !By::<BinFileRecorder<ExactPrecisionSettings>, B>::file(path.clone()).exists()
        {
            return Ok(loaded);
        }
        let pairs = pairs.try_load_record(self.records.read(path.clone(), device)?);
        let pairs = pairs.map_err(|source| TrainError::load(path, source))?;
        Ok(Recorded { model: pairs.put(loaded.model), ..loaded })
    }

    /// The states that there are, in order: epochs that were over, and steps of the next one.
    pub(crate) fn all(&self) -> Result<Vec<(usize, usize)>, TrainError> {
        let parse = |entry: &fs::DirEntry| {
            let name = entry.file_name();
            let name = name.to_str()?.strip_prefix(PREFIX)?;
            let (epochs, steps) = name.split_once('-').unwrap_or((name, "0"));
            Some((epochs.parse().ok()?, steps.parse().ok()?))
        };
        let mut states: Vec<_> = self.entries()?.iter().filter_map(parse).collect();
        states.sort_unstable();
        Ok(states)
    }

    /// What a state says of its place.
    pub(crate) fn place(&self, epochs: usize, steps: usize) -> Result<TrainingPlace, TrainError> {
        read_json(&self.folder.join(state_name(epochs, steps)).join(PLACE))
    }

    /// Removes what was being written when a run was killed.
    pub(crate) fn clear_parts(&self) -> Result<(), TrainError> {
        for entry in self.entries()? {
            let path = entry.path();
            // Of a state; a record that was being written is removed by what writes it, and others' files are theirs.
            let name = entry.file_name();
            let is_state =
                name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(".part"));
            if is_state {
                let is_folder = path.is_dir();
                remove(
                    &path,
                    |path| if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) },
                )?;
            }
        }
        Ok(())
    }

    /// What is in the folder; nothing if it is not there.
    fn entries(&self) -> Result<Vec<fs::DirEntry>, TrainError> {
        let fail = |source| TrainError::file(&self.folder, source);
        match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            entries => entries.map_err(fail)?.collect::<Result<_, _>>().map_err(fail),
        }
    }

    /// Removes a state.
    pub(crate) fn delete(&self, epochs: usize, steps: usize) -> Result<(), TrainError> {
        remove(&self.folder.join(state_name(epochs, steps)), |path| fs::remove_dir_all(path))
    }
}

fn write_json(path: &Path, place: &TrainingPlace) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    serde_json::to_writer_pretty(&mut file, &StoredPlace { version: VERSION, place: *place })?;
    file.write_all(b"\n")
}

fn read_json(path: &Path) -> Result<TrainingPlace, TrainError> {
    let text = fs::read_to_string(path).map_err(|source| TrainError::file(path, source))?;
    let stored: StoredPlace =
        serde_json::from_str(&text).map_err(|error| TrainError::file(path, error.into()))?;
    if stored.version > VERSION {
        let reason =
            format!("a state of version {}, this version of Kiln reads up to {VERSION}", stored.version);
        return Err(TrainError::file(path, io::Error::new(io::ErrorKind::InvalidData, reason)));
    }
    Ok(stored.place)
}
