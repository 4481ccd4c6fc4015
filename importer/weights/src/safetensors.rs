//! Safetensors files, through the reader of Kiln's own records.

use crate::checkpoint::Entry;
use crate::identify::identify;
use crate::tensor::{Source, Storage, contiguous_strides};
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
            let missing = || WeightsError::tensor("it lies outside of the file").at_key(path);
            tensors.push((below.to_owned(), entry(&file, path).ok_or_else(missing)?));
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
fn entry(file: &Safetensors, path: &str) -> Option<Entry> {
    let entry = file.entry(path)?;
    match entry.elements {
        Elements::Stored(Stored::DType(_)) => {
            Some(Entry::Tensor(LazyTensor::whole(file.tensor(path)?, path)))
        }
        Elements::Stored(stored @ Stored::Minifloat(_)) => {
            let storage = Arc::new(Storage::new(path, Source::Mapped(file.bytes(path)?), false));
            let (shape, strides) = (entry.shape.clone(), contiguous_strides(&entry.shape));
            Some(Entry::Tensor(LazyTensor::new(stored, shape, strides, 0, storage).ok()?))
        }
        Elements::Unsupported(elements) => Some(Entry::Unsupported(format!("a tensor of {elements}"))),
    }
}
