//! What calls of the known globals build, and what persistent ids stand for.

use super::globals::{ElementType, Global, Make, Rebuild};
use super::machine::Machine;
use super::value::{Node, StorageSpec, TensorSpec, Value};
use super::{Dialect, StorageId};
use crate::tensor::check_view;
use crate::{ErrorKind, Result, WeightsError, limits};
use kiln_types::DType;

impl Machine<'_> {
    /// Calls a global.
    pub(super) fn call(&mut self, callable: Value, arguments: &[Value]) -> Result<Value> {
        match callable {
            Value::Global(Global::Make(make)) => self.make(make, arguments),
            Value::Global(Global::Rebuild(rebuild)) => self.rebuild(rebuild, arguments),
            Value::Global(Global::Numpy(function)) => self.numpy(function, arguments),
            Value::Global(Global::Namespace) => self.arena.add(Node::Namespace(Vec::new())),
            Value::Global(Global::First) => {
                arguments.first().copied().ok_or_else(|| WeightsError::pickle("a call has no arguments"))
            }
            Value::Global(Global::Script) => self.arena.add(Node::Object(Vec::new())),
            other => match self.arena.foreign(other) {
                Some(foreign) => Err(ErrorKind::Global(foreign.name.to_string()).into()),
                None => Err(WeightsError::pickle(format!(
                    "{} is called, or made an object of",
                    self.arena.kind(other)
                ))),
            },
        }
    }

    /// Makes plain data.
    fn make(&mut self, make: Make, arguments: &[Value]) -> Result<Value> {
        let arguments =
            if make == Make::DefaultDict { arguments.get(1..).unwrap_or_default() } else { arguments };
        let first = arguments.first().copied();
        let node = match (make, first.and_then(|first| self.arena.node(first))) {
            (Make::Dict | Make::DefaultDict, None) if first.is_none() => Node::Dict(Vec::new()),
            (Make::Dict | Make::DefaultDict, Some(Node::Dict(pairs))) => Node::Dict(pairs.clone()),
            (Make::Dict, Some(Node::List(items) | Node::Set(items))) => {
                let items = items.clone();
                Node::Dict(self.pairs_of(&items)?)
            }
            (Make::Set, None) if first.is_none() => Node::Set(Vec::new()),
            (Make::Set, Some(Node::List(items) | Node::Set(items))) => Node::Set(items.clone()),
            (Make::Size, Some(Node::Tuple(items))) => Node::Tuple(items.clone()),
            (Make::Size, Some(Node::List(items))) => Node::Tuple(items.as_slice().into()),
            (Make::Bytes, None) if first.is_none() => Node::Bytes(Box::default()),
            (Make::Bytes, Some(Node::Bytes(bytes))) => Node::Bytes(bytes.clone()),
            (Make::Bytes, Some(Node::Text(text))) => Node::Bytes(latin_1(text)?),
            (Make::Device, Some(Node::Text(name))) => Node::Text(match arguments.get(1) {
                Some(Value::Int(index)) => format!("{name}:{index}").into(),
                _ => name.clone(),
            }),
            (Make::List, None) if first.is_none() => Node::List(Vec::new()),
            (Make::List, Some(Node::Tuple(items))) => Node::List(items.to_vec()),
            (Make::List, Some(Node::List(items))) => Node::List(items.clone()),
            (Make::Path, _) => {
                let parts: Option<Vec<&str>> = arguments.iter().map(|part| self.arena.text(*part)).collect();
                let parts = parts.ok_or_else(|| WeightsError::pickle("a path is not made of texts"))?;
                Node::Text(joined_path(&parts).into())
            }
            (Make::Complex, None) => match arguments {
                [Value::Float(real), Value::Float(imaginary)] => {
                    Node::Text(format!("({real}{imaginary:+}j)").into())
                }
                _ => return Err(WeightsError::pickle("a complex number is not made of two floats")),
            },
            _ => {
                let given = first.map_or("nothing", |first| self.arena.kind(first));
                return Err(WeightsError::pickle(format!(
                    "{given} cannot be made into the container it should be"
                )));
            }
        };
        let cost = match &node {
            Node::Dict(pairs) => 2 * pairs.len(),
            Node::Set(items) | Node::List(items) => items.len(),
            Node::Tuple(items) => items.len(),
            // Copies of bytes and texts; a value is about this many bytes.
            Node::Bytes(bytes) => bytes.len() / 16,
            Node::Text(text) => text.len() / 16,
            _ => 0,
        };
        self.arena.spend(cost)?;
        self.arena.add(node)
    }

    /// Pairs given as tuples or lists of two.
    fn pairs_of(&mut self, items: &[Value]) -> Result<Vec<(Value, Value)>> {
        let mut flat = Vec::with_capacity(items.len().saturating_mul(2));
        for item in items {
            match self.arena.node(*item) {
                Some(Node::Tuple(pair)) if pair.len() == 2 => flat.extend_from_slice(pair),
                Some(Node::List(pair)) if pair.len() == 2 => flat.extend_from_slice(pair),
                _ => return Err(WeightsError::pickle("a dict is not made of pairs")),
            }
        }
        self.pairs(&flat)
    }

    /// Puts a tensor together.
    fn rebuild(&mut self, rebuild: Rebuild, arguments: &[Value]) -> Result<Value> {
        if let Some(foreign) = arguments.iter().find_map(|argument| self.arena.foreign(*argument)) {
            let what = format!("a tensor made with `{}`", foreign.name);
            self.arena.spend(what.len() / 16)?;
            return self.arena.add(Node::Refused(what.into()));
        }
        let few = || WeightsError::tensor("arguments of the function that builds it are missing");
        match (rebuild, arguments) {
            (Rebuild::V1, [storage, offset, size, strides]) => {
                self.tensor(*storage, *offset, *size, *strides, None)
            }
            (Rebuild::V2, [storage, offset, size, strides, _gradient, _hooks, marks @ ..]) => {
                match self.refused_mark(marks.first())? {
                    Some(what) => self.arena.add(Node::Refused(what.into())),
                    None => self.tensor(*storage, *offset, *size, *strides, None),
                }
            }
            (Rebuild::V3, [storage, offset, size, strides, _gradient, _hooks, Value::Global(Global::DType(dtype)), marks @ ..]) => {
                match self.refused_mark(marks.first())? {
                    Some(what) => self.arena.add(Node::Refused(what.into())),
                    None => self.tensor(*storage, *offset, *size, *strides, Some(*dtype)),
                }
            }
            (Rebuild::V3, [_, _, _, _, _, _, _, ..]) => Err(WeightsError::tensor("its dtype is none")),
            (Rebuild::Parameter, [data, ..]) => match self.arena.node(*data) {
                Some(Node::Tensor(_) | Node::Refused(_)) => Ok(*data),
                _ => Err(WeightsError::tensor(format!("a parameter is made of {}", self.arena.kind(*data)))),
            },
            (Rebuild::FromType, [Value::Global(Global::Rebuild(inner)), _class, inner_arguments, ..])
                // It cannot name itself: that would nest without end.
                if *inner != Rebuild::FromType =>
            {
                let fail = || WeightsError::tensor("the arguments of the function that builds it are no tuple");
                let inner_arguments = self.arena.tuple(*inner_arguments).ok_or_else(fail)?.to_vec();
                self.arena.spend(inner_arguments.len())?;
                self.rebuild(*inner, &inner_arguments)
            }
            (Rebuild::FromDevice, [data, ..]) => match self.arena.node(*data) {
                Some(Node::Tensor(_) | Node::Refused(_) | Node::Array(_)) => Ok(*data),
                _ => Err(WeightsError::tensor(format!("it is made of {}", self.arena.kind(*data)))),
            },
            (Rebuild::Refused(what), _) => self.arena.add(Node::Refused(what.into())),
            _ => Err(few()),
        }
    }

    /// What a tensor's marks say that Kiln's tensors cannot.
    fn refused_mark(&mut self, marks: Option<&Value>) -> Result<Option<&'static str>> {
        let Some(Node::Dict(pairs)) = marks.and_then(|marks| self.arena.node(*marks)) else {
            return Ok(None);
        };
        let cost = pairs.len();
        let marked = |name: &str| {
            pairs
                .iter()
                .any(|(key, value)| *value == Value::Bool(true) && self.arena.text(*key) == Some(name))
        };
        let refused = if marked("conj") {
            Some("a view of conjugated complex numbers")
        } else if marked("neg") {
            Some("a view with its sign still to be changed")
        } else {
            None
        };
        // Many tensors may have the same marks.
        self.arena.spend(cost)?;
        Ok(refused)
    }

    /// A view of a storage. Without a dtype it is the storage's own.
    fn tensor(
        &mut self,
        storage: Value,
        offset: Value,
        size: Value,
        strides: Value,
        dtype: Option<ElementType>,
    ) -> Result<Value> {
        let Some(Node::Storage(id, start, count)) = self.arena.node(storage) else {
            return Err(WeightsError::tensor(format!("its storage is {}", self.arena.kind(storage))));
        };
        let (id, start, count) = (*id, *start, *count);
        let stored = self.storages.get(id).map_or(ElementType::Untyped, |spec| spec.element);
        let (whole, stored) = (stored.width(), dtype.unwrap_or(stored));
        let stored = match stored {
            ElementType::Real(stored) => stored,
            ElementType::Untyped => DType::U8.into(),
            other @ ElementType::Other(_) => {
                return self.arena.add(Node::Refused(format!("a tensor of {}", other.name()).into()));
            }
        };
        let (shape, strides) = (self.sizes(size)?, self.sizes(strides)?);
        let offset = self.size(offset)?;
        let elements = count.saturating_mul(whole) / stored.size();
        check_view(&shape, &strides, offset, elements)?;
        self.arena.spend(shape.len() + strides.len())?;
        let first = start.checked_mul(whole).map(|first| first / stored.size());
        let offset = first.and_then(|first| first.checked_add(offset));
        let offset = offset.ok_or_else(|| WeightsError::tensor("its offset is too large"))?;
        self.arena.add(Node::Tensor(Box::new(TensorSpec { stored, shape, strides, offset, storage: id })))
    }

    pub(super) fn sizes(&self, tuple: Value) -> Result<Vec<usize>> {
        let items = self.arena.tuple(tuple);
        let fail =
            || WeightsError::tensor(format!("its shape or its strides are {}", self.arena.kind(tuple)));
        items.ok_or_else(fail)?.iter().map(|item| self.size(*item)).collect()
    }

    /// A number that counts elements.
    fn size(&self, value: Value) -> Result<usize> {
        match value {
            Value::Int(size) => usize::try_from(size)
                .map_err(|_| WeightsError::tensor(format!("a size, stride or offset is {size}"))),
            other => {
                Err(WeightsError::tensor(format!("a size, stride or offset is {}", self.arena.kind(other))))
            }
        }
    }

    /// What a persistent id stands for.
    pub(super) fn load_persistent(&mut self, id: Value) -> Result<Value> {
        match self.dialect {
            Dialect::Tensors(tensors) => {
                let number = self.arena.key_text(id)?;
                let tensor = tensors.get(&number);
                let tensor = tensor
                    .ok_or_else(|| WeightsError::tensor(format!("tensor {number:?} is not in the file")))?;
                self.arena.spend(tensor.shape.len() + tensor.strides.len())?;
                self.arena.add(Node::Tensor(Box::new(tensor.clone())))
            }
            Dialect::Plain => Err(WeightsError::pickle("it has a persistent id where there are none")),
            Dialect::Storages | Dialect::Script => {
                let (storage, start, count) = self.storage(id)?;
                self.arena.add(Node::Storage(storage, start, count))
            }
        }
    }

    /// A storage from `("storage", type, key, place, count)`, and in the legacy format a view of it or `None`.
    fn storage(&mut self, id: Value) -> Result<(StorageId, usize, usize)> {
        let fields = self.arena.tuple(id).unwrap_or_default();
        let (kind, key, count, view) = match fields {
            [tag, kind, key, _place, count, view @ ..] if self.arena.text(*tag) == Some("storage") => {
                (*kind, *key, *count, view.first().copied().unwrap_or(Value::None))
            }
            _ => return Err(WeightsError::pickle("a persistent id describes no storage")),
        };
        let Value::Global(Global::Storage(element)) = kind else {
            return Err(WeightsError::pickle("a storage has no type"));
        };
        let count = self.size(count)?;
        let key = self.arena.key_text(key)?;
        if key.len() > limits::MAX_STORAGE_KEY_BYTES {
            return Err(WeightsError::limit("a storage's key is too long", limits::MAX_STORAGE_KEY_BYTES));
        }
        let (start, part) = match (view, self.arena.tuple(view)) {
            (Value::None, _) => (0, count),
            (_, Some([_key, start, part])) => (self.size(*start)?, self.size(*part)?),
            _ => return Err(WeightsError::pickle("a view of a storage has not three parts")),
        };
        if start.checked_add(part).is_none_or(|end| end > count) {
            return Err(WeightsError::tensor(format!(
                "elements {start} to {start}+{part} are viewed of a storage of {count}"
            )));
        }
        Ok((self.storages.add(StorageSpec { key, element, count }), start, part))
    }
}

/// The parts of a path with slashes between them; the first may be the root.
fn joined_path(parts: &[&str]) -> String {
    match parts.split_first() {
        Some((root, rest)) if root.ends_with(['/', '\\']) => format!("{root}{}", rest.join("/")),
        _ => parts.join("/"),
    }
}

/// The bytes of a text whose characters stand for bytes.
fn latin_1(text: &str) -> Result<Box<[u8]>> {
    let byte = |c: char| {
        u8::try_from(u32::from(c)).map_err(|_| WeightsError::pickle("bytes are spelled beyond Latin-1"))
    };
    text.chars().map(byte).collect()
}
