//! The parameters of a model, in the form of its structs.

use crate::plan::{Content, Field, Plan};
use kiln_importer::ir::LayerField;
use kiln_importer::ir::ValueId;
use kiln_record::safetensors::TensorToWrite;
use kiln_record::{FieldNode, Format, ParamId, Precision, RecordError, RecordNode};
use kiln_types::DType;
use std::collections::BTreeMap;
use std::path::Path;

/// A record's file format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordFormat {
    /// Parameters by path, to be memory-mapped.
    #[default]
    Safetensors,
    /// MessagePack with field names.
    NamedMpk,
    /// The same, compressed with gzip.
    NamedMpkGz,
    /// Bincode.
    Bincode,
    /// Indented JSON.
    PrettyJson,
}

impl RecordFormat {
    /// The format of fields, if it is one.
    fn fields(self) -> Option<Format> {
        match self {
            RecordFormat::Safetensors => None,
            RecordFormat::NamedMpk => Some(Format::NamedMpk),
            RecordFormat::NamedMpkGz => Some(Format::NamedMpkGz),
            RecordFormat::Bincode => Some(Format::Bincode),
            RecordFormat::PrettyJson => Some(Format::PrettyJson),
        }
    }

    /// The file extension, without a leading dot.
    pub fn extension(self) -> &'static str {
        self.fields().map_or("safetensors", Format::extension)
    }

    /// The runtime's name of the format, for those that hold the parameters' names and so load without the record's type,
    /// which takes long to compile.
    pub fn named(self) -> Option<&'static str> {
        match self {
            RecordFormat::NamedMpk => Some("record::Format::NamedMpk"),
            RecordFormat::NamedMpkGz => Some("record::Format::NamedMpkGz"),
            RecordFormat::PrettyJson => Some("record::Format::PrettyJson"),
            RecordFormat::Safetensors | RecordFormat::Bincode => None,
        }
    }
}

/// What was generated.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The Rust source.
    pub source: String,
    /// The parameters, in the form of the source's structs.
    pub record: RecordNode,
    /// The format that the source loads.
    pub format: RecordFormat,
    /// Whether floats are stored as f16.
    pub half_precision: bool,
}

impl Generated {
    /// Writes the record to a file, one tensor after the other. A file that is there is replaced.
    pub fn write_record(&self, path: &Path) -> Result<(), RecordError> {
        let Some(format) = self.format.fields() else {
            return kiln_record::safetensors::save(path, &self.tensors(), &BTreeMap::new());
        };
        let precision = if self.half_precision { Precision::Half } else { Precision::Full };
        kiln_record::replace_file(path, |writer| {
            kiln_record::write_node(&self.record, format, precision, writer)
        })
    }

    /// Every parameter with its path.
    pub fn tensors(&self) -> Vec<TensorToWrite> {
        let mut tensors = Vec::new();
        self.collect(&self.record, String::new(), &mut tensors);
        tensors
    }

    fn collect(&self, node: &RecordNode, path: String, tensors: &mut Vec<TensorToWrite>) {
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match node {
            RecordNode::Param(_, data) => {
                // Not what would become infinite, such as a mask's -3.4e38.
                let float = matches!(data.dtype, DType::F32 | DType::F64);
                let narrow = self.half_precision && float && data.fits(DType::F16);
                // It is read again when it is written.
                data.bytes.release();
                let stored = if narrow { DType::F16 } else { data.dtype };
                tensors.push(TensorToWrite::new(path, data.clone()).stored_as(stored));
            }
            RecordNode::Struct(fields) => {
                fields.iter().for_each(|field| self.collect(&field.value, below(&field.name), tensors));
            }
            RecordNode::Seq(items) | RecordNode::Tuple(items) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(i, item)| self.collect(item, below(&i.to_string()), tensors));
            }
            RecordNode::Some(inner) | RecordNode::Variant(_, _, inner) => self.collect(inner, path, tensors),
            _ => {}
        }
    }
}

/// The record of a plan's model.
pub fn record(plan: &Plan<'_>) -> RecordNode {
    module(plan, plan.root, "")
}

fn module(plan: &Plan<'_>, module: usize, path: &str) -> RecordNode {
    let data = &plan.modules[module];
    let mut fields: Vec<FieldNode> = data
        .fields
        .iter()
        .enumerate()
        .map(|(i, field)| {
            let value = content(plan, field, &join(path, &field.key));
            let present = plan.optional(data.struct_id, i).is_some() && field.content != Content::Absent;
            let value = if present { RecordNode::Some(Box::new(value)) } else { value };
            FieldNode { name: field.key.clone(), value }
        })
        .collect();
    let kept = plan.structs[data.struct_id].parameters.iter().filter(|parameter| parameter.kept);
    fields.extend(
        kept.map(|parameter| FieldNode { name: parameter.name.clone(), value: RecordNode::Constant }),
    );
    RecordNode::Struct(fields)
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn content(plan: &Plan<'_>, field: &Field, path: &str) -> RecordNode {
    match &field.content {
        Content::Absent => RecordNode::None,
        Content::Parameter(value) => parameter(plan, *value, path),
        Content::Module(child) => module(plan, *child, path),
        Content::Sequence(children) => RecordNode::Seq(
            children
                .iter()
                .enumerate()
                .map(|(i, &child)| module(plan, child, &join(path, &i.to_string())))
                .collect(),
        ),
        Content::Layer(node) => {
            let fields = plan.layer(*node).map(|layer| layer.fields.as_slice()).unwrap_or_default();
            RecordNode::fields(fields.iter().map(|(name, field)| {
                let path = join(path, name);
                let value = match field {
                    LayerField::Parameter(value) => parameter(plan, *value, &path),
                    LayerField::Optional(Some(value)) => {
                        RecordNode::Some(Box::new(parameter(plan, *value, &path)))
                    }
                    LayerField::Optional(None) => RecordNode::None,
                    LayerField::Constant => RecordNode::Constant,
                    LayerField::Constants(n) => RecordNode::Tuple(vec![RecordNode::Constant; *n]),
                };
                (*name, value)
            }))
        }
    }
}

fn parameter(plan: &Plan<'_>, value: ValueId, path: &str) -> RecordNode {
    match plan.graph.constant(value) {
        Some(constant) => RecordNode::Param(ParamId::from_path(path), constant.data.clone()),
        None => RecordNode::None,
    }
}
