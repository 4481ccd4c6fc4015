//! What does not fit between a module and a file of parameters, all of it in one error.

use super::walk::kind_name;
use crate::tensor::{DType, DTypeKind};
use alloc::{string::String, vec::Vec};
use core::fmt;
use kiln_types::Line;

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

/// How many lines each part of a message has at most: more than networks have parameters, fewer than a file may have.
pub const SHOWN: usize = 1000;

impl fmt::Display for ParameterMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not have the module's parameters", Line(&self.source))?;
        for MissingParameter { path, shape, nearest } in self.missing.iter().take(SHOWN) {
            write!(f, "\n  missing: {} {shape:?}", Line(path))?;
            if let Some(nearest) = nearest {
                write!(f, " (the file has {})", Line(nearest))?;
            }
        }
        write_rest(f, self.missing.len(), "missing")?;
        for WrongParameter { path, expected: (kind, shape), found: (dtype, stored) } in
            self.wrong.iter().take(SHOWN)
        {
            let kind = kind_name(*kind);
            write!(f, "\n  wrong: {} is {kind} {shape:?}, the file has {dtype} {stored:?}", Line(path))?;
        }
        write_rest(f, self.wrong.len(), "wrong")?;
        for (path, what) in self.structure.iter().take(SHOWN) {
            write!(f, "\n  wrong: {} {}", Line(path), Line(what))?;
        }
        write_rest(f, self.structure.len(), "wrong")?;
        for path in self.unused.iter().take(SHOWN) {
            write!(f, "\n  unused: {}", Line(path))?;
        }
        write_rest(f, self.unused.len(), "unused")
    }
}

impl core::error::Error for ParameterMismatch {}

/// Says how many were not shown.
pub fn write_rest(f: &mut fmt::Formatter<'_>, count: usize, what: &str) -> fmt::Result {
    match count.saturating_sub(SHOWN) {
        0 => Ok(()),
        more => write!(f, "\n  and {more} more {what}"),
    }
}

/// For how many missing parameters the nearest name is looked up.
pub const COMPARED: usize = 100;

/// Longest name that is compared, in bytes: files may have much longer ones.
pub const LONGEST_COMPARED: usize = 256;

/// How many candidates are compared: more than a person would, and a name is a hint only.
const CANDIDATES: usize = 500;

/// How many pairs of bytes are compared for a name: enough for all candidates where names are of usual length.
const PAIRS: usize = 1 << 20;

/// The candidate that looks most like `path`, if one does at all.
pub fn nearest<'a>(path: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if path.len() > LONGEST_COMPARED {
        return None;
    }
    let mut pairs = 0;
    let comparable = candidates.into_iter().filter(|candidate| candidate.len() <= LONGEST_COMPARED);
    let compared = comparable.take(CANDIDATES).take_while(|candidate| {
        pairs += path.len() * candidate.len();
        pairs <= PAIRS
    });
    let scored = compared.map(|candidate| (distance(path, candidate), candidate));
    let (best, candidate) = scored.min_by_key(|(distance, _)| *distance)?;
    (best * 2 <= path.len().max(candidate.len())).then_some(candidate)
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
        assert_eq!(nearest("fc.weight", ["fc1.weight", "zzz"]), Some("fc1.weight"));
        assert_eq!(nearest("layer4.conv", ["q"]), None);
    }

    /// Names of a file may have any length: comparing these would take minutes.
    #[test]
    fn long_names_are_not_compared() {
        let long = "x".repeat(60_000);
        assert_eq!(nearest(&long, [long.as_str()]), None);
        assert_eq!(
            nearest("fc.weight", vec![long.as_str(); 500].into_iter().chain(["fc1.weight"])),
            Some("fc1.weight")
        );
        let lengthy = "y".repeat(LONGEST_COMPARED);
        let many = vec![lengthy.as_str(); 499].into_iter().chain(["fc1.weight"]);
        assert_eq!(nearest("fc.weight", many), None, "too many pairs");
    }

    /// A key stays in its line.
    #[test]
    fn keys_are_escaped() {
        let key = || "a\n  missing: b\u{1b}[2J".to_string();
        let missing = MissingParameter { path: "a".to_string(), shape: vec![2], nearest: Some(key()) };
        let wrong = WrongParameter {
            path: key(),
            expected: (DTypeKind::Float, vec![1]),
            found: (DType::F32, vec![2]),
        };
        let report = ParameterMismatch {
            source: "model\n.safetensors".to_string(),
            missing: vec![missing],
            wrong: vec![wrong],
            structure: vec![(key(), "differs\n".to_string())],
            unused: vec![key()],
        };
        let text = report.to_string();
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(text.ends_with(r"unused: a\n  missing: b\u{1b}[2J"), "{text}");
    }
}
