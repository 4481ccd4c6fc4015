//! Reads values by bincode's primitives. Its own reader for serde walks lists as long as the bytes claim and makes room for texts of
//! any length; this one checks both.

use super::CONFIG;
use crate::CONSTANT;
use bincode::de::read::{Reader as _, SliceReader};
use bincode::de::{BorrowDecode, Decode, Decoder as _, DecoderImpl};
use bincode::error::DecodeError;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};

/// Items that take no bytes may be as many as this, of all lists together.
const ITEMS_WITHOUT_BYTES: usize = 1 << 16;

/// What is left of the bytes.
pub struct Reader<'de> {
    decoder: DecoderImpl<SliceReader<'de>, bincode::config::Configuration, ()>,
    /// How many items the lists to come may have, together.
    items: usize,
}

impl<'de> Reader<'de> {
    pub fn new(bytes: &'de [u8]) -> Self {
        // An item has a byte that is no part of a list in it, so that the items of all lists, also of those in lists, are no more
        // than the bytes.
        let items = bytes.len().saturating_add(ITEMS_WITHOUT_BYTES);
        Self { decoder: DecoderImpl::new(SliceReader::new(bytes), CONFIG, ()), items }
    }

    /// Whether there are bytes that nothing was read from.
    pub fn has_more(&mut self) -> bool {
        self.decoder.reader().peek_read(1).is_some()
    }

    /// The parts of a value, whose number is in its type.
    fn parts(&mut self, count: usize) -> Parts<'_, 'de> {
        Parts { reader: self, left: count }
    }

    /// The items of a list, whose number is in the bytes.
    fn items(&mut self) -> Result<Parts<'_, 'de>, DecodeError> {
        let count = usize::decode(&mut self.decoder)?;
        match self.items.checked_sub(count) {
            Some(left) => self.items = left,
            None => {
                let reason = format_args!("a list of {count} items is longer than the record; it is damaged");
                return Err(DecodeError::custom(reason));
            }
        }
        Ok(self.parts(count))
    }
}

/// Methods for values that are decoded alike.
macro_rules! decoded {
    ($($method:ident $visit:ident,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            visitor.$visit(BorrowDecode::borrow_decode(&mut self.decoder)?)
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = DecodeError;

    decoded! {
        deserialize_bool visit_bool, deserialize_i8 visit_i8, deserialize_i16 visit_i16,
        deserialize_i32 visit_i32, deserialize_i64 visit_i64, deserialize_i128 visit_i128,
        deserialize_u8 visit_u8, deserialize_u16 visit_u16, deserialize_u32 visit_u32,
        deserialize_u64 visit_u64, deserialize_u128 visit_u128, deserialize_f32 visit_f32,
        deserialize_f64 visit_f64, deserialize_char visit_char, deserialize_str visit_borrowed_str,
        deserialize_bytes visit_borrowed_bytes,
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_byte_buf(<&[u8]>::borrow_decode(&mut self.decoder)?.to_vec())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match Option::<()>::decode(&mut self.decoder)? {
            Some(()) => visitor.visit_some(self),
            None => visitor.visit_none(),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        if name == CONSTANT {
            // One byte stands for it; records of models without parameters end before that.
            let _ = u8::decode(&mut self.decoder);
            return visitor.visit_none();
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(self.items()?)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(self.parts(len))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(self.parts(len))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_map(self.items()?)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(self.parts(fields.len()))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_enum(self)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, DecodeError> {
        Err(DecodeError::custom("bincode does not say what a value is"))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_any(visitor)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// The parts of a value or the items of a list.
struct Parts<'r, 'de> {
    reader: &'r mut Reader<'de>,
    left: usize,
}

impl<'de> Parts<'_, 'de> {
    fn next<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

impl<'de> SeqAccess<'de> for Parts<'_, 'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        self.next(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for Parts<'_, 'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        self.next(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, DecodeError> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> EnumAccess<'de> for &mut Reader<'de> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), DecodeError> {
        let index = u32::decode(&mut self.decoder)?;
        let value = seed.deserialize(IntoDeserializer::<DecodeError>::into_deserializer(index))?;
        Ok((value, self))
    }
}

impl<'de> VariantAccess<'de> for &mut Reader<'de> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, DecodeError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(self.parts(len))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(self.parts(fields.len()))
    }
}
