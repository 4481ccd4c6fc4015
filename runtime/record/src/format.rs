//! The formats that hold a record as a tree of fields.

use crate::{Precision, RecordError, binary};
use alloc::{borrow::Cow, format, string::String, vec::Vec};
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
        format!("{RECORDERS}{recorder}<burn_core::record::settings::{}>", precision.settings())
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

    /// Reads a value. Lengths in the bytes are checked before memory is taken or items are read, and nothing may be nested deeper than
    /// 128 levels.
    pub fn read<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T, RecordError> {
        match self {
            Format::Bincode => binary::from_slice(bytes),
            Format::PrettyJson => serde_json::from_slice(bytes).map_err(|error| decode_error(&error)),
            #[cfg(feature = "std")]
            Format::NamedMpk => {
                let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
                // As deep as `serde_json` goes: every level takes from the stack.
                reader.set_max_depth(MAX_DEPTH);
                T::deserialize(&mut reader).map_err(|error| decode_error(&error))
            }
            #[cfg(feature = "std")]
            Format::NamedMpkGz | Format::BincodeGz | Format::JsonGz => {
                let (format, bytes) = self.inflated(bytes)?;
                format.read(&bytes)
            }
            #[cfg(not(feature = "std"))]
            _ => Err(RecordError::NeedsStd("this format")),
        }
    }

    /// The format below the compression, and its bytes.
    pub(crate) fn inflated(self, bytes: &[u8]) -> Result<(Self, Cow<'_, [u8]>), RecordError> {
        let format = match self {
            Format::NamedMpkGz => Format::NamedMpk,
            Format::BincodeGz => Format::Bincode,
            Format::JsonGz => Format::PrettyJson,
            Format::NamedMpk | Format::Bincode | Format::PrettyJson => {
                return Ok((self, Cow::Borrowed(bytes)));
            }
        };
        #[cfg(feature = "std")]
        return Ok((format, Cow::Owned(inflate(bytes)?)));
        #[cfg(not(feature = "std"))]
        return Err(RecordError::NeedsStd(format.extension()));
    }
}

/// Where the types of all recorders are, which the metadata name.
const RECORDERS: &str = "burn_core::record::file::";

/// Whether a file begins as a record in one of the [`Format`]s: with metadata that name Burn's recorder, as Kiln and Burn write them.
///
/// # Errors
/// When it cannot be read.
#[cfg(feature = "std")]
pub fn begins_as_record(file: impl std::io::Read) -> std::io::Result<bool> {
    use std::io::Read;
    /// Metadata are a few hundred bytes, and come first.
    const HEAD: u64 = 4096;
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head)?;
    if head.starts_with(&[0x1f, 0x8b]) {
        let mut inflated = Vec::new();
        // It ends early, which is an error after what came before.
        let _ = flate2::read::GzDecoder::new(head.as_slice()).take(HEAD).read_to_end(&mut inflated);
        head = inflated;
    }
    Ok(head.windows(RECORDERS.len()).any(|window| window == RECORDERS.as_bytes()))
}

/// How deep containers may be nested.
#[cfg(feature = "std")]
const MAX_DEPTH: usize = 128;

/// Records may always be inflated to this many bytes.
#[cfg(feature = "std")]
const ALWAYS_INFLATED: usize = 32 << 20;

/// Records may be inflated to this many times their size; weights are hardly ever halved.
#[cfg(feature = "std")]
const INFLATED_TIMES: usize = 20;

/// What a gzip stream holds.
#[cfg(feature = "std")]
fn inflate(bytes: &[u8]) -> Result<Vec<u8>, RecordError> {
    use std::io::Read;
    let limit = bytes.len().saturating_mul(INFLATED_TIMES).max(ALWAYS_INFLATED);
    let mut content = Vec::new();
    let mut reader = flate2::read::GzDecoder::new(bytes).take(limit as u64 + 1);
    reader.read_to_end(&mut content).map_err(|error| decode_error(&error))?;
    if content.len() > limit {
        return Err(RecordError::Decode(format!(
            "it inflates to more than {limit} bytes, too much for a file of {}; save it without compression",
            bytes.len()
        )));
    }
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
