//! Checkpoints: `kiln inspect` and `kiln convert` of weights without a graph.

use super::convert::RecordFormat;
use super::{CommandError, Outcome, convert, inspect};
use clap::{Args, ValueEnum};
use kiln_codegen::weights::{SkeletonOptions, skeleton};
use kiln_record::RecordError;
use kiln_weights::{Checkpoint, LazyTensor, OpenOptions};
use regex::Regex;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What only checkpoints need, of the arguments of `kiln convert`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Checkpoints")]
pub(super) struct CheckpointArguments {
    /// Replace what a regular expression finds in the keys; `$1` is its first group. May be given several times
    #[arg(long, value_name = "REGEX=REPLACEMENT", value_parser = parse_map)]
    map: Vec<(String, String)>,
    /// Whose names and layouts the tensors have
    #[arg(long, value_enum, default_value = "pytorch")]
    adapter: Adapter,
    /// Where the weights are, if not at the root
    #[arg(long, value_name = "KEY")]
    top_level_key: Option<String>,
    /// Say which layer a key is, or `Param` for none
    #[arg(long = "as", value_name = "KEY=TYPE", value_parser = parse_pair)]
    settled: Vec<(String, String)>,
}

/// Whose conventions a checkpoint follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Adapter {
    /// PyTorch's
    Pytorch,
    /// Kiln's own
    None,
}

/// `KEY=TYPE`.
fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (key, ty) = text.split_once('=').ok_or("expected KEY=TYPE, for example head=Embedding")?;
    Ok((key.to_owned(), ty.to_owned()))
}

/// `REGEX=REPLACEMENT`; the last `=` parts them, since a replacement has none.
fn parse_map(text: &str) -> Result<(String, String), String> {
    let (pattern, replacement) =
        text.rsplit_once('=').ok_or("expected REGEX=REPLACEMENT, for example '^net\\.(.*)=$1'")?;
    Ok((pattern.to_owned(), replacement.to_owned()))
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

/// Parameters and bytes; tensors that share a storage count once for each name.
fn totals(checkpoint: &Checkpoint) -> (usize, usize) {
    let sum = |count: fn(&LazyTensor) -> usize| {
        checkpoint.tensors().map(|(_, tensor)| count(tensor)).fold(0, usize::saturating_add)
    };
    (sum(LazyTensor::num_elements), sum(LazyTensor::num_bytes))
}

fn print(checkpoint: &Checkpoint) {
    let (parameters, bytes) = totals(checkpoint);
    println!("{}", checkpoint.file());
    println!("  format      {:?}", checkpoint.format());
    println!(
        "  parameters  {parameters} in {} tensors, {:.1} MB",
        checkpoint.tensors().len(),
        bytes as f64 / 1e6
    );
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
        "tensors": tensors.collect::<Vec<_>>(),
        "shared": checkpoint.shared_storages(),
    })
}

/// `kiln convert CHECKPOINT -o DIR`.
pub(super) fn convert(arguments: &convert::Arguments) -> Outcome {
    let own = &arguments.weights;
    if !matches!(arguments.record_type, RecordFormat::Safetensors) {
        return Err(CommandError::Usage(
            "the record of a checkpoint is Safetensors; load it with the skeleton and save it with another recorder"
                .to_owned(),
        ));
    }
    let options = OpenOptions { top_level_key: own.top_level_key.clone() };
    let checkpoint = Checkpoint::open_with(&arguments.model, &options)?;
    let tensors = mapped(&checkpoint, &own.map)?;
    let name = arguments.model.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let options = SkeletonOptions {
        runtime_crate: arguments.runtime_crate.clone(),
        source_name: name.clone(),
        pytorch: own.adapter == Adapter::Pytorch,
        settled: own.settled.iter().cloned().collect(),
        half_precision: arguments.half_precision,
        ..SkeletonOptions::default()
    };
    let fail = |source| CommandError::Skeleton { file: checkpoint.file().to_owned(), source };
    let made = skeleton(tensors, &options).map_err(fail)?;
    let stem = stem(&name);
    let (source, record) = paths(&arguments.output, &stem);
    let io = |path: &Path, source| RecordError::Io { path: path.display().to_string(), source };
    std::fs::create_dir_all(&arguments.output).map_err(|error| io(&arguments.output, error))?;
    kiln_record::safetensors::save(&record, &made.tensors, &BTreeMap::new())?;
    std::fs::write(&source, &made.source).map_err(|error| io(&source, error))?;
    println!("{}\n{}", source.display(), record.display());
    for (key, hint) in &made.ambiguous {
        eprintln!("note: {}: {hint}", key.escape_debug());
    }
    Ok(true)
}

/// The tensors under their new keys.
fn mapped(
    checkpoint: &Checkpoint,
    maps: &[(String, String)],
) -> Result<Vec<(String, LazyTensor)>, CommandError> {
    let compile = |(pattern, replacement): &(String, String)| match Regex::new(pattern) {
        Ok(pattern) => Ok((pattern, replacement.clone())),
        Err(error) => Err(CommandError::Usage(format!("`{pattern}` is no regular expression: {error}"))),
    };
    let maps = maps.iter().map(compile).collect::<Result<Vec<_>, _>>()?;
    let mut taken = BTreeSet::new();
    let mut tensors = Vec::new();
    for (original, tensor) in checkpoint.tensors() {
        let key = maps.iter().fold(original.to_owned(), |key, (pattern, replacement)| {
            pattern.replace_all(&key, replacement.as_str()).into_owned()
        });
        if !taken.insert(key.clone()) {
            return Err(CommandError::Usage(format!("two keys become {key:?}, {original:?} among them")));
        }
        tensors.push((key, tensor.clone()));
    }
    Ok(tensors)
}

/// The files' name: the checkpoint's, without what is no part of a module's name.
fn stem(name: &str) -> String {
    let stem = name.split('.').next().unwrap_or_default();
    let stem: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if stem.is_empty() { "model".to_owned() } else { stem }
}

fn paths(folder: &Path, stem: &str) -> (PathBuf, PathBuf) {
    (folder.join(format!("{stem}.rs")), folder.join(format!("{stem}.safetensors")))
}
