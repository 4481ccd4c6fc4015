//! What the branches of a tree hold: which of them are layers, and what is to be said about it.

use super::layers::{self, Layer, Leaves, Recognized};
use super::settled::Settled;
use super::tree::{Branch, Tree};
use super::{SkeletonError, SkeletonOptions, attention, normalized};
use kiln_codegen::names;
use kiln_weights::LazyTensor;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a field holds.
pub(super) enum Content {
    Layer(Layer),
    /// Items in order.
    List(Vec<Content>),
    /// A struct, or a list whose items are still to be compared.
    Module(Vec<Part>),
    Param(LazyTensor),
}

/// A part of a module.
pub(super) struct Part {
    /// Its part of the keys.
    pub(super) key: String,
    pub(super) content: Content,
    pub(super) notes: Vec<Note>,
}

/// Parts by their keys.
pub(super) fn by_key(parts: &[Part]) -> BTreeMap<&str, &Part> {
    parts.iter().map(|part| (part.key.as_str(), part)).collect()
}

/// What the reader should know about a field.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Note {
    /// A sentence without its end.
    Said(String),
    /// Other kinds that fit.
    MayBe {
        /// The kinds.
        kinds: Vec<&'static str>,
        /// How many lists lie between the field and what may be of these kinds.
        lists: usize,
    },
}

impl Note {
    /// The note of a list, from the one of an item.
    pub(super) fn of_item(&self) -> Self {
        match self {
            Self::MayBe { kinds, lists } => Self::MayBe { kinds: kinds.clone(), lists: lists + 1 },
            said @ Self::Said(_) => said.clone(),
        }
    }
}

/// Reads the contents of a tree.
pub(super) fn read(root: Branch, options: &SkeletonOptions) -> Result<Vec<Part>, SkeletonError> {
    let mut reader = Reader {
        options,
        settled: Settled::new(&options.settled),
        in_out: BTreeSet::new(),
        tied: tied(&root),
        before: None,
    };
    if options.pytorch {
        find_in_out(&root, "", &mut reader.in_out);
    }
    let parts = reader.parts(root, "", "")?;
    reader.settled.finish()?;
    Ok(parts)
}

struct Reader<'a> {
    options: &'a SkeletonOptions,
    settled: Settled,
    /// Names of branches with matrices `[in, out]`.
    in_out: BTreeSet<String>,
    /// Keys of tensors that are another one's too, and the first key of each.
    tied: BTreeMap<String, String>,
    /// Channels that the last convolution yields.
    before: Option<usize>,
}

/// What is known about a struct while its parts are read.
struct Siblings {
    /// Channels that the last convolution yields.
    beside: Option<usize>,
    /// Channels that all of its convolutions yield.
    outputs: BTreeSet<usize>,
}

impl Reader<'_> {
    /// The parts of a branch; `list` is the name of the innermost branch around that is no number.
    fn parts(&mut self, branch: Branch, path: &str, list: &str) -> Result<Vec<Part>, SkeletonError> {
        let mut siblings = Siblings { beside: None, outputs: outputs(&branch) };
        let mut parts = Vec::new();
        for (key, part) in branch.parts {
            let own = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let numbered = !key.is_empty() && key.bytes().all(|b| b.is_ascii_digit());
            let name = if numbered { list } else { key.as_str() };
            let (content, notes) = match part {
                Tree::Leaf(tensor) => (Content::Param(tensor), self.ties(&own, &[])),
                Tree::Branch(branch) => self.content(branch, &own, name, &mut siblings)?,
            };
            parts.push(Part { key, content, notes });
        }
        Ok(parts)
    }

    /// What a branch is, and what is to be said about it.
    fn content(
        &mut self,
        mut branch: Branch,
        path: &str,
        name: &str,
        siblings: &mut Siblings,
    ) -> Result<(Content, Vec<Note>), SkeletonError> {
        let wanted = self.settled.take(path);
        let mut notes = Vec::new();
        if self.options.pytorch {
            notes.extend(normalized::fold(&mut branch)?.map(Note::Said));
        }
        let (recognized, leaves) = self.recognize(&branch, name, wanted.is_some(), siblings);
        if recognized.is_some() || leaves {
            self.settled.offer(path);
        }
        let plain = wanted.as_deref() == Some("Param");
        match recognized {
            Some(Recognized::List(layers)) if !plain => {
                if let Some(wanted) = wanted.filter(|wanted| layers.iter().any(|layer| layer.kind != *wanted))
                {
                    return Err(does_not_fit(path, &wanted, &layers));
                }
                let said = layers.iter().find_map(|layer| layer.assumed.clone());
                notes.extend(said.map(|assumed| Note::Said(format!("{assumed} assumed"))));
                return Ok((Content::List(layers.into_iter().map(Content::Layer).collect()), notes));
            }
            Some(Recognized::Layer(layers)) if !plain => {
                let others = layers.iter().skip(1).map(|layer| layer.kind).collect::<Vec<_>>();
                let layer = choose(layers, path, wanted.as_deref())?;
                if let (true, Some((_, weight))) =
                    (layer.declared.name.starts_with("Conv"), layer.tensors.first())
                {
                    let output = usize::from(layer.declared.name.starts_with("ConvTranspose"));
                    let channels = weight.shape().get(output).copied();
                    (self.before, siblings.beside) = (channels, channels);
                }
                notes.extend(layer.assumed.iter().map(|assumed| Note::Said(format!("{assumed} assumed"))));
                notes.extend(layer.said.iter().cloned().map(Note::Said));
                if wanted.is_none() && !others.is_empty() {
                    notes.push(Note::MayBe { kinds: others, lists: 0 });
                }
                notes.extend(self.ties(path, &["weight"]));
                return Ok((Content::Layer(layer), notes));
            }
            Some(Recognized::Open(kinds)) if !plain => notes.push(Note::MayBe { kinds, lists: 0 }),
            Some(Recognized::Unknown(said)) if !plain => notes.push(Note::Said(said)),
            _ => {}
        }
        if let Some(wanted) = wanted.filter(|_| !plain) {
            let reason = "its tensors look like no layer that Kiln has".to_owned();
            return Err(SkeletonError::DoesNotFit { key: path.to_owned(), wanted, reason });
        }
        Ok((Content::Module(self.parts(branch, path, name)?), notes))
    }

    /// What a branch is recognized as, and whether it has only tensors.
    fn recognize(
        &self,
        branch: &Branch,
        name: &str,
        all: bool,
        siblings: &Siblings,
    ) -> (Option<Recognized>, bool) {
        let Some(tensors) = branch.leaves() else {
            let attention = self.options.pytorch.then(|| attention::recognize(branch)).flatten();
            return (attention.map(|layer| Recognized::Layer(vec![layer])), false);
        };
        let leaves = Leaves {
            name,
            tensors: &tensors,
            pytorch: self.options.pytorch,
            all,
            in_out: self.in_out.contains(name),
            before: self.before,
            beside: siblings.beside,
            outputs: &siblings.outputs,
        };
        (layers::recognize(&leaves), true)
    }

    /// That a tensor is another one's too, if it is.
    fn ties(&self, path: &str, below: &[&str]) -> Vec<Note> {
        let key = [&[path], below].concat().join(".");
        let said = |other: &String| Note::Said(format!("the same tensor as `{}`", names::comment(other)));
        self.tied.get(&key).map(said).into_iter().collect()
    }
}

/// The layer that is meant among those that fit.
fn choose(layers: Vec<Layer>, path: &str, wanted: Option<&str>) -> Result<Layer, SkeletonError> {
    let place = wanted.map_or(Some(0), |wanted| layers.iter().position(|layer| layer.kind == wanted));
    let chosen = place.and_then(|place| layers.get(place)).cloned();
    chosen.ok_or_else(|| does_not_fit(path, wanted.unwrap_or_default(), &layers))
}

fn does_not_fit(path: &str, wanted: &str, layers: &[Layer]) -> SkeletonError {
    let mut names: Vec<&str> = layers.iter().map(|layer| layer.kind).collect();
    names.dedup();
    let reason = format!("it may be {}", names.join(", "));
    SkeletonError::DoesNotFit { key: path.to_owned(), wanted: wanted.to_owned(), reason }
}

/// The channels that convolutions right below yield.
fn outputs(branch: &Branch) -> BTreeSet<usize> {
    let output = |part: &Tree| match part {
        Tree::Branch(below) => match below.get(&["weight"])? {
            Tree::Leaf(weight) if weight.shape().len() >= 3 => weight.shape().first().copied(),
            _ => None,
        },
        Tree::Leaf(_) => None,
    };
    branch.parts.iter().filter_map(|(_, part)| output(part)).collect()
}

/// Collects the names of branches with a bias that fits the columns of the matrix, and not its rows.
fn find_in_out(branch: &Branch, name: &str, found: &mut BTreeSet<String>) {
    if let (Some(Tree::Leaf(weight)), Some(Tree::Leaf(bias))) =
        (branch.get(&["weight"]), branch.get(&["bias"]))
        && let (&[rows, columns], &[size]) = (weight.shape(), bias.shape())
        && size == columns
        && size != rows
        && branch.parts.len() == 2
    {
        found.insert(name.to_owned());
    }
    for (name, part) in &branch.parts {
        if let Tree::Branch(below) = part {
            find_in_out(below, name, found);
        }
    }
}

/// Keys of tensors that lie where another one does, with the other's.
fn tied(root: &Branch) -> BTreeMap<String, String> {
    let mut tensors = Vec::new();
    collect(root, "", &mut tensors);
    let mut places: BTreeMap<_, String> = BTreeMap::new();
    let mut tied = BTreeMap::new();
    for (key, tensor) in tensors {
        if tensor.num_elements() == 0 {
            continue;
        }
        let place = (Arc::as_ptr(tensor.storage()), tensor.offset(), tensor.shape(), tensor.strides());
        match places.get(&place) {
            Some(first) => {
                tied.insert(key, first.clone());
            }
            None => {
                places.insert(place, key);
            }
        }
    }
    tied
}

fn collect<'a>(branch: &'a Branch, path: &str, tensors: &mut Vec<(String, &'a LazyTensor)>) {
    for (key, part) in &branch.parts {
        let own = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match part {
            Tree::Leaf(tensor) => tensors.push((own, tensor)),
            Tree::Branch(below) => collect(below, &own, tensors),
        }
    }
}
