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
        let (format, bytes) = format.inflated(bytes)?;
        match format.read::<Envelope<Tree>>(&bytes) {
            Ok(Envelope { metadata, item: Tree(parameters), .. }) => Ok(Self { metadata, parameters }),
            Err(error) => match format.read::<EnvelopeHead>(&bytes) {
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
        let mut found = Found::default();
        Node(&mut found).deserialize(deserializer)?;
        Ok(Tree(found.parameters))
    }
}

/// Most bytes of all paths together: a name is in the paths of all that is below it, so that they may be far more than the file.
const MAX_PATH_BYTES: usize = 64 << 20;

/// What was found so far.
#[derive(Default)]
struct Found {
    /// Where the reader is.
    path: String,
    parameters: BTreeMap<String, (ParamId, TensorData)>,
    /// Bytes of the parameters' paths.
    path_bytes: usize,
}

/// A value at a path; its parameters are added to those found so far.
struct Node<'a>(&'a mut Found);

impl Node<'_> {
    /// Runs something at the path of a field.
    fn at<T>(&mut self, name: &str, run: impl FnOnce(Node<'_>) -> T) -> T {
        let path = &mut self.0.path;
        let length = path.len();
        if length > 0 {
            path.push('.');
        }
        path.push_str(name);
        let result = run(Node(self.0));
        self.0.path.truncate(length);
        result
    }

    /// Adds a parameter at the path.
    fn add<E: de::Error>(&mut self, id: ParamId, data: TensorData) -> Result<(), E> {
        self.0.path_bytes = self.0.path_bytes.saturating_add(self.0.path.len());
        if self.0.path_bytes > MAX_PATH_BYTES {
            let reason = format!("the paths of its parameters have more than {MAX_PATH_BYTES} bytes");
            return Err(de::Error::custom(reason));
        }
        self.0.parameters.insert(self.0.path.clone(), (id, data));
        Ok(())
    }
}

/// What a value turned out to be.
enum Kind {
    /// A text: the id of a parameter, if it is the first in a map and called so.
    Text(String),
    /// Anything else; what is in it was added.
    Other,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Kind;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kind, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part of a record")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Kind, E> {
        Ok(Kind::Other)
    }

    fn visit_none<E: de::Error>(self) -> Result<Kind, E> {
        Ok(Kind::Other)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kind, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Kind, E> {
        Ok(Kind::Other)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Kind, E> {
        Ok(Kind::Other)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Kind, E> {
        Ok(Kind::Other)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Kind, E> {
        Ok(Kind::Other)
    }

    fn visit_bytes<E: de::Error>(self, _: &[u8]) -> Result<Kind, E> {
        Ok(Kind::Other)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Kind, E> {
        Ok(Kind::Text(text.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut access: A) -> Result<Kind, A::Error> {
        let mut index = 0_usize;
        while self.at(&index.to_string(), |node| access.next_element_seed(node))?.is_some() {
            index += 1;
        }
        Ok(Kind::Other)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Kind, A::Error> {
        let mut first = true;
        while let Some(key) = access.next_key::<String>()? {
            let found = self.at(&key, |node| access.next_value_seed(node))?;
            // A parameter is a map of its id, which is a text, and its data. No module's field is a text.
            if let (true, "id", Kind::Text(id)) = (first, key.as_str(), found) {
                let data = self.parameter(&mut access)?;
                self.add(ParamId::deserialize(&id), data)?;
                return Ok(Kind::Other);
            }
            first = false;
        }
        Ok(Kind::Other)
    }
}

impl Node<'_> {
    /// The rest of a parameter, after its id.
    fn parameter<'de, A: MapAccess<'de>>(&self, access: &mut A) -> Result<TensorData, A::Error> {
        match access.next_key::<String>()?.as_deref() {
            Some("param") => {}
            _ => return Err(de::Error::custom(format!("{} has an id, but no param", self.0.path))),
        }
        let data = access.next_value()?;
        while access.next_entry::<String, IgnoredAny>()?.is_some() {}
        Ok(data)
    }
}
