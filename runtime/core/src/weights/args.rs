//! What to load, and from where.

use super::AdapterType;
use alloc::{string::String, vec::Vec};
use std::path::{Path, PathBuf};

/// Which file to load, and how its keys become the paths of a module.
///
/// ```no_run
/// use kiln::weights::LoadArgs;
///
/// let args = LoadArgs::new("model.pt".into())
///     .with_top_level_key("state_dict")
///     .with_key_remap("conv\\.(.*)", "$1");
/// ```
#[derive(Clone, Debug)]
pub struct LoadArgs {
    pub(super) file: PathBuf,
    pub(super) top_level_key: Option<String>,
    pub(super) remaps: Vec<(String, String)>,
    pub(super) debug: bool,
    pub(super) adapter: AdapterType,
    pub(super) partial: bool,
    pub(super) strict: bool,
}

impl LoadArgs {
    /// A file, a folder of shards, or an index of shards.
    pub fn new(file: PathBuf) -> Self {
        Self {
            file,
            top_level_key: None,
            remaps: Vec::new(),
            debug: false,
            adapter: AdapterType::default(),
            partial: false,
            strict: false,
        }
    }

    /// Replaces what the pattern, a regular expression, finds in a key; `$1` stands for its first group. Patterns are
    /// applied one after the other, in the order of these calls.
    #[must_use]
    pub fn with_key_remap(mut self, pattern: &str, replacement: &str) -> Self {
        self.remaps.push((pattern.into(), replacement.into()));
        self
    }

    /// Prints every key, as it was and as it became, with shape and dtype.
    #[must_use]
    pub fn with_debug_print(mut self) -> Self {
        self.debug = true;
        self
    }

    /// Where the weights are, if not at the root of the file: `state_dict`, `model.state_dict`.
    #[must_use]
    pub fn with_top_level_key(mut self, key: &str) -> Self {
        self.top_level_key = Some(key.into());
        self
    }

    /// Whose conventions the tensors follow.
    #[must_use]
    pub fn with_adapter_type(mut self, adapter: AdapterType) -> Self {
        self.adapter = adapter;
        self
    }

    /// Whether parameters that the file does not have keep their values, instead of being an error. A record has no values
    /// to keep: the recorders need them all.
    #[must_use]
    pub fn with_partial(mut self, partial: bool) -> Self {
        self.partial = partial;
        self
    }

    /// Whether tensors of the file that the module does not use are an error.
    #[must_use]
    pub fn with_strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }
}

impl From<PathBuf> for LoadArgs {
    fn from(file: PathBuf) -> Self {
        Self::new(file)
    }
}

impl From<&Path> for LoadArgs {
    fn from(file: &Path) -> Self {
        Self::new(file.into())
    }
}

impl From<String> for LoadArgs {
    fn from(file: String) -> Self {
        Self::new(file.into())
    }
}

impl From<&str> for LoadArgs {
    fn from(file: &str) -> Self {
        Self::new(file.into())
    }
}
