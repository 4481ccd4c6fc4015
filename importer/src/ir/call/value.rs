//! Options of the runtime as arguments, by the way of serde: what a type's declaration says is written nowhere else.

use super::{Arg, Name};
use serde::ser::{self, Serialize};
use std::fmt::{self, Display};

/// A value of a type of `kiln_types`, which the runtime has in its module `tensor`.
///
/// Fixed arrays are tuples to serde, so that options have none. What cannot be said (a map, text) is no argument of the
/// runtime's options either; a type that has it would stand in the source as `()`, which does not compile.
pub(super) fn options(value: &impl Serialize) -> Arg {
    value.serialize(Options).unwrap_or_else(|Unsayable| Arg::Tuple(Vec::new()))
}

struct Options;

/// A value that options do not have.
#[derive(Debug)]
struct Unsayable;

impl Display for Unsayable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("options hold numbers, flags, lists and values of types")
    }
}

impl std::error::Error for Unsayable {}

impl ser::Error for Unsayable {
    fn custom<T: Display>(_: T) -> Self {
        Unsayable
    }
}

/// A value with parts, as far as they were seen.
struct Parts {
    name: Name,
    fields: Vec<(Name, Arg)>,
    items: Vec<Arg>,
    finish: fn(Parts) -> Arg,
}

fn parts(name: Name, finish: fn(Parts) -> Arg) -> Parts {
    Parts { name, fields: Vec::new(), items: Vec::new(), finish }
}

fn path(ty: &'static str) -> Name {
    format!("tensor::{ty}").into()
}

fn variant_path(ty: &'static str, variant: &'static str) -> Name {
    format!("tensor::{ty}::{variant}").into()
}

macro_rules! integers {
    ($($method:ident: $ty:ty),*) => {
        $(fn $method(self, value: $ty) -> Result<Arg, Unsayable> {
            i64::try_from(value).map(Arg::Int).map_err(|_| Unsayable)
        })*
    };
}

macro_rules! unsayable {
    ($($method:ident: $ty:ty),*) => {
        $(fn $method(self, _: $ty) -> Result<Arg, Unsayable> {
            Err(Unsayable)
        })*
    };
}

impl ser::Serializer for Options {
    type Ok = Arg;
    type Error = Unsayable;
    type SerializeSeq = Parts;
    type SerializeTuple = Parts;
    type SerializeTupleStruct = Parts;
    type SerializeTupleVariant = Parts;
    type SerializeMap = ser::Impossible<Arg, Unsayable>;
    type SerializeStruct = Parts;
    type SerializeStructVariant = Parts;

    integers!(
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64
    );
    unsayable!(serialize_char: char, serialize_str: &str, serialize_bytes: &[u8]);

    fn serialize_bool(self, value: bool) -> Result<Arg, Unsayable> {
        Ok(Arg::Bool(value))
    }

    fn serialize_f32(self, value: f32) -> Result<Arg, Unsayable> {
        Ok(Arg::Float(value.into()))
    }

    fn serialize_f64(self, value: f64) -> Result<Arg, Unsayable> {
        Ok(Arg::Float(value))
    }

    fn serialize_none(self) -> Result<Arg, Unsayable> {
        Ok(Arg::None)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Arg, Unsayable> {
        Ok(Arg::Some(Box::new(value.serialize(self)?)))
    }

    fn serialize_unit(self) -> Result<Arg, Unsayable> {
        Err(Unsayable)
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<Arg, Unsayable> {
        Ok(Arg::Variant(path(name), Vec::new()))
    }

    fn serialize_unit_variant(
        self,
        ty: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Arg, Unsayable> {
        Ok(Arg::Variant(variant_path(ty, variant), Vec::new()))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Arg, Unsayable> {
        Ok(Arg::Variant(path(name), vec![value.serialize(self)?]))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        ty: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Arg, Unsayable> {
        Ok(Arg::Variant(variant_path(ty, variant), vec![value.serialize(self)?]))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts, Unsayable> {
        Ok(parts("".into(), |parts| Arg::List(parts.items)))
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts, Unsayable> {
        Ok(parts("".into(), |parts| Arg::Tuple(parts.items)))
    }

    fn serialize_tuple_struct(self, name: &'static str, _: usize) -> Result<Parts, Unsayable> {
        Ok(parts(path(name), |parts| Arg::Variant(parts.name, parts.items)))
    }

    fn serialize_tuple_variant(
        self,
        ty: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts, Unsayable> {
        Ok(parts(variant_path(ty, variant), |parts| Arg::Variant(parts.name, parts.items)))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Unsayable> {
        Err(Unsayable)
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Parts, Unsayable> {
        Ok(parts(path(name), |parts| Arg::Struct(parts.name, parts.fields)))
    }

    fn serialize_struct_variant(
        self,
        ty: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts, Unsayable> {
        Ok(parts(variant_path(ty, variant), |parts| Arg::Struct(parts.name, parts.fields)))
    }
}

macro_rules! items {
    ($($name:ident: $method:ident),*) => {
        $(impl ser::$name for Parts {
            type Ok = Arg;
            type Error = Unsayable;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unsayable> {
                self.items.push(value.serialize(Options)?);
                Ok(())
            }

            fn end(self) -> Result<Arg, Unsayable> {
                Ok((self.finish)(self))
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
        $(impl ser::$name for Parts {
            type Ok = Arg;
            type Error = Unsayable;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), Unsayable> {
                self.fields.push((key.into(), value.serialize(Options)?));
                Ok(())
            }

            fn end(self) -> Result<Arg, Unsayable> {
                Ok((self.finish)(self))
            }
        })*
    };
}

fields!(SerializeStruct, SerializeStructVariant);

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_types::{Activation, PoolOp, PoolOptions};

    #[test]
    fn options_follow_their_declaration() {
        let ints = |values: &[i64]| Arg::List(values.iter().copied().map(Arg::Int).collect());
        let average =
            Arg::Struct("tensor::PoolOp::Average".into(), vec![("include_pad".into(), Arg::Bool(true))]);
        assert_eq!(options(&PoolOp::Average { include_pad: true }), average);
        let relu = Arg::Variant("tensor::Activation::Relu".into(), Vec::new());
        assert_eq!(options(&Some(Activation::Relu)), Arg::Some(Box::new(relu)));
        let pool = PoolOptions {
            kernel: [3].into(),
            stride: [2].into(),
            padding: [(1, 0)].into(),
            dilation: [1].into(),
            ceil_mode: false,
        };
        let fields = [
            ("kernel", ints(&[3])),
            ("stride", ints(&[2])),
            ("padding", Arg::List(vec![Arg::Tuple(vec![Arg::Int(1), Arg::Int(0)])])),
            ("dilation", ints(&[1])),
            ("ceil_mode", Arg::Bool(false)),
        ];
        let fields = fields.into_iter().map(|(name, value)| (name.into(), value)).collect();
        assert_eq!(options(&pool), Arg::Struct("tensor::PoolOptions".into(), fields));
    }
}
