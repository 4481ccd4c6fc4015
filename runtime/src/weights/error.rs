//! What can go wrong between a checkpoint and a module.

use crate::record::{RecorderError, nearest};
use crate::tensor::{DType, DTypeKind};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::{boxed::Box, format, vec::Vec};
use core::fmt;
use kiln_weights::{ErrorKind, WeightsError};

/// A checkpoint could not be loaded into a module, or a module not be saved as one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file could not be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Parameters and tensors do not fit.
    #[error(transparent)]
    Report(#[from] Box<ImportReport>),
    /// The record could not be put together, or written.
    #[error("{0}")]
    Record(String),
}

impl From<ImportError> for RecorderError {
    fn from(error: ImportError) -> Self {
        match &error {
            ImportError::Weights(weights) => match &*weights.kind {
                ErrorKind::Io(io) if io.kind() == std::io::ErrorKind::NotFound => {
                    RecorderError::FileNotFound(error.to_string())
                }
                _ => RecorderError::DeserializeError(error.to_string()),
            },
            _ => RecorderError::DeserializeError(error.to_string()),
        }
    }
}

/// Everything that does not fit between a module and a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// The file.
    pub source: String,
    /// Parameters that the file does not have.
    pub missing: Vec<MissingWeight>,
    /// Parameters that the file has in another shape or kind.
    pub wrong: Vec<WrongWeight>,
    /// Keys that no parameter took, with their shapes.
    pub unused: Vec<(String, Vec<usize>)>,
}

/// A parameter that the file does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingWeight {
    /// Its path in the module.
    pub path: String,
    /// The key that it was looked for under.
    pub key: String,
    /// Its shape in the module, where it is known.
    pub shape: Option<Vec<usize>>,
}

/// A parameter that the file has in another shape or kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongWeight {
    /// Its path in the module.
    pub path: String,
    /// The key in the file.
    pub key: String,
    /// Kind and shape in the module.
    pub expected: (DTypeKind, Vec<usize>),
    /// Dtype and shape in the file.
    pub found: (DType, Vec<usize>),
}

/// How many lines each part of the message has at most.
const SHOWN: usize = 20;

impl ImportReport {
    /// The unused key that looks most like a missing one; one with as many elements, if there is any.
    fn nearest(&self, missing: &MissingWeight) -> Option<&(String, Vec<usize>)> {
        let count = |shape: &[usize]| shape.iter().product::<usize>();
        let same_size = |unused: &&(String, Vec<usize>)| {
            missing.shape.as_ref().is_none_or(|shape| count(shape) == count(&unused.1))
        };
        let fitting: Vec<String> =
            self.unused.iter().filter(same_size).map(|unused| unused.0.clone()).collect();
        let all = || self.unused.iter().map(|unused| unused.0.clone()).collect::<Vec<_>>();
        let found = nearest(&missing.key, &fitting).or_else(|| nearest(&missing.key, &all()))?;
        self.unused.iter().find(|unused| unused.0 == found)
    }

    /// The change of prefix that would explain most of what is missing: pattern and replacement.
    fn suggestion(&self) -> Option<(String, String)> {
        let mut votes: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for missing in self.missing.iter().take(500) {
            for (key, _) in self.unused.iter().take(500) {
                if let Some(prefixes) = different_prefixes(key, &missing.key) {
                    *votes.entry(prefixes).or_default() += 1;
                }
            }
        }
        // The last of the best has the longest prefixes; the first, and so the simplest, is the one to name.
        let most = *votes.values().max()?;
        let ((from, to), _) = votes.into_iter().find(|(_, count)| *count == most)?;
        let dotted = |prefix: &str| if prefix.is_empty() { String::new() } else { format!("{prefix}.") };
        let pattern = format!("^{}(.*)", dotted(from).replace('.', "\\."));
        Some((pattern, format!("{}$1", dotted(to))))
    }
}

/// What stands before the longest common end of two keys, if they end alike and differ.
fn different_prefixes<'a>(a: &'a str, b: &'a str) -> Option<(&'a str, &'a str)> {
    let mut common = 0;
    for (x, y) in a.rsplit('.').zip(b.rsplit('.')) {
        if x != y {
            break;
        }
        common += x.len() + 1;
    }
    let cut = |key: &'a str| key.len().checked_sub(common).map_or("", |end| key.get(..end).unwrap_or(""));
    let (x, y) = (cut(a), cut(b));
    (common > 0 && x != y).then_some((x, y))
}

impl fmt::Display for ImportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not fit the module", self.source)?;
        for missing in self.missing.iter().take(SHOWN) {
            write!(f, "\n  missing: {}", missing.path)?;
            if let Some(shape) = &missing.shape {
                write!(f, " {shape:?}")?;
            }
            if missing.key != missing.path {
                write!(f, ", looked for as {}", missing.key)?;
            }
            if let Some((key, shape)) = self.nearest(missing) {
                write!(f, " (the file has {key} {shape:?})")?;
            }
        }
        write_rest(f, self.missing.len(), "missing")?;
        for WrongWeight { path, key, expected, found } in self.wrong.iter().take(SHOWN) {
            let kind = match expected.0 {
                DTypeKind::Float => "float",
                DTypeKind::Int => "int",
                DTypeKind::Bool => "bool",
            };
            let (shape, dtype, stored) = (&expected.1, found.0, &found.1);
            write!(f, "\n  wrong: {path} is {kind} {shape:?}, {key} in the file is {dtype} {stored:?}")?;
        }
        write_rest(f, self.wrong.len(), "wrong")?;
        for (key, shape) in self.unused.iter().take(SHOWN) {
            write!(f, "\n  unused: {key} {shape:?}")?;
        }
        write_rest(f, self.unused.len(), "unused")?;
        if let (false, Some((pattern, replacement))) = (self.missing.is_empty(), self.suggestion()) {
            write!(
                f,
                "\n  try --map '{pattern}={replacement}', or .with_key_remap({pattern:?}, {replacement:?})"
            )?;
        }
        Ok(())
    }
}

impl core::error::Error for ImportReport {}

/// Says how many were not shown.
fn write_rest(f: &mut fmt::Formatter<'_>, count: usize, what: &str) -> fmt::Result {
    match count.saturating_sub(SHOWN) {
        0 => Ok(()),
        more => write!(f, "\n  and {more} more {what}"),
    }
}

impl From<RecorderError> for ImportError {
    fn from(error: RecorderError) -> Self {
        ImportError::Record(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_that_differ() {
        let cases = [
            ("conv.conv1.weight", "conv1.weight", Some(("conv", ""))),
            ("a.x.weight", "b.x.weight", Some(("a", "b"))),
            ("x.weight", "x.weight", None),
            ("x.weight", "x.bias", None),
            ("x.weight", "weight", Some(("x", ""))),
        ];
        for (a, b, expected) in cases {
            assert_eq!(different_prefixes(a, b), expected, "{a} {b}");
        }
    }
}
