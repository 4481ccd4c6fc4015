//! `kiln inspect` of a checkpoint: its tensors as a tree.

use super::{Outcome, inspect, json, plain, show};
use kiln_skeletons::MAX_DEPTH;
use kiln_weights::{Checkpoint, CheckpointFormat, LazyTensor, OpenOptions};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::Arc;

/// `kiln inspect CHECKPOINT`.
pub(super) fn inspect(arguments: &inspect::Arguments) -> Outcome {
    let options = OpenOptions { top_level_key: arguments.top_level_key.clone() };
    let checkpoint = Checkpoint::open_with(&arguments.model, &options)?;
    if arguments.json {
        show(&json::line(&object(&checkpoint)));
    } else {
        let mut text = String::new();
        // Writing to a text does not fail.
        let _ = print(&checkpoint, arguments.all, &mut text);
        show(&text);
    }
    Ok(true)
}

/// Elements and bytes; tensors that share a storage count once for each name.
fn totals(checkpoint: &Checkpoint) -> (usize, usize) {
    let sum = |count: fn(&LazyTensor) -> usize| {
        checkpoint.tensors().map(|(_, tensor)| count(tensor)).fold(0, usize::saturating_add)
    };
    (sum(LazyTensor::num_elements), sum(stored_bytes))
}

/// Bytes of a tensor's elements as the file keeps them.
fn stored_bytes(tensor: &LazyTensor) -> usize {
    tensor.num_elements().saturating_mul(tensor.stored().size())
}

/// Bytes of all storages, each counted once.
fn stored(checkpoint: &Checkpoint) -> usize {
    let storages = checkpoint.tensors().map(|(_, tensor)| tensor.storage());
    let sizes: BTreeMap<_, usize> = storages.map(|storage| (Arc::as_ptr(storage), storage.len())).collect();
    sizes.into_values().fold(0, usize::saturating_add)
}

fn print(checkpoint: &Checkpoint, all: bool, out: &mut String) -> fmt::Result {
    let (numbers, bytes) = totals(checkpoint);
    writeln!(out, "{}", plain(checkpoint.file()))?;
    writeln!(out, "  format      {}", format_name(checkpoint.format()))?;
    let stored = match stored(checkpoint) {
        stored if stored == bytes => String::new(),
        stored => format!(" ({} stored)", size(stored as u64)),
    };
    writeln!(
        out,
        "  parameters  {numbers} in {} tensors, {}{stored}",
        checkpoint.tensors().len(),
        size(bytes as u64)
    )?;
    let mut dtypes: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, tensor) in checkpoint.tensors() {
        *dtypes.entry(tensor.stored().name()).or_default() += 1;
    }
    if dtypes.len() > 1 {
        let dtypes: Vec<String> = dtypes.iter().map(|(name, count)| format!("{name} in {count}")).collect();
        writeln!(out, "  dtypes      {}", dtypes.join(", "))?;
    }
    writeln!(out, "  tensors")?;
    let mut root = Branch::default();
    for (path, tensor) in checkpoint.tensors() {
        root.insert(path, tensor);
    }
    // Most names are this short.
    let dtype_width = dtypes.keys().map(|name| name.len()).fold(5, usize::max);
    let left_out = root.print(2, Style { all, dtype_width }, out)?;
    if left_out > 0 {
        writeln!(out, "  {left_out} tensors of parts that are alike are left out; --all prints them")?;
    }
    let unsupported = checkpoint.unsupported();
    let more = if all { 0 } else { unsupported.len().saturating_sub(SHOWN) };
    for (key, what) in unsupported.take(if all { usize::MAX } else { SHOWN }) {
        writeln!(out, "  cannot read {}: {}", plain(key), plain(what))?;
    }
    if more > 0 {
        writeln!(out, "  cannot read {more} more")?;
    }
    let shared = checkpoint.shared_storages();
    for group in shared.iter().take(if all { shared.len() } else { SHOWN }) {
        let names: Vec<String> = group.iter().map(|name| plain(name)).collect();
        writeln!(out, "  shared      {}", names.join(", "))?;
    }
    match shared.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        _ if all => Ok(()),
        more => writeln!(out, "  shared      {more} more groups"),
    }
}

/// How many groups of tensors with one storage are printed.
const SHOWN: usize = 20;

/// The column in which dtypes stand.
const COLUMN: usize = 44;

/// How tensors are printed.
#[derive(Clone, Copy)]
struct Style {
    /// Whether parts that are alike are printed one by one.
    all: bool,
    /// Characters of the longest dtype.
    dtype_width: usize,
}

/// The tensors below a part of the keys.
#[derive(Default)]
struct Branch<'a> {
    tensor: Option<&'a LazyTensor>,
    /// Tensors, the own one and those of all parts.
    count: usize,
    /// Their bytes.
    bytes: usize,
    parts: Vec<(&'a str, Branch<'a>)>,
    places: BTreeMap<&'a str, usize>,
}

impl<'a> Branch<'a> {
    /// Adds a tensor at its place. A key of more parts than a module tree has stays whole: printing goes down part by part.
    fn insert(&mut self, path: &'a str, tensor: &'a LazyTensor) {
        let limit = if path.split('.').nth(MAX_DEPTH).is_some() { 1 } else { MAX_DEPTH };
        let mut branch = self;
        branch.add(tensor);
        for part in path.splitn(limit, '.') {
            let place = *branch.places.entry(part).or_insert(branch.parts.len());
            if place == branch.parts.len() {
                branch.parts.push((part, Branch::default()));
            }
            let Some((_, below)) = branch.parts.get_mut(place) else { return };
            branch = below;
            branch.add(tensor);
        }
        branch.tensor = Some(tensor);
    }

    /// Counts a tensor that is at this place or below.
    fn add(&mut self, tensor: &LazyTensor) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(stored_bytes(tensor));
    }

    /// Whether both have the same keys, shapes and dtypes.
    fn is_like(&self, other: &Self) -> bool {
        let form = |tensor: &LazyTensor| (tensor.stored(), tensor.shape().to_vec(), tensor.is_contiguous());
        self.tensor.map(form) == other.tensor.map(form)
            && self.parts.len() == other.parts.len()
            && self.parts.iter().zip(&other.parts).all(|((a, x), (b, y))| a == b && x.is_like(y))
    }

    /// How many of the parts from this one on are numbered one after the other and alike.
    fn run(&self, start: usize) -> usize {
        let number = |place: usize| -> Option<usize> { self.parts.get(place)?.0.parse().ok() };
        let Some((_, first)) = self.parts.get(start) else { return 1 };
        let follows = |place: usize| {
            number(place).is_some()
                && number(place) == number(place - 1).and_then(|before| before.checked_add(1))
                && self.parts.get(place).is_some_and(|(_, part)| part.is_like(first))
        };
        1 + (start + 1..self.parts.len()).take_while(|place| follows(*place)).count()
    }

    /// The name of a run of parts.
    fn run_name(&self, first: &str, start: usize, run: usize) -> String {
        match self.parts.get(start + run - 1) {
            Some((last, _)) if run > 1 => format!("{}…{} ({run} alike)", plain(first), plain(last)),
            _ => plain(first),
        }
    }

    /// Prints the parts; yields how many tensors are left out.
    fn print(&self, depth: usize, style: Style, out: &mut String) -> Result<usize, fmt::Error> {
        let mut left_out = 0;
        let mut place = 0;
        while let Some((name, part)) = self.parts.get(place) {
            let run = if style.all { 1 } else { self.run(place) };
            left_out += part.print_named(self.run_name(name, place, run), run, depth, style, out)?;
            place += run;
        }
        Ok(left_out)
    }

    fn print_named(
        &self,
        mut name: String,
        run: usize,
        depth: usize,
        style: Style,
        out: &mut String,
    ) -> Result<usize, fmt::Error> {
        let (mut branch, mut run) = (self, run);
        // A branch of one part, or of parts that are all alike, needs no line of its own.
        while let (None, [(part, below), ..]) = (branch.tensor, branch.parts.as_slice()) {
            let count = if style.all { 1 } else { branch.run(0) };
            if count != branch.parts.len() {
                break;
            }
            name = format!("{name}.{}", branch.run_name(part, 0, count));
            (branch, run) = (below, run * count);
        }
        let Branch { count, bytes, .. } = *branch;
        let indent = 2 * depth;
        let width = COLUMN.saturating_sub(indent);
        let Style { dtype_width, .. } = style;
        let own = branch.tensor.map_or(String::new(), |tensor| {
            let strided = if tensor.is_contiguous() { "" } else { "  (strided)" };
            format!(
                "{:<dtype_width$} {:<20} {:>10}{strided}",
                tensor.stored().name(),
                shape(tensor),
                size(stored_bytes(tensor) as u64)
            )
        });
        let columns = dtype_width + 21;
        let whole = format!("{:<columns$} {:>10}", "", size(bytes.saturating_mul(run) as u64));
        let columns = if branch.tensor.is_some() { own } else { whole };
        writeln!(out, "{:indent$}{name:<width$} {columns}", "")?;
        Ok((run - 1) * count + branch.print(depth + 1, style, out)?)
    }
}

/// What people call a format.
fn format_name(format: CheckpointFormat) -> &'static str {
    match format {
        CheckpointFormat::PytorchZip => "PyTorch",
        CheckpointFormat::PytorchLegacy => "PyTorch before 1.6",
        CheckpointFormat::PytorchTar => "PyTorch before 0.2 (tar)",
        CheckpointFormat::TorchScript => "TorchScript",
        CheckpointFormat::ExportedProgram => "exported program of PyTorch",
        CheckpointFormat::Safetensors => "Safetensors",
        _ => "another",
    }
}

fn shape(tensor: &LazyTensor) -> String {
    format!("{:?}", tensor.shape())
}

/// A number of bytes for people.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

fn object(checkpoint: &Checkpoint) -> serde_json::Value {
    let (parameters, bytes) = totals(checkpoint);
    let tensors = checkpoint.tensors().map(|(path, tensor)| {
        json!({
            "key": path,
            "dtype": tensor.stored().name(),
            "shape": tensor.shape(),
            "bytes": stored_bytes(tensor),
            "contiguous": tensor.is_contiguous(),
        })
    });
    let unsupported = checkpoint.unsupported().map(|(key, what)| json!({ "key": key, "what": what }));
    json!({
        "checkpoint": checkpoint.file(),
        "format": format!("{:?}", checkpoint.format()),
        "parameters": parameters,
        "bytes": bytes,
        "stored": stored(checkpoint),
        "tensors": tensors.collect::<Vec<_>>(),
        "unsupported": unsupported.collect::<Vec<_>>(),
        "shared": checkpoint.shared_storages(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A checkpoint of f32 vectors with one element each.
    fn checkpoint(keys: &[String]) -> Checkpoint {
        let entries = keys.iter().enumerate().map(|(n, key)| {
            let entry = json!({ "dtype": "F32", "shape": [1], "data_offsets": [4 * n, 4 * n + 4] });
            (key.clone(), entry)
        });
        let header = serde_json::Value::Object(entries.collect()).to_string();
        let length = (header.len() as u64).to_le_bytes();
        let file = [&length[..], header.as_bytes(), &vec![0; 4 * keys.len()]].concat();
        Checkpoint::read(kiln_types::Bytes::from_vec(file), "t.safetensors", &OpenOptions::default())
            .expect("a checkpoint")
    }

    fn printed(keys: &[String]) -> String {
        let mut text = String::new();
        print(&checkpoint(keys), false, &mut text).expect("a text");
        text
    }

    /// Threads of tests have 2 MB of stack.
    #[test]
    fn a_deep_key_is_shown_whole() {
        let deep = vec!["a"; 200_000].join(".");
        let text = printed(&[deep.clone(), "a.b".to_owned(), "a.c".to_owned()]);
        let lines: Vec<&str> = text.lines().skip(4).collect();
        assert!(lines[0].trim_start().starts_with(&format!("{deep} f32")), "{}", &lines[0][..100]);
        let rest: Vec<&str> = lines[1..].iter().map(|line| line.trim_start()).collect();
        assert!(rest[0].starts_with("a ") && rest[0].ends_with("8 B"), "{rest:?}");
        assert!(rest[1].starts_with("b ") && rest[2].starts_with("c "), "{rest:?}");
    }

    #[test]
    fn keys_as_deep_as_module_trees_are_shown_as_trees() {
        let deepest = vec!["a"; MAX_DEPTH - 1].join(".");
        let text = printed(&[format!("{deepest}.b"), format!("{deepest}.c")]);
        assert_eq!(text.lines().count(), 4 + 3, "{text}");
        assert!(text.contains(&format!("    {deepest}")) && text.contains("      b "), "{text}");
    }
}
