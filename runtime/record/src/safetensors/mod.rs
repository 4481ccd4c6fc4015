//! Parameters by path, in one flat file that can be memory-mapped.
//!
//! A file is eight little-endian bytes with the length of the header, the header (JSON: for each tensor its dtype, its
//! shape and where its bytes lie, and under `__metadata__` some texts), and the tensors' bytes. Kiln writes the version
//! of this convention there, which tensors are stored in a narrower dtype than the module's, and the ids of a module's parameters. The format has no integers of four bits: Kiln
//! stores them two to a byte, as U8 of rank 1, and says there what they are.

mod elements;
mod header;
mod write;

pub use elements::{Elements, Unsupported, dtype_name};
pub use header::{Entry, Header, MAX_HEADER_BYTES};
pub use write::{TensorToWrite, to_vec};
#[cfg(feature = "std")]
pub use write::{save, write};

use crate::{ParamId, RecordError, Stored};
use alloc::{borrow::ToOwned, collections::BTreeMap, format, string::String, vec::Vec};
use elements::parse_dtype_name;
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

/// The key of the parameters' ids in the file's metadata: a JSON object from path to id.
pub const IDS_KEY: &str = "kiln.ids";

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
    ids: BTreeMap<String, ParamId>,
    version: Option<u32>,
}

impl Safetensors {
    /// Reads the header of a file. Every offset is checked here.
    ///
    /// # Errors
    /// When the file breaks a rule of the format, or has tensors whose elements no tensor of Kiln's holds.
    pub fn read(file: Bytes) -> Result<Self, RecordError> {
        let file = Self::read_any(file)?;
        let mut tensors = file.header.tensors.iter();
        match tensors.find_map(|(path, entry)| Some((path, entry.unsupported()?))) {
            Some((path, elements)) => Err(RecordError::Decode(format!(
                "tensor {path:?}: {elements} cannot be read; convert the tensor before saving"
            ))),
            None => Ok(file),
        }
    }

    /// Reads the header of a file of which some tensors may be of elements that no tensor of Kiln's holds ([`Entry::unsupported`]).
    ///
    /// # Errors
    /// When the file breaks a rule of the format.
    pub fn read_any(file: Bytes) -> Result<Self, RecordError> {
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
        let ids = match header.metadata.get(IDS_KEY) {
            Some(text) => serde_json::from_str(text)
                .map_err(|error| RecordError::Decode(format!("{IDS_KEY}: {error}")))?,
            None => BTreeMap::new(),
        };
        Ok(Self { header, data, original, ids, version })
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

    /// Elements and shape of a tensor as stored; those of a packed one, not of its bytes.
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

    /// The id that a parameter had, if the file tells it.
    pub fn id(&self, path: &str) -> Option<ParamId> {
        self.ids.get(path).copied()
    }

    /// The bytes of a tensor as stored.
    pub fn bytes(&self, path: &str) -> Option<Bytes> {
        let entry = self.entry(path)?;
        self.data.slice(entry.start..entry.end)
    }

    /// A tensor as stored, sharing the file's bytes; a packed one is unpacked, and floats of eight bits get 16.
    pub fn tensor(&self, path: &str) -> Option<TensorData> {
        let entry = self.entry(path)?;
        let Elements::Stored(stored) = entry.elements else { return None };
        let bytes = stored.widened(self.bytes(path)?);
        TensorData::from_packed(bytes, entry.shape.clone(), stored.dtype()).ok()
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
        if entry.dtype() != Some(DType::U8) || !fits {
            let (stored, name) = (&entry.shape, entry.elements.name());
            return Err(fail(format!("of {name} {stored:?} cannot hold {} {shape:?}", dtype_name(dtype))));
        }
        entry.elements = Elements::Stored(Stored::DType(dtype));
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

#[cfg(test)]
mod tests;
