//! The header of a safetensors file.

use super::{Elements, Unsupported};
use crate::RecordError;
use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use core::fmt;
use kiln_types::DType;
use serde::{Deserialize, Deserializer, de};

/// The longest header that is read: what the reference implementation allows.
pub const MAX_HEADER_BYTES: usize = 100_000_000;

/// What a header says of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The elements as stored.
    pub elements: Elements,
    /// The dims.
    pub shape: Vec<usize>,
    /// First byte, counted from the end of the header.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Entry {
    /// The dtype of the tensor, if there are tensors of such elements.
    pub fn dtype(&self) -> Option<DType> {
        match self.elements {
            Elements::Stored(stored) => Some(stored.dtype()),
            Elements::Unsupported(_) => None,
        }
    }

    /// What the elements are, if no tensor holds them.
    pub fn unsupported(&self) -> Option<&'static Unsupported> {
        match self.elements {
            Elements::Stored(_) => None,
            Elements::Unsupported(unsupported) => Some(unsupported),
        }
    }
}

/// A header: the tensors by path, and texts.
#[derive(Clone, Debug, Default)]
pub struct Header {
    /// The tensors.
    pub tensors: BTreeMap<String, Entry>,
    /// The texts under `__metadata__`.
    pub metadata: BTreeMap<String, String>,
}

impl Header {
    /// Reads the header at the beginning of a file; also yields where the data begins.
    pub fn read(file: &[u8]) -> Result<(Self, usize), RecordError> {
        let fail = |reason: &str| RecordError::Decode(format!("not a safetensors file: {reason}"));
        let length = file.first_chunk::<8>().ok_or_else(|| fail("it is shorter than 8 bytes"))?;
        let length =
            usize::try_from(u64::from_le_bytes(*length)).ok().filter(|length| *length <= MAX_HEADER_BYTES);
        let length = length.ok_or_else(|| fail("its header would be longer than 100 MB"))?;
        let text = file.get(8..8 + length).ok_or_else(|| fail("it ends inside its header"))?;
        let unread = |error: serde_json::Error| {
            let mut text = format!("{error}");
            // A place in the header says nothing of a tensor whose description is well-formed.
            if error.is_data() {
                let place = format!(" at line {} column {}", error.line(), error.column());
                text.truncate(text.strip_suffix(&place).map_or(text.len(), str::len));
            }
            RecordError::Decode(format!("the header of the safetensors file: {text}"))
        };
        let header = serde_json::from_slice(text).map_err(unread)?;
        Ok((header, 8 + length))
    }

    /// Checks that every tensor lies inside the data and has the size that its dtype and shape need, and that the
    /// tensors are all of the data: none shares bytes with another, and no bytes belong to none.
    pub fn check(&self, data_bytes: usize) -> Result<(), RecordError> {
        for (path, entry) in &self.tensors {
            let size = entry.elements.bytes_of(&entry.shape);
            let inside = entry.start <= entry.end && entry.end <= data_bytes;
            if !inside || size != Some(entry.end - entry.start) {
                let early = entry.start <= entry.end && size == Some(entry.end - entry.start);
                let hint =
                    if early { "; the file ends early, as after a download that was cut off" } else { "" };
                return Err(RecordError::Decode(format!(
                    "tensor {path:?} of {} {:?} cannot lie at bytes {}..{} of {data_bytes}{hint}",
                    entry.elements.name(),
                    entry.shape,
                    entry.start,
                    entry.end
                )));
            }
        }
        let mut spans: Vec<_> =
            self.tensors.iter().map(|(path, entry)| (entry.start, entry.end, path)).collect();
        spans.sort_unstable();
        let mut covered = 0;
        for (start, end, path) in spans {
            if start != covered {
                let what =
                    if start < covered { "shares bytes with another" } else { "leaves a gap before it" };
                return Err(RecordError::Decode(format!("tensor {path:?} at bytes {start}..{end} {what}")));
            }
            covered = end;
        }
        if covered != data_bytes {
            return Err(RecordError::Decode(format!(
                "{} bytes at the end belong to no tensor",
                data_bytes - covered
            )));
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Raw {
            dtype: String,
            shape: Vec<usize>,
            data_offsets: [usize; 2],
        }
        let Raw { dtype, shape, data_offsets: [start, end] } = Raw::deserialize(deserializer)?;
        let elements = Elements::parse(&dtype).map_err(de::Error::custom)?;
        Ok(Entry { elements, shape, start, end })
    }
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;
        impl<'de> de::Visitor<'de> for HeaderVisitor {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with tensors")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut access: A) -> Result<Header, A::Error> {
                let mut header = Header::default();
                let mut told = false;
                while let Some(key) = access.next_key::<String>()? {
                    if key == "__metadata__" {
                        if core::mem::replace(&mut told, true) {
                            return Err(de::Error::custom("there are two `__metadata__`"));
                        }
                        header.metadata = access.next_value::<Option<_>>()?.unwrap_or_default();
                        continue;
                    }
                    let entry = access
                        .next_value()
                        .map_err(|error| de::Error::custom(format!("tensor {key:?}: {error}")))?;
                    if let Some(_first) = header.tensors.insert(key.clone(), entry) {
                        return Err(de::Error::custom(format!("tensor {key:?} is there twice")));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(HeaderVisitor)
    }
}
