//! Checkpoints in several files, and the index that says which tensor is where.

use crate::checkpoint::Plain;
use crate::{Checkpoint, CheckpointFormat, ErrorKind, OpenOptions, Result, WeightsError, limits};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::{Component, Path};

/// What a folder is searched for, in this order.
const NAMES: [&str; 4] = [
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    "model.safetensors",
    "pytorch_model.bin",
];

/// Opens the checkpoint in a folder.
pub(crate) fn open_folder(folder: &Path, options: &OpenOptions) -> Result<Checkpoint> {
    let found = NAMES.into_iter().find(|name| folder.join(name).is_file());
    match found {
        Some(name) if name.ends_with(".index.json") => open_index(&folder.join(name), options),
        Some(name) => Checkpoint::open_file(&folder.join(name), options),
        None => Err(WeightsError::not_a_checkpoint(format!("the folder has none of {}", NAMES.join(", ")))),
    }
}

/// Opens the shards that an index names. Tensors that the index does not name are left out.
pub(crate) fn open_index(path: &Path, options: &OpenOptions) -> Result<Checkpoint> {
    let name = path.display().to_string();
    read_index(path, options).map_err(|error| error.in_file(&name))
}

fn read_index(path: &Path, options: &OpenOptions) -> Result<Checkpoint> {
    let size = std::fs::metadata(path).map_err(ErrorKind::Io)?.len();
    if size > limits::MAX_INDEX_BYTES {
        let what = format!("the index has {size} bytes");
        return Err(WeightsError::limit(what, limits::MAX_INDEX_BYTES as usize));
    }
    let text = std::fs::read(path).map_err(ErrorKind::Io)?;
    let index: Json = serde_json::from_slice(&text)
        .map_err(|error| WeightsError::shards(format!("the index is no JSON: {error}")))?;
    let Some(Json::Object(map)) = index.get("weight_map") else {
        return Err(WeightsError::shards("the index has no object `weight_map`"));
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let prefix = options.top_level_key.as_ref().map(|key| format!("{key}.")).unwrap_or_default();
    let mut shards: BTreeMap<&str, Checkpoint> = BTreeMap::new();
    let mut tensors = Vec::with_capacity(map.len());
    for (key, shard) in map {
        let Some(below) = key.strip_prefix(&prefix) else { continue };
        let name = check_name(shard).map_err(|error| error.at_key(key))?;
        if !shards.contains_key(name) {
            let shard = open_shard(folder, name).map_err(|error| error.at_key(key))?;
            shards.insert(name, shard);
        }
        let tensor = shards.get(name).and_then(|shard| shard.tensor(key)).ok_or_else(|| {
            WeightsError::shards(format!(
                "the index says that shard {name:?} has this tensor, but it has not"
            ))
            .at_key(key)
        })?;
        tensors.push((below.to_owned(), tensor.clone()));
    }
    let format = shards.values().next().map_or(CheckpointFormat::Safetensors, Checkpoint::format);
    let metadata = index.get("metadata").cloned().unwrap_or(Json::Null);
    Ok(Checkpoint::new(path.display().to_string(), format, tensors, Plain::Json(metadata)))
}

/// A shard's name, which must be a path below the index's folder.
fn check_name(name: &Json) -> Result<&str> {
    let name = name.as_str().ok_or_else(|| WeightsError::shards("the name of its shard is no text"))?;
    let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if !inside || name.is_empty() || name.contains(['\\', ':']) {
        return Err(WeightsError::shards(format!("shard {name:?} lies outside of the checkpoint's folder")));
    }
    Ok(name)
}

fn open_shard(folder: &Path, name: &str) -> Result<Checkpoint> {
    Checkpoint::open_file(&folder.join(name), &OpenOptions::default())
}
