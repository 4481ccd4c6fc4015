//! The first format of all: a tar of `sys_info`, `storages`, `tensors` and `pickle`, whose tensors are persistent ids.

use super::PytorchFile;
use super::legacy::read_count;
use super::pickle::{
    Dialect, ElementType, Global, Node, Pickled, StorageSpec, StorageSpecs, TensorSpec, Value, run,
};
use crate::tensor::{Source, check_rank};
use crate::{CheckpointFormat, Result, WeightsError, limits};
use kiln_types::Bytes;
use std::collections::BTreeMap;

/// Size of a tar's headers, and what contents are padded to.
const BLOCK: usize = 512;

/// Reads the structure of a tar checkpoint.
pub(super) fn read(file: &Bytes) -> Result<PytorchFile> {
    let entries = read_entries(file)?;
    let entry = |name: &str| {
        let missing = || WeightsError::archive(format!("the tar has no {name:?}"));
        entries.get(name).cloned().ok_or_else(missing)
    };
    let (specs, storages) = read_storages(&entry("storages")?).map_err(|error| error.in_entry("storages"))?;
    let tensors = read_tensors(&entry("tensors")?, &specs).map_err(|error| error.in_entry("tensors"))?;
    let body = entry("pickle")?;
    let (mut pickled, _end) =
        run(&body, 0, Dialect::Tensors(&tensors)).map_err(|error| error.in_entry("pickle"))?;
    pickled.storages = specs;
    let entry = Some("pickle".to_owned());
    Ok(PytorchFile { format: CheckpointFormat::PytorchTar, pickled, storages, big_endian: false, entry })
}

/// The files of a tar by name. Extended headers (types `x` and `g`) describe nothing that is needed.
fn read_entries(file: &Bytes) -> Result<BTreeMap<String, Bytes>> {
    let mut entries = BTreeMap::new();
    let mut at = 0;
    while let Some(header) = file.get(at..at + BLOCK) {
        if header.iter().all(|byte| *byte == 0) {
            break;
        }
        let name = until_zero(header.get(..100).unwrap_or_default());
        let fail = |rule: &str| WeightsError::archive(rule.to_owned()).in_entry(&name);
        let digits = until_zero(header.get(124..136).unwrap_or_default());
        let size =
            usize::from_str_radix(digits.trim(), 8).map_err(|_| fail("its size is no octal number"))?;
        let start = at + BLOCK;
        let end = start.checked_add(size).ok_or_else(|| fail("it is longer than the file"))?;
        let content = file.slice(start..end).ok_or_else(|| fail("it is longer than the file"))?;
        if matches!(header.get(156), Some(b'0' | 0)) {
            // Readers choose between two of one name in different ways.
            if entries.insert(name.trim_start_matches("./").to_owned(), content).is_some() {
                return Err(fail("there are two entries of this name"));
            }
        }
        if entries.len() > limits::MAX_ENTRIES {
            return Err(WeightsError::limit("the tar has too many entries", limits::MAX_ENTRIES));
        }
        at = end.next_multiple_of(BLOCK);
    }
    Ok(entries)
}

/// A field's text.
fn until_zero(field: &[u8]) -> String {
    let text = field.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// `storages`: a count; for each its key, place and type, then its elements; at last views of storages.
fn read_storages(file: &Bytes) -> Result<(StorageSpecs, BTreeMap<String, Source>)> {
    let (count, mut at) = read_small_count(file)?;
    let (mut specs, mut sources) = (StorageSpecs::default(), BTreeMap::new());
    file.scattered(true);
    for _ in 0..count {
        let (about, data) = run(file, at, Dialect::Plain)?;
        let Some(Node::Tuple(fields)) = about.arena.node(about.root) else {
            return Err(WeightsError::pickle("a storage is described by no tuple"));
        };
        let (Some(Value::Int(key)), Some(Value::Global(Global::Storage(element)))) =
            (fields.first(), fields.get(2))
        else {
            return Err(WeightsError::pickle("a storage has no key or no type"));
        };
        let fail = |rule: &str| WeightsError::tensor(format!("storage {key} {rule}"));
        let (count, start) = read_count(file, data).ok_or_else(|| fail("is missing; the file ends early"))?;
        let count = usize::try_from(count).map_err(|_| fail("has a negative count"))?;
        let end = count.checked_mul(element.width()).and_then(|size| start.checked_add(size));
        let end = end.ok_or_else(|| fail("ends beyond the file"))?;
        let bytes = file.slice(start..end).ok_or_else(|| fail("ends beyond the file"))?;
        // As of entries: the last one would have the elements, and the first one the dtype.
        if sources.insert(key.to_string(), Source::Mapped(bytes)).is_some() {
            return Err(fail("is there twice"));
        }
        specs.add(StorageSpec { key: key.to_string(), element: *element, count });
        at = end;
    }
    file.scattered(false);
    let (views, _end) = run(file, at, Dialect::Plain)?;
    match views.arena.node(views.root) {
        Some(Node::List(views)) if views.is_empty() => Ok((specs, sources)),
        _ => Err(WeightsError::tensor("a storage is a view of another one")),
    }
}

/// `tensors`: a count; for each its number, its storage's key and its type, then rank, dims, strides and offset.
fn read_tensors(file: &Bytes, specs: &StorageSpecs) -> Result<BTreeMap<String, TensorSpec>> {
    let (count, mut at) = read_small_count(file)?;
    let mut tensors = BTreeMap::new();
    for _ in 0..count {
        let (about, layout) = run(file, at, Dialect::Plain)?;
        let (number, key) = match about.arena.node(about.root) {
            Some(Node::Tuple(fields)) => match fields.as_ref() {
                [Value::Int(number), Value::Int(key), ..] => (number.to_string(), key.to_string()),
                _ => return Err(WeightsError::pickle("a tensor has no number or no storage")),
            },
            _ => return Err(WeightsError::pickle("a tensor is described by no tuple")),
        };
        let (tensor, end) = read_layout(file, layout, &key, specs).map_err(|error| error.at_key(&number))?;
        if tensors.contains_key(&number) {
            return Err(WeightsError::tensor("it is there twice").at_key(&number));
        }
        tensors.insert(number, tensor);
        at = end;
    }
    Ok(tensors)
}

/// A tensor's rank (and four bytes of nothing), dims, strides and offset.
fn read_layout(file: &[u8], at: usize, key: &str, specs: &StorageSpecs) -> Result<(TensorSpec, usize)> {
    let early = || WeightsError::tensor("the file ends early");
    let rank = file.get(at..).and_then(|rest| rest.first_chunk()).ok_or_else(early)?;
    let rank = usize::try_from(i32::from_le_bytes(*rank))
        .map_err(|_| WeightsError::tensor("its rank is negative"))?;
    check_rank(rank)?;
    let mut at = at + 8;
    let mut next = || {
        let (count, end) = read_count(file, at).ok_or_else(early)?;
        at = end;
        usize::try_from(count).map_err(|_| WeightsError::tensor("a dim, a stride or the offset is negative"))
    };
    let shape = (0..rank).map(|_| next()).collect::<Result<_>>()?;
    let strides = (0..rank).map(|_| next()).collect::<Result<_>>()?;
    let offset = next()?;
    let missing = || WeightsError::tensor(format!("its storage {key:?} is not in the file"));
    let (storage, spec) = specs.find(key).ok_or_else(missing)?;
    let ElementType::Real(stored) = spec.element else {
        return Err(WeightsError::tensor(format!("its elements are {}", spec.element.name())));
    };
    Ok((TensorSpec { stored, shape, strides, offset, storage }, at))
}

/// The pickled count at the beginning of a file.
fn read_small_count(file: &[u8]) -> Result<(i64, usize)> {
    let (Pickled { root, .. }, at) = run(file, 0, Dialect::Plain)?;
    match root {
        Value::Int(count @ 0..) => Ok((count, at)),
        _ => Err(WeightsError::pickle("a count is no number")),
    }
}
