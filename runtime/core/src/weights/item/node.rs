//! A place in a record, as serde asks for it.

use super::State;
use super::parts::{Children, Fields, Part, Variant};
use crate::module::ParamId;
use crate::record::RANKED_NAMES;
use crate::tensor::{DType, DTypeKind, TensorData};
use crate::weights::adapter::{Frame, path_of};
use crate::weights::{AdapterType, ImportError};
use alloc::string::{String, ToString};
use alloc::{boxed::Box, format, vec::Vec};
use core::fmt;
use serde::de::{self, DeserializeSeed, Deserializer, Visitor};

/// The kind of tensor that a record has somewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Floats, integers or bools.
    pub(super) kind: DTypeKind,
    /// Number of dims.
    pub(super) rank: usize,
}

impl Wanted {
    /// What the name of a record's tensor says.
    fn named(name: &str) -> Option<Self> {
        let kinds = [DTypeKind::Float, DTypeKind::Int, DTypeKind::Bool];
        let find = |(names, kind): (&[&str; 9], DTypeKind)| {
            Some(Self { kind, rank: names.iter().position(|known| *known == name)? })
        };
        RANKED_NAMES.iter().zip(kinds).find_map(find)
    }
}

/// An error inside of serde.
#[derive(Debug)]
pub(super) struct Failure(pub(super) Box<ImportError>);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl core::error::Error for Failure {}

impl de::Error for Failure {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Failure(Box::new(ImportError::Record(text.to_string())))
    }
}

/// A place in the record: a module, a list, a parameter.
pub(super) struct Node<'s, 'a> {
    state: &'s State<'a>,
    frames: Vec<Frame>,
    /// What kind of tensor is asked for, once that is known.
    wanted: Option<Wanted>,
}

impl<'s, 'a> Node<'s, 'a> {
    /// The record itself.
    pub(super) fn root(state: &'s State<'a>) -> Self {
        Self { state, frames: Vec::new(), wanted: None }
    }

    fn child(&self, container: &str, name: impl Into<String>) -> Self {
        let mut frames = self.frames.clone();
        frames.push(Frame { container: container.to_string(), name: name.into() });
        Self { state: self.state, frames, wanted: None }
    }

    fn path(&self) -> String {
        path_of(&self.frames)
    }

    /// The parameter here, as bytes, shape and dtype; in a pass without data an empty one.
    fn data(&self) -> Result<(Vec<u8>, Vec<usize>, DType), Failure> {
        match self.state.parameter(&self.frames, self.wanted)? {
            Some((key, tensor)) if !self.state.dry => {
                let bytes =
                    self.state.source.bytes(&key, &tensor).map_err(|error| Failure(Box::new(error)))?;
                Ok((bytes, tensor.shape().to_vec(), tensor.dtype()))
            }
            _ => {
                let rank = self.wanted.map_or(1, |wanted| wanted.rank);
                // As many elements as a tensor without dims has, or none.
                let empty = TensorData::zeros::<f32, _>(alloc::vec![0; rank]);
                Ok((empty.bytes.to_vec(), empty.shape, empty.dtype))
            }
        }
    }

    /// The items of a list, by the indices in the file.
    fn items(&self) -> Vec<Self> {
        let path = self.path();
        let mut indices = self.state.source.indices(&path);
        if indices.is_empty() {
            // The layers of a recurrent module of PyTorch's.
            let layer =
                |index: &usize| self.state.source.get(&format!("{path}.weight_ih_l{index}")).is_some();
            indices = (0..).take_while(layer).collect();
        }
        indices.into_iter().map(|index| self.child("Vec", index.to_string())).collect()
    }

    /// Exactly `count` children: the items, or what the indices say.
    fn exactly(&self, container: &str, count: usize) -> Vec<Self> {
        let items = self.items();
        if container == "Vec" && items.len() == count {
            return items;
        }
        (0..count).map(|index| self.child(container, index.to_string())).collect()
    }

    fn refuse<T>(&self, what: &str) -> Result<T, Failure> {
        Err(de::Error::custom(format!("{}: {what} is not in a checkpoint of tensors", self.path())))
    }
}

impl Node<'_, '_> {
    /// Refuses the record of a module that has parameters made of others, which only [`load_weights`] knows to make.
    ///
    /// [`load_weights`]: crate::weights::load_weights
    fn check_made(&self, name: &str) -> Result<(), Failure> {
        match name.split_once(' ') {
            Some((_, field)) if self.state.adapter == AdapterType::PyTorch => {
                Err(Failure(Box::new(ImportError::Derived(self.child("", field).path()))))
            }
            _ => Ok(()),
        }
    }
}

/// The module's name from that of its record's item, which may be followed by the name of a field.
fn module_name(item: &str) -> &str {
    let item = item.split_once(' ').map_or(item, |(item, _)| item);
    item.strip_suffix("RecordItem").unwrap_or(item)
}

/// The kinds of values that a checkpoint's tensors cannot be.
macro_rules! refuse {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Failure> {
            self.refuse("a value that is no parameter")
        }
    )*};
}

impl<'de> Deserializer<'de> for Node<'_, '_> {
    type Error = Failure;

    refuse!(deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64 deserialize_char
        deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_map deserialize_identifier);

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let path = self.path();
        let parameter = self.state.find(&self.frames).is_some() || self.state.refusal(&self.frames).is_some();
        let there = parameter || self.state.source.below(&path).next().is_some();
        if there { visitor.visit_some(self) } else { visitor.visit_none() }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        match Wanted::named(name) {
            None if name == kiln_record::CONSTANT => visitor.visit_none(),
            Some(wanted) => visitor.visit_newtype_struct(Self { wanted: Some(wanted), ..self }),
            None => {
                self.check_made(name)?;
                visitor.visit_newtype_struct(self.child(module_name(name), "0"))
            }
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_seq(Children(self.items().into_iter()))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_seq(Children(self.exactly("Vec", len).into_iter()))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.check_made(name)?;
        visitor.visit_seq(Children(self.exactly(module_name(name), len).into_iter()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.check_made(name)?;
        match name {
            "ParamSerde" => visitor.visit_map(Fields::new(fields, |field| match field {
                "id" => Ok(Part::Text(ParamId::from_path(&self.path()).serialize())),
                _ => Ok(Part::Node(Node { frames: self.frames.clone(), ..self })),
            })),
            "TensorData" => {
                let (mut bytes, mut shape, dtype) = self.data()?;
                visitor.visit_map(Fields::new(fields, |field| {
                    Ok(match field {
                        "bytes" => Part::Bytes(core::mem::take(&mut bytes)),
                        "shape" => Part::Shape(core::mem::take(&mut shape)),
                        _ => Part::Variant(format!("{dtype:?}")),
                    })
                }))
            }
            name => visitor
                .visit_map(Fields::new(fields, |field| Ok(Part::Node(self.child(module_name(name), field))))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let path = self.path();
        let usual = self.state.adapter.usual_variant(&self.frames);
        let known = usual.filter(|_| self.state.source.below(&path).next().is_none());
        let choice = match known.and_then(|usual| variants.iter().position(|variant| *variant == usual)) {
            Some(choice) => choice,
            None => {
                self.state.log.borrow_mut().enums.push((path.clone(), variants.len()));
                self.state.choices.borrow().get(&path).copied().unwrap_or(0)
            }
        };
        let Some(variant) = variants.get(choice) else { return self.refuse("an enum without variants") };
        visitor.visit_enum(Variant { name: variant, content: self })
    }
}

impl<'de> de::VariantAccess<'de> for Node<'_, '_> {
    type Error = Failure;

    fn unit_variant(self) -> Result<(), Failure> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Failure> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_struct("", fields, visitor)
    }
}
