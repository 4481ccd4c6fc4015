//! What stores records, and how that can fail.

use super::{PrecisionSettings, Record};
use crate::tensor::backend::Backend;
use alloc::format;
use alloc::string::{String, ToString};
use core::any::type_name;
use kiln_record::{Envelope, EnvelopeHead, Metadata, RecordError};
use serde::{Serialize, de::DeserializeOwned};

/// Stores records in one format and one precision.
pub trait Recorder<B: Backend>: Send + Sync + Default + core::fmt::Debug + Clone {
    /// The precision.
    type Settings: PrecisionSettings;
    /// Where a record goes.
    type RecordArgs: Clone;
    /// What storing a record yields.
    type RecordOutput;
    /// Where a record comes from.
    type LoadArgs;

    /// Stores a record.
    fn record<R: Record<B>>(
        &self,
        record: R,
        args: Self::RecordArgs,
    ) -> Result<Self::RecordOutput, RecorderError> {
        let metadata = Metadata::new(self.format_name(), Self::Settings::PRECISION);
        self.save_item(Envelope::new(metadata, record.into_item::<Self::Settings>()), args)
    }

    /// Loads a record.
    fn load<R: Record<B>>(&self, mut args: Self::LoadArgs, device: &B::Device) -> Result<R, RecorderError> {
        match self.load_item::<Envelope<R::Item<Self::Settings>>>(&mut args) {
            Ok(envelope) => Ok(R::from_item::<Self::Settings>(envelope.item, device)),
            Err(error @ RecorderError::FileNotFound(_)) => Err(error),
            Err(error) => {
                let expected = Metadata::new(self.format_name(), Self::Settings::PRECISION);
                match self.load_item::<EnvelopeHead>(&mut args) {
                    Ok(head) => Err(RecorderError::explain(error, &head.metadata, &expected)),
                    Err(_) => Err(error),
                }
            }
        }
    }

    /// Stores a value that serde knows.
    fn save_item<I: Serialize>(
        &self,
        item: I,
        args: Self::RecordArgs,
    ) -> Result<Self::RecordOutput, RecorderError>;

    /// Loads a value that serde knows. It may be called again with the same arguments.
    fn load_item<I: DeserializeOwned>(&self, args: &mut Self::LoadArgs) -> Result<I, RecorderError>;

    /// The recorder's name in the records' metadata.
    fn format_name(&self) -> String {
        type_name::<Self>().to_string()
    }
}

/// A record could not be stored or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecorderError {
    /// There is no such file.
    #[error("the record was not found: {0}")]
    FileNotFound(String),
    /// The record could not be read.
    #[error("{0}")]
    DeserializeError(String),
    /// The record was written by a version that this one does not know.
    #[error("{0}")]
    UnknownVersion(String),
    /// The parameters in the record are not the module's.
    #[error(transparent)]
    Parameters(#[from] super::ParameterMismatch),
    /// Something else went wrong.
    #[error("{0}")]
    Unknown(String),
}

impl From<RecordError> for RecorderError {
    fn from(error: RecordError) -> Self {
        match error {
            #[cfg(feature = "std")]
            RecordError::Io { path, source } if source.kind() == std::io::ErrorKind::NotFound => {
                RecorderError::FileNotFound(format!("{path}: {source}"))
            }
            RecordError::Decode(_) => RecorderError::DeserializeError(error.to_string()),
            RecordError::UnknownVersion { .. } => RecorderError::UnknownVersion(error.to_string()),
            error => RecorderError::Unknown(error.to_string()),
        }
    }
}

impl RecorderError {
    /// An error of a file's contents, with the file's path.
    #[cfg(feature = "std")]
    pub(super) fn in_file(error: RecordError, path: &std::path::Path) -> Self {
        let located = |message| format!("{}: {message}", path.display());
        match Self::from(error) {
            Self::DeserializeError(message) => Self::DeserializeError(located(message)),
            Self::UnknownVersion(message) => Self::UnknownVersion(located(message)),
            other => other,
        }
    }

    /// An error while reading a record, with what its metadata tells about the cause.
    fn explain(error: RecorderError, found: &Metadata, expected: &Metadata) -> Self {
        if found.is_newer() {
            return RecorderError::UnknownVersion(format!(
                "the record was written by Burn {}, this version of Kiln reads up to {}: {error}",
                found.version, expected.version
            ));
        }
        let fields = [
            ("float type", &found.float, &expected.float),
            ("integer type", &found.int, &expected.int),
            ("format", &found.format, &expected.format),
            ("version", &found.version, &expected.version),
        ];
        let differences: String = fields
            .iter()
            .filter(|(_, found, expected)| found != expected)
            .map(|(name, found, expected)| {
                format!("\nthe record's {name} is {found}, the recorder's is {expected}")
            })
            .collect();
        RecorderError::DeserializeError(format!("{error}{differences}"))
    }
}
