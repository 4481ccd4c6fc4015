//! The records of a model, its optimizer and its scheduler in files.

use crate::TrainError;
use kiln_core::module::AutodiffModule;
use kiln_core::record::{FileRecorder, Record, RecorderError};
use kiln_core::tensor::backend::AutodiffBackend;
use kiln_optim::lr_scheduler::LrScheduler;
use kiln_optim::{LossScaler, Optimizer};
use std::fs;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

/// What a training changes as it goes on.
pub(crate) struct Recorded<M, O, S> {
    pub(crate) model: M,
    pub(crate) optim: O,
    pub(crate) scheduler: S,
    /// That of losses, in mixed precision.
    pub(crate) scaler: Option<LossScaler>,
}

/// Files of a checkpoint each for model, optimizer and scheduler.
pub(crate) trait Records<B: AutodiffBackend, M, O, S>: Send {
    /// Writes the checkpoint that `name` tells the files of.
    fn save(
        &self,
        files: &dyn Fn(&str) -> PathBuf,
        recorded: &Recorded<&M, &O, &S>,
    ) -> Result<(), TrainError>;

    /// Reads what [`Records::save`] wrote.
    fn load(
        &self,
        files: &dyn Fn(&str) -> PathBuf,
        recorded: Recorded<M, O, S>,
        device: &B::Device,
    ) -> Result<Recorded<M, O, S>, TrainError>;

    /// Removes what [`Records::save`] wrote; what is not there is no error.
    fn delete(&self, files: &dyn Fn(&str) -> PathBuf) -> Result<(), TrainError>;
}

/// The names of a checkpoint's files.
const MODEL: &str = "model";
const OPTIM: &str = "optim";
const SCHEDULER: &str = "scheduler";
const SCALER: &str = "scaler";

/// [`Records`] by a recorder.
pub(crate) struct By<FR, B> {
    recorder: FR,
    backend: PhantomData<fn() -> B>,
}

impl<FR, B> By<FR, B> {
    pub(crate) fn new(recorder: FR) -> Self {
        Self { recorder, backend: PhantomData }
    }
}

impl<B: AutodiffBackend, FR: FileRecorder<B>> By<FR, B> {
    pub(super) fn write<R: Record<B>>(&self, record: R, path: PathBuf) -> Result<(), TrainError> {
        self.recorder
            .record(record, path.clone())
            .map_err(|source| TrainError::save(path.clone(), source))?;
        settle(&Self::file(path))
    }

    /// The file of a record.
    pub(super) fn file(path: PathBuf) -> PathBuf {
        let mut path = path.into_os_string();
        path.push(".");
        path.push(FR::file_extension());
        path.into()
    }

    pub(super) fn read<R: Record<B>>(&self, path: PathBuf, device: &B::Device) -> Result<R, TrainError> {
        self.recorder.load(path.clone(), device).map_err(|source| TrainError::load(path, source))
    }
}

impl<B, M, O, S, FR> Records<B, M, O, S> for By<FR, B>
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    O: Optimizer<M, B>,
    S: LrScheduler,
    FR: FileRecorder<B>,
{
    fn save(
        &self,
        files: &dyn Fn(&str) -> PathBuf,
        recorded: &Recorded<&M, &O, &S>,
    ) -> Result<(), TrainError> {
        self.write(recorded.model.clone().into_record(), files(MODEL))?;
        self.write(recorded.optim.to_record(), files(OPTIM))?;
        self.write(recorded.scheduler.to_record::<B>(), files(SCHEDULER))?;
        match &recorded.scaler {
            Some(scaler) => self.write(scaler.to_record(), files(SCALER)),
            None => Ok(()),
        }
    }

    fn load(
        &self,
        files: &dyn Fn(&str) -> PathBuf,
        recorded: Recorded<M, O, S>,
        device: &B::Device,
    ) -> Result<Recorded<M, O, S>, TrainError> {
        let scaler = match recorded.scaler {
            // One that was made without mixed precision has none.
            Some(scaler) if Self::file(files(SCALER)).exists() => {
                Some(scaler.load_record(self.read(files(SCALER), device)?))
            }
            scaler => scaler,
        };
        let path = files(MODEL);
        let model = recorded.model.try_load_record(self.read(path.clone(), device)?);
        let model = model.map_err(|source| TrainError::load(path, source))?;
        let (path, optim) = (files(OPTIM), self.read(files(OPTIM), device)?);
        recorded.optim.check_record(&optim, &model).map_err(|source| TrainError::load(path, source))?;
        let (path, scheduler) = (files(SCHEDULER), self.read(files(SCHEDULER), device)?);
        recorded.scheduler.check_record::<B>(&scheduler).map_err(|source| TrainError::load(path, source))?;
        Ok(Recorded {
            model,
            optim: recorded.optim.load_record(optim),
            scheduler: recorded.scheduler.load_record::<B>(scheduler),
            scaler,
        })
    }

    fn delete(&self, files: &dyn Fn(&str) -> PathBuf) -> Result<(), TrainError> {
        for name in [MODEL, OPTIM, SCHEDULER, SCALER] {
            remove(&Self::file(files(name)), |path| fs::remove_file(path))?;
        }
        Ok(())
    }
}

/// Waits until a file, or a folder, is on the disk under its name, so that a power cut does not take it when what it replaces
/// is gone.
pub(super) fn settle(path: &Path) -> Result<(), TrainError> {
    let synced = |path: &Path| {
        if path.is_file() {
            // Windows writes back nothing through a handle that may only read.
            return fs::OpenOptions::new().write(true).open(path)?.sync_all();
        }
        // Folders cannot be opened as files everywhere; where they cannot, the system keeps names by itself.
        if cfg!(unix) { fs::File::open(path)?.sync_all() } else { Ok(()) }
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    synced(path).and_then(|()| synced(folder)).map_err(|source| TrainError::file(path, source))
}

/// Removes what may not be there.
pub(super) fn remove(path: &Path, by: impl Fn(&Path) -> std::io::Result<()>) -> Result<(), TrainError> {
    match by(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(|source| TrainError::file(path, source)),
    }
}

impl TrainError {
    fn save(path: PathBuf, source: RecorderError) -> Self {
        Self::Save { path, source: Box::new(source) }
    }

    pub(super) fn load(path: PathBuf, source: RecorderError) -> Self {
        Self::Load { path, source: Box::new(source) }
    }
}
