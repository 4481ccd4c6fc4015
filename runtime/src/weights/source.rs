//! A checkpoint's tensors under their new keys.

use super::{ImportError, LoadArgs};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::{borrow::ToOwned, format, vec::Vec};
use kiln_weights::{Checkpoint, LazyTensor, OpenOptions};
use regex::Regex;

/// The tensors of a checkpoint, and where they came from.
pub(super) struct Source {
    /// The file, for messages.
    pub(super) name: String,
    tensors: BTreeMap<String, (String, LazyTensor)>,
}

impl Source {
    /// Opens the file and gives its keys their new names.
    pub(super) fn read(args: &LoadArgs) -> Result<Self, ImportError> {
        let options = OpenOptions { top_level_key: args.top_level_key.clone() };
        let checkpoint = Checkpoint::open_with(&args.file, &options)?;
        let patterns = args.remaps.iter().map(|(pattern, replacement)| {
            let compiled = Regex::new(pattern);
            let compiled = compiled.map_err(|error| ImportError::Pattern {
                pattern: pattern.clone(),
                reason: error.to_string(),
            })?;
            Ok((compiled, replacement.as_str()))
        });
        let patterns: Vec<_> = patterns.collect::<Result<_, ImportError>>()?;
        let name = args.file.display().to_string();
        let mut tensors: BTreeMap<String, (String, LazyTensor)> = BTreeMap::new();
        let mut report = String::from("Debug information of keys and tensor shapes:\n---\n");
        for (original, tensor) in checkpoint.tensors() {
            let key = patterns.iter().fold(original.to_owned(), |key, (pattern, replacement)| {
                pattern.replace_all(&key, *replacement).into_owned()
            });
            if args.debug {
                report.push_str(&format!(
                    "Original Key: {original}\nRemapped Key: {key}\nShape: {:?}\nDtype: {:?}\n---\n",
                    tensor.shape(),
                    tensor.dtype()
                ));
            }
            if let Some((first, _)) = tensors.get(&key) {
                let (first, second) = (first.clone(), original.to_owned());
                return Err(ImportError::SameKey { file: name, first, second, key });
            }
            tensors.insert(key, (original.to_owned(), tensor.clone()));
        }
        if args.debug {
            std::print!("{report}");
        }
        Ok(Self { name, tensors })
    }

    /// The tensor of a key.
    pub(super) fn get(&self, key: &str) -> Option<&LazyTensor> {
        self.tensors.get(key).map(|entry| &entry.1)
    }

    /// All keys, with the tensors.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &LazyTensor)> {
        self.tensors.iter().map(|(key, (_, tensor))| (key.as_str(), tensor))
    }

    /// The keys below a path, without it.
    pub(super) fn below(&self, path: &str) -> impl Iterator<Item = &str> {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}.") };
        let from = self.tensors.range(prefix.clone()..);
        // Keys are sorted, so those with the prefix are one run.
        from.map_while(move |(key, _)| key.strip_prefix(&prefix))
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
        tensor.data().map_err(|mut error| {
            let original = self.tensors.get(key).map_or(key, |entry| entry.0.as_str());
            error.site.file.get_or_insert_with(|| self.name.clone());
            error.site.key.get_or_insert_with(|| original.to_owned());
            error.into()
        })
    }
}
