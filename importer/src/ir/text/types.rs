//! Types as text, and back: `f32[batch, 3]`.

use super::write::RAW;
use super::{Cursor, TextError, TextResult};
use crate::ir::dim::parse_dim;
use crate::ir::{Dim, TensorType};
use kiln_types::DType;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// Reads a list of dims in brackets.
pub(super) fn dims(cursor: &mut Cursor<'_>) -> TextResult<Vec<Dim>> {
    cursor.expect("[")?;
    let mut dims = Vec::new();
    while !cursor.eat("]") {
        if !dims.is_empty() {
            cursor.expect(",")?;
        }
        dims.push(parse_dim(cursor)?);
    }
    Ok(dims)
}

/// Reads a dtype and dims.
pub(super) fn tensor_type(cursor: &mut Cursor<'_>) -> TextResult<TensorType> {
    let start = cursor.position();
    let word = cursor.word("a dtype")?;
    let dtype = DType::ALL.into_iter().find(|dtype| dtype.name() == word);
    let unknown = |cursor: &Cursor<'_>| {
        cursor.fail_at(start, super::TextErrorKind::Invalid(format!("no dtype is called `{word}`")))
    };
    let dtype = dtype.ok_or_else(|| unknown(cursor))?;
    Ok(TensorType { dtype, dims: dims(cursor)? })
}

/// Steps over a dim or a type, whichever stands here.
pub(super) fn skip(cursor: &mut Cursor<'_>) -> TextResult<()> {
    parse_dim(cursor)?;
    if cursor.peek() == Some('[') {
        dims(cursor)?;
    }
    Ok(())
}

impl FromStr for TensorType {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let mut cursor = Cursor::new(text);
        let ty = tensor_type(&mut cursor)?;
        cursor.end()?;
        Ok(ty)
    }
}

/// Reads something from its text.
struct FromText<T>(PhantomData<T>);

impl<T: FromStr<Err = TextError>> Visitor<'_> for FromText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size or a type")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(|error: TextError| E::custom(error.kind))
    }
}

macro_rules! as_text {
    ($($ty:ty),*) => {
        $(
            impl Serialize for $ty {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.serialize_newtype_struct(RAW, &self.to_string())
                }
            }

            impl<'de> Deserialize<'de> for $ty {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    deserializer.deserialize_newtype_struct(RAW, FromText(PhantomData))
                }
            }
        )*
    };
}

as_text!(Dim, TensorType);
