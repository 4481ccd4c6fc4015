//! Records with names, read without the module's type.

use crate::{Envelope, EnvelopeHead, Format, Metadata, ParamId, RecordError};
use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
};
use core::fmt;
use kiln_types::TensorData;
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

/// The parameters of a record in one of the formats that have names, by path.
///
/// Reading it instantiates nothing for the module's type, which makes it much quicker to compile than the module's own
/// record. The variants of enums are part of a path.
#[derive(Clone, Debug)]
pub struct NamedRecord {
    /// What the record says of itself.
    pub metadata: Metadata,
    /// The parameters.
    pub parameters: BTreeMap<String, (ParamId, TensorData)>,
}

impl NamedRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// Also for [`Format::Bincode`] and [`Format::BincodeGz`], which have no names.
    pub fn read(format: Format, bytes: &[u8]) -> Result<Self, RecordError> {
        if !format.is_named() {
            return Err(RecordError::Decode(format!("{format:?} has no names; it needs the module's type")));
        }
        match format.read::<Envelope<Tree>>(bytes) {
            Ok(Envelope { metadata, item: Tree(parameters), .. }) => Ok(Self { metadata, parameters }),
            Err(error) => match format.read::<EnvelopeHead>(bytes) {
                Ok(head) if head.metadata.is_newer() => Err(RecordError::Decode(format!(
                    "{error}; it was written by Burn {}, which is newer than this version of Kiln knows",
                    head.metadata.version
                ))),
                _ => Err(error),
            },
        }
    }
}

/// The parameters below the root.
struct Tree(BTreeMap<String, (ParamId, TensorData)>);

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut parameters = BTreeMap::new();
        let mut path = String::new();
        Node { path: &mut path, parameters: &mut parameters }.deserialize(deserializer)?;
        Ok(Tree(parameters))
    }
}

/// A value at a path; its parameters are added to those found so far.
struct Node<'a> {
    path: &'a mut String,
    parameters: &'a mut BTreeMap<String, (ParamId, TensorData)>,
}

impl Node<'_> {
    /// Runs something at the path of a field.
    fn at<T>(&mut self, name: &str, run: impl FnOnce(Node<'_>) -> T) -> T {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        let result = run(Node { path: self.path, parameters: self.parameters });
        self.path.truncate(length);
        result
    }
}

/// What a value turned out to be.
enum Found {
    /// A text: the id of a parameter, if it is the first in a map and called so.
    Text(String),
    /// Anything else; what is in it was added.
    Other,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part of a record")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Found, E> {
        Ok(Found::Other)
    }

    fn visit_none<E: de::Error>(self) -> Result<Found, E> {
        Ok(Found::Other)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Found, E> {
        Ok(Found::Other)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Found, E> {
        Ok(Found::Other)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Found, E> {
        Ok(Found::Other)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Found, E> {
        Ok(Found::Other)
    }

    fn visit_bytes<E: de::Error>(self, _: &[u8]) -> Result<Found, E> {
        Ok(Found::Other)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Found, E> {
        Ok(Found::Text(text.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut access: A) -> Result<Found, A::Error> {
        let mut index = 0_usize;
        while self.at(&index.to_string(), |node| access.next_element_seed(node))?.is_some() {
            index += 1;
        }
        Ok(Found::Other)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Found, A::Error> {
        let mut first = true;
        while let Some(key) = access.next_key::<String>()? {
            let found = self.at(&key, |node| access.next_value_seed(node))?;
            // A parameter is a map of its id, which is a text, and its data. No module's field is a text.
            if let (true, "id", Found::Text(id)) = (first, key.as_str(), found) {
                let data = self.parameter(&mut access)?;
                self.parameters.insert(self.path.clone(), (ParamId::deserialize(&id), data));
                return Ok(Found::Other);
            }
            first = false;
        }
        Ok(Found::Other)
    }
}

impl Node<'_> {
    /// The rest of a parameter, after its id.
    fn parameter<'de, A: MapAccess<'de>>(&self, access: &mut A) -> Result<TensorData, A::Error> {
        match access.next_key::<String>()?.as_deref() {
            Some("param") => {}
            _ => return Err(de::Error::custom(format!("{} has an id, but no param", self.path))),
        }
        let data = access.next_value()?;
        while access.next_entry::<String, IgnoredAny>()?.is_some() {}
        Ok(data)
    }
}
