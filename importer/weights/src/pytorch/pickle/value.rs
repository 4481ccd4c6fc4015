//! What pickles are made of: small values, and nodes in an arena, which may be shared and may contain themselves.

use super::numpy::ArrayType;
use super::{ElementType, Global};
use crate::{Result, WeightsError, limits};
use kiln_record::Stored;
use kiln_types::DType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A value on the stack or in a container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Global(Global),
    Node(NodeId),
}

/// A node's place in its arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(u32);

impl NodeId {
    /// The place as an index.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A storage's place among those of its pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StorageId(usize);

/// A value that is not small.
#[derive(Debug)]
pub(crate) enum Node {
    Text(Box<str>),
    Bytes(Box<[u8]>),
    /// An integer of more than 64 bits, in decimal.
    BigInt(Box<str>),
    List(Vec<Value>),
    Tuple(Box<[Value]>),
    Set(Vec<Value>),
    /// Keys and values in the order of the file. A later equal key replaces an earlier one.
    Dict(Vec<(Value, Value)>),
    /// A script module: its attributes.
    Object(Vec<(Value, Value)>),
    /// A namespace of Python's: its attributes.
    Namespace(Vec<(Value, Value)>),
    /// A storage, and the part of it that is meant: first element and count.
    Storage(StorageId, usize, usize),
    Tensor(Box<TensorSpec>),
    /// A dtype of NumPy's.
    ArrayType(ArrayType),
    /// An array of NumPy's; `None` before its state is known, and for contents that are no numbers.
    Array(Option<Box<ArraySpec>>),
    /// A valid tensor of a kind that Kiln does not have.
    Refused(Box<str>),
    /// A class or function that is not known, or an object of such a class.
    Foreign(Box<Foreign>),
}

/// A class or function that is not known, or what a call of it would have built, which is never made.
#[derive(Debug)]
pub(crate) struct Foreign {
    /// The name of the class or function.
    pub(crate) name: Arc<str>,
    /// What it was called with, and what the object was given after that.
    pub(crate) given: Vec<Value>,
}

impl Node {
    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Node::Text(_) => "a text",
            Node::Bytes(_) => "bytes",
            Node::BigInt(_) => "an integer",
            Node::List(_) => "a list",
            Node::Tuple(_) => "a tuple",
            Node::Set(_) => "a set",
            Node::Dict(_) => "a dict",
            Node::Object(_) => "a script module",
            Node::Namespace(_) => "a namespace",
            Node::ArrayType(_) => "a NumPy dtype",
            Node::Array(_) => "a NumPy array",
            Node::Storage(..) => "a storage",
            Node::Tensor(_) | Node::Refused(_) => "a tensor",
            Node::Foreign(_) => "an object of a class that is not known",
        }
    }
}

/// A tensor as its pickle describes it.
#[derive(Clone, Debug)]
pub(crate) struct TensorSpec {
    pub(crate) stored: Stored,
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<usize>,
    /// In elements, from the beginning of the storage.
    pub(crate) offset: usize,
    pub(crate) storage: StorageId,
}

/// An array of NumPy's.
#[derive(Clone, Debug)]
pub(crate) struct ArraySpec {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<usize>,
    pub(crate) big_endian: bool,
    /// The bytes.
    pub(crate) bytes: Value,
}

/// A storage as a pickle describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StorageSpec {
    pub(crate) key: String,
    pub(crate) element: ElementType,
    /// In elements.
    pub(crate) count: usize,
}

/// The storages that a pickle uses.
#[derive(Debug, Default)]
pub(crate) struct StorageSpecs {
    list: Vec<StorageSpec>,
    /// The first storage of each key.
    by_key: BTreeMap<String, StorageId>,
    /// Storages by the first of their key, by count and by element type.
    known: BTreeMap<(StorageId, usize, String), StorageId>,
}

impl StorageSpecs {
    /// Adds a storage, unless an equal one is there.
    pub(crate) fn add(&mut self, spec: StorageSpec) -> StorageId {
        let new = StorageId(self.list.len());
        let first = *self.by_key.entry(spec.key.clone()).or_insert(new);
        let id = *self.known.entry((first, spec.count, spec.element.name())).or_insert(new);
        if id == new {
            self.list.push(spec);
        }
        id
    }

    /// The first storage of a key.
    pub(crate) fn find(&self, key: &str) -> Option<(StorageId, &StorageSpec)> {
        let id = *self.by_key.get(key)?;
        Some((id, self.get(id)?))
    }

    pub(crate) fn get(&self, id: StorageId) -> Option<&StorageSpec> {
        self.list.get(id.0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &StorageSpec> {
        self.list.iter()
    }
}

/// The nodes of a pickle.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    nodes: Vec<Node>,
    /// Values in all containers, counted when they were put in.
    contained: usize,
}

impl Arena {
    /// Adds a node.
    pub(crate) fn add(&mut self, node: Node) -> Result<Value> {
        self.spend(1)?;
        let id = u32::try_from(self.nodes.len()).map_err(|_| too_many())?;
        self.nodes.push(node);
        Ok(Value::Node(NodeId(id)))
    }

    /// Adds a text.
    pub(crate) fn add_text(&mut self, text: impl Into<Box<str>>) -> Result<Value> {
        self.add(Node::Text(text.into()))
    }

    /// Counts values that are put into a container.
    pub(crate) fn spend(&mut self, values: usize) -> Result<()> {
        self.contained = self.contained.saturating_add(values);
        if self.contained > limits::MAX_VALUES { Err(too_many()) } else { Ok(()) }
    }

    /// The node that a value is, if it is one.
    pub(crate) fn node(&self, value: Value) -> Option<&Node> {
        match value {
            Value::Node(id) => self.nodes.get(id.index()),
            _ => None,
        }
    }

    pub(crate) fn node_mut(&mut self, value: Value) -> Option<&mut Node> {
        match value {
            Value::Node(id) => self.nodes.get_mut(id.index()),
            _ => None,
        }
    }

    /// The class or function that is not known which a value is, or is an object of.
    pub(crate) fn foreign(&self, value: Value) -> Option<&Foreign> {
        match self.node(value) {
            Some(Node::Foreign(foreign)) => Some(foreign),
            _ => None,
        }
    }

    /// Number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn text(&self, value: Value) -> Option<&str> {
        match self.node(value) {
            Some(Node::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn tuple(&self, value: Value) -> Option<&[Value]> {
        match self.node(value) {
            Some(Node::Tuple(items)) => Some(items),
            _ => None,
        }
    }

    /// What a value is, for messages.
    pub(crate) fn kind(&self, value: Value) -> &'static str {
        match value {
            Value::None => "None",
            Value::Bool(_) => "a bool",
            Value::Int(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Global(_) => "a class or function",
            Value::Node(_) => self.node(value).map_or("nothing", Node::kind),
        }
    }

    /// A dict's key as Python would print it: the part of a path.
    pub(crate) fn key_text(&self, key: Value) -> Result<String> {
        let mut text = String::new();
        match self.text(key) {
            Some(key) => text.push_str(key),
            None => self.print_key(key, 0, &mut text)?,
        }
        if text.len() > limits::MAX_KEY_BYTES { Err(key_too_long()) } else { Ok(text) }
    }

    fn print_key(&self, key: Value, depth: usize, to: &mut String) -> Result<()> {
        if to.len() > limits::MAX_KEY_BYTES {
            return Err(key_too_long());
        }
        if depth > limits::MAX_DEPTH {
            return Err(WeightsError::limit("a dict's key is nested too deeply", limits::MAX_DEPTH));
        }
        match (key, self.node(key)) {
            (Value::None, _) => to.push_str("None"),
            (Value::Bool(value), _) => to.push_str(if value { "True" } else { "False" }),
            (Value::Int(value), _) => to.push_str(&value.to_string()),
            (Value::Float(value), _) => to.push_str(&format!("{value:?}")),
            (Value::Global(global), _) => to.push_str(&global.to_string()),
            (_, Some(Node::BigInt(digits))) => to.push_str(digits),
            (_, Some(Node::Text(text))) => to.push_str(&format!("'{text}'")),
            (_, Some(Node::Tuple(items))) => {
                to.push('(');
                for (index, item) in items.iter().enumerate() {
                    to.push_str(if index > 0 { ", " } else { "" });
                    self.print_key(*item, depth + 1, to)?;
                }
                to.push_str(if items.len() == 1 { ",)" } else { ")" });
            }
            // Two of them are two keys.
            (Value::Node(id), Some(Node::Foreign(foreign))) => {
                to.push_str(&format!("<{} {}>", foreign.name, id.index()));
            }
            _ => to.push_str(self.kind(key)),
        }
        Ok(())
    }
}

fn too_many() -> WeightsError {
    WeightsError::limit("the pickle holds too many values", limits::MAX_VALUES)
}

fn key_too_long() -> WeightsError {
    WeightsError::limit("a dict's key is too long", limits::MAX_KEY_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pickle of many tensors holds millions of them.
    #[test]
    fn values_are_small() {
        assert!(
            size_of::<Value>() <= 24 && size_of::<Node>() <= 32,
            "{} {}",
            size_of::<Value>(),
            size_of::<Node>()
        );
    }
}
