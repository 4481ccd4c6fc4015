//! Parameters by path, in one flat file that can be memory-mapped.
//!
//! A file is eight little-endian bytes with the length of the header, the header (JSON: for each tensor its dtype, its
//! shape and where its bytes lie, and under `__metadata__` some texts), and the tensors' bytes. Kiln writes the version
//! of this convention there, and which tensors are stored in a narrower dtype than the module's. The format has no integers of four bits: Kiln
//! stores them two to a byte, as U8 of rank 1, and says there what they are.

mod header;
mod write;

pub use header::{Entry, Header, MAX_HEADER_BYTES};
pub use write::{TensorToWrite, to_vec};
#[cfg(feature = "std")]
pub use write::{save, write};

use crate::RecordError;
use alloc::{borrow::ToOwned, collections::BTreeMap, format, string::String, vec::Vec};
use kiln_types::{Bytes, DType, TensorData};
use serde::{Deserialize, Serialize};

/// The newest version of the convention that this crate knows; a file states the oldest one that can read it.
pub const FORMAT_VERSION: u32 = 2;

/// The version that added [`PACKED_KEY`].
const PACKED_VERSION: u32 = 2;

/// The key of the version in the file's metadata.
pub const VERSION_KEY: &str = "kiln.format";

/// The key of the original dtypes in the file's metadata: a JSON object from path to dtype, for the tensors that are
/// stored in another one.
pub const DTYPES_KEY: &str = "kiln.dtypes";

/// The key of the packed tensors in the file's metadata: a JSON object from path to dtype and shape, for those whose bytes are stored as
/// U8 because the format does not have their dtype.
pub const PACKED_KEY: &str = "kiln.packed";

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
        let (mut header, data_start) = Header::read(&file)?;
        let data = file.slice(data_start..file.len()).unwrap_or_default();
        header.check(data.len())?;
        let version = read_version(&header)?;
        unpack_entries(&mut header)?;
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

    /// Dtype and shape of a tensor as stored; those of a packed one, not of its bytes.
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

    /// A tensor as stored, sharing the file's bytes; a packed one is unpacked.
    pub fn tensor(&self, path: &str) -> Option<TensorData> {
        let entry = self.entry(path)?;
        let bytes = self.data.slice(entry.start..entry.end)?;
        TensorData::from_packed(bytes, entry.shape.clone(), entry.dtype).ok()
    }
}

/// What a packed tensor is.
#[derive(Serialize, Deserialize)]
struct Packed {
    dtype: String,
    shape: Vec<usize>,
}

/// Gives packed tensors their own dtype and shape.
fn unpack_entries(header: &mut Header) -> Result<(), RecordError> {
    let Some(text) = header.metadata.get(PACKED_KEY) else { return Ok(()) };
    let packed = serde_json::from_str::<BTreeMap<String, Packed>>(text)
        .map_err(|error| RecordError::Decode(format!("{PACKED_KEY}: {error}")))?;
    for (path, Packed { dtype, shape }) in packed {
        let fail = |reason: String| RecordError::Decode(format!("{PACKED_KEY}: tensor {path:?} {reason}"));
        let dtype = parse_dtype_name(&dtype).map_err(&fail)?;
        let entry = header.tensors.get_mut(&path).ok_or_else(|| fail("is not there".to_owned()))?;
        let bytes = entry.end - entry.start;
        let fits =
            dtype.is_packed() && dtype.bytes_of(&shape).is_some_and(|count| count.div_ceil(2) == bytes);
        if entry.dtype != DType::U8 || !fits {
            let stored = &entry.shape;
            let reason = format!("of {} {stored:?} cannot hold {} {shape:?}", entry.dtype, dtype_name(dtype));
            return Err(fail(reason));
        }
        entry.dtype = dtype;
        entry.shape = shape;
    }
    Ok(())
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
        DType::I4 => "I4",
        DType::U4 => "U4",
        DType::Bool => "BOOL",
    }
}

/// The dtype of this name that the format has; else what is to be said about the name.
fn stored_dtype(name: &str) -> Result<DType, String> {
    match parse_dtype_name(name)? {
        dtype if dtype.is_packed() => Err(format!("{name} is no dtype of the format")),
        dtype => Ok(dtype),
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
                let stored = DType::ALL.into_iter().filter(|dtype| !dtype.is_packed());
                let known: Vec<_> = stored.map(dtype_name).collect();
                return format!("dtype {name:?} is not one of {}", known.join(", "));
            }
        };
        format!("{what} ({name}) cannot be read; convert the tensor before saving")
    })
}

#[cfg(test)]
mod tests;
