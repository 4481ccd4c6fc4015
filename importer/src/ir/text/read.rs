//! The notation of operations, read: the counterpart of `write`.

use super::write::RAW;
use super::{Cursor, TextError, TextErrorKind, TextResult};
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};
use std::fmt::Display;

/// Reads a value that derives `Deserialize`.
pub(super) fn value<T: DeserializeOwned>(cursor: &mut Cursor<'_>) -> TextResult<T> {
    let start = cursor.position();
    T::deserialize(&mut *cursor).map_err(|error| match error.line {
        // What serde finds wrong (a field that is missing, a number out of range) has no place of its own.
        0 => cursor.fail_at(start, error.kind),
        _ => error,
    })
}

impl de::Error for TextError {
    fn custom<T: Display>(message: T) -> Self {
        TextError { line: 0, column: 0, kind: TextErrorKind::Invalid(message.to_string()) }
    }
}

macro_rules! integers {
    ($($method:ident),*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> TextResult<V::Value> {
            if self.eat("-") { visitor.visit_i64(self.integer(true)?) } else { self.unsigned(visitor) }
        })*
    };
}

impl Cursor<'_> {
    fn unsigned<'de, V: Visitor<'de>>(&mut self, visitor: V) -> TextResult<V::Value> {
        let start = self.position();
        let text = self.number()?;
        match text.parse::<u64>() {
            Ok(value) => visitor.visit_u64(value),
            Err(_) => Err(self.fail_at(start, TextErrorKind::Number(text.to_owned()))),
        }
    }
}

impl<'de> de::Deserializer<'de> for &mut Cursor<'_> {
    type Error = TextError;

    integers!(
        deserialize_i8,
        deserialize_i16,
        deserialize_i32,
        deserialize_i64,
        deserialize_u8,
        deserialize_u16,
        deserialize_u32,
        deserialize_u64
    );

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> TextResult<V::Value> {
        Err(self.error("this cannot be read without knowing what it is"))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _: V) -> TextResult<V::Value> {
        Err(self.error("no such field"))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> TextResult<V::Value> {
        match () {
            () if self.eat_word("true") => visitor.visit_bool(true),
            () if self.eat_word("false") => visitor.visit_bool(false),
            () => Err(self.expected("`true` or `false`")),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> TextResult<V::Value> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> TextResult<V::Value> {
        let text = self.number()?;
        match text.parse() {
            Ok(value) => visitor.visit_f64(value),
            Err(_) => Err(self.expected("a number")),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> TextResult<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> TextResult<V::Value> {
        visitor.visit_string(self.string()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> TextResult<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> TextResult<V::Value> {
        visitor.visit_byte_buf(super::data::parse_hex(self)?)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> TextResult<V::Value> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> TextResult<V::Value> {
        if self.eat_word("None") { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> TextResult<V::Value> {
        self.expect("()")?;
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> TextResult<V::Value> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> TextResult<V::Value> {
        if name != RAW {
            return visitor.visit_newtype_struct(self);
        }
        let start = self.position();
        super::types::skip(self)?;
        visitor.visit_str(self.since(start))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> TextResult<V::Value> {
        self.expect("[")?;
        visitor.visit_seq(Items { cursor: self, close: "]", first: true })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> TextResult<V::Value> {
        self.expect("(")?;
        let value = visitor.visit_seq(Items { cursor: &mut *self, close: ")", first: true })?;
        // A visitor of a tuple stops after the last item and does not look for the end.
        self.eat(",");
        self.expect(")")?;
        Ok(value)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> TextResult<V::Value> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> TextResult<V::Value> {
        self.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> TextResult<V::Value> {
        self.expect("{")?;
        visitor.visit_map(Items { cursor: self, close: "}", first: true })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> TextResult<V::Value> {
        // Whatever holds itself does so through an enum, so only these count as deeper.
        self.deeper(|cursor| visitor.visit_enum(Variant(cursor)))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> TextResult<V::Value> {
        let start = self.position();
        let word = self.word("a name")?;
        visitor.visit_str(word).map_err(|error: TextError| self.fail_at(start, error.kind))
    }
}

/// Items up to a closing mark, with commas between them; one after the last is allowed.
struct Items<'c, 't> {
    cursor: &'c mut Cursor<'t>,
    close: &'static str,
    first: bool,
}

impl Items<'_, '_> {
    /// Whether there is one more.
    fn more(&mut self) -> TextResult<bool> {
        let first = std::mem::replace(&mut self.first, false);
        // The end of a tuple is the caller's, which a visitor may never ask for.
        let ends = |this: &mut Self| match this.close {
            ")" => this.cursor.peek() == Some(')'),
            close => this.cursor.eat(close),
        };
        if ends(self) {
            return Ok(false);
        }
        if !first {
            self.cursor.expect(",")?;
            return Ok(!ends(self));
        }
        Ok(true)
    }
}

impl<'de> de::SeqAccess<'de> for Items<'_, '_> {
    type Error = TextError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> TextResult<Option<T::Value>> {
        if self.more()? { seed.deserialize(&mut *self.cursor).map(Some) } else { Ok(None) }
    }
}

impl<'de> de::MapAccess<'de> for Items<'_, '_> {
    type Error = TextError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> TextResult<Option<K::Value>> {
        if self.more()? { seed.deserialize(&mut *self.cursor).map(Some) } else { Ok(None) }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> TextResult<V::Value> {
        self.cursor.expect(":")?;
        seed.deserialize(&mut *self.cursor)
    }
}

/// A variant's name and what follows it.
struct Variant<'c, 't>(&'c mut Cursor<'t>);

impl<'de> de::EnumAccess<'de> for Variant<'_, '_> {
    type Error = TextError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> TextResult<(V::Value, Self)> {
        let start = self.0.position();
        let word = self.0.word("the name of an operation or of one of its options")?;
        match seed.deserialize(word.into_deserializer()) {
            Ok(variant) => Ok((variant, self)),
            Err(TextError { kind, .. }) => Err(self.0.fail_at(start, kind)),
        }
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_, '_> {
    type Error = TextError;

    fn unit_variant(self) -> TextResult<()> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> TextResult<T::Value> {
        if self.0.peek() == Some('{') {
            return seed.deserialize(self.0);
        }
        self.0.expect("(")?;
        let value = seed.deserialize(&mut *self.0)?;
        self.0.expect(")")?;
        Ok(value)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> TextResult<V::Value> {
        de::Deserializer::deserialize_tuple(self.0, length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> TextResult<V::Value> {
        de::Deserializer::deserialize_struct(self.0, "", fields, visitor)
    }
}
