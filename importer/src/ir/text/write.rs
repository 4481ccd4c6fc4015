//! The notation of operations: what serde derives, written as Rust writes values.
//!
//! `Reshape { dims: [3 * batch] }`, `Conv { stride: [1, 1], … }`, `Reduce { op: Mean, axes: [1], keep_dims: true }`. A
//! field that is absent (`None`) is left out. No operation is named here or in `read`: both follow the declaration of
//! [`Op`](crate::ir::Op).

use serde::ser::{self, Serialize};
use std::fmt::{self, Display, Write};

/// Newtypes of this name are written as their text without quotes: dims and types.
pub(crate) const RAW: &str = "$raw";

/// Writes a value. Nothing that an operation holds fails; a map would.
pub(super) fn notation(value: &impl Serialize) -> Result<String, fmt::Error> {
    let mut writer = Writer { out: String::new(), raw: false };
    value.serialize(&mut writer).map_err(|Unwritten| fmt::Error)?;
    Ok(writer.out)
}

struct Writer {
    out: String,
    /// Whether the next text is written without quotes.
    raw: bool,
}

/// Something that the notation cannot say.
#[derive(Debug)]
pub(super) struct Unwritten;

impl Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the notation of operations has no maps")
    }
}

impl std::error::Error for Unwritten {}

impl ser::Error for Unwritten {
    fn custom<T: Display>(_: T) -> Self {
        Unwritten
    }
}

/// A list, tuple or structure that is being written.
struct Items<'w> {
    writer: &'w mut Writer,
    close: &'static str,
    empty: bool,
}

impl Writer {
    fn items(&mut self, open: &str, close: &'static str) -> Items<'_> {
        self.out.push_str(open);
        Items { writer: self, close, empty: true }
    }

    fn plain(&mut self, value: impl Display) -> Result<(), Unwritten> {
        write!(self.out, "{value}").map_err(|_| Unwritten)
    }
}

impl Items<'_> {
    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritten> {
        if !std::mem::replace(&mut self.empty, false) {
            self.writer.out.push_str(", ");
        }
        value.serialize(&mut *self.writer)
    }

    fn field<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<(), Unwritten> {
        let start = self.writer.out.len();
        self.writer.out.push_str(if self.empty { " " } else { ", " });
        self.writer.out.push_str(key);
        self.writer.out.push_str(": ");
        let value_start = self.writer.out.len();
        value.serialize(&mut *self.writer)?;
        match &self.writer.out[value_start..] {
            "None" => self.writer.out.truncate(start),
            _ => self.empty = false,
        }
        Ok(())
    }

    fn close(self) -> Result<(), Unwritten> {
        self.writer.out.push_str(self.close);
        Ok(())
    }
}

macro_rules! plain {
    ($($method:ident: $ty:ty),*) => {
        $(fn $method(self, value: $ty) -> Result<(), Unwritten> {
            self.plain(value)
        })*
    };
}

impl<'w> ser::Serializer for &'w mut Writer {
    type Ok = ();
    type Error = Unwritten;
    type SerializeSeq = Items<'w>;
    type SerializeTuple = Items<'w>;
    type SerializeTupleStruct = Items<'w>;
    type SerializeTupleVariant = Items<'w>;
    type SerializeMap = ser::Impossible<(), Unwritten>;
    type SerializeStruct = Items<'w>;
    type SerializeStructVariant = Items<'w>;

    plain!(
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64
    );

    fn serialize_f32(self, value: f32) -> Result<(), Unwritten> {
        self.plain(format_args!("{value:?}"))
    }

    fn serialize_f64(self, value: f64) -> Result<(), Unwritten> {
        self.plain(format_args!("{value:?}"))
    }

    fn serialize_char(self, value: char) -> Result<(), Unwritten> {
        self.plain(format_args!("{:?}", value.to_string()))
    }

    fn serialize_str(self, value: &str) -> Result<(), Unwritten> {
        if std::mem::take(&mut self.raw) {
            return self.plain(value);
        }
        self.plain(format_args!("{value:?}"))
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), Unwritten> {
        self.plain(super::data::hex(bytes))
    }

    fn serialize_none(self) -> Result<(), Unwritten> {
        self.plain("None")
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Unwritten> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Unwritten> {
        self.plain("()")
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Unwritten> {
        self.plain("()")
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Unwritten> {
        self.plain(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Unwritten> {
        if name != RAW {
            return value.serialize(self);
        }
        self.raw = true;
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Unwritten> {
        self.out.push_str(variant);
        let start = self.out.len();
        value.serialize(&mut *self)?;
        if self.out[start..].starts_with('{') {
            self.out.insert(start, ' ');
        } else {
            self.out.insert(start, '(');
            self.out.push(')');
        }
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Items<'w>, Unwritten> {
        Ok(self.items("[", "]"))
    }

    fn serialize_tuple(self, _: usize) -> Result<Items<'w>, Unwritten> {
        Ok(self.items("(", ")"))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Items<'w>, Unwritten> {
        Ok(self.items("(", ")"))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Items<'w>, Unwritten> {
        self.out.push_str(variant);
        Ok(self.items("(", ")"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Unwritten> {
        Err(Unwritten)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Items<'w>, Unwritten> {
        Ok(self.items("{", " }"))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Items<'w>, Unwritten> {
        self.out.push_str(variant);
        Ok(self.items(" {", " }"))
    }
}

macro_rules! items {
    ($($name:ident: $method:ident),*) => {
        $(impl ser::$name for Items<'_> {
            type Ok = ();
            type Error = Unwritten;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritten> {
                self.item(value)
            }

            fn end(self) -> Result<(), Unwritten> {
                self.close()
            }
        })*
    };
}

items!(
    SerializeSeq: serialize_element, SerializeTuple: serialize_element, SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field
);

macro_rules! fields {
    ($($name:ident),*) => {
        $(impl ser::$name for Items<'_> {
            type Ok = ();
            type Error = Unwritten;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), Unwritten> {
                self.field(key, value)
            }

            fn end(self) -> Result<(), Unwritten> {
                self.close()
            }
        })*
    };
}

fields!(SerializeStruct, SerializeStructVariant);
