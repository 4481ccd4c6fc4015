//! Keys of a module's fields.

use std::collections::{BTreeMap, BTreeSet};

/// The path of what has a key in the module of a path.
pub fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Keys that are taken in one module.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    taken: BTreeSet<String>,
    /// The number that the last key of each stem got.
    numbers: BTreeMap<String, usize>,
}

impl Keys {
    /// Whether a key is taken.
    pub fn contains(&self, key: &str) -> bool {
        self.taken.contains(key)
    }

    /// Takes a key.
    pub fn insert(&mut self, key: &str) {
        self.taken.insert(key.to_owned());
    }

    /// Takes the stem, or the stem with the first number that makes it free: `conv2d`, `conv2d_2`.
    pub fn fresh(&mut self, stem: &str, is_free: impl Fn(&str) -> bool) -> String {
        let number = self.numbers.entry(stem.to_owned()).or_insert(0);
        loop {
            *number += 1;
            let key = if *number == 1 { stem.to_owned() } else { format!("{stem}_{number}") };
            if !self.taken.contains(&key) && is_free(&key) {
                self.taken.insert(key.clone());
                return key;
            }
        }
    }
}

impl<'k> FromIterator<&'k str> for Keys {
    fn from_iter<I: IntoIterator<Item = &'k str>>(keys: I) -> Self {
        Keys { taken: keys.into_iter().map(str::to_owned).collect(), numbers: BTreeMap::new() }
    }
}
