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
        let mut writer = writer;
        match self {
            Format::NamedMpk => {
                rmp_serde::encode::write_named(&mut writer, value).map_err(|error| encode_error(&error))
            }
            Format::NamedMpkGz => deflated(writer, |writer| {
                rmp_serde::encode::write_named(writer, value).map_err(|error| encode_error(&error))
            }),
            Format::Bincode => binary::write(&mut writer, value),
            Format::BincodeGz => deflated(writer, |mut writer| binary::write(&mut writer, value)),
            Format::PrettyJson => {
                serde_json::to_writer_pretty(writer, value).map_err(|error| encode_error(&error))
            }
            Format::JsonGz => deflated(writer, |writer| {
                serde_json::to_writer(writer, value).map_err(|error| encode_error(&error))
            }),
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

/// Counts what goes through it.
#[cfg(feature = "std")]
struct Counted<W> {
    writer: W,
    bytes: usize,
}

#[cfg(feature = "std")]
impl<W: std::io::Write> std::io::Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.writer.write(bytes)?;
        self.bytes += written;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.writer.flush()
    }
}

/// A gzip stream of what is written. Behind what could be inflated to more than is read, zeros follow, which readers of gzip skip: records of
/// zeros, such as those of an optimizer before its first step, are read then like others.
#[cfg(feature = "std")]
fn deflated<W: std::io::Write>(
    writer: W,
    write: impl FnOnce(&mut dyn std::io::Write) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    use flate2::{Compression, write::GzEncoder};
    use std::io::{Read, repeat};
    let encoder = GzEncoder::new(Counted { writer, bytes: 0 }, Compression::default());
    let mut content = Counted { writer: encoder, bytes: 0 };
    write(&mut content)?;
    let held = content.bytes;
    let end = |error: std::io::Error| encode_error(&error);
    let mut stream = content.writer.finish().map_err(end)?;
    let wanted = if held > ALWAYS_INFLATED { held.div_ceil(INFLATED_TIMES) } else { 0 };
    let missing = wanted.saturating_sub(stream.bytes) as u64;
    std::io::copy(&mut repeat(0).take(missing), &mut stream.writer).map(drop).map_err(end)
}

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

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    /// Rates and scales of a training that is taken up again are those that it had.
    #[test]
    fn doubles_keep_all_their_bits() {
        let numbers: Vec<f64> =
            (1..5_000_u32).map(|n| 1.0 / f64::from(n) * f64::from(n % 97).exp2()).collect();
        for format in [Format::PrettyJson, Format::JsonGz, Format::NamedMpk, Format::Bincode] {
            let bytes = format.to_vec(&numbers).expect("written");
            let read: Vec<f64> = format.read(&bytes).expect("what was written");
            assert!(read.iter().map(|x| x.to_bits()).eq(numbers.iter().map(|x| x.to_bits())), "{format:?}");
        }
    }

    /// A record without names that begins as another does is not taken for it.
    #[test]
    fn bytes_that_nothing_reads_are_an_error() {
        for format in [Format::Bincode, Format::BincodeGz] {
            let bytes = format.to_vec(&(1u8, 2u8)).expect("written");
            assert_eq!(format.read::<(u8, u8)>(&bytes).expect("what was written"), (1, 2));
            let error = format.read::<u8>(&bytes).expect_err("a part of what was written");
            assert!(error.to_string().contains("written of another module"), "{error}");
        }
    }

    /// Deflate makes a thousandth of what repeats, which is more than is inflated of a file that may be hostile.
    #[test]
    fn what_repeats_is_read_again() {
        let text = "0".repeat(ALWAYS_INFLATED + 1);
        for format in [Format::NamedMpkGz, Format::BincodeGz, Format::JsonGz] {
            let bytes = format.to_vec(&text).expect("written");
            assert!(bytes.len() < text.len() / 10, "{}", bytes.len());
            assert!(format.read::<String>(&bytes).expect("what was written") == text, "{format:?}");
        }
    }
}
