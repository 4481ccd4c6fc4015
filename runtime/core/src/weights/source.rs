//! A checkpoint's tensors under their new keys.

use super::{ImportError, LoadArgs};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::{borrow::ToOwned, format, vec::Vec};
use kiln_types::Line;
use kiln_weights::{Checkpoint, ErrorKind, KeyMap, LazyTensor, OpenOptions, Remapped, WeightsError};

/// The tensors of a checkpoint, and where they came from.
pub(super) struct Source {
    /// The file, for messages.
    pub(super) name: String,
    tensors: BTreeMap<String, (String, LazyTensor)>,
    /// Tensors of kinds that Kiln does not have: where they came from, and which.
    unsupported: BTreeMap<String, (String, String)>,
}

impl Source {
    /// Opens the file and gives its keys their new names.
    pub(super) fn read(args: &LoadArgs) -> Result<Self, ImportError> {
        let options = OpenOptions { top_level_key: args.top_level_key.clone() };
        let checkpoint = Checkpoint::open_with(&args.file, &options)?;
        let map = KeyMap::new(args.remaps.iter().map(|(pattern, replacement)| (pattern, replacement)))?;
        let name = args.file.display().to_string();
        let mut tensors = BTreeMap::new();
        let mut report = String::from("Debug information of keys and tensor shapes:\n---\n");
        // Also before two keys become one, which is an error: to find out why is what it is for.
        if args.debug {
            for (original, tensor) in checkpoint.tensors() {
                let (key, shape, dtype) = (map.apply(original), tensor.shape(), tensor.dtype());
                let (original, key) = (Line(original), Line(&key));
                report.push_str(&format!(
                    "Original Key: {original}\nRemapped Key: {key}\nShape: {shape:?}\nDtype: {dtype:?}\n---\n"
                ));
            }
            for (original, what) in checkpoint.unsupported() {
                let key = map.apply(original);
                let (original, key, what) = (Line(original), Line(&key), Line(what));
                report.push_str(&format!(
                    "Original Key: {original}\nRemapped Key: {key}\nNot supported: {what}\n---\n"
                ));
            }
            std::print!("{report}");
        }
        for Remapped { original, key, tensor } in map.tensors(&checkpoint)? {
            tensors.insert(key, (original, tensor));
        }
        let unsupported = checkpoint
            .unsupported()
            .map(|(original, what)| (map.apply(original), (original.to_owned(), what.to_owned())));
        Ok(Self { name, tensors, unsupported: unsupported.collect() })
    }

    /// The keys of tensors that are of kinds that Kiln does not have, sorted, and which.
    pub(super) fn unsupported(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.unsupported.iter().map(|(key, (_, what))| (key.as_str(), what.as_str()))
    }

    /// Of which such kind the tensor of a key is.
    pub(super) fn unsupported_kind(&self, key: &str) -> Option<&str> {
        self.unsupported.get(key).map(|(_, what)| what.as_str())
    }

    /// The error of a key whose tensor is of such a kind.
    pub(super) fn refusal(&self, key: &str) -> Option<ImportError> {
        let what = self.unsupported_kind(key)?;
        Some(self.located(key, ErrorKind::Unsupported(what.to_owned()).into()))
    }

    /// The tensor of a key.
    pub(super) fn get(&self, key: &str) -> Option<&LazyTensor> {
        self.tensors.get(key).map(|entry| &entry.1)
    }

    /// The key that a tensor has in the file.
    pub(super) fn original_key<'k>(&'k self, key: &'k str) -> &'k str {
        let known = self.tensors.get(key).map(|(original, _)| original);
        let known = known.or_else(|| self.unsupported.get(key).map(|(original, _)| original));
        known.map_or(key, String::as_str)
    }

    /// All keys, with the tensors.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &LazyTensor)> {
        self.tensors.iter().map(|(key, (_, tensor))| (key.as_str(), tensor))
    }

    /// The keys below a path, without it; also of tensors of kinds that Kiln does not have.
    pub(super) fn below(&self, path: &str) -> impl Iterator<Item = &str> {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}.") };
        let tensors = self.tensors.range(prefix.clone()..).map(|(key, _)| key.as_str());
        let unsupported = self.unsupported.range(prefix.clone()..).map(|(key, _)| key.as_str());
        // Keys are sorted, so those with the prefix are one run.
        let other = prefix.clone();
        let tensors = tensors.map_while(move |key| key.strip_prefix(&prefix));
        tensors.chain(unsupported.map_while(move |key| key.strip_prefix(&other)))
    }

    /// The numbers that follow a path in the keys, each once, sorted.
    pub(super) fn indices(&self, path: &str) -> Vec<usize> {
        let first = |rest: &str| rest.split('.').next().and_then(|token| token.parse().ok());
        let mut indices: Vec<usize> = self.below(path).filter_map(first).collect();
        indices.sort_unstable();
        indices.dedup();
        indices
    }

    /// The error of a tensor, with its file and its own key.
    pub(super) fn data(
        &self,
        key: &str,
        tensor: &LazyTensor,
    ) -> Result<crate::tensor::TensorData, ImportError> {
        tensor.data().map_err(|error| self.located(key, error))
    }

    /// The bytes of a tensor, in memory of their own; errors as those of [`Source::data`].
    pub(super) fn bytes(&self, key: &str, tensor: &LazyTensor) -> Result<Vec<u8>, ImportError> {
        tensor.to_vec().map_err(|error| self.located(key, error))
    }

    fn located(&self, key: &str, mut error: WeightsError) -> ImportError {
        let original = self.original_key(key);
        error.site.file.get_or_insert_with(|| self.name.clone());
        error.site.key.get_or_insert_with(|| original.to_owned());
        error.into()
    }
}
