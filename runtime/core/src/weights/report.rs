//! Everything that does not fit between a module and a file, in one error that ends the search.

mod suggest;

use super::Unsaved;
use crate::record::{COMPARED, LONGEST_COMPARED, SHOWN, nearest, write_rest};
use crate::tensor::{DType, DTypeKind};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use kiln_types::Line;

/// Everything that does not fit between a module and a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// The file.
    pub source: String,
    /// Parameters that the file does not have.
    pub missing: Vec<MissingWeight>,
    /// Parameters that the file has in another shape or kind.
    pub wrong: Vec<WrongWeight>,
    /// Parameters that are computed from several tensors which do not fit together, with the reason.
    pub broken: Vec<(String, String)>,
    /// Tensors of kinds that Kiln does not have.
    pub unsupported: Vec<UnsupportedWeight>,
    /// Other keys that no parameter took, with their shapes.
    pub unused: Vec<(String, Vec<usize>)>,
}

/// A parameter that the file does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingWeight {
    /// Its path in the module.
    pub path: String,
    /// The key that it was looked for under.
    pub key: String,
    /// Its shape in the module, as far as it is known.
    pub shape: Option<WantedShape>,
}

/// A tensor of a kind that Kiln does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedWeight {
    /// The path of the parameter that it is for, if there is one.
    pub path: Option<String>,
    /// The key in the file.
    pub key: String,
    /// What it is: "a tensor of complex numbers (complex64)".
    pub what: String,
}

/// A parameter that the file has in another shape or kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongWeight {
    /// Its path in the module.
    pub path: String,
    /// The key in the file.
    pub key: String,
    /// Its kind in the module.
    pub kind: DTypeKind,
    /// The shape that the file should have, in the layout of the adapter.
    pub shape: WantedShape,
    /// Dtype and shape in the file.
    pub found: (DType, Vec<usize>),
}

/// What is known of a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedShape {
    /// All dims.
    Dims(Vec<usize>),
    /// How many dims: all that a record knows.
    Rank(usize),
}

impl WantedShape {
    /// Whether a tensor of a shape may have been meant: as many elements, or as many dims.
    fn is_like(&self, shape: &[usize]) -> bool {
        match self {
            WantedShape::Dims(dims) => dims.iter().product::<usize>() == shape.iter().product::<usize>(),
            WantedShape::Rank(rank) => *rank == shape.len(),
        }
    }
}

impl fmt::Display for WantedShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WantedShape::Dims(dims) => write!(f, "{dims:?}"),
            WantedShape::Rank(rank) => write!(f, "of {rank} dims"),
        }
    }
}

impl ImportReport {
    /// The unused key that looks most like a missing one; one of a shape that fits, if there is any.
    fn nearest(&self, missing: &MissingWeight) -> Option<&(String, Vec<usize>)> {
        let fits = |unused: &&(String, Vec<usize>)| {
            missing.shape.as_ref().is_none_or(|shape| shape.is_like(&unused.1))
        };
        let fitting = self.unused.iter().filter(fits).map(|unused| unused.0.as_str());
        let all = self.unused.iter().map(|unused| unused.0.as_str());
        let found = nearest(&missing.key, fitting).or_else(|| nearest(&missing.key, all))?;
        self.unused.iter().find(|unused| unused.0 == found)
    }

    /// Whether some tensor has the shape that it would have without the adapter.
    fn looks_unadapted(&self) -> bool {
        self.wrong.iter().any(|wrong| match &wrong.shape {
            WantedShape::Dims(dims) => {
                dims.len() == 2 && dims != &wrong.found.1 && dims.iter().rev().eq(&wrong.found.1)
            }
            WantedShape::Rank(_) => false,
        })
    }

    fn write_missing(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, missing) in self.missing.iter().take(SHOWN).enumerate() {
            write!(f, "\n  missing: {}", Line(&missing.path))?;
            if let Some(shape) = &missing.shape {
                write!(f, " {shape}")?;
            }
            if missing.key != missing.path {
                write!(f, ", looked for as {}", Line(&missing.key))?;
            }
            if number < COMPARED
                && let Some((key, shape)) = self.nearest(missing)
            {
                write!(f, " (the file has {} {shape:?})", Line(key))?;
            }
        }
        write_rest(f, self.missing.len(), "missing")
    }
}

impl fmt::Display for ImportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not fit the module", Line(&self.source))?;
        self.write_missing(f)?;
        for WrongWeight { path, key, kind, shape, found: (dtype, stored) } in self.wrong.iter().take(SHOWN) {
            let kind = match kind {
                DTypeKind::Float => "float",
                DTypeKind::Int => "int",
                DTypeKind::Bool => "bool",
            };
            let (path, key) = (Line(path), Line(key));
            write!(f, "\n  wrong: {path} needs {kind} {shape}, {key} in the file is {dtype} {stored:?}")?;
        }
        write_rest(f, self.wrong.len(), "wrong")?;
        for UnsupportedWeight { path, key, what } in self.unsupported.iter().take(SHOWN) {
            let (key, what) = (Line(key), Line(what));
            match path.as_deref().map(Line) {
                Some(path) => {
                    write!(f, "\n  wrong: {path} cannot be read: {key} is {what}; convert it before saving")?
                }
                None => write!(f, "\n  unused: {key}, {what}")?,
            }
        }
        write_rest(f, self.unsupported.len(), "of kinds that cannot be read")?;
        for (path, reason) in self.broken.iter().take(SHOWN) {
            write!(f, "\n  wrong: {} cannot be computed: {}", Line(path), Line(reason))?;
        }
        write_rest(f, self.broken.len(), "wrong")?;
        for (key, shape) in self.unused.iter().take(SHOWN) {
            write!(f, "\n  unused: {} {shape:?}", Line(key))?;
        }
        write_rest(f, self.unused.len(), "unused")?;
        for (number, (pattern, replacement)) in suggest::suggestions(self).into_iter().enumerate() {
            let lead = if number == 0 { "try" } else { "and" };
            let map = shell_quoted(&format!("{pattern}={replacement}"));
            let rule = format!("--map {map}, or .with_key_remap({pattern:?}, {replacement:?})");
            write!(f, "\n  {lead} {}", Line(&rule))?;
        }
        if let Some(hint) = suggest::parametrized(self) {
            write!(f, "\n  {hint}")?;
        }
        if self.looks_unadapted() {
            write!(f, "\n  matrices are the other way round: try --adapter, or .with_adapter_type")?;
        }
        Ok(())
    }
}

impl core::error::Error for ImportReport {}

/// The parameters of a module that cannot be written as the tensors that they were made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaveReport {
    /// All of them.
    pub unsaved: Vec<Unsaved>,
}

impl fmt::Display for SaveReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the module cannot be saved under PyTorch's names")?;
        for Unsaved { path, expression, reason } in self.unsaved.iter().take(SHOWN) {
            let (expression, reason) = (expression.to_string(), reason.to_string());
            write!(f, "\n  {}, made of {}: {}", Line(path), Line(&expression), Line(&reason))?;
        }
        write_rest(f, self.unsaved.len(), "parameters")?;
        write!(f, "\n  AdapterType::NoAdapter saves every parameter as it is")
    }
}

impl core::error::Error for SaveReport {}

/// Text as one word for a shell, which takes nothing between these quotes for a command; a quote in it stands outside of them.
fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    /// A key stays in its line, and what is to be pasted into a shell is one word there.
    #[test]
    fn keys_are_escaped_and_quoted() {
        let name = "a\n  missing: b\u{1b}[2J'$(touch x)'";
        let key = format!("{name}.weight");
        let missing =
            MissingWeight { path: "fc.weight".to_string(), key: "fc.weight".to_string(), shape: None };
        let report = ImportReport {
            source: "model\n.pt".to_string(),
            missing: vec![missing],
            unused: vec![(key.clone(), vec![1])],
            broken: vec![(key.clone(), key.clone())],
            unsupported: vec![UnsupportedWeight { path: None, key: key.clone(), what: key }],
            ..ImportReport::default()
        };
        let text = report.to_string();
        assert_eq!(text.lines().count(), 6, "{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
        let rule = r"try --map '^a\n\ \ missing\:\ b\u{1b}\[2J\'\''\$\(touch\ x\)\'\''\.(.*)=fc.${1}', or";
        assert!(text.contains(rule), "{text}");
        // What is escaped in the pattern still finds the key.
        let (pattern, replacement) = suggest::suggestions(&report).remove(0);
        let map = kiln_weights::KeyMap::new([(&pattern, &replacement)]).expect("a pattern");
        assert_eq!(map.apply(&format!("{name}.weight")), "fc.weight");
    }

    /// Comparing these, and looking for what they have in common, would take hours.
    #[test]
    fn keys_of_any_length_are_reported() {
        let missing = |n: usize| {
            let key = format!("{n}{}.weight", "a.".repeat(20_000));
            MissingWeight { path: key.clone(), key, shape: None }
        };
        let unused = |n: usize| (format!("{n}{}.weight", "b.".repeat(20_000)), vec![1]);
        let report = ImportReport {
            missing: (0..100).map(missing).collect(),
            unused: (0..500).map(unused).collect(),
            ..ImportReport::default()
        };
        assert_eq!(report.to_string().lines().count(), 601);
    }
}
