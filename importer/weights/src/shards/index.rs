//! The index of shards, read without the tree of JSON, which may be many times larger than its text.

use crate::limits;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value as Json};
use std::collections::BTreeMap;
use std::fmt;

/// What an index says.
#[derive(Default)]
pub(super) struct Index {
    pub(super) weight_map: Option<WeightMap>,
    pub(super) metadata: Json,
}

/// Which shard each tensor is in.
#[derive(Default)]
pub(super) struct WeightMap {
    /// The shard by its place in `names`.
    pub(super) map: BTreeMap<String, usize>,
    pub(super) names: Vec<String>,
}

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Index;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Index, A::Error> {
                let mut index = Index::default();
                while let Some(key) = access.next_key::<String>()? {
                    match key.as_str() {
                        "weight_map" if index.weight_map.is_some() => {
                            return Err(de::Error::custom("it has two maps of weights"));
                        }
                        "weight_map" => index.weight_map = Some(access.next_value()?),
                        "metadata" => {
                            let mut left = limits::MAX_INDEX_METADATA;
                            index.metadata = access.next_value_seed(Tree(&mut left))?;
                        }
                        _ => drop(access.next_value::<de::IgnoredAny>()?),
                    }
                }
                Ok(index)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = WeightMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of keys and the names of their shards")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<WeightMap, A::Error> {
                let mut found = WeightMap::default();
                let mut places: BTreeMap<String, usize> = BTreeMap::new();
                while let Some(key) = access.next_key::<String>()? {
                    if found.map.len() == limits::MAX_TENSORS {
                        let reason = format!("it has more than {} tensors", limits::MAX_TENSORS);
                        return Err(de::Error::custom(reason));
                    }
                    let name = access.next_value::<String>().map_err(|error| {
                        de::Error::custom(format!("the name of the shard of {key:?} is no text: {error}"))
                    })?;
                    let place = match places.get(&name) {
                        Some(place) => *place,
                        None => {
                            places.insert(name.clone(), found.names.len());
                            found.names.push(name);
                            found.names.len() - 1
                        }
                    };
                    if found.map.contains_key(&key) {
                        return Err(de::Error::custom(format!("{key:?} is there twice")));
                    }
                    found.map.insert(key, place);
                }
                Ok(found)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// A tree of few values.
struct Tree<'a>(&'a mut usize);

impl Tree<'_> {
    fn take<E: de::Error>(&mut self) -> Result<(), E> {
        *self.0 = self.0.checked_sub(1).ok_or_else(|| {
            E::custom(format!("its metadata has more than {} values", limits::MAX_INDEX_METADATA))
        })?;
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(mut self, deserializer: D) -> Result<Json, D::Error> {
        self.take()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Json, E> {
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(Tree(self.0))? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let value = access.next_value_seed(Tree(self.0))?;
            fields.insert(key, value);
        }
        Ok(Json::Object(fields))
    }
}
