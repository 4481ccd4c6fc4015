//! What can go wrong between a model file and its source.

use kiln_record::RecordError;
use std::path::{Path, PathBuf};

/// A model could not be compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// `ModelGen` was run with nothing to do.
    #[error("no model was given: call `ModelGen::input(\"model.onnx\")` before running")]
    NoInputs,
    /// Two inputs would write the same file.
    #[error("{} and {} would both become the same file: give one another name, or its own `ModelGen` and `out_dir`", first.display(), second.display())]
    SameName {
        /// One model.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A build script's folder that is not below `OUT_DIR`.
    #[error(
        "`out_dir` is {path:?}, but a build script writes below OUT_DIR, where the model finds its record: give a folder there, without a root and without `..`, or use `run_from_cli`"
    )]
    OutDir {
        /// The folder.
        path: PathBuf,
    },
    /// The model could not be imported; the error names the file.
    #[error(transparent)]
    Import(Box<kiln_importer::ImportError>),
    /// No source could be made from the imported model.
    #[error("{}: {source}", path.display())]
    Codegen {
        /// The model.
        path: PathBuf,
        /// Why.
        source: Box<kiln_codegen::CodegenError>,
    },
    /// No source without a runtime could be made from the imported model.
    #[error("{}: {source}", path.display())]
    Standalone {
        /// The model.
        path: PathBuf,
        /// Why.
        source: Box<kiln_standalone::StandaloneError>,
    },
    /// An option that means nothing without a runtime.
    #[error(
        "`standalone` and `{option}` exclude each other: source without a runtime is for inference in f32, its weights are compiled into it"
    )]
    NeedsRuntime {
        /// The option's name in `ModelGen`.
        option: &'static str,
    },
    /// The record could not be written.
    #[error("{}", of_record(path, source))]
    Record {
        /// The record.
        path: PathBuf,
        /// Why.
        source: Box<RecordError>,
    },
    /// A file would take the place of one that is not Kiln's to replace.
    #[error("{what} would replace {}, {reason}", path.display())]
    Replaces {
        /// What is written: `the record`.
        what: &'static str,
        /// The file that is there.
        path: PathBuf,
        /// Why it stays, and what to do.
        reason: String,
    },
    /// Golden data does not fit the model.
    #[error("golden data {}: {reason}", path.display())]
    Golden {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A folder to write to could not be made.
    #[error("the folder {} cannot be made: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A path that cargo cannot be told of.
    #[error(
        "the path {path:?} has a character that nobody sees, such as a line break, or is no Unicode: give the file or folder another name"
    )]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// Several models failed.
    #[error("{}", .0.iter().map(BuildError::report).collect::<Vec<_>>().join("\n"))]
    Several(Vec<BuildError>),
}

impl BuildError {
    /// One error for many; `Ok` for none.
    pub(crate) fn collect(mut errors: Vec<BuildError>) -> Result<(), BuildError> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(BuildError::Several(errors)),
        }
    }

    /// The message with its causes, one line each.
    pub fn report(&self) -> String {
        let mut text = self.to_string();
        // The variants above print their first cause themselves, and some causes theirs.
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let line = error.to_string();
            if !text.contains(&line) {
                text.push_str(&format!("\n  because: {line}"));
            }
            cause = error.source();
        }
        text
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> BuildError {
        let path = path.into();
        move |source| BuildError::Io { path, source }
    }

    pub(crate) fn folder(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> BuildError {
        let path = path.into();
        move |source| BuildError::Folder { path, source }
    }
}

/// What happened to a record; an error of its file names the file itself.
fn of_record(path: &Path, source: &RecordError) -> String {
    match source {
        RecordError::Io { .. } => source.to_string(),
        _ => format!("{}: {source}", path.display()),
    }
}
