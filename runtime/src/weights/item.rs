//! Records from checkpoints: a deserializer that answers a record's questions from a checkpoint's tensors.
//!
//! The types of a record ask for their fields by name, and so tell what they are. An enum does not tell which variant is
//! meant; it is found by trying: a pass without data tells how many tensors a choice misses or leaves over.

use super::adapter::{Candidate, Frame, path_of, rank};
use super::load::is_bookkeeping;
use super::source::Source;
use super::{AdapterType, ImportError, ImportReport, LoadArgs, MissingWeight};
use crate::module::ParamId;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::{boxed::Box, format, vec::Vec};
use core::cell::RefCell;
use core::fmt;
use kiln_weights::LazyTensor;
use serde::de::value::{StrDeserializer, UsizeDeserializer};
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};

/// Most passes to find the variants of a record's enums.
const MAX_PASSES: usize = 10_000;

/// Reads an item from a checkpoint.
///
/// # Errors
/// When the file cannot be read, or does not have what the item asks for.
pub(super) fn read_item<I: DeserializeOwned>(args: &LoadArgs) -> Result<I, ImportError> {
    let source = Source::read(args)?;
    let state = State {
        source: &source,
        adapter: args.adapter,
        dry: true,
        choices: RefCell::default(),
        log: RefCell::default(),
    };
    let log = choose_variants::<I>(&state)?;
    let unused = state.unused(&log, "");
    if !log.missing.is_empty() || (args.strict && !unused.is_empty()) {
        let unused =
            unused.into_iter().map(|(key, tensor)| (key.to_string(), tensor.shape().to_vec())).collect();
        let missing = log.missing;
        return Err(Box::new(ImportReport { source: source.name, missing, wrong: Vec::new(), unused }).into());
    }
    let state = State { dry: false, log: RefCell::default(), ..state };
    I::deserialize(Node { state: &state, frames: Vec::new() }).map_err(|Failure(error)| *error)
}

/// Runs without data until each enum has the variant that fits best; yields what the last pass saw.
fn choose_variants<I: DeserializeOwned>(state: &State<'_>) -> Result<Log, ImportError> {
    let mut settled = BTreeSet::new();
    let mut best: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for _ in 0..MAX_PASSES {
        state.log.replace(Log::default());
        let root = Node { state, frames: Vec::new() };
        I::deserialize(root).map_err(|Failure(error)| *error)?;
        let log = state.log.take();
        let Some((path, variants)) = log.enums.iter().find(|(path, _)| !settled.contains(path)).cloned()
        else {
            return Ok(log);
        };
        let cost = state.cost(&log, &path);
        let mut choices = state.choices.borrow_mut();
        let choice = choices.entry(path.clone()).or_default();
        let entry = best.entry(path.clone()).or_insert((usize::MAX, 0));
        if cost < entry.0 {
            *entry = (cost, *choice);
        }
        if cost == 0 || *choice + 1 >= variants {
            *choice = entry.1;
            settled.insert(path);
        } else {
            *choice += 1;
            // What lies below is another type now.
            let below = format!("{path}.");
            best.retain(|known, _| !known.starts_with(&below));
            choices.retain(|known, _| !known.starts_with(&below));
        }
    }
    Err(ImportError::Record("the record has too many enums to try".to_string()))
}

/// What a pass saw.
#[derive(Default)]
struct Log {
    used: BTreeSet<String>,
    missing: Vec<MissingWeight>,
    /// The enums and how many variants they have, in order.
    enums: Vec<(String, usize)>,
}

/// A pass over a record.
struct State<'a> {
    source: &'a Source,
    adapter: AdapterType,
    /// Whether tensors are left empty.
    dry: bool,
    /// The variants to take, by path.
    choices: RefCell<BTreeMap<String, usize>>,
    log: RefCell<Log>,
}

impl<'a> State<'a> {
    /// The tensors below a path that nothing used.
    fn unused(&self, log: &Log, path: &str) -> Vec<(&'a str, &'a LazyTensor)> {
        let below = |key: &str| {
            path.is_empty() || key == path || key.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
        };
        let unused = |key: &str| !log.used.contains(key) && !is_bookkeeping(key) && below(key);
        self.source.iter().filter(|(key, _)| unused(key)).collect()
    }

    /// How badly a choice at a path fits.
    fn cost(&self, log: &Log, path: &str) -> usize {
        let below = |missing: &&MissingWeight| {
            path.is_empty() || missing.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
        };
        log.missing.iter().filter(below).count() + self.unused(log, path).len()
    }

    /// The first place where a parameter is in the file.
    fn find(&self, frames: &[Frame]) -> Option<(Candidate, &'a LazyTensor)> {
        let candidates = self.adapter.candidates(frames);
        candidates.into_iter().find_map(|candidate| {
            let tensor = self.source.get(&candidate.key)?;
            Some((candidate, tensor))
        })
    }

    /// The key of a parameter and the tensor for it. In a pass without data it may be missing, which is noted.
    fn parameter(&self, frames: &[Frame]) -> Result<Option<(String, LazyTensor)>, Failure> {
        let path = path_of(frames);
        let found = self.find(frames).and_then(|(candidate, tensor)| {
            let tensor = candidate.view.of(tensor)?;
            let fits = rank(frames).is_none_or(|rank| rank == tensor.shape().len());
            fits.then_some((candidate.key, tensor))
        });
        let mut log = self.log.borrow_mut();
        match found {
            Some((key, tensor)) => {
                log.used.insert(key.clone());
                Ok(Some((key, tensor)))
            }
            None if self.dry => {
                let first = self.adapter.candidates(frames).into_iter().next();
                let key = first.map_or_else(|| path.clone(), |candidate| candidate.key);
                log.missing.push(MissingWeight { path, key, shape: None });
                Ok(None)
            }
            None => Err(de::Error::custom(format!("parameter {path} is missing"))),
        }
    }
}

/// An error inside of serde.
#[derive(Debug)]
struct Failure(Box<ImportError>);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl core::error::Error for Failure {}

impl de::Error for Failure {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Failure(Box::new(ImportError::Record(text.to_string())))
    }
}

/// A place in the record: a module, a list, a parameter.
struct Node<'s, 'a> {
    state: &'s State<'a>,
    frames: Vec<Frame>,
}

impl<'s, 'a> Node<'s, 'a> {
    fn child(&self, container: &str, name: impl Into<String>) -> Self {
        let mut frames = self.frames.clone();
        frames.push(Frame { container: container.to_string(), name: name.into() });
        Self { state: self.state, frames }
    }

    fn path(&self) -> String {
        path_of(&self.frames)
    }

    /// The items of a list, by the indices in the file.
    fn items(&self) -> Vec<Self> {
        let path = self.path();
        let mut indices = self.state.source.indices(&path);
        if indices.is_empty() {
            // The layers of a recurrent module of PyTorch's.
            let layer =
                |index: &usize| self.state.source.get(&format!("{path}.weight_ih_l{index}")).is_some();
            indices = (0..).take_while(layer).collect();
        }
        indices.into_iter().map(|index| self.child("Vec", index.to_string())).collect()
    }

    /// Exactly `count` children: the items, or what the indices say.
    fn exactly(&self, container: &str, count: usize) -> Vec<Self> {
        let items = self.items();
        if container == "Vec" && items.len() == count {
            return items;
        }
        (0..count).map(|index| self.child(container, index.to_string())).collect()
    }

    fn refuse<T>(&self, what: &str) -> Result<T, Failure> {
        Err(de::Error::custom(format!("{}: {what} is not in a checkpoint of tensors", self.path())))
    }
}

/// The module's name from that of its record's item.
fn module_name(item: &str) -> &str {
    item.strip_suffix("RecordItem").unwrap_or(item)
}

/// The kinds of values that a checkpoint's tensors cannot be.
macro_rules! refuse {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Failure> {
            self.refuse("a value that is no parameter")
        }
    )*};
}

impl<'de> Deserializer<'de> for Node<'_, '_> {
    type Error = Failure;

    refuse!(deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64 deserialize_char
        deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_map deserialize_identifier);

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let path = self.path();
        let there =
            self.state.find(&self.frames).is_some() || self.state.source.below(&path).next().is_some();
        if there { visitor.visit_some(self) } else { visitor.visit_none() }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self.child(module_name(name), "0"))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_seq(Children(self.items().into_iter()))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_seq(Children(self.exactly("Vec", len).into_iter()))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_seq(Children(self.exactly(module_name(name), len).into_iter()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        match name {
            "ParamSerde" => visitor.visit_map(Fields::new(fields, |field| match field {
                "id" => Ok(Part::Text(ParamId::from_path(&self.path()).serialize())),
                _ => Ok(Part::Node(Node { state: self.state, frames: self.frames.clone() })),
            })),
            "TensorData" => {
                let data = match self.state.parameter(&self.frames)? {
                    Some((key, tensor)) if !self.state.dry => {
                        let data = self.state.source.data(&key, &tensor);
                        Some(data.map_err(|error| Failure(Box::new(error)))?)
                    }
                    _ => None,
                };
                visitor.visit_map(Fields::new(fields, |field| {
                    Ok(match (field, &data) {
                        ("bytes", Some(data)) => Part::Bytes(data.bytes.to_vec()),
                        ("bytes", None) => Part::Bytes(Vec::new()),
                        ("shape", Some(data)) => Part::Shape(data.shape.clone()),
                        ("shape", None) => Part::Shape(alloc::vec![0]),
                        (_, Some(data)) => Part::Variant(format!("{:?}", data.dtype)),
                        (_, None) => Part::Variant("F32".to_string()),
                    })
                }))
            }
            name => visitor
                .visit_map(Fields::new(fields, |field| Ok(Part::Node(self.child(module_name(name), field))))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let path = self.path();
        self.state.log.borrow_mut().enums.push((path.clone(), variants.len()));
        let choice = self.state.choices.borrow().get(&path).copied().unwrap_or(0);
        let Some(variant) = variants.get(choice) else { return self.refuse("an enum without variants") };
        visitor.visit_enum(Variant { name: variant, content: self })
    }
}

/// The items of a sequence.
struct Children<'s, 'a>(alloc::vec::IntoIter<Node<'s, 'a>>);

impl<'de> de::SeqAccess<'de> for Children<'_, '_> {
    type Error = Failure;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failure> {
        self.0.next().map(|child| seed.deserialize(child)).transpose()
    }
}

/// The content of a field.
enum Part<'s, 'a> {
    Node(Node<'s, 'a>),
    Text(String),
    Bytes(Vec<u8>),
    Shape(Vec<usize>),
    /// A variant without content.
    Variant(String),
}

/// The fields of a struct, each made when it is asked for.
struct Fields<F> {
    names: core::slice::Iter<'static, &'static str>,
    current: Option<&'static str>,
    make: F,
}

impl<'s, 'a: 's, F: FnMut(&'static str) -> Result<Part<'s, 'a>, Failure>> Fields<F> {
    fn new(names: &'static [&'static str], make: F) -> Self {
        Self { names: names.iter(), current: None, make }
    }
}

impl<'de, 's, 'a: 's, F: FnMut(&'static str) -> Result<Part<'s, 'a>, Failure>> de::MapAccess<'de>
    for Fields<F>
{
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failure> {
        self.current = self.names.next().copied();
        let key = |name: &'static str| seed.deserialize(StrDeserializer::<Failure>::new(name));
        self.current.map(key).transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Failure> {
        match (self.make)(self.current.unwrap_or_default())? {
            Part::Node(node) => seed.deserialize(node),
            Part::Text(text) => seed.deserialize(text.into_deserializer()),
            Part::Bytes(bytes) => seed.deserialize(ByteBuffer(bytes)),
            Part::Shape(shape) => {
                let dims = shape.into_iter().map(UsizeDeserializer::<Failure>::new);
                seed.deserialize(de::value::SeqDeserializer::new(dims))
            }
            Part::Variant(name) => {
                let name: de::value::StringDeserializer<Failure> = name.into_deserializer();
                seed.deserialize(name)
            }
        }
    }
}

/// Bytes that are handed over, not copied.
struct ByteBuffer(Vec<u8>);

impl<'de> Deserializer<'de> for ByteBuffer {
    type Error = Failure;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_byte_buf(self.0)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The chosen variant of an enum; what it holds is where the enum is.
struct Variant<'s, 'a> {
    name: &'static str,
    content: Node<'s, 'a>,
}

impl<'de, 's, 'a> de::EnumAccess<'de> for Variant<'s, 'a> {
    type Error = Failure;
    type Variant = Node<'s, 'a>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Node<'s, 'a>), Failure> {
        let name = seed.deserialize(StrDeserializer::<Failure>::new(self.name))?;
        Ok((name, self.content))
    }
}

impl<'de> de::VariantAccess<'de> for Node<'_, '_> {
    type Error = Failure;

    fn unit_variant(self) -> Result<(), Failure> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Failure> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_struct("", fields, visitor)
    }
}
