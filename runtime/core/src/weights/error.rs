//! What can go wrong between a checkpoint and a module.

use super::{ImportReport, SaveReport};
use crate::record::RecorderError;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use kiln_weights::{ErrorKind, WeightsError};

/// A checkpoint could not be loaded into a module, or a module not be saved as one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file could not be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Parameters and tensors do not fit.
    #[error(transparent)]
    Report(#[from] Box<ImportReport>),
    /// Parameters cannot be written as the tensors that they were made of.
    #[error(transparent)]
    Unsaved(#[from] Box<SaveReport>),
    /// The model cannot take checkpoints, since weights were changed before it was generated: why, and what to do.
    #[error("the model takes no checkpoints: {0}")]
    Rewritten(String),
    /// A parameter is made of others in the file, which a record does not know: its path.
    #[error(
        "`{0}` is made of other parameters of a checkpoint, as its attributes in the module say, and a recorder sees only the \
         module's record; load with `Model::from_pytorch`, `Model::from_safetensors` or `kiln::weights::load_weights`, which \
         make it (a file that has the parameters as the module does is loaded with `AdapterType::NoAdapter`)"
    )]
    Derived(String),
    /// Low-rank pairs and a module do not fit, or there are none.
    #[error("{0}")]
    LowRank(String),
    /// The record could not be put together, or written.
    #[error("{0}")]
    Record(String),
}

impl From<ImportError> for RecorderError {
    fn from(error: ImportError) -> Self {
        match &error {
            ImportError::Weights(weights) => match &*weights.kind {
                ErrorKind::Io(io) if io.kind() == std::io::ErrorKind::NotFound => {
                    RecorderError::FileNotFound(error.to_string())
                }
                _ => RecorderError::DeserializeError(error.to_string()),
            },
            _ => RecorderError::DeserializeError(error.to_string()),
        }
    }
}

impl From<RecorderError> for ImportError {
    fn from(error: RecorderError) -> Self {
        ImportError::Record(error.to_string())
    }
}
