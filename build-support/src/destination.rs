//! What Kiln finds where it is going to write and does not replace: what a model is read from, and what others wrote.

use crate::BuildError;
use kiln_codegen::{GENERATED_MARK, literals};
use kiln_importer::onnx::SourceFile;
use kiln_record::safetensors::Safetensors;
use kiln_record::{RecordError, Replacement, begins_as_record};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The files that models of this process have become, as they are called where case does not matter, with their models.
static CLAIMED: Mutex<BTreeMap<String, (PathBuf, PathBuf)>> = Mutex::new(BTreeMap::new());

/// Refuses to write files that another model has become: a build script may have several builders for one folder.
pub(crate) fn claim(model: &Path, files: &[PathBuf]) -> Result<(), BuildError> {
    let place = fs::canonicalize(model).unwrap_or_else(|_| model.to_owned());
    let key = |file: &PathBuf| {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        file.to_string_lossy().to_lowercase()
    };
    // What panicked meanwhile has claimed whole files.
    let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
    let others = files.iter().filter_map(|file| claimed.get(&key(file)));
    if let Some((_, first)) = others.into_iter().find(|(other, _)| *other != place) {
        return Err(BuildError::SameName { first: first.clone(), second: model.to_owned() });
    }
    claimed.extend(files.iter().map(|file| (key(file), (place.clone(), model.to_owned()))));
    Ok(())
}

/// Files that are written together: none is replaced before all are there.
#[derive(Default)]
pub(crate) struct Writing(Vec<(PathBuf, Replacement)>);

impl Writing {
    /// Writes one, at the path that `write` gets; it takes its place with the others.
    pub(crate) fn add(
        &mut self,
        path: &Path,
        write: impl FnOnce(&Path) -> Result<(), RecordError>,
    ) -> Result<(), BuildError> {
        let replacement = Replacement::new(path);
        write(replacement.path()).map_err(|error| failed(path, error))?;
        self.0.push((path.to_owned(), replacement));
        Ok(())
    }

    /// Puts all in their places; yields their paths.
    pub(crate) fn commit(self) -> Result<Vec<PathBuf>, BuildError> {
        let committed = self.0.into_iter().map(|(path, replacement)| {
            replacement.commit().map_err(|error| failed(&path, error))?;
            Ok(path)
        });
        committed.collect()
    }
}

/// An error of a file that is written beside another, as one of that.
fn failed(path: &Path, error: RecordError) -> BuildError {
    let source = match error {
        RecordError::Io { source, .. } => RecordError::Io { path: path.display().to_string(), source },
        error => error,
    };
    BuildError::Record { path: path.to_owned(), source: Box::new(source) }
}

/// Refuses to replace a file that the model is read from. `what` is what is written: `the record`.
pub(crate) fn check_read(what: &'static str, path: &Path, sources: &[SourceFile]) -> Result<(), BuildError> {
    // What is not there is no source.
    let Ok(place) = fs::canonicalize(path) else { return Ok(()) };
    let is_read = |source: &SourceFile| fs::canonicalize(&source.path).is_ok_and(|source| source == place);
    match sources.iter().any(is_read) {
        true => Err(replaces(what, path, "which the model is read from; give another folder".to_owned())),
        false => Ok(()),
    }
}

/// Refuses to replace source that Kiln did not generate.
pub(crate) fn check_source(path: &Path) -> Result<(), BuildError> {
    match is_generated(path) {
        Ok(true) => Ok(()),
        // What is not there, or no file: writing tells of it.
        Err(_) if !path.is_file() => Ok(()),
        // Writing would replace what only may not be read.
        Err(error) => {
            let reason =
                format!("which cannot be read ({error}); give another folder, or move the file away");
            Err(replaces("the source", path, reason))
        }
        Ok(false) => {
            let mark = GENERATED_MARK.trim_end();
            let reason =
                format!("which does not begin with `{mark}`; give another folder, or move the file away");
            Err(replaces("the source", path, reason))
        }
    }
}

/// Whether a file begins as generated source does.
fn is_generated(path: &Path) -> std::io::Result<bool> {
    // A pipe would be waited for.
    if !fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    let mut start = Vec::new();
    File::open(path)?.take(GENERATED_MARK.len() as u64).read_to_end(&mut start)?;
    Ok(start == GENERATED_MARK.as_bytes())
}

/// Refuses to replace data that neither Kiln nor Burn wrote, whatever its name: a model's own weights, say, that lie beside it.
pub(crate) fn check_record(what: &'static str, path: &Path) -> Result<(), BuildError> {
    let is_record = || {
        let begins = File::open(path).and_then(begins_as_record);
        // What cannot be read is not known to be Kiln's.
        begins.unwrap_or(false) || Safetensors::open(path).is_ok_and(|file| file.version().is_some())
    };
    if !path.is_file() || is_record() { Ok(()) } else { Err(unknown(what, path)) }
}

/// Refuses to replace numbers that no source of Kiln's beside them has compiled into it: they have no mark of their own.
pub(crate) fn check_numbers(what: &'static str, path: &Path, source: &Path) -> Result<(), BuildError> {
    let is_named = || names(source, path);
    // A network without weights leaves a file of none, which its source does not name.
    let is_empty = || fs::metadata(path).is_ok_and(|about| about.len() == 0);
    if !path.is_file() || is_empty() || is_named() { Ok(()) } else { Err(unknown(what, path)) }
}

/// Whether source of Kiln's has a file beside it compiled into it.
fn names(source: &Path, path: &Path) -> bool {
    // As generated source writes it.
    let name = literals::string(&path.file_name().unwrap_or_default().to_string_lossy()).to_string();
    is_generated(source).unwrap_or(false)
        && fs::read_to_string(source).is_ok_and(|source| source.contains(&name))
}

/// The numbers that source of Kiln's has compiled into it, which are beside it.
pub(crate) fn numbers_of(source: &Path, extension: &str) -> Option<PathBuf> {
    let numbers = source.with_extension(extension);
    (numbers.is_file() && names(source, &numbers)).then_some(numbers)
}

/// Removes a file of Kiln's.
pub(crate) fn remove(path: &Path) -> Result<(), BuildError> {
    let io = |source| RecordError::Io { path: path.display().to_string(), source };
    fs::remove_file(path).map_err(|error| failed(path, io(error)))
}

fn unknown(what: &'static str, path: &Path) -> BuildError {
    replaces(what, path, "which Kiln did not write; give another folder, or move the file away".to_owned())
}

fn replaces(what: &'static str, path: &Path, reason: String) -> BuildError {
    BuildError::Replaces { what, path: path.to_owned(), reason }
}

/// Whether the skeleton at this path is another than the one that was made: people complete skeletons, and what they wrote stays.
#[cfg(feature = "cli")]
pub(crate) fn is_anothers(path: &Path, made: &str) -> bool {
    // What cannot be read is not known to be this one.
    path.is_file() && !fs::read(path).is_ok_and(|there| there == made.as_bytes())
}
