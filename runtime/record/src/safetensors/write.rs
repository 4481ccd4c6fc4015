//! Writing a safetensors record.

use super::{DTYPES_KEY, IDS_KEY, PACKED_KEY, PACKED_VERSION, Packed, VERSION_KEY, dtype_name};
use crate::{ParamId, RecordError};
use alloc::{collections::BTreeMap, format, string::String, string::ToString, vec::Vec};
use kiln_types::{Bytes, DType, TensorData};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// A parameter on its way into a file.
#[derive(Clone, Debug)]
pub struct TensorToWrite {
    /// The parameter's path in the module.
    pub path: String,
    /// Its contents as the module has them.
    pub data: TensorData,
    /// The dtype to store it in. The file remembers the module's own where it is another.
    pub stored: DType,
    /// The id that the file remembers, if any.
    pub id: Option<ParamId>,
}

impl TensorToWrite {
    /// A parameter that is stored in its own dtype.
    pub fn new(path: impl Into<String>, data: TensorData) -> Self {
        Self { path: path.into(), stored: data.dtype, data, id: None }
    }

    /// With an id that the file remembers.
    #[must_use]
    pub fn with_id(self, id: ParamId) -> Self {
        Self { id: Some(id), ..self }
    }

    /// Changes the dtype to store it in; the data is converted while it is written.
    #[must_use]
    pub fn stored_as(self, stored: DType) -> Self {
        Self { stored, ..self }
    }

    /// The data as it is stored.
    fn stored_data(&self) -> TensorData {
        self.data.clone().convert_dtype(self.stored)
    }

    /// Number of bytes in the file.
    fn stored_size(&self) -> usize {
        let bytes = self.data.num_elements() * self.stored.size();
        if self.stored.is_packed() { bytes.div_ceil(2) } else { bytes }
    }

    /// The bytes in the file.
    fn stored_bytes(&self) -> Bytes {
        self.stored_data().packed()
    }
}

/// A record's header and the order of its tensors.
struct Plan<'a> {
    header: Vec<u8>,
    tensors: Vec<&'a TensorToWrite>,
}

/// Writes a record to a stream, one converted tensor after the other; see [`to_vec`] for their order.
#[cfg(feature = "std")]
pub fn write<W: std::io::Write>(
    mut writer: W,
    tensors: &[TensorToWrite],
    metadata: &BTreeMap<String, String>,
) -> Result<(), RecordError> {
    let plan = Plan::new(tensors, metadata)?;
    let fail = |error: std::io::Error| RecordError::Encode(error.to_string());
    writer.write_all(&plan.header).map_err(fail)?;
    for tensor in plan.tensors {
        writer.write_all(&tensor.stored_bytes()).map_err(fail)?;
        tensor.data.bytes.release();
    }
    writer.flush().map_err(fail)
}

/// Writes a record to a file. A file that is there is replaced, not rewritten: maps of it stay valid.
#[cfg(feature = "std")]
pub fn save(
    path: &std::path::Path,
    tensors: &[TensorToWrite],
    metadata: &BTreeMap<String, String>,
) -> Result<(), RecordError> {
    crate::replace_file(path, |writer| write(writer, tensors, metadata))
}

/// Writes a record to memory. The order of `tensors` does not matter: wider dtypes come first, so that each tensor is
/// aligned to its element, then paths in order.
pub fn to_vec(
    tensors: &[TensorToWrite],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, RecordError> {
    let plan = Plan::new(tensors, metadata)?;
    let mut bytes = plan.header;
    for tensor in plan.tensors {
        bytes.extend_from_slice(&tensor.stored_bytes());
    }
    Ok(bytes)
}

impl<'a> Plan<'a> {
    fn new(tensors: &'a [TensorToWrite], metadata: &BTreeMap<String, String>) -> Result<Self, RecordError> {
        let mut sorted: Vec<_> = tensors.iter().collect();
        sorted.sort_by(|a, b| {
            let size = |tensor: &TensorToWrite| core::cmp::Reverse(tensor.stored.size());
            size(a).cmp(&size(b)).then_with(|| a.path.cmp(&b.path))
        });
        let mut paths: Vec<_> = tensors.iter().map(|tensor| &tensor.path).collect();
        paths.sort();
        if let Some([path, _]) =
            paths.windows(2).find(|pair| pair.first() == pair.last()).and_then(|p| p.first_chunk())
        {
            return Err(RecordError::Encode(format!("there are two parameters at {path:?}")));
        }
        let mut metadata = metadata.clone();
        let packed = tensors.iter().filter(|tensor| tensor.stored.is_packed());
        let packed: BTreeMap<_, _> = packed
            .map(|tensor| {
                let dtype = dtype_name(tensor.stored).to_string();
                (&tensor.path, Packed { dtype, shape: tensor.data.shape.clone() })
            })
            .collect();
        let version = if packed.is_empty() { 1 } else { PACKED_VERSION };
        metadata.insert(VERSION_KEY.to_string(), version.to_string());
        if !packed.is_empty() {
            metadata.insert(PACKED_KEY.to_string(), to_json(&packed)?);
        }
        let original: BTreeMap<_, _> = tensors
            .iter()
            .filter(|tensor| tensor.stored != tensor.data.dtype)
            .map(|tensor| (&tensor.path, dtype_name(tensor.data.dtype)))
            .collect();
        if !original.is_empty() {
            metadata.insert(DTYPES_KEY.to_string(), to_json(&original)?);
        }
        let ids: BTreeMap<_, _> =
            tensors.iter().filter_map(|tensor| Some((&tensor.path, tensor.id?))).collect();
        if !ids.is_empty() {
            metadata.insert(IDS_KEY.to_string(), to_json(&ids)?);
        }
        let mut json = to_json(&HeaderToWrite { metadata: &metadata, tensors: &sorted })?.into_bytes();
        // The data begins at a multiple of 64 bytes; the format allows spaces at the header's end.
        while (8 + json.len()) % 64 != 0 {
            json.push(b' ');
        }
        let mut header = (json.len() as u64).to_le_bytes().to_vec();
        header.append(&mut json);
        Ok(Self { header, tensors: sorted })
    }
}

/// JSON of a value.
fn to_json<T: Serialize>(value: &T) -> Result<String, RecordError> {
    serde_json::to_string(value).map_err(|error| RecordError::Encode(error.to_string()))
}

/// The header as it is written: metadata, then the tensors in the order of their bytes.
struct HeaderToWrite<'a> {
    metadata: &'a BTreeMap<String, String>,
    tensors: &'a [&'a TensorToWrite],
}

impl Serialize for HeaderToWrite<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Entry<'a> {
            dtype: &'static str,
            shape: &'a [usize],
            data_offsets: [usize; 2],
        }
        let mut map = serializer.serialize_map(Some(1 + self.tensors.len()))?;
        map.serialize_entry("__metadata__", self.metadata)?;
        let mut start = 0;
        for tensor in self.tensors {
            let end = start + tensor.stored_size();
            let bytes = [tensor.stored_size()];
            let (dtype, shape) = match tensor.stored.is_packed() {
                true => (DType::U8, bytes.as_slice()),
                false => (tensor.stored, tensor.data.shape.as_slice()),
            };
            let entry = Entry { dtype: dtype_name(dtype), shape, data_offsets: [start, end] };
            map.serialize_entry(&tensor.path, &entry)?;
            start = end;
        }
        map.end()
    }
}
