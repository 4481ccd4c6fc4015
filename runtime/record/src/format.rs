//! The formats that hold a record as a tree of fields.

use crate::{Precision, RecordError, binary};
use alloc::{format, string::String, vec::Vec};
use serde::{Serialize, de::DeserializeOwned};

/// A file format for trees of fields; each is one of Burn's recorders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// MessagePack with field names.
    NamedMpk,
    /// The same, compressed with gzip.
    NamedMpkGz,
    /// Bincode.
    Bincode,
    /// The same, compressed with gzip.
    BincodeGz,
    /// Indented JSON.
    PrettyJson,
    /// Plain JSON, compressed with gzip.
    JsonGz,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 6] = [
        Format::NamedMpk,
        Format::NamedMpkGz,
        Format::Bincode,
        Format::BincodeGz,
        Format::PrettyJson,
        Format::JsonGz,
    ];

    /// The file extension, without a leading dot.
    pub fn extension(self) -> &'static str {
        match self {
            Format::NamedMpk => "mpk",
            Format::NamedMpkGz => "mpk.gz",
            Format::Bincode => "bin",
            Format::BincodeGz => "bin.gz",
            Format::PrettyJson => "json",
            Format::JsonGz => "json.gz",
        }
    }

    /// Whether fields have names in the file.
    pub fn is_named(self) -> bool {
        !matches!(self, Format::Bincode | Format::BincodeGz)
    }

    /// The type of Burn's recorder, which the metadata names.
    pub fn recorder_type(self, precision: Precision) -> String {
        let recorder = match self {
            Format::NamedMpk => "NamedMpkFileRecorder",
            Format::NamedMpkGz => "NamedMpkGzFileRecorder",
            Format::Bincode => "BinFileRecorder",
            Format::BincodeGz => "BinGzFileRecorder",
            Format::PrettyJson => "PrettyJsonFileRecorder",
            Format::JsonGz => "JsonGzFileRecorder",
        };
        format!("burn_core::record::file::{recorder}<burn_core::record::settings::{}>", precision.settings())
    }

    /// Writes a value to memory. Without the feature `std` only [`Format::Bincode`] and [`Format::PrettyJson`] are there.
    pub fn to_vec<T: Serialize>(self, value: &T) -> Result<Vec<u8>, RecordError> {
        #[cfg(feature = "std")]
        {
            let mut bytes = Vec::new();
            self.write(&mut bytes, value)?;
            Ok(bytes)
        }
        #[cfg(not(feature = "std"))]
        match self {
            Format::Bincode => binary::to_vec(value),
            Format::PrettyJson => serde_json::to_vec_pretty(value).map_err(|error| encode_error(&error)),
            _ => Err(RecordError::NeedsStd("this format")),
        }
    }

    /// Writes a value to a stream; nothing but the value is held in memory.
    #[cfg(feature = "std")]
    pub fn write<T: Serialize, W: std::io::Write>(self, writer: W, value: &T) -> Result<(), RecordError> {
        use flate2::{Compression, write::GzEncoder};
        let compress = |writer| GzEncoder::new(writer, Compression::default());
        let mut writer = writer;
        match self {
            Format::NamedMpk => {
                rmp_serde::encode::write_named(&mut writer, value).map_err(|error| encode_error(&error))
            }
            Format::NamedMpkGz => {
                let mut writer = compress(writer);
                rmp_serde::encode::write_named(&mut writer, value).map_err(|error| encode_error(&error))?;
                writer.finish().map(drop).map_err(|error| encode_error(&error))
            }
            Format::Bincode => binary::write(&mut writer, value),
            Format::BincodeGz => {
                let mut writer = compress(writer);
                binary::write(&mut writer, value)?;
                writer.finish().map(drop).map_err(|error| encode_error(&error))
            }
            Format::PrettyJson => {
                serde_json::to_writer_pretty(writer, value).map_err(|error| encode_error(&error))
            }
            Format::JsonGz => {
                let mut writer = compress(writer);
                serde_json::to_writer(&mut writer, value).map_err(|error| encode_error(&error))?;
                writer.finish().map(drop).map_err(|error| encode_error(&error))
            }
        }
    }

    /// Reads a value. Lengths in the bytes are checked before memory is taken.
    pub fn read<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T, RecordError> {
        match self {
            Format::Bincode => binary::from_slice(bytes),
            Format::PrettyJson => serde_json::from_slice(bytes).map_err(|error| decode_error(&error)),
            #[cfg(feature = "std")]
            Format::NamedMpk => rmp_serde::from_slice(bytes).map_err(|error| decode_error(&error)),
            #[cfg(feature = "std")]
            Format::NamedMpkGz => Format::NamedMpk.read(&decompress(bytes)?),
            #[cfg(feature = "std")]
            Format::BincodeGz => Format::Bincode.read(&decompress(bytes)?),
            #[cfg(feature = "std")]
            Format::JsonGz => Format::PrettyJson.read(&decompress(bytes)?),
            #[cfg(not(feature = "std"))]
            _ => Err(RecordError::NeedsStd("this format")),
        }
    }
}

/// Everything that a gzip stream holds.
#[cfg(feature = "std")]
fn decompress(bytes: &[u8]) -> Result<Vec<u8>, RecordError> {
    use std::io::Read;
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut content).map_err(|error| decode_error(&error))?;
    Ok(content)
}

/// An error of a serializer as ours.
fn encode_error(error: &dyn core::fmt::Display) -> RecordError {
    RecordError::Encode(format!("{error}"))
}

/// An error of a deserializer as ours.
fn decode_error(error: &dyn core::fmt::Display) -> RecordError {
    RecordError::Decode(format!("{error}"))
}
