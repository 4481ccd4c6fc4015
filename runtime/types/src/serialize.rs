//! How dtypes, bytes and tensor data are written into records: exactly as Burn 0.20 writes them.

use crate::{Bytes, DType, TensorData};
use alloc::vec::Vec;
use core::fmt;
use serde::de::{self, EnumAccess, SeqAccess, Unexpected, VariantAccess, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A dtype's name and index in Burn's enum, which has more variants than ours; binary formats write the index. It has no plain integers of
/// four bits: they are written as those of eight, which they are in memory.
const DTYPES: [(DType, &str, u32); 13] = [
    (DType::F64, "F64", 0),
    (DType::F32, "F32", 1),
    (DType::F16, "F16", 3),
    (DType::BF16, "BF16", 4),
    (DType::I64, "I64", 5),
    (DType::I32, "I32", 6),
    (DType::I16, "I16", 7),
    (DType::I8, "I8", 8),
    (DType::U64, "U64", 9),
    (DType::U32, "U32", 10),
    (DType::U16, "U16", 11),
    (DType::U8, "U8", 12),
    (DType::Bool, "Bool", 13),
];

/// The names that [`DTYPES`] knows, for serde's messages.
const NAMES: &[&str] =
    &["F64", "F32", "Flex32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "Bool"];

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (_, name, index) = DTYPES
            .iter()
            .find(|(dtype, ..)| *dtype == self.widened())
            .copied()
            .unwrap_or((DType::F32, "F32", 1));
        serializer.serialize_unit_variant("DType", index, name)
    }
}

impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_enum("DType", NAMES, DTypeVisitor)
    }
}

/// Reads the variant of a dtype, by name or by index.
struct DTypeVisitor;

/// The variant's identifier, apart from its (absent) content.
struct DTypeName(DType);

impl<'de> Deserialize<'de> for DTypeName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = DTypeName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a dtype")
            }

            fn visit_u64<E: de::Error>(self, index: u64) -> Result<DTypeName, E> {
                // Burn's Flex32 is stored as f32.
                let index = if index == 2 { 1 } else { index };
                let found = DTYPES.iter().find(|(_, _, known)| u64::from(*known) == index);
                found.map(|(dtype, ..)| DTypeName(*dtype)).ok_or_else(|| {
                    E::invalid_value(Unexpected::Unsigned(index), &"a dtype that is not quantized")
                })
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<DTypeName, E> {
                let name = if name == "Flex32" { "F32" } else { name };
                let found = DTYPES.iter().find(|(_, known, _)| *known == name);
                found.map(|(dtype, ..)| DTypeName(*dtype)).ok_or_else(|| E::unknown_variant(name, NAMES))
            }

            fn visit_bytes<E: de::Error>(self, name: &[u8]) -> Result<DTypeName, E> {
                match core::str::from_utf8(name) {
                    Ok(name) => self.visit_str(name),
                    Err(_) => Err(E::invalid_value(Unexpected::Bytes(name), &self)),
                }
            }
        }
        deserializer.deserialize_identifier(Name)
    }
}

impl<'de> Visitor<'de> for DTypeVisitor {
    type Value = DType;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a dtype")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<DType, A::Error> {
        let (DTypeName(dtype), content) = access.variant()?;
        content.unit_variant()?;
        Ok(dtype)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BytesVisitor;
        impl<'de> Visitor<'de> for BytesVisitor {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes::from_vec(bytes.to_vec()))
            }

            fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Bytes, E> {
                Ok(Bytes::from_vec(bytes))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Bytes, A::Error> {
                // A hostile length must not reserve memory that no element backs.
                let mut bytes = Vec::with_capacity(access.size_hint().unwrap_or(0).min(1 << 16));
                while let Some(byte) = access.next_element()? {
                    bytes.push(byte);
                }
                Ok(Bytes::from_vec(bytes))
            }
        }
        // Not `deserialize_byte_buf`: a format that reads from a slice can then lend it, with its length checked.
        deserializer.deserialize_bytes(BytesVisitor)
    }
}

impl Serialize for TensorData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("TensorData", 3)?;
        fields.serialize_field("bytes", &self.bytes)?;
        fields.serialize_field("shape", &self.shape)?;
        fields.serialize_field("dtype", &self.dtype)?;
        fields.end()
    }
}

impl<'de> Deserialize<'de> for TensorData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename = "TensorData")]
        struct Unchecked {
            bytes: Bytes,
            shape: Vec<usize>,
            dtype: DType,
        }
        let Unchecked { bytes, shape, dtype } = Unchecked::deserialize(deserializer)?;
        TensorData::from_bytes(bytes, shape, dtype).map_err(de::Error::custom)
    }
}
