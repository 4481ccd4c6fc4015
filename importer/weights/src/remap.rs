//! New names for keys, by regular expressions.

use crate::{Checkpoint, ErrorKind, LazyTensor, Result, WeightsError};
use regex::{Captures, Regex};
use std::collections::BTreeMap;

/// Rules that give keys their new names, one after the other.
#[derive(Clone, Debug, Default)]
pub struct KeyMap {
    rules: Vec<Rule>,
}

/// A pattern and what it is replaced by.
#[derive(Clone, Debug)]
struct Rule {
    pattern: Regex,
    replacement: String,
}

/// A tensor under its new key.
#[derive(Clone, Debug)]
pub struct Remapped {
    /// The key in the file.
    pub original: String,
    /// The key that the rules made of it.
    pub key: String,
    /// The tensor.
    pub tensor: LazyTensor,
}

/// A pattern of the last parts of a layer's path, as PEFT's configurations have them.
#[derive(Clone, Debug)]
pub struct PathPattern(Regex);

impl PathPattern {
    /// Reads a pattern: a regular expression for some parts at the end of a path, or for all of it.
    ///
    /// # Errors
    /// [`ErrorKind::Pattern`] when it is no regular expression, or has what Python's have beyond ours.
    pub fn new(pattern: &str) -> Result<Self> {
        let compiled = Regex::new(&format!(r"^(?:.*\.)?(?:{pattern})$")).map_err(|error| {
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            ErrorKind::Pattern { pattern: pattern.to_owned(), reason: reason.to_owned() }
        })?;
        Ok(Self(compiled))
    }

    /// The pattern of this path and no other. Without the mark of the beginning, that of `fc` would be that of `head.fc` too.
    pub fn exact(path: &str) -> String {
        format!("^{}", regex::escape(path))
    }

    /// Whether it is the pattern of a path.
    pub fn is_match(&self, path: &str) -> bool {
        self.0.is_match(path)
    }
}

impl KeyMap {
    /// Rules of a regular expression and a replacement each, in which `$1` or `${1}` stands for the first group, `$name`
    /// for a named one and `$$` for a dollar sign.
    ///
    /// # Errors
    /// [`ErrorKind::Pattern`] when a pattern is no regular expression, or a replacement names a group that the pattern
    /// does not have.
    pub fn new<P: AsRef<str>, R: AsRef<str>>(rules: impl IntoIterator<Item = (P, R)>) -> Result<Self> {
        let rules = rules.into_iter().map(|(pattern, replacement)| {
            let (pattern, replacement) = (pattern.as_ref(), replacement.as_ref());
            let fail = |reason: String| ErrorKind::Pattern { pattern: pattern.to_owned(), reason };
            let compiled =
                Regex::new(pattern).map_err(|error| fail(format!("it is no regular expression: {error}")))?;
            if let Some(group) = unknown_group(&compiled, replacement) {
                let hint = format!(
                    "the replacement {replacement:?} refers to a group {group:?}, which it does not have; \
                     in `${{1}}_x` the braces part a group's number from what follows"
                );
                return Err(fail(hint).into());
            }
            Ok(Rule { pattern: compiled, replacement: replacement.to_owned() })
        });
        Ok(Self { rules: rules.collect::<Result<_>>()? })
    }

    /// A key's new name.
    pub fn apply(&self, key: &str) -> String {
        self.rules.iter().fold(key.to_owned(), |key, rule| rule.apply(&key))
    }

    /// The tensors of a checkpoint under their new keys, in the order of the file.
    ///
    /// # Errors
    /// [`ErrorKind::SameKey`] when two keys become one.
    pub fn tensors(&self, checkpoint: &Checkpoint) -> Result<Vec<Remapped>> {
        let mut taken: BTreeMap<String, &str> = BTreeMap::new();
        let mut tensors = Vec::with_capacity(checkpoint.tensors().len());
        for (original, tensor) in checkpoint.tensors() {
            let key = self.apply(original);
            if let Some(first) = taken.insert(key.clone(), original) {
                let (first, second) = (first.to_owned(), original.to_owned());
                let same = ErrorKind::SameKey { first, second, key };
                return Err(WeightsError::from(same).in_file(checkpoint.file()));
            }
            tensors.push(Remapped { original: original.to_owned(), key, tensor: tensor.clone() });
        }
        Ok(tensors)
    }

    /// The patterns that find nothing in any key of a checkpoint as the rules before them left it.
    pub fn idle(&self, checkpoint: &Checkpoint) -> Vec<&str> {
        let mut found = vec![false; self.rules.len()];
        let tensors = checkpoint.tensors().map(|(key, _)| key);
        for key in tensors.chain(checkpoint.unsupported().map(|(key, _)| key)) {
            let mut key = key.to_owned();
            for (rule, found) in self.rules.iter().zip(&mut found) {
                *found |= rule.pattern.is_match(&key);
                key = rule.apply(&key);
            }
        }
        let idle = self.rules.iter().zip(found).filter(|(_, found)| !found);
        idle.map(|(rule, _)| rule.pattern.as_str()).collect()
    }
}

impl Rule {
    fn apply(&self, key: &str) -> String {
        self.pattern.replace_all(key, self.replacement.as_str()).into_owned()
    }
}

/// The first group in a replacement that a pattern does not have.
fn unknown_group(pattern: &Regex, replacement: &str) -> Option<String> {
    // The syntax of `regex`: the longest run of word characters, or anything in braces.
    let Ok(reference) = Regex::new(r"\$(?:\$|\{([^}]*)\}|(\w+))") else { return None };
    let known = |name: &str| match name.parse::<usize>() {
        Ok(number) => number < pattern.captures_len(),
        Err(_) => pattern.capture_names().flatten().any(|known| known == name),
    };
    let name = |found: Captures<'_>| Some(found.get(1).or(found.get(2))?.as_str().to_owned());
    reference.captures_iter(replacement).filter_map(name).find(|name| !known(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_applied_in_order() {
        let map = KeyMap::new([("^net\\.(.*)", "$1"), ("^a(\\d)", "${1}_b"), ("x", "$$")]).unwrap();
        assert_eq!(map.apply("net.a1.x"), "1_b.$");
        assert_eq!(map.apply("other"), "other");
    }

    #[test]
    fn groups_that_do_not_exist_are_errors() {
        let error = |pattern: &str, replacement: &str| {
            KeyMap::new([(pattern, replacement)]).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(error("a(.)", "$2").contains("refers to a group \"2\""));
        assert!(error("a(.)", "$1_x").contains("refers to a group \"1_x\""));
        assert!(error("(", "").contains("no regular expression"));
        assert_eq!(error("a(?P<rest>.)", "$rest${1}$0$$9"), "");
    }
}
