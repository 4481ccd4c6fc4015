//! What a place in a record is given as: sequences, fields, variants.

use super::node::{Failure, Node};
use alloc::{string::String, vec::Vec};
use serde::de::value::{StrDeserializer, UsizeDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};

/// The items of a sequence.
pub(super) struct Children<'s, 'a>(pub(super) alloc::vec::IntoIter<Node<'s, 'a>>);

impl<'de> de::SeqAccess<'de> for Children<'_, '_> {
    type Error = Failure;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failure> {
        self.0.next().map(|child| seed.deserialize(child)).transpose()
    }
}

/// The content of a field.
pub(super) enum Part<'s, 'a> {
    Node(Node<'s, 'a>),
    Text(String),
    Bytes(Vec<u8>),
    Shape(Vec<usize>),
    /// A variant without content.
    Variant(String),
}

/// The fields of a struct, each made when it is asked for.
pub(super) struct Fields<F> {
    names: core::slice::Iter<'static, &'static str>,
    current: Option<&'static str>,
    make: F,
}

impl<'s, 'a: 's, F: FnMut(&'static str) -> Result<Part<'s, 'a>, Failure>> Fields<F> {
    pub(super) fn new(names: &'static [&'static str], make: F) -> Self {
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
pub(super) struct Variant<'s, 'a> {
    pub(super) name: &'static str,
    pub(super) content: Node<'s, 'a>,
}

impl<'de, 's, 'a> de::EnumAccess<'de> for Variant<'s, 'a> {
    type Error = Failure;
    type Variant = Node<'s, 'a>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Node<'s, 'a>), Failure> {
        let name = seed.deserialize(StrDeserializer::<Failure>::new(self.name))?;
        Ok((name, self.content))
    }
}
