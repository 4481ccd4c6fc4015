//! Checkpoints: `kiln inspect` and `kiln convert` of weights without a graph.

use super::{CommandError, Outcome, convert, inspect};
use clap::{Args, ValueEnum};
use kiln_codegen::weights::{Skeleton, SkeletonOptions, layer_names, skeleton};
use kiln_record::RecordError;
use kiln_weights::{Checkpoint, KeyMap, LazyTensor, OpenOptions};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What only checkpoints need, of the arguments of `kiln convert`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Checkpoints")]
pub(super) struct CheckpointArguments {
    /// Replace what a regular expression finds in the keys; `$1` is its first group. May be given several times
    #[arg(long, value_name = "REGEX=REPLACEMENT", value_parser = parse_map)]
    map: Vec<(String, String)>,
    /// Whose names and layouts the tensors have [default: pytorch]
    #[arg(long, value_enum)]
    adapter: Option<Adapter>,
    /// Where the weights are, if not at the root
    #[arg(long, value_name = "KEY")]
    top_level_key: Option<String>,
    /// Say which layer a key is, or `Param` for none. May be given several times
    #[arg(long = "as", value_name = "KEY=TYPE", value_parser = parse_settled)]
    settled: Vec<(String, String)>,
}

/// Whose conventions a checkpoint follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Adapter {
    /// PyTorch's
    #[default]
    Pytorch,
    /// Kiln's own
    None,
}

impl CheckpointArguments {
    /// The first of these options that was given.
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--map", !self.map.is_empty()),
            ("--adapter", self.adapter.is_some()),
            ("--top-level-key", self.top_level_key.is_some()),
            ("--as", !self.settled.is_empty()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }
}

/// `KEY=TYPE`.
fn parse_settled(text: &str) -> Result<(String, String), String> {
    let (key, ty) = text.split_once('=').ok_or("expected KEY=TYPE, for example head=Embedding")?;
    if key.is_empty() {
        return Err("the key is empty".to_owned());
    }
    if ty != "Param" && !layer_names().any(|name| name == ty) {
        let names: Vec<&str> = layer_names().collect();
        return Err(format!("`{ty}` is no layer; there are {}, and Param for none", names.join(", ")));
    }
    Ok((key.to_owned(), ty.to_owned()))
}

/// `REGEX=REPLACEMENT`; the last `=` parts them, since a replacement has none.
fn parse_map(text: &str) -> Result<(String, String), String> {
    let (pattern, replacement) =
        text.rsplit_once('=').ok_or(r"expected REGEX=REPLACEMENT, for example '^net\.(.*)=$1'")?;
    KeyMap::new([(pattern, replacement)]).map_err(|error| error.to_string())?;
    Ok((pattern.to_owned(), replacement.to_owned()))
}

/// That an option is of no use for this kind of file.
pub(super) fn misplaced(option: &str, path: &Path, kind: &str) -> CommandError {
    CommandError::Usage(format!("{option} does not apply: {} is {kind}", path.display()))
}

/// Whether a path is that of weights, not of a model.
pub(super) fn is_checkpoint(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let index = path.to_str().is_some_and(|path| path.ends_with(".index.json"));
    matches!(extension, "pt" | "pth" | "bin" | "ckpt" | "safetensors") || index || path.is_dir()
}

/// `kiln inspect CHECKPOINT`.
pub(super) fn inspect(arguments: &inspect::Arguments) -> Outcome {
    let options = OpenOptions { top_level_key: arguments.top_level_key.clone() };
    let checkpoint = Checkpoint::open_with(&arguments.model, &options)?;
    if arguments.json {
        println!("{}", object(&checkpoint));
    } else {
        print(&checkpoint);
    }
    Ok(true)
}

/// Elements and bytes; tensors that share a storage count once for each name.
fn totals(checkpoint: &Checkpoint) -> (usize, usize) {
    let sum = |count: fn(&LazyTensor) -> usize| {
        checkpoint.tensors().map(|(_, tensor)| count(tensor)).fold(0, usize::saturating_add)
    };
    (sum(LazyTensor::num_elements), sum(LazyTensor::num_bytes))
}

/// Bytes of all storages, each counted once.
fn stored(checkpoint: &Checkpoint) -> usize {
    let storages = checkpoint.tensors().map(|(_, tensor)| tensor.storage());
    let sizes: BTreeMap<_, usize> = storages.map(|storage| (Arc::as_ptr(storage), storage.len())).collect();
    sizes.into_values().fold(0, usize::saturating_add)
}

fn print(checkpoint: &Checkpoint) {
    let (parameters, bytes) = totals(checkpoint);
    println!("{}", checkpoint.file());
    println!("  format      {:?}", checkpoint.format());
    let stored = match stored(checkpoint) {
        stored if stored == bytes => String::new(),
        stored => format!(" ({} stored)", size(stored)),
    };
    println!("  parameters  {parameters} in {} tensors, {}{stored}", checkpoint.tensors().len(), size(bytes));
    println!("  tensors");
    let mut opened: Vec<&str> = Vec::new();
    for (path, tensor) in checkpoint.tensors() {
        let parts: Vec<&str> = path.split('.').collect();
        let (leaf, branches) =
            parts.split_last().map_or((path, &[][..]), |(leaf, branches)| (*leaf, branches));
        let same = opened.iter().zip(branches).take_while(|(open, branch)| open == branch).count();
        opened.truncate(same);
        for branch in branches.iter().skip(same) {
            println!("    {:indent$}{}", "", branch.escape_debug(), indent = 2 * opened.len());
            opened.push(branch);
        }
        let indent = 2 * opened.len();
        let width = 32_usize.saturating_sub(indent);
        let leaf = leaf.escape_debug().to_string();
        let stored = if tensor.is_contiguous() { "" } else { "  (strided)" };
        let size = size(tensor.num_bytes());
        println!(
            "    {:indent$}{leaf:<width$} {:<5} {:<20} {size:>10}{stored}",
            "",
            tensor.dtype(),
            shape(tensor)
        );
    }
    for group in checkpoint.shared_storages() {
        let names: Vec<String> = group.iter().map(|name| name.escape_debug().to_string()).collect();
        println!("  shared      {}", names.join(", "));
    }
}

fn shape(tensor: &LazyTensor) -> String {
    format!("{:?}", tensor.shape())
}

/// A number of bytes for people.
fn size(bytes: usize) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

fn object(checkpoint: &Checkpoint) -> serde_json::Value {
    let (parameters, bytes) = totals(checkpoint);
    let tensors = checkpoint.tensors().map(|(path, tensor)| {
        json!({
            "key": path,
            "dtype": tensor.dtype().name(),
            "shape": tensor.shape(),
            "bytes": tensor.num_bytes(),
            "contiguous": tensor.is_contiguous(),
        })
    });
    json!({
        "checkpoint": checkpoint.file(),
        "format": format!("{:?}", checkpoint.format()),
        "parameters": parameters,
        "bytes": bytes,
        "stored": stored(checkpoint),
        "tensors": tensors.collect::<Vec<_>>(),
        "shared": checkpoint.shared_storages(),
    })
}

/// `kiln convert CHECKPOINT -o DIR`.
pub(super) fn convert(arguments: &convert::Arguments) -> Outcome {
    let own = &arguments.weights;
    let options = OpenOptions { top_level_key: own.top_level_key.clone() };
    let checkpoint = Checkpoint::open_with(&arguments.model, &options)?;
    let map = KeyMap::new(own.map.iter().map(|(pattern, replacement)| (pattern, replacement)))?;
    let tensors = map.tensors(&checkpoint)?.into_iter().map(|found| (found.key, found.tensor)).collect();
    let name = file_name(&arguments.model);
    let options = SkeletonOptions {
        runtime_crate: arguments.runtime_crate.clone(),
        source_name: name.clone(),
        pytorch: own.adapter.unwrap_or_default() == Adapter::Pytorch,
        settled: settled(&own.settled)?,
        record: arguments.record_type.into(),
        half_precision: arguments.half_precision,
        ..SkeletonOptions::default()
    };
    let fail = |source| CommandError::Skeleton { file: checkpoint.file().to_owned(), source };
    let made = skeleton(tensors, &options).map_err(fail)?;
    let (source, record) = write(&made, arguments, &stem(&name))?;
    println!("{}\n{}", source.display(), record.display());
    for pattern in map.idle(&checkpoint) {
        eprintln!("note: --map `{pattern}` finds nothing in any key");
    }
    for (key, hint) in &made.ambiguous {
        eprintln!("note: {}: {hint}", key.escape_debug());
    }
    Ok(true)
}

/// The last part of a path, also of `.`.
fn file_name(path: &Path) -> String {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name(path).or_else(|| name(&path.canonicalize().ok()?));
    name.unwrap_or_default()
}

/// The layers that the user settled, each once.
fn settled(pairs: &[(String, String)]) -> Result<BTreeMap<String, String>, CommandError> {
    let mut settled = BTreeMap::new();
    for (key, ty) in pairs {
        match settled.insert(key.clone(), ty.clone()) {
            Some(other) if other != *ty => {
                return Err(CommandError::Usage(format!(
                    "--as says that {key} is {other}, and that it is {ty}"
                )));
            }
            _ => {}
        }
    }
    Ok(settled)
}

/// Writes the source and the record of a skeleton; yields their paths.
fn write(
    made: &Skeleton,
    arguments: &convert::Arguments,
    stem: &str,
) -> Result<(PathBuf, PathBuf), CommandError> {
    let folder = &arguments.output;
    let io = |path: &Path, source| RecordError::Io { path: path.display().to_string(), source };
    std::fs::create_dir_all(folder).map_err(|error| io(folder, error))?;
    let source = folder.join(format!("{stem}.rs"));
    let record = folder.join(format!("{stem}.{}", made.generated.format.extension()));
    if let (Ok(input), Ok(output)) = (arguments.model.canonicalize(), record.canonicalize())
        && input == output
    {
        let path = record.display();
        return Err(CommandError::Usage(format!("the record would replace {path}; give another folder")));
    }
    made.write_record(&record)?;
    std::fs::write(&source, &made.generated.source).map_err(|error| io(&source, error))?;
    Ok((source, record))
}

/// The files' name: the checkpoint's, without what is no part of a module's name.
fn stem(name: &str) -> String {
    let stem = name.split('.').next().unwrap_or_default();
    let stem: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    match stem.chars().next() {
        None => "model".to_owned(),
        // Modules' names begin with no digit.
        Some('0'..='9') => format!("model_{stem}"),
        Some(_) => stem,
    }
}
