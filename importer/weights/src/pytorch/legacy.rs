//! The format before PyTorch 1.6: five pickles (a magic number, a protocol version, facts about the system, the value,
//! the storages' keys), then each storage as a count and its elements.

use super::PytorchFile;
use super::pickle::{Dialect, Node, Pickled, Value, run};
use crate::tensor::Source;
use crate::{CheckpointFormat, Result, WeightsError};
use kiln_types::Bytes;
use std::collections::BTreeMap;

/// The magic number, in decimal: 0x1950a86a20f9469cfc6c.
const MAGIC: &str = "119547037146038801333356";

/// The only version that there was.
const PROTOCOL: i64 = 1001;

/// Whether the file begins with the pickled magic number. Only pickles of numbers are that short.
pub(super) fn is_legacy(file: &[u8]) -> bool {
    let head = file.get(..64).unwrap_or(file);
    run(head, 0, Dialect::Plain).is_ok_and(|(pickled, _)| pickled.big_int() == Some(MAGIC))
}

/// Reads the structure of a legacy checkpoint.
pub(super) fn read(file: &Bytes) -> Result<PytorchFile> {
    let (_magic, at) = run(file, 0, Dialect::Plain)?;
    let (version, at) = run(file, at, Dialect::Plain)?;
    if version.root != Value::Int(PROTOCOL) {
        return Err(WeightsError::not_a_checkpoint("its protocol version is not 1001"));
    }
    // It states the byte order of the machine, but the storages are little-endian from any machine.
    let (_system, at) = run(file, at, Dialect::Plain)?;
    let (pickled, at) = run(file, at, Dialect::Storages)?;
    let (keys, mut at) = run(file, at, Dialect::Plain)?;
    let mut storages = BTreeMap::new();
    // Each storage has a count before its data, anywhere in the file.
    file.scattered(true);
    for key in texts(&keys)? {
        let (source, end) = read_storage(file, at, &key, &pickled)?;
        storages.insert(key, source);
        at = end;
    }
    file.scattered(false);
    Ok(PytorchFile {
        format: CheckpointFormat::PytorchLegacy,
        pickled,
        storages,
        big_endian: false,
        entry: None,
    })
}

/// The storages' keys, in the order of their data.
fn texts(keys: &Pickled) -> Result<Vec<String>> {
    let fail = || WeightsError::pickle("the storages' keys are no list of texts");
    let Some(Node::List(items)) = keys.arena.node(keys.root) else { return Err(fail()) };
    let text = |item: &Value| keys.arena.text(*item).map(str::to_owned).ok_or_else(fail);
    items.iter().map(text).collect()
}

/// A storage's bytes at a position, and where they end.
fn read_storage(file: &Bytes, at: usize, key: &str, pickled: &Pickled) -> Result<(Source, usize)> {
    let fail = |rule: String| WeightsError::tensor(format!("storage {key:?} {rule}"));
    let (_, spec) = pickled
        .storages
        .find(key)
        .ok_or_else(|| fail("is of no type, since no tensor uses it".to_owned()))?;
    let (count, start) =
        read_count(file, at).ok_or_else(|| fail("is missing; the file ends early".to_owned()))?;
    let size = usize::try_from(count).ok().and_then(|count| count.checked_mul(spec.element.width()));
    let end = size.and_then(|size| start.checked_add(size));
    match end.and_then(|end| Some((file.slice(start..end)?, end))) {
        Some((bytes, end)) => Ok((Source::Mapped(bytes), end)),
        None => Err(fail(format!("of {count} elements ends beyond the file"))),
    }
}

/// A 64-bit count, and where it ends.
pub(super) fn read_count(file: &[u8], at: usize) -> Option<(i64, usize)> {
    let bytes = file.get(at..)?.first_chunk()?;
    Some((i64::from_le_bytes(*bytes), at + 8))
}
