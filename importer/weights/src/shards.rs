//! Checkpoints of several files: an index says which tensor is in which.

mod index;

use crate::checkpoint::Plain;
use crate::{Checkpoint, CheckpointFormat, ErrorKind, OpenOptions, Result, WeightsError, limits};
use index::{Index, WeightMap};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

/// What a folder is searched for, in this order.
const NAMES: [&str; 4] = [
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    "model.safetensors",
    "pytorch_model.bin",
];

/// The endings of a folder's only index or checkpoint, where it has none of [`NAMES`]; in this order.
const ENDINGS: [&str; 5] = [".index.json", ".safetensors", ".bin", ".pt", ".pth"];

/// How many names an error shows.
const SHOWN: usize = 10;

/// Opens the checkpoint in a folder.
pub(crate) fn open_folder(folder: &Path, options: &OpenOptions) -> Result<Checkpoint> {
    if let Some(name) = NAMES.into_iter().find(|name| folder.join(name).is_file()) {
        return open_named(folder, name, options);
    }
    let entries = std::fs::read_dir(folder).map_err(ErrorKind::Io)?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let (models, rest): (Vec<String>, Vec<String>) = names.partition(|name| name.ends_with(".onnx"));
    let mut names: Vec<String> =
        rest.into_iter().filter(|name| ENDINGS.iter().any(|end| name.ends_with(end))).collect();
    names.sort_unstable();
    for ending in ENDINGS {
        let mut found = names.iter().filter(|name| name.ends_with(ending));
        match (found.next(), found.next()) {
            (Some(name), None) => return open_named(folder, name, options),
            (Some(_), Some(_)) => break,
            (None, _) => {}
        }
    }
    let expected = NAMES.join(", ");
    Err(WeightsError::not_a_checkpoint(match (names.is_empty(), models.iter().min()) {
        (true, None) => format!("the folder has none of {expected}"),
        (true, Some(model)) => {
            format!("the folder has none of {expected}, but an ONNX model: name {model:?} to compile it")
        }
        (false, _) => {
            let there = listed(names.iter().map(String::as_str));
            format!("the folder has none of {expected}; name one of its files: {there}")
        }
    }))
}

fn open_named(folder: &Path, name: &str, options: &OpenOptions) -> Result<Checkpoint> {
    let path = folder.join(name);
    if name.ends_with(".index.json") {
        open_index(&path, options)
    } else {
        Checkpoint::open_file(&path, options)
    }
}

/// Opens the shards that an index names. Tensors that the index does not name are left out.
pub(crate) fn open_index(path: &Path, options: &OpenOptions) -> Result<Checkpoint> {
    let name = path.display().to_string();
    read_index(path, options).map_err(|error| error.in_file(&name))
}

fn read_index(path: &Path, options: &OpenOptions) -> Result<Checkpoint> {
    let metadata = std::fs::metadata(path).map_err(ErrorKind::Io)?;
    // A pipe would be waited for.
    if !metadata.is_file() {
        return Err(ErrorKind::Io(std::io::Error::other("it is not a file")).into());
    }
    let size = metadata.len();
    if size > limits::MAX_INDEX_BYTES {
        let what = format!("the index has {size} bytes");
        return Err(WeightsError::limit(what, limits::MAX_INDEX_BYTES as usize));
    }
    let text = std::fs::read(path).map_err(ErrorKind::Io)?;
    let index = serde_json::from_slice::<Index>(&text);
    let index = index.map_err(|error| {
        let what = if error.is_data() { "cannot be read" } else { "is no JSON" };
        WeightsError::shards(format!("the index {what}: {error}"))
    })?;
    drop(text);
    let Some(WeightMap { map, names }) = index.weight_map else {
        return Err(WeightsError::shards("the index has no object `weight_map`"));
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let prefix = options.top_level_key.as_ref().map(|key| format!("{key}.")).unwrap_or_default();
    let wanted = map.iter().filter_map(|(key, shard)| Some((key, key.strip_prefix(&prefix)?, *shard)));
    let wanted = wanted.map(|(key, below, shard)| {
        let name = names.get(shard).map(String::as_str).unwrap_or_default();
        check_name(name).map_err(|error| error.at_key(key))?;
        Ok((key, below, name))
    });
    let wanted = wanted.collect::<Result<Vec<_>>>()?;
    if let (Some(key), true, false) = (&options.top_level_key, wanted.is_empty(), map.is_empty()) {
        let candidates = format!("no path begins with {prefix:?}");
        return Err(ErrorKind::NoSuchKey { key: key.clone(), candidates }.into());
    }
    check_present(folder, &wanted.iter().map(|(.., name)| *name).collect())?;
    let mut shards: BTreeMap<&str, Checkpoint> = BTreeMap::new();
    let mut entries = Vec::with_capacity(wanted.len());
    for (key, below, name) in wanted {
        if !shards.contains_key(name) {
            let shard = open_shard(folder, name).map_err(|error| error.at_key(key))?;
            shards.insert(name, shard);
        }
        let entry = shards.get(name).and_then(|shard| shard.entry(key)).ok_or_else(|| {
            WeightsError::shards(format!(
                "the index says that shard {name:?} has this tensor, but it has not"
            ))
            .at_key(key)
        })?;
        entries.push((below.to_owned(), entry));
    }
    let format = shards.values().next().map_or(CheckpointFormat::Safetensors, Checkpoint::format);
    let file_bytes = shards.values().map(Checkpoint::file_bytes).fold(0, usize::saturating_add);
    Checkpoint::new(path.display().to_string(), file_bytes, format, entries, Plain::Json(index.metadata))
}

/// A shard's name, which must be a path below the index's folder.
fn check_name(name: &str) -> Result<()> {
    // `.` alone names no file, which is told when it is looked for.
    let inside =
        Path::new(name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !inside || name.is_empty() || name.contains(['\\', ':']) {
        return Err(WeightsError::shards(format!("shard {name:?} lies outside of the checkpoint's folder")));
    }
    Ok(())
}

/// Looks for all shards before any is read, so that one error names all that are missing.
fn check_present(folder: &Path, names: &BTreeSet<&str>) -> Result<()> {
    let missing: Vec<&str> = names.iter().copied().filter(|name| !folder.join(name).is_file()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let (count, all, named) = (missing.len(), names.len(), listed(missing.iter().copied()));
    Err(WeightsError::shards(format!(
        "{count} of the {all} shards that the index names are not beside it: {named}"
    )))
}

/// Names, or the first of them.
fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(SHOWN);
    let mut text = names.take(SHOWN).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(", and {more} more"));
    }
    text
}

fn open_shard(folder: &Path, name: &str) -> Result<Checkpoint> {
    Checkpoint::open_file(&folder.join(name), &OpenOptions::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_shards_lie_below_the_folder() {
        for name in ["a.safetensors", "./a.safetensors", "b/./a.safetensors"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "../a.safetensors", "b/../../a", "/a", "b\\a", "c:a"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }
}
