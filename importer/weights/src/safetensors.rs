//! Safetensors files, through the reader of Kiln's own records.

use crate::checkpoint::Entry;
use crate::identify::identify;
use crate::tensor::{Source, Storage, check_rank, contiguous_strides};
use crate::{ErrorKind, LazyTensor, Result, WeightsError, limits};
use kiln_record::safetensors::{Elements, Safetensors};
use kiln_record::{RecordError, Stored};
use kiln_types::Bytes;
use serde_json::Value as Json;
use std::sync::Arc;

/// Whether a file of another name looks like Safetensors: a header's length that fits, then JSON.
pub(crate) fn is_safetensors(file: &[u8]) -> bool {
    let length = file.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    length.is_some_and(|length| length < file.len() as u64) && file.get(8) == Some(&b'{')
}

/// The tensors of a file, below a key if one is given, and the texts of its metadata.
pub(crate) fn read(file: Bytes, key: Option<&str>) -> Result<(Vec<(String, Entry)>, Json)> {
    // One that ends early has the beginning of a header yet.
    let looks_so = file.get(8) == Some(&b'{');
    if let (false, Some(what)) = (looks_so, identify(&file)) {
        return Err(WeightsError::not_a_checkpoint(what));
    }
    let file = Safetensors::read_any(file).map_err(|error| match error {
        RecordError::Decode(reason) => ErrorKind::Safetensors(reason),
        error => ErrorKind::Safetensors(error.to_string()),
    })?;
    let count = file.paths().count();
    if count > limits::MAX_TENSORS {
        return Err(WeightsError::limit(format!("the file has {count} tensors"), limits::MAX_TENSORS));
    }
    let prefix = key.map(|key| format!("{key}.")).unwrap_or_default();
    let mut tensors = Vec::new();
    for path in file.paths() {
        if let Some(below) = path.strip_prefix(&prefix) {
            tensors.push((below.to_owned(), entry(&file, path).map_err(|error| error.at_key(path))?));
        }
    }
    if let (Some(key), true) = (key, tensors.is_empty()) {
        let candidates = format!("no path begins with {prefix:?}");
        return Err(ErrorKind::NoSuchKey { key: key.to_owned(), candidates }.into());
    }
    let metadata = file.metadata().iter().map(|(key, text)| (key.clone(), Json::String(text.clone())));
    Ok((tensors, Json::Object(metadata.collect())))
}

/// A tensor of a file; floats of eight bits are widened when they are read.
fn entry(file: &Safetensors, path: &str) -> Result<Entry> {
    let missing = || WeightsError::tensor("it lies outside of the file");
    let entry = file.entry(path).ok_or_else(missing)?;
    check_rank(entry.shape.len())?;
    match entry.elements {
        Elements::Stored(Stored::DType(_)) => {
            Ok(Entry::Tensor(LazyTensor::whole(file.tensor(path).ok_or_else(missing)?, path)))
        }
        Elements::Stored(stored @ Stored::Minifloat(_)) => {
            let bytes = Source::Mapped(file.bytes(path).ok_or_else(missing)?);
            let storage = Arc::new(Storage::new(path, bytes, false));
            let (shape, strides) = (entry.shape.clone(), contiguous_strides(&entry.shape));
            Ok(Entry::Tensor(LazyTensor::new(stored, shape, strides, 0, storage)?))
        }
        Elements::Unsupported(elements) => Ok(Entry::Unsupported(format!("a tensor of {elements}"))),
    }
}
