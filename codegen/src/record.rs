//! The parameters of a model, in the form of its structs.

use crate::ids::ModuleId;
use crate::structs::Program;
use crate::tree::{Content, below};
use crate::{CodegenError, Defect};
use kiln_importer::ir::{Graph, ValueId};
use kiln_record::safetensors::TensorToWrite;
use kiln_record::{FieldNode, Format, ParamId, Precision, RecordError, RecordNode};
use kiln_types::DType;
use std::collections::BTreeMap;
use std::path::Path;

/// The file format of a model's record, under Burn's name for it: Safetensors, or a [`Format`] that holds the fields of its structs as a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordType {
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

impl RecordType {
    /// The format of fields, if it is one.
    fn fields(self) -> Option<Format> {
        match self {
            RecordType::Safetensors => None,
            RecordType::NamedMpk => Some(Format::NamedMpk),
            RecordType::NamedMpkGz => Some(Format::NamedMpkGz),
            RecordType::Bincode => Some(Format::Bincode),
            RecordType::PrettyJson => Some(Format::PrettyJson),
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
            RecordType::NamedMpk => Some("record::Format::NamedMpk"),
            RecordType::NamedMpkGz => Some("record::Format::NamedMpkGz"),
            RecordType::PrettyJson => Some("record::Format::PrettyJson"),
            RecordType::Safetensors | RecordType::Bincode => None,
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
    pub format: RecordType,
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
            RecordNode::None
            | RecordNode::Constant
            | RecordNode::Bool(_)
            | RecordNode::Int(_)
            | RecordNode::Float(_)
            | RecordNode::Text(_) => {}
        }
    }
}

/// The record of a model.
pub fn record(program: &Program<'_>) -> Result<RecordNode, CodegenError> {
    module(program, program.tree.root, "")
}

fn module(program: &Program<'_>, module: ModuleId, path: &str) -> Result<RecordNode, CodegenError> {
    let data = &program.modules[module];
    let structure = &program.structs[data.structure];
    let mut fields = Vec::with_capacity(data.fields.len());
    for (id, field) in data.fields.enumerate() {
        let value = held(program, &field.content, &below(path, &field.key))?;
        let present = structure.optional.contains_key(&id) && field.content != Content::Absent;
        let value = if present { RecordNode::Some(Box::new(value)) } else { value };
        fields.push(FieldNode { name: field.key.clone(), value });
    }
    let kept = structure.parameters.iter().filter(|parameter| parameter.kept);
    fields.extend(
        kept.map(|parameter| FieldNode { name: parameter.name.clone(), value: RecordNode::Constant }),
    );
    Ok(RecordNode::Struct(fields))
}

fn held(program: &Program<'_>, content: &Content, path: &str) -> Result<RecordNode, CodegenError> {
    let graph = program.graph();
    match content {
        Content::Absent => Ok(RecordNode::None),
        Content::Parameter(value) => parameter(graph, *value, path),
        Content::Module(child) => module(program, *child, path),
        Content::Sequence(items) => {
            let items = items.iter().enumerate();
            let items = items.map(|(i, item)| held(program, item, &below(path, &i.to_string())));
            Ok(RecordNode::Seq(items.collect::<Result<_, _>>()?))
        }
        Content::Layer(node) => {
            let layer = program.tree.layer(*node);
            let (_, layer) = layer.ok_or_else(|| Defect::node(graph.node(*node), "no layer"))?;
            RecordNode::layer(layer.declared, &mut |name| {
                let value =
                    layer.parameters().find(|(field, _)| field.name == name).and_then(|(_, value)| value);
                value.map(|value| parameter(graph, value, &below(path, name))).transpose()
            })
        }
    }
}

fn parameter(graph: &Graph, value: ValueId, path: &str) -> Result<RecordNode, CodegenError> {
    let constant = graph.constant(value).ok_or_else(|| Defect::module(path, "no data"))?;
    Ok(RecordNode::Param(ParamId::from_path(path), constant.data.clone()))
}
