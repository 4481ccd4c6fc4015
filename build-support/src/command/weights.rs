//! Checkpoints: `kiln convert` of weights without a graph.

use super::{CommandError, Outcome, convert, plain, show, warn};
use crate::BuildError;
use crate::compile::crate_name;
use crate::destination::{self, Writing};
use clap::{Args, ValueEnum};
use kiln_codegen::names::module_name;
use kiln_skeletons::{Skeleton, SkeletonOptions, layer_names, skeleton};
use kiln_weights::{Checkpoint, KeyMap, OpenOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

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
    /// Say which layer a key is, or `Param` for none; a part of the key that is `*` stands for any. May be given several times
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

/// Whether a path is that of weights, not of a model. Where the ending tells nothing, the first bytes do.
pub(super) fn is_checkpoint(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let index = path.to_str().is_some_and(|path| path.ends_with(".index.json"));
    match extension {
        "onnx" | "pt2" => false,
        "pt" | "pth" | "bin" | "ckpt" | "safetensors" => true,
        _ => index || path.is_dir() || begins_like_checkpoint(path),
    }
}

/// Whether a file is a zip archive, a pickle or a tar archive, which no ONNX file begins like.
fn begins_like_checkpoint(path: &Path) -> bool {
    // A pipe would be waited for, and what is read of it is gone.
    if !path.is_file() {
        return false;
    }
    let mut start = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(262).read_to_end(&mut start));
    let pickle = matches!(start.as_slice(), [0x80, 2..=5, ..]);
    let tar = start.get(257..262) == Some(b"ustar".as_slice());
    read.is_ok() && (start.starts_with(b"PK\x03\x04") || pickle || tar)
}

/// How many tensors that are left out are named.
const SHOWN: usize = 20;

/// `kiln convert CHECKPOINT -o DIR`.
pub(super) fn convert(arguments: &convert::Arguments) -> Outcome {
    let own = &arguments.weights;
    let options = OpenOptions { top_level_key: own.top_level_key.clone() };
    let checkpoint = Checkpoint::open_with(&arguments.model, &options)?;
    let map = KeyMap::new(own.map.iter().map(|(pattern, replacement)| (pattern, replacement)))?;
    let tensors: Vec<_> =
        map.tensors(&checkpoint)?.into_iter().map(|found| (found.key, found.tensor)).collect();
    if let (true, Some((key, _))) = (tensors.is_empty(), checkpoint.unsupported().next()) {
        // All that there is.
        checkpoint.data(key)?;
    }
    let name = file_name(&arguments.model);
    let options = SkeletonOptions {
        runtime_crate: crate_name(&arguments.runtime_crate),
        source_name: name.clone(),
        pytorch: own.adapter.unwrap_or_default() == Adapter::Pytorch,
        settled: settled(&own.settled)?,
        record: arguments.record_type.into(),
        half_precision: arguments.half_precision,
        ..SkeletonOptions::default()
    };
    let fail = |source| CommandError::Skeleton { file: checkpoint.file().to_owned(), source };
    let made = skeleton(tensors, &options).map_err(fail)?;
    let (source, record) = write(&made, arguments, &module_name(&name))?;
    match source {
        Written::Source(source) => show(&format!("{}\n{}\n", source.display(), record.display())),
        Written::Kept(source) => {
            show(&format!("{}\n", record.display()));
            let source = plain(&source.display().to_string());
            warn(&format!(
                "note: {source} is left as it is: it is not the skeleton that would be written now, and may hold your work; \
                 for a fresh one move it away, or give another folder"
            ));
        }
    }
    for (key, what) in checkpoint.unsupported().take(SHOWN) {
        let (key, what) = (plain(key), plain(what));
        warn(&format!(
            "note: {key} is left out: it is {what}; convert it before saving if the model needs it"
        ));
    }
    match checkpoint.unsupported().len().saturating_sub(SHOWN) {
        0 => {}
        more => warn(&format!("note: {more} more are left out, which `kiln inspect --all` names")),
    }
    for pattern in map.idle(&checkpoint) {
        warn(&format!("note: --map `{pattern}` finds nothing in any key"));
    }
    // Structs of several places may have the same to say of a layer.
    let mut told = BTreeSet::new();
    for (key, hint) in made.ambiguous.iter().filter(|note| told.insert(*note)) {
        warn(&format!("note: {}: {hint}", plain(key)));
    }
    if let Some(wrapper) = made.wrapper {
        let wrapper = plain(wrapper);
        warn(&format!(r"note: every key begins with `{wrapper}.`; --map '^{wrapper}\.=' takes that off"));
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

/// What became of a skeleton's source.
enum Written {
    /// It is at this path.
    Source(PathBuf),
    /// Another was at this path, and is still.
    Kept(PathBuf),
}

/// Writes the source and the record of a skeleton; yields their paths.
fn write(
    made: &Skeleton,
    arguments: &convert::Arguments,
    stem: &str,
) -> Result<(Written, PathBuf), CommandError> {
    let folder = &arguments.output;
    std::fs::create_dir_all(folder).map_err(BuildError::folder(folder))?;
    let source = folder.join(format!("{stem}.rs"));
    let record = folder.join(format!("{stem}.{}", made.generated.format.extension()));
    if let (Ok(input), Ok(output)) = (arguments.model.canonicalize(), record.canonicalize())
        && input == output
    {
        let path = record.display();
        return Err(CommandError::Usage(format!("the record would replace {path}; give another folder")));
    }
    destination::check_record("the record", &record)?;
    let mut writing = Writing::default();
    writing.add(&record, |part| made.write_record(part))?;
    let kept = destination::is_anothers(&source, &made.generated.source);
    if !kept {
        writing.add(&source, |part| crate::compile::write_bytes(part, made.generated.source.as_bytes()))?;
    }
    writing.commit()?;
    Ok((if kept { Written::Kept(source) } else { Written::Source(source) }, record))
}
