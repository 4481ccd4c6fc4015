//! The binary format. All use of bincode is here: its development has ended, and it may have to be replaced.

mod reader;

use crate::RecordError;
use alloc::string::ToString;
use reader::Reader;
use serde::{Serialize, de::DeserializeOwned};

/// Variable-length integers, little-endian: bincode's standard, which Burn uses.
const CONFIG: bincode::config::Configuration = bincode::config::standard();

/// Writes to memory.
#[cfg(not(feature = "std"))]
pub fn to_vec<T: Serialize>(value: &T) -> Result<alloc::vec::Vec<u8>, RecordError> {
    bincode::serde::encode_to_vec(value, CONFIG).map_err(|error| RecordError::Encode(error.to_string()))
}

/// Writes to a stream.
#[cfg(feature = "std")]
pub fn write<T: Serialize, W: std::io::Write>(writer: &mut W, value: &T) -> Result<(), RecordError> {
    bincode::serde::encode_into_std_write(value, writer, CONFIG)
        .map(drop)
        .map_err(|error| RecordError::Encode(error.to_string()))
}

/// Reads from memory.
///
/// Only from memory: a stream's reader would reserve whatever length the file claims, a slice's reader checks it.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RecordError> {
    let mut reader = Reader::new(bytes);
    let value = T::deserialize(&mut reader).map_err(|error| RecordError::Decode(error.to_string()))?;
    // Without names, a record of another type may begin with all that this one has.
    if reader.has_more() {
        let reason = "the record goes on after what the module has: it was written of another module";
        return Err(RecordError::Decode(reason.to_string()));
    }
    Ok(value)
}
