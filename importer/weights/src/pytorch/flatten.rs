//! From what a pickle built to tensors by path.

use super::PytorchFile;
use super::pickle::{Arena, ArraySpec, Node, Pickled, TensorSpec, Value};
use crate::checkpoint::Entry;
use crate::tensor::{Source, Storage};
use crate::{ErrorKind, LazyTensor, Result, WeightsError, limits};
use kiln_types::Bytes;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// What is known of the nodes below a node.
#[derive(Clone, Copy)]
enum Survey {
    Unknown,
    /// It is being looked at: to meet it again is a cycle.
    Open,
    Known {
        /// Levels of nesting, this one included.
        height: usize,
        /// Whether there is a tensor below.
        tensors: bool,
    },
}

/// Finds the part of a pickle under a dotted key, or all of it without one. A key may itself have dots. The end of it may
/// be no key but the beginning of some, up to a dot; that is the second result.
pub(crate) fn select(pickled: &Pickled, key: Option<&str>) -> Result<(Value, Option<String>)> {
    let Some(key) = key else { return Ok((pickled.root, None)) };
    for prefixes in [false, true] {
        if let Some(found) = descend(&pickled.arena, pickled.root, key, prefixes, 0) {
            return Ok(found);
        }
    }
    let mut names = Vec::new();
    for (key, value) in Keys::default().entries(&pickled.arena, pickled.root)? {
        if matches!(pickled.arena.node(value), Some(Node::Dict(_) | Node::Object(_) | Node::Namespace(_))) {
            names.push(format!("{key:?}"));
        }
    }
    let candidates = match names.len() {
        0 => "nothing in the file is nested".to_owned(),
        _ => format!("at the top there are {}", names.join(", ")),
    };
    Err(ErrorKind::NoSuchKey { key: key.to_owned(), candidates }.into())
}

fn descend(
    arena: &Arena,
    value: Value,
    key: &str,
    prefixes: bool,
    depth: usize,
) -> Option<(Value, Option<String>)> {
    if depth > limits::MAX_DEPTH {
        return None;
    }
    let entries = Keys::default().entries(arena, value).ok()?;
    let find = |name: &str| entries.iter().find(|entry| entry.0 == name).map(|entry| entry.1);
    let prefix = format!("{key}.");
    match find(key) {
        Some(found) => return Some((found, None)),
        None if prefixes && entries.iter().any(|(name, _)| name.starts_with(&prefix)) => {
            return Some((value, Some(prefix)));
        }
        None => {}
    }
    let splits = key.match_indices('.').filter_map(|(at, _)| Some((key.get(..at)?, key.get(at + 1..)?)));
    splits.filter_map(|(name, rest)| descend(arena, find(name)?, rest, prefixes, depth + 1)).next()
}

/// Spells keys out, up to a limit in bytes: a pickle may have one long text in any number of keys.
pub(super) struct Keys {
    left: usize,
}

impl Default for Keys {
    fn default() -> Self {
        Self { left: limits::MAX_PATH_BYTES }
    }
}

impl Keys {
    /// The named parts of a container: a dict's entries, each key once, with its last value; a list's items.
    pub(super) fn entries(&mut self, arena: &Arena, value: Value) -> Result<Vec<(String, Value)>> {
        match arena.node(value) {
            Some(Node::List(items)) => self.numbered(items),
            Some(Node::Tuple(items)) => self.numbered(items),
            Some(Node::Dict(pairs) | Node::Object(pairs) | Node::Namespace(pairs)) => {
                let mut named: Vec<(String, Value)> = Vec::new();
                let mut places = BTreeMap::new();
                for (key, value) in pairs {
                    let name = self.spell(arena.key_text(*key)?)?;
                    let place = *places.entry(name.clone()).or_insert(named.len());
                    match named.get_mut(place) {
                        Some(entry) => entry.1 = *value,
                        None => named.push((name, *value)),
                    }
                }
                Ok(named)
            }
            _ => Ok(Vec::new()),
        }
    }

    fn numbered(&mut self, items: &[Value]) -> Result<Vec<(String, Value)>> {
        let numbered = items.iter().enumerate();
        numbered.map(|(index, item)| Ok((self.spell(index.to_string())?, *item))).collect()
    }

    fn spell(&mut self, name: String) -> Result<String> {
        // An empty key, too, is worth something.
        let left = self.left.checked_sub(name.len().max(8));
        self.left = left.ok_or_else(|| {
            WeightsError::limit("the keys, spelled out, are too long", limits::MAX_PATH_BYTES)
        })?;
        Ok(name)
    }
}

/// All tensors below a value, in the order of the file, by their dotted paths.
pub(crate) fn tensors(file: &PytorchFile, root: Value) -> Result<Vec<(String, Entry)>> {
    let arena = &file.pickled.arena;
    match arena.node(root) {
        Some(Node::Dict(_) | Node::List(_) | Node::Tuple(_) | Node::Object(_) | Node::Namespace(_)) => {}
        Some(Node::Tensor(_) | Node::Array(_) | Node::Refused(_)) => {
            return Err(WeightsError::not_a_checkpoint(
                "it holds one tensor, and tensors have names in a checkpoint",
            ));
        }
        Some(Node::Foreign(foreign)) => {
            return Err(file.locate(ErrorKind::Global(foreign.name.to_string()).into()));
        }
        _ => {
            let kind = arena.kind(root);
            return Err(WeightsError::not_a_checkpoint(format!("it holds {kind}, not a dict of tensors")));
        }
    }
    let mut flattener = Flattener {
        file,
        surveys: vec![Survey::Unknown; arena.len()],
        below_foreign: vec![None; arena.len()],
        objects: Vec::new(),
        storages: BTreeMap::new(),
        arrays: BTreeMap::new(),
        keys: Keys::default(),
        parts: BTreeMap::new(),
        found: Vec::new(),
        path_bytes: 0,
    };
    flattener.survey(root, 0).map_err(|error| file.locate(error))?;
    flattener.collect(root, "").map_err(|error| file.locate(error))?;
    let Flattener { found, objects, .. } = flattener;
    // Where there are no others, its tensors are what the file is for.
    if let Some((path, name)) = objects.into_iter().next()
        && !found.iter().any(|(_, entry)| matches!(entry, Entry::Tensor(_)))
    {
        let error: WeightsError = ErrorKind::Global(name).into();
        return Err(file.locate(error.at_key(path)));
    }
    check_distinct(&found)?;
    Ok(found)
}

/// Refuses two tensors under one path, such as `a.b` beside a dict `a` with a `b`.
fn check_distinct(found: &[(String, Entry)]) -> Result<()> {
    let mut paths: Vec<_> = found.iter().map(|entry| entry.0.as_str()).collect();
    paths.sort_unstable();
    match paths.windows(2).find_map(|pair| if pair.first() == pair.last() { pair.first() } else { None }) {
        Some(path) => Err(WeightsError::tensor("there are two with this path").at_key(*path)),
        None => Ok(()),
    }
}

impl PytorchFile {
    fn locate(&self, error: WeightsError) -> WeightsError {
        match &self.entry {
            Some(entry) => error.in_entry(entry),
            None => error,
        }
    }
}

struct Flattener<'a> {
    file: &'a PytorchFile,
    surveys: Vec<Survey>,
    /// Of nodes that an object of a class that is not known was given: whether one of them is a tensor, or leads to one.
    below_foreign: Vec<Option<bool>>,
    /// Such objects that hold tensors, by path and class.
    objects: Vec<(String, String)>,
    storages: BTreeMap<(String, bool), Arc<Storage>>,
    /// The bytes of NumPy's arrays, by their node and byte order.
    arrays: BTreeMap<(usize, bool), Arc<Storage>>,
    keys: Keys,
    /// The parts of containers that have tensors below, once they were needed: a container may be met on many paths.
    parts: BTreeMap<usize, Rc<[(String, Value)]>>,
    found: Vec<(String, Entry)>,
    path_bytes: usize,
}

impl Flattener<'_> {
    /// Looks at each node once: how deep it is, and whether there are tensors below.
    fn survey(&mut self, value: Value, depth: usize) -> Result<(usize, bool)> {
        let Value::Node(id) = value else { return Ok((0, false)) };
        let too_deep = || WeightsError::limit("the values are nested too deeply", limits::MAX_DEPTH);
        match self.surveys.get(id.index()).copied().unwrap_or(Survey::Unknown) {
            Survey::Open => return Err(WeightsError::pickle("a container contains itself")),
            Survey::Known { height, .. } if depth + height > limits::MAX_DEPTH => return Err(too_deep()),
            Survey::Known { height, tensors } => return Ok((height, tensors)),
            Survey::Unknown if depth > limits::MAX_DEPTH => return Err(too_deep()),
            Survey::Unknown => {}
        }
        self.note(id.index(), Survey::Open);
        let file = self.file;
        let (mut height, mut tensors) = (0, false);
        let mut child = |flattener: &mut Self, value: Value| -> Result<()> {
            let (below, has) = flattener.survey(value, depth + 1)?;
            height = height.max(below);
            tensors |= has;
            Ok(())
        };
        match file.pickled.arena.node(value) {
            Some(Node::List(items) | Node::Set(items)) => {
                items.iter().try_for_each(|item| child(self, *item))?;
            }
            Some(Node::Tuple(items)) => items.iter().try_for_each(|item| child(self, *item))?,
            Some(Node::Dict(pairs) | Node::Object(pairs) | Node::Namespace(pairs)) => {
                for (key, value) in pairs {
                    child(self, *key)?;
                    child(self, *value)?;
                }
            }
            Some(Node::Tensor(_) | Node::Array(Some(_)) | Node::Refused(_)) => tensors = true,
            Some(Node::Foreign(_)) => tensors = self.holds_tensors(value),
            _ => {}
        }
        // Not all that a container holds has a path: what `collect` does not reach it must not look for, on however many paths.
        let container = !matches!(
            file.pickled.arena.node(value),
            Some(Node::Tensor(_) | Node::Array(_) | Node::Refused(_) | Node::Foreign(_))
        );
        if container && tensors {
            tensors = !self.parts(value)?.is_empty();
        }
        height += 1;
        self.note(id.index(), Survey::Known { height, tensors });
        Ok((height, tensors))
    }

    /// Whether an object of a class that is not known was given tensors. Such objects may be nested as deep as they like, and hold
    /// each other; each is looked at once. What it shares with one that has tensors may be those.
    fn holds_tensors(&mut self, object: Value) -> bool {
        let arena = &self.file.pickled.arena;
        let (mut work, mut seen, mut found) = (vec![object], Vec::new(), false);
        while let Some(value) = work.pop() {
            let Value::Node(id) = value else { continue };
            match self.below_foreign.get_mut(id.index()) {
                Some(place @ None) => *place = Some(false),
                Some(Some(holds)) => {
                    found |= *holds;
                    continue;
                }
                None => continue,
            }
            seen.push(id.index());
            match arena.node(value) {
                Some(Node::Tensor(_) | Node::Array(Some(_)) | Node::Refused(_) | Node::Storage(..)) => {
                    found = true
                }
                Some(Node::List(items) | Node::Set(items)) => work.extend(items),
                Some(Node::Tuple(items)) => work.extend(items.iter()),
                Some(Node::Dict(pairs) | Node::Object(pairs) | Node::Namespace(pairs)) => {
                    work.extend(pairs.iter().flat_map(|(key, value)| [*key, *value]));
                }
                Some(Node::Foreign(foreign)) => work.extend(&foreign.given),
                Some(
                    Node::Text(_) | Node::Bytes(_) | Node::BigInt(_) | Node::ArrayType(_) | Node::Array(None),
                )
                | None => {}
            }
        }
        if found {
            for index in seen {
                if let Some(place) = self.below_foreign.get_mut(index) {
                    *place = Some(true);
                }
            }
        }
        found
    }

    fn note(&mut self, index: usize, survey: Survey) {
        if let Some(place) = self.surveys.get_mut(index) {
            *place = survey;
        }
    }

    fn has_tensors(&self, value: Value) -> bool {
        let Value::Node(id) = value else { return false };
        matches!(self.surveys.get(id.index()), Some(Survey::Known { tensors: true, .. }))
    }

    /// The parts of a container that have tensors below.
    fn parts(&mut self, container: Value) -> Result<Rc<[(String, Value)]>> {
        let Value::Node(id) = container else { return Ok(Rc::default()) };
        if let Some(parts) = self.parts.get(&id.index()) {
            return Ok(parts.clone());
        }
        let arena = &self.file.pickled.arena;
        let script = matches!(arena.node(container), Some(Node::Object(_)));
        let mut parts = self.keys.entries(arena, container)?;
        parts.retain(|(_, part)| {
            let module =
                matches!(arena.node(*part), Some(Node::Object(_) | Node::Tensor(_) | Node::Refused(_)));
            // A script module's lists are not its parameters: an LSTM keeps a second list of them, say.
            self.has_tensors(*part) && (module || !script)
        });
        let parts: Rc<[_]> = parts.into();
        self.parts.insert(id.index(), parts.clone());
        Ok(parts)
    }

    /// Walks the containers that have tensors below. Sets and keys have no paths.
    fn collect(&mut self, value: Value, path: &str) -> Result<()> {
        let file = self.file;
        match file.pickled.arena.node(value) {
            Some(Node::Tensor(spec)) => {
                let tensor = self.tensor(spec).map_err(|error| error.at_key(path))?;
                self.add(path, Entry::Tensor(tensor))
            }
            Some(Node::Array(Some(spec))) => {
                let tensor = self.array(spec).map_err(|error| error.at_key(path))?;
                self.add(path, Entry::Tensor(tensor))
            }
            Some(Node::Refused(what)) => self.add(path, Entry::Unsupported(what.to_string())),
            Some(Node::Foreign(foreign)) => {
                self.objects.push((path.to_owned(), foreign.name.to_string()));
                self.add(path, Entry::Unsupported(format!("an object of `{}`", foreign.name)))
            }
            _ => {
                let parts = self.parts(value)?;
                parts.iter().try_for_each(|(name, part)| match path {
                    "" => self.collect(*part, name),
                    path => self.collect(*part, &format!("{path}.{name}")),
                })
            }
        }
    }

    /// A tensor over its storage.
    fn tensor(&mut self, spec: &TensorSpec) -> Result<LazyTensor> {
        let file = self.file;
        let storage = file.pickled.storages.get(spec.storage);
        let storage = storage.ok_or_else(|| WeightsError::tensor("it has no storage"))?;
        let storage = file.storage(storage, &mut self.storages)?;
        LazyTensor::new(spec.stored, spec.shape.clone(), spec.strides.clone(), spec.offset, storage)
    }

    /// A tensor over an array's bytes, which lie in the pickle.
    fn array(&mut self, spec: &ArraySpec) -> Result<LazyTensor> {
        let broken = || WeightsError::tensor("a NumPy array has no bytes");
        let Value::Node(id) = spec.bytes else { return Err(broken()) };
        let key = (id.index(), spec.big_endian);
        let storage = match self.arrays.get(&key) {
            Some(storage) => storage.clone(),
            None => {
                let Some(Node::Bytes(bytes)) = self.file.pickled.arena.node(spec.bytes) else {
                    return Err(broken());
                };
                // Once for all paths that lead to the bytes.
                let bytes = Source::Mapped(Bytes::from_vec(bytes.to_vec()));
                let storage = Arc::new(Storage::new("a NumPy array", bytes, spec.big_endian));
                self.arrays.entry(key).or_insert(storage).clone()
            }
        };
        LazyTensor::new(spec.dtype.into(), spec.shape.clone(), spec.strides.clone(), 0, storage)
    }

    fn add(&mut self, path: &str, entry: Entry) -> Result<()> {
        self.path_bytes = self.path_bytes.saturating_add(path.len());
        if self.found.len() >= limits::MAX_TENSORS {
            return Err(WeightsError::limit("the file has too many tensors", limits::MAX_TENSORS));
        }
        if self.path_bytes > limits::MAX_PATH_BYTES {
            return Err(WeightsError::limit("the tensors' paths are too long", limits::MAX_PATH_BYTES));
        }
        self.found.push((path.to_owned(), entry));
        Ok(())
    }
}
