//! [`TrainError`].

use kiln_core::record::RecorderError;
use std::io;
use std::path::{Path, PathBuf};

/// A training cannot begin, or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A checkpoint could not be written.
    #[error("{}: the checkpoint was not written: {source}", path.display())]
    Save {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<RecorderError>,
    },
    /// A checkpoint could not be read.
    #[error("{}: the checkpoint does not load: {source}", path.display())]
    Load {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<RecorderError>,
    },
    /// A file of the artifacts could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A training was to go on after an epoch of which there is no checkpoint.
    #[error("{}: there is no checkpoint of epoch {epoch}{}", folder.display(), known(.states))]
    NoCheckpoint {
        /// Where checkpoints are.
        folder: PathBuf,
        /// The epoch.
        epoch: usize,
        /// The epochs of which there is one in full precision.
        states: Vec<usize>,
    },
    /// A training of low-rank pairs was to go on from a checkpoint that has them in the weights.
    #[error(
        "{}: the checkpoint of epoch {epoch} has the low-rank pairs in its weights, so that their training cannot go on from it, \
         and there is no state of that epoch; begin anew with its weights, or go on after another epoch",
        folder.display()
    )]
    MergedPairs {
        /// Where checkpoints are.
        folder: PathBuf,
        /// The epoch.
        epoch: usize,
    },
}

/// Which checkpoints there are instead.
fn known(states: &[usize]) -> String {
    match states {
        [] => "; with_file_checkpointer says that they are written".to_owned(),
        states => format!("; there are those of {states:?}"),
    }
}

impl TrainError {
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }
}
