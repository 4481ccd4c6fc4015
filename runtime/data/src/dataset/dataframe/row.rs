//! A row of a data frame, as serde reads it.

use polars::prelude::{AnyValue, Column, Series};
use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use std::fmt;

/// Why a row is no item.
#[derive(Debug)]
pub(super) struct Fault(String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

impl Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl Fault {
    fn of_column(self, name: &str) -> Self {
        Self(format!("column {name:?}: {self}"))
    }
}

/// A row of columns.
#[derive(Clone, Copy)]
pub(super) struct Row<'f> {
    pub(super) columns: &'f [Column],
    pub(super) index: usize,
}

impl<'f> Row<'f> {
    fn value(self, column: &'f Column) -> Result<Value<'f>, Fault> {
        column.get(self.index).map(Value).map_err(Fault::custom)
    }

    /// The value of a row with one column.
    fn only(self) -> Result<Value<'f>, Fault> {
        match self.columns {
            [column] => self.value(column),
            columns => Err(Fault(format!("a single value is wanted of {} columns", columns.len()))),
        }
    }
}

/// Asks the only column for what is no collection of columns.
macro_rules! of_the_only_column {
    ($($method:ident)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
                self.only()?.$method(visitor)
            }
        )*
    };
}

/// Tuples are sequences; a struct of one field without a name is that field.
macro_rules! tuples_and_newtypes {
    () => {
        fn deserialize_tuple<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Fault> {
            self.deserialize_seq(visitor)
        }

        fn deserialize_tuple_struct<V: Visitor<'de>>(
            self,
            _name: &'static str,
            _len: usize,
            visitor: V,
        ) -> Result<V::Value, Fault> {
            self.deserialize_seq(visitor)
        }

        fn deserialize_newtype_struct<V: Visitor<'de>>(
            self,
            _name: &'static str,
            visitor: V,
        ) -> Result<V::Value, Fault> {
            visitor.visit_newtype_struct(self)
        }
    };
}

impl<'de> Deserializer<'de> for Row<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_map(Fields { row: self, next: 0 })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_seq(Fields { row: self, next: 0 })
    }

    tuples_and_newtypes!();

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.only()?.deserialize_enum(name, variants, visitor)
    }

    of_the_only_column! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8
        deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char
        deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
    }

    forward_to_deserialize_any! { unit unit_struct map struct identifier ignored_any }
}

/// The columns of a row, one after the other.
struct Fields<'f> {
    row: Row<'f>,
    next: usize,
}

impl<'f> Fields<'f> {
    fn take<'de, S: DeserializeSeed<'de>>(&mut self, column: &'f Column, seed: S) -> Result<S::Value, Fault> {
        self.next += 1;
        let value = self.row.value(column).and_then(|value| seed.deserialize(value));
        value.map_err(|fault| fault.of_column(column.name()))
    }
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let Some(column) = self.row.columns.get(self.next) else { return Ok(None) };
        let name: StrDeserializer<'_, Fault> = column.name().as_str().into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        match self.row.columns.get(self.next) {
            Some(column) => self.take(column, seed),
            None => Err(Fault("there is no column any more".into())),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.row.columns.len() - self.next)
    }
}

impl<'de> SeqAccess<'de> for Fields<'_> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        match self.row.columns.get(self.next) {
            Some(column) => self.take(column, seed).map(Some),
            None => Ok(None),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.row.columns.len() - self.next)
    }
}

/// A value in a column or in a list.
struct Value<'f>(AnyValue<'f>);

impl<'de> Deserializer<'de> for Value<'_> {
    type Error = Fault;

    // Which variants there are besides depends on the features with which a program has Polars.
    #[allow(unreachable_patterns, reason = "without any feature there are no others")]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0 {
            AnyValue::Null => visitor.visit_unit(),
            AnyValue::Boolean(value) => visitor.visit_bool(value),
            AnyValue::String(value) => visitor.visit_str(value),
            AnyValue::StringOwned(value) => visitor.visit_str(&value),
            AnyValue::UInt8(value) => visitor.visit_u8(value),
            AnyValue::UInt16(value) => visitor.visit_u16(value),
            AnyValue::UInt32(value) => visitor.visit_u32(value),
            AnyValue::UInt64(value) => visitor.visit_u64(value),
            AnyValue::Int8(value) => visitor.visit_i8(value),
            AnyValue::Int16(value) => visitor.visit_i16(value),
            AnyValue::Int32(value) => visitor.visit_i32(value),
            AnyValue::Int64(value) => visitor.visit_i64(value),
            AnyValue::Int128(value) => visitor.visit_i128(value),
            AnyValue::Float32(value) => visitor.visit_f32(value),
            AnyValue::Float64(value) => visitor.visit_f64(value),
            AnyValue::Binary(value) => visitor.visit_bytes(value),
            AnyValue::BinaryOwned(value) => visitor.visit_byte_buf(value),
            AnyValue::List(series) => visitor.visit_seq(Elements { series, next: 0 }),
            other => {
                if let Some(text) = other.get_str() {
                    return visitor.visit_str(text);
                }
                let physical = other.dtype().is_temporal().then(|| other.extract::<i64>()).flatten();
                match physical {
                    Some(value) => visitor.visit_i64(value),
                    None => Err(Fault(format!("values of the type {} are not read", other.dtype()))),
                }
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0 {
            AnyValue::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    /// Bytes are a sequence too, for `Vec<u8>`.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0.extract_bytes() {
            Some(bytes) => visitor.visit_seq(SeqDeserializer::<_, Fault>::new(bytes.iter().copied())),
            None => self.deserialize_any(visitor),
        }
    }

    tuples_and_newtypes!();

    /// A variant without fields, by its name.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.0.get_str() {
            Some(name) => {
                let name: StrDeserializer<'_, Fault> = name.into_deserializer();
                visitor.visit_enum(name)
            }
            None => Err(Fault(format!(
                "the name of a variant is wanted, not a value of the type {}",
                self.0.dtype()
            ))),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct map struct identifier
    }
}

/// The elements of a list.
struct Elements {
    series: Series,
    next: usize,
}

impl<'de> SeqAccess<'de> for Elements {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        if self.next >= self.series.len() {
            return Ok(None);
        }
        let value = self.series.get(self.next).map_err(Fault::custom)?;
        self.next += 1;
        seed.deserialize(Value(value)).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.series.len() - self.next)
    }
}
