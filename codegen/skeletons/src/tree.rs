//! Keys as a tree.

use super::SkeletonError;
use kiln_weights::LazyTensor;
use std::collections::BTreeMap;

/// Most parts of a key; module trees have a dozen.
pub const MAX_DEPTH: usize = 64;

/// A tensor, or what begins with the same part of a key.
pub(super) enum Tree {
    Leaf(LazyTensor),
    Branch(Branch),
}

/// Parts by name, in the order of the file; numbers in their own.
#[derive(Default)]
pub(super) struct Branch {
    pub(super) parts: Vec<(String, Tree)>,
    places: BTreeMap<String, usize>,
}

/// The tree of dotted keys.
pub(super) fn build(tensors: Vec<(String, LazyTensor)>) -> Result<Branch, SkeletonError> {
    let mut root = Branch::default();
    for (key, tensor) in tensors {
        let parts: Vec<&str> = key.split('.').collect();
        if parts.len() > MAX_DEPTH {
            return Err(SkeletonError::TooDeep { key: key.chars().take(96).collect() });
        }
        root.insert(&parts, tensor).map_err(|()| SkeletonError::TensorAndModule(key.clone()))?;
    }
    root.sort_numbers();
    Ok(root)
}

impl Branch {
    fn insert(&mut self, parts: &[&str], tensor: LazyTensor) -> Result<(), ()> {
        let Some((first, rest)) = parts.split_first() else { return Err(()) };
        let known = self.places.get(*first).copied();
        let place = known.unwrap_or(self.parts.len());
        if rest.is_empty() {
            if known.is_some() {
                return Err(());
            }
            self.places.insert((*first).to_owned(), place);
            self.parts.push(((*first).to_owned(), Tree::Leaf(tensor)));
            return Ok(());
        }
        if known.is_none() {
            self.places.insert((*first).to_owned(), place);
            self.parts.push(((*first).to_owned(), Tree::Branch(Branch::default())));
        }
        match self.parts.get_mut(place) {
            Some((_, Tree::Branch(branch))) => branch.insert(rest, tensor),
            _ => Err(()),
        }
    }

    /// Puts the parts into the order of their numbers where all are numbers.
    fn sort_numbers(&mut self) {
        if self.indices().is_some() {
            self.parts.sort_by_key(|(name, _)| index(name));
        }
        for (_, part) in &mut self.parts {
            if let Tree::Branch(branch) = part {
                branch.sort_numbers();
            }
        }
    }

    /// The parts' numbers, if all are numbers.
    pub(super) fn indices(&self) -> Option<Vec<usize>> {
        self.parts.iter().map(|(name, _)| index(name)).collect()
    }

    /// What is at a path below.
    pub(super) fn get(&self, path: &[&str]) -> Option<&Tree> {
        let (first, rest) = path.split_first()?;
        let (_, part) = self.parts.iter().find(|(name, _)| name == first)?;
        match part {
            Tree::Branch(branch) if !rest.is_empty() => branch.get(rest),
            part => rest.is_empty().then_some(part),
        }
    }

    /// How many tensors there are.
    pub(super) fn count(&self) -> usize {
        let count = |part: &Tree| match part {
            Tree::Leaf(_) => 1,
            Tree::Branch(branch) => branch.count(),
        };
        self.parts.iter().map(|(_, part)| count(part)).sum()
    }

    /// Takes away what is at a path, and the branches on the way that have nothing else.
    pub(super) fn remove<P: AsRef<str>>(&mut self, path: &[P]) {
        let Some((first, rest)) = path.split_first() else { return };
        self.parts.retain_mut(|(name, part)| match part {
            _ if name != first.as_ref() => true,
            Tree::Branch(branch) if !rest.is_empty() => {
                branch.remove(rest);
                !branch.parts.is_empty()
            }
            _ => !rest.is_empty(),
        });
    }

    /// Puts a tensor before the others.
    pub(super) fn put_first(&mut self, name: &str, tensor: LazyTensor) {
        self.parts.insert(0, (name.to_owned(), Tree::Leaf(tensor)));
    }

    /// The tensors, if all parts are.
    pub(super) fn leaves(&self) -> Option<Vec<(&str, &LazyTensor)>> {
        let leaf = |(name, part): &'_ (String, Tree)| match part {
            Tree::Leaf(_) => Some(name.clone()),
            Tree::Branch(_) => None,
        };
        self.parts.iter().map(leaf).collect::<Option<Vec<_>>>()?;
        let leaves = self.parts.iter().filter_map(|(name, part)| match part {
            Tree::Leaf(tensor) => Some((name.as_str(), tensor)),
            Tree::Branch(_) => None,
        });
        Some(leaves.collect())
    }
}

/// A number as a list's index is written.
fn index(name: &str) -> Option<usize> {
    name.parse().ok().filter(|index: &usize| index.to_string() == name)
}
