//! What does not fit between a module and a file of parameters, all of it in one error.

use super::walk::kind_name;
use crate::tensor::{DType, DTypeKind};
use alloc::{string::String, vec::Vec};
use core::fmt;

/// The parameters in a file are not the module's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterMismatch {
    /// The file.
    pub source: String,
    /// Parameters of the module that the file does not have.
    pub missing: Vec<MissingParameter>,
    /// Parameters of another shape or kind than the module's.
    pub wrong: Vec<WrongParameter>,
    /// Lists of another length and enums of another variant than the module's: path, and what differs, as a sentence that
    /// goes on from it.
    pub structure: Vec<(String, String)>,
    /// Paths in the file that the module does not have.
    pub unused: Vec<String>,
}

/// A parameter that the file does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingParameter {
    /// Its path.
    pub path: String,
    /// Its shape in the module.
    pub shape: Vec<usize>,
    /// The unused path in the file that looks most like it.
    pub nearest: Option<String>,
}

/// A parameter of another shape or kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongParameter {
    /// Its path.
    pub path: String,
    /// Kind and shape in the module.
    pub expected: (DTypeKind, Vec<usize>),
    /// Dtype and shape in the file.
    pub found: (DType, Vec<usize>),
}

impl ParameterMismatch {
    /// Whether everything fits.
    pub fn is_empty(&self) -> bool {
        let fits = self.missing.is_empty() && self.wrong.is_empty() && self.structure.is_empty();
        fits && self.unused.is_empty()
    }
}

/// How many lines each part of the message has at most.
const SHOWN: usize = 20;

impl fmt::Display for ParameterMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not have the module's parameters", self.source)?;
        for MissingParameter { path, shape, nearest } in self.missing.iter().take(SHOWN) {
            write!(f, "\n  missing: {path} {shape:?}")?;
            if let Some(nearest) = nearest {
                write!(f, " (the file has {nearest})")?;
            }
        }
        write_rest(f, self.missing.len(), "missing")?;
        for WrongParameter { path, expected, found } in self.wrong.iter().take(SHOWN) {
            let kind = kind_name(expected.0);
            write!(
                f,
                "\n  wrong: {path} is {kind} {:?}, the file has {} {:?}",
                expected.1, found.0, found.1
            )?;
        }
        write_rest(f, self.wrong.len(), "wrong")?;
        for (path, what) in self.structure.iter().take(SHOWN) {
            write!(f, "\n  wrong: {path} {what}")?;
        }
        write_rest(f, self.structure.len(), "wrong")?;
        for path in self.unused.iter().take(SHOWN) {
            write!(f, "\n  unused: {path}")?;
        }
        write_rest(f, self.unused.len(), "unused")
    }
}

impl core::error::Error for ParameterMismatch {}

/// Says how many were not shown.
fn write_rest(f: &mut fmt::Formatter<'_>, count: usize, what: &str) -> fmt::Result {
    match count.saturating_sub(SHOWN) {
        0 => Ok(()),
        more => write!(f, "\n  and {more} more {what}"),
    }
}

/// The candidate that looks most like `path`, if one does at all.
pub fn nearest(path: &str, candidates: &[String]) -> Option<String> {
    // More candidates than a person would compare: a name is a hint only.
    let scored = candidates.iter().take(500).map(|candidate| (distance(path, candidate), candidate));
    let (best, candidate) = scored.min_by_key(|(distance, _)| *distance)?;
    (best * 2 <= path.len().max(candidate.len())).then(|| candidate.clone())
}

/// Number of bytes to insert, delete or replace.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, byte) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (other, cell) in b.bytes().zip(row.iter_mut().skip(1)) {
            let replaced = diagonal + usize::from(byte != other);
            diagonal = *cell;
            *cell = replaced.min(diagonal + 1).min(left + 1);
            left = *cell;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    #[test]
    fn distances() {
        for (a, b, expected) in
            [("", "", 0), ("abc", "", 3), ("", "ab", 2), ("kitten", "sitting", 3), ("a", "a", 0)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn a_name_without_likeness_has_no_nearest() {
        let candidates = vec!["fc1.weight".to_string(), "zzz".to_string()];
        assert_eq!(nearest("fc.weight", &candidates), Some("fc1.weight".to_string()));
        assert_eq!(nearest("layer4.conv", &["q".to_string()]), None);
    }
}
