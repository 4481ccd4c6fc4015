//! A record as a tree, for programs that do not have the module's type.

use crate::{Envelope, Format, Metadata, ParamId, Precision, RecordError};
use alloc::{borrow::ToOwned, boxed::Box, format, string::String, vec, vec::Vec};
use kiln_types::TensorData;
use kiln_types::layers::{Layer, Slot};
use serde::ser::{SerializeMap, SerializeSeq, SerializeTuple};
use serde::{Serialize, Serializer};

/// One value of a record, as the type of the module's field would write it.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordNode {
    /// A struct: its fields in the order of declaration.
    Struct(Vec<FieldNode>),
    /// A `Vec` of modules.
    Seq(Vec<RecordNode>),
    /// An array or a tuple of modules.
    Tuple(Vec<RecordNode>),
    /// An enum module: the variant's index and name, and its value.
    Variant(u32, String, Box<RecordNode>),
    /// A module that is there (`Some`).
    Some(Box<RecordNode>),
    /// A module that is not (`None`).
    None,
    /// A field that is a constant: numbers, tensors that are not parameters, modules without parameters.
    Constant,
    /// A parameter. Its data is converted to the record's precision while it is written.
    Param(ParamId, TensorData),
    /// A bool that a hand-written record holds.
    Bool(bool),
    /// An integer that a hand-written record holds.
    Int(i64),
    /// A float that a hand-written record holds.
    Float(f64),
    /// A text that a hand-written record holds.
    Text(String),
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldNode {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: RecordNode,
}

impl RecordNode {
    /// The record of a layer. `parameter` makes the node of the parameter with a name, if the layer has it; that of a layer in
    /// the layer has the way to it before its name: `forward.input_gate.input_transform.weight`.
    pub fn layer<E>(
        layer: &Layer,
        parameter: &mut dyn FnMut(&str) -> Result<Option<RecordNode>, E>,
    ) -> Result<Self, E> {
        let mut nodes = Vec::with_capacity(layer.fields.len());
        for field in layer.fields {
            let node = match field.slot {
                Slot::Parameter => parameter(field.name)?.unwrap_or(Self::None),
                Slot::Optional => {
                    parameter(field.name)?.map_or(Self::None, |node| Self::Some(Box::new(node)))
                }
                Slot::Constant => Self::Constant,
                Slot::Constants(count) => Self::Tuple(vec![Self::Constant; count]),
                Slot::Activation(place, variant) => {
                    Self::Variant(place, variant.to_owned(), Box::new(Self::Constant))
                }
                Slot::Layer(inner) => {
                    Self::layer(inner, &mut |name| parameter(&format!("{}.{name}", field.name)))?
                }
            };
            nodes.push((field.name, node));
        }
        Ok(Self::fields(nodes))
    }

    /// A struct from names and values.
    pub fn fields<N: Into<String>>(fields: impl IntoIterator<Item = (N, RecordNode)>) -> Self {
        Self::Struct(fields.into_iter().map(|(name, value)| FieldNode { name: name.into(), value }).collect())
    }
}

/// Writes a tree in its envelope, byte for byte what the runtime writes for the module of this form.
///
/// Tensors are streamed, one converted at a time: the tree may borrow from mapped files.
#[cfg(feature = "std")]
pub fn write_node<W: std::io::Write>(
    node: &RecordNode,
    format: Format,
    precision: Precision,
    writer: W,
) -> Result<(), RecordError> {
    let metadata = Metadata::new(format.recorder_type(precision), precision);
    let item = Written { node, named: format.is_named(), precision };
    format.write(writer, &Envelope::new(metadata, item))
}

/// Writes a tree in its envelope, byte for byte what the runtime writes for the module of this form.
#[cfg(not(feature = "std"))]
pub fn write_node(node: &RecordNode, format: Format, precision: Precision) -> Result<Vec<u8>, RecordError> {
    let metadata = Metadata::new(format.recorder_type(precision), precision);
    let item = Written { node, named: format.is_named(), precision };
    format.to_vec(&Envelope::new(metadata, item))
}

/// A node on its way into a format, which knows names or only positions.
///
/// Serde's structs want names that are known at compile time, so structs go as maps where names are written and as
/// tuples where they are not; the bytes are the same.
struct Written<'a> {
    node: &'a RecordNode,
    named: bool,
    precision: Precision,
}

impl Written<'_> {
    fn of<'b>(&self, node: &'b RecordNode) -> Written<'b> {
        Written { node, ..*self }
    }

    fn fields<S: Serializer>(&self, fields: &[FieldNode], serializer: S) -> Result<S::Ok, S::Error> {
        if self.named {
            let mut map = serializer.serialize_map(Some(fields.len()))?;
            for field in fields {
                map.serialize_entry(&field.name, &self.of(&field.value))?;
            }
            return map.end();
        }
        let mut tuple = serializer.serialize_tuple(fields.len())?;
        for field in fields {
            tuple.serialize_element(&self.of(&field.value))?;
        }
        tuple.end()
    }

    fn variant<S: Serializer>(
        &self,
        (index, name, value): (u32, &str, &RecordNode),
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        if self.named {
            let mut map = serializer.serialize_map(Some(1))?;
            map.serialize_entry(name, &self.of(value))?;
            return map.end();
        }
        (index, self.of(value)).serialize(serializer)
    }
}

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Param<'a> {
            id: ParamId,
            param: &'a TensorData,
        }
        match self.node {
            RecordNode::Struct(fields) => self.fields(fields, serializer),
            RecordNode::Seq(items) => {
                let mut seq = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    seq.serialize_element(&self.of(item))?;
                }
                seq.end()
            }
            RecordNode::Tuple(items) => {
                let mut tuple = serializer.serialize_tuple(items.len())?;
                for item in items {
                    tuple.serialize_element(&self.of(item))?;
                }
                tuple.end()
            }
            RecordNode::Variant(index, name, value) => self.variant((*index, name, value), serializer),
            RecordNode::Some(value) => serializer.serialize_some(&self.of(value)),
            RecordNode::None | RecordNode::Constant => serializer.serialize_none(),
            RecordNode::Param(id, data) => {
                let dtype = self.precision.dtype(data.dtype);
                // Numbers beyond the precision's range keep their dtype; readers convert whatever they find.
                let param = if data.fits(dtype) { data.clone().convert_dtype(dtype) } else { data.clone() };
                let written = Param { id: *id, param: &param }.serialize(serializer);
                data.bytes.release();
                written
            }
            RecordNode::Bool(value) => serializer.serialize_bool(*value),
            RecordNode::Int(value) => serializer.serialize_i64(*value),
            RecordNode::Float(value) => serializer.serialize_f64(*value),
            RecordNode::Text(value) => serializer.serialize_str(value),
        }
    }
}
