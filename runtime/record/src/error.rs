//! What can go wrong with a record.

use alloc::string::String;
#[cfg(feature = "std")]
use kiln_types::Line;
use kiln_types::Message;

/// A record could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file system refused.
    #[cfg(feature = "std")]
    #[error("{}: {source}", Line(path))]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The value could not be written in this format.
    #[error("the record could not be written: {0}")]
    Encode(String),
    /// The bytes are not such a record.
    #[error("the record could not be read: {}", Message(.0))]
    Decode(String),
    /// The record is newer than this version of Kiln.
    #[error("the record has format version {}, this version of Kiln reads up to {supported}", Message(found))]
    UnknownVersion {
        /// The version in the record.
        found: String,
        /// The newest version known.
        supported: u32,
    },
    /// The format needs a feature that is off.
    #[error("{0} needs the feature `std`")]
    NeedsStd(&'static str),
}
