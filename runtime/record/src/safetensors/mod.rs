//! Parameters by path, in one flat file that can be memory-mapped.
//!
//! A file is eight little-endian bytes with the length of the header, the header (JSON: for each tensor its dtype, its
//! shape and where its bytes lie, and under `__metadata__` some texts), and the tensors' bytes. Kiln writes the version
//! of this convention there, and which tensors are stored in a narrower dtype than the module's.

mod header;
mod write;

pub use header::{Entry, Header, MAX_HEADER_BYTES};
pub use write::{TensorToWrite, to_vec};
#[cfg(feature = "std")]
pub use write::{save, write};

use crate::RecordError;
use alloc::{borrow::ToOwned, collections::BTreeMap, format, string::String, vec::Vec};
use kiln_types::{Bytes, DType, TensorData};

/// The newest version of the convention that this crate knows.
pub const FORMAT_VERSION: u32 = 1;

/// The key of the version in the file's metadata.
pub const VERSION_KEY: &str = "kiln.format";

/// The key of the original dtypes in the file's metadata: a JSON object from path to dtype, for the tensors that are
/// stored in another one.
pub const DTYPES_KEY: &str = "kiln.dtypes";

/// The key that a file's metadata has when its parameters are to get the backend's own floats and integers, whatever they
/// are stored in: records of checkpoints, which anything may be computed with. Its value is `true`.
pub const BACKEND_DTYPES_KEY: &str = "kiln.backend-dtypes";

/// A file of tensors whose header was read and checked.
///
/// Tensors share the file's bytes; nothing is copied.
#[derive(Clone, Debug)]
pub struct Safetensors {
    header: Header,
    data: Bytes,
    original: BTreeMap<String, DType>,
    version: Option<u32>,
}

impl Safetensors {
    /// Reads the header of a file. Every offset is checked here.
    pub fn read(file: Bytes) -> Result<Self, RecordError> {
        let (header, data_start) = Header::read(&file)?;
        let data = file.slice(data_start..file.len()).unwrap_or_default();
        header.check(data.len())?;
        let version = read_version(&header)?;
        let original = match header.metadata.get(DTYPES_KEY) {
            Some(text) => serde_json::from_str::<BTreeMap<String, String>>(text)
                .map_err(|error| RecordError::Decode(format!("{DTYPES_KEY}: {error}")))?
                .into_iter()
                .map(|(path, name)| Ok((path, parse_dtype_name(&name).map_err(RecordError::Decode)?)))
                .collect::<Result<_, RecordError>>()?,
            None => BTreeMap::new(),
        };
        Ok(Self { header, data, original, version })
    }

    /// Maps a file and reads its header.
    #[cfg(feature = "std")]
    pub fn open(path: &std::path::Path) -> Result<Self, RecordError> {
        Self::read(crate::map_file(path)?).map_err(|error| match error {
            RecordError::Decode(reason) => RecordError::Decode(format!("{}: {reason}", path.display())),
            error => error,
        })
    }

    /// The version of Kiln's convention that the file states; `None` for files that others wrote.
    pub fn version(&self) -> Option<u32> {
        self.version
    }

    /// The texts under `__metadata__`.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    /// The paths of all tensors, sorted.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.header.tensors.keys().map(String::as_str)
    }

    /// Dtype and shape of a tensor as stored.
    pub fn entry(&self, path: &str) -> Option<&Entry> {
        self.header.tensors.get(path)
    }

    /// Whether the parameters are to get the backend's own floats and integers: the file says so, or others wrote it.
    pub fn has_backend_dtypes(&self) -> bool {
        self.version.is_none() || self.metadata().get(BACKEND_DTYPES_KEY).is_some_and(|value| value == "true")
    }

    /// The dtype that the module had, where the file stores a narrower one.
    pub fn original_dtype(&self, path: &str) -> Option<DType> {
        self.original.get(path).copied()
    }

    /// A tensor as stored, sharing the file's bytes.
    pub fn tensor(&self, path: &str) -> Option<TensorData> {
        let entry = self.entry(path)?;
        let bytes = self.data.slice(entry.start..entry.end)?;
        TensorData::from_bytes(bytes, entry.shape.clone(), entry.dtype).ok()
    }
}

/// The version that a file states, if it is one that this crate knows.
fn read_version(header: &Header) -> Result<Option<u32>, RecordError> {
    let Some(text) = header.metadata.get(VERSION_KEY) else { return Ok(None) };
    match text.parse::<u32>() {
        Ok(version @ 1..=FORMAT_VERSION) => Ok(Some(version)),
        _ => Err(RecordError::UnknownVersion { found: text.to_owned(), supported: FORMAT_VERSION }),
    }
}

/// The name of a dtype in a header.
pub fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "F64",
        DType::F32 => "F32",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        DType::I64 => "I64",
        DType::I32 => "I32",
        DType::I16 => "I16",
        DType::I8 => "I8",
        DType::U64 => "U64",
        DType::U32 => "U32",
        DType::U16 => "U16",
        DType::U8 => "U8",
        DType::Bool => "BOOL",
    }
}

/// The inverse of [`dtype_name`]; else what is to be said about the name.
fn parse_dtype_name(name: &str) -> Result<DType, String> {
    DType::ALL.into_iter().find(|dtype| dtype_name(*dtype) == name).ok_or_else(|| {
        let bits = |prefix: &str| name.starts_with(prefix);
        let what = match name {
            _ if bits("F8") => "floats of 8 bits",
            _ if bits("F6") => "floats of 6 bits",
            _ if bits("F4") => "floats of 4 bits, packed in pairs",
            _ if bits("C") => "complex numbers",
            _ => {
                let known: Vec<_> = DType::ALL.into_iter().map(dtype_name).collect();
                return format!("dtype {name:?} is not one of {}", known.join(", "));
            }
        };
        format!("{what} ({name}) cannot be read; convert the tensor before saving")
    })
}

#[cfg(test)]
mod tests;
