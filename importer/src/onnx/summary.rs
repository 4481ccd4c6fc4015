//! What a file holds, told without importing it: also of files that cannot be imported.

use super::load::{check_operators, decode};
use super::lowering::{Model, domain_of, operator_name, subgraphs};
use super::proto::{
    DimensionValue, GraphProto, ModelProto, NodeProto, TensorProto, TypeValue, ValueInfoProto,
};
use super::source::Folder;
use super::tensor;
use crate::error::{ImportError, ImportErrorKind, ImportResult, UnsupportedOperator};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The contents of a model file.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Version of the file format.
    pub ir_version: i64,
    /// Who wrote it, with version.
    pub producer: String,
    /// Version of each operator set; ONNX's own has the domain `ai.onnx`.
    pub opsets: BTreeMap<String, i64>,
    /// Inputs that are not initializers.
    pub inputs: Vec<PortSummary>,
    /// Outputs.
    pub outputs: Vec<PortSummary>,
    /// How often each operator stands in the file, branches and functions among them.
    pub operators: BTreeMap<String, usize>,
    /// Functions that the file defines.
    pub functions: Vec<String>,
    /// Number of initializers.
    pub initializers: usize,
    /// Number of elements of all initializers.
    pub parameters: u64,
    /// Bytes of all initializers.
    pub bytes: u64,
    /// Operators that Kiln does not know.
    pub unsupported: Vec<UnsupportedOperator>,
}

/// An input or output as the file declares it.
#[derive(Clone, Debug, Default)]
pub struct PortSummary {
    /// Its name.
    pub name: String,
    /// `f32[batch, 3, 224, 224]`; `?` for what the file does not say.
    pub ty: String,
}

/// Reads a model file's outline.
///
/// # Errors
/// When the file cannot be read or is not an ONNX model.
pub fn summarize(path: &Path) -> ImportResult<Summary> {
    let in_file = |error: ImportError| ImportError { file: path.to_owned(), ..error };
    let folder = Folder::open(path).map_err(|kind| in_file(kind.into()))?;
    let proto = decode(folder.model(), false).map_err(in_file)?;
    let Some(graph) = &proto.graph else { return Ok(outline(&proto)) };
    let mut summary = outline(&proto);
    let constants: BTreeSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let inputs = graph.input.iter().filter(|input| !constants.contains(input.name.as_str()));
    summary.inputs = inputs.map(port).collect();
    summary.outputs = graph.output.iter().map(port).collect();
    count_graph(graph, &mut summary);
    for function in &proto.functions {
        summary.functions.push(function.name.clone());
        function.node.iter().for_each(|node| count_node(node, &mut summary));
    }
    let model = Model::new(&proto, &folder).map_err(|kind| in_file(kind.into()))?;
    match check_operators(&model, graph) {
        Ok(()) => {}
        Err(ImportErrorKind::Unsupported(operators)) => summary.unsupported = operators,
        Err(other) => return Err(in_file(other.into())),
    }
    Ok(summary)
}

fn outline(proto: &ModelProto) -> Summary {
    let domain =
        |domain: &str| if domain_of(domain).is_empty() { "ai.onnx".to_owned() } else { domain.to_owned() };
    Summary {
        ir_version: proto.ir_version,
        producer: format!("{} {}", proto.producer_name, proto.producer_version).trim().to_owned(),
        opsets: proto.opset_import.iter().map(|set| (domain(&set.domain), set.version)).collect(),
        ..Summary::default()
    }
}

fn count_graph(graph: &GraphProto, summary: &mut Summary) {
    graph.initializer.iter().for_each(|tensor| count_tensor(tensor, summary));
    graph.node.iter().for_each(|node| count_node(node, summary));
}

fn count_node(node: &NodeProto, summary: &mut Summary) {
    *summary.operators.entry(operator_name(node)).or_default() += 1;
    for graph in subgraphs(node) {
        count_graph(graph, summary);
    }
}

fn count_tensor(proto: &TensorProto, summary: &mut Summary) {
    let elements = proto.dims.iter().map(|&d| u64::try_from(d).unwrap_or(0)).fold(1u64, u64::saturating_mul);
    let size = tensor::dtype(proto.data_type).map_or(0, |dtype| dtype.size() as u64);
    summary.initializers += 1;
    summary.parameters = summary.parameters.saturating_add(elements);
    summary.bytes = summary.bytes.saturating_add(elements.saturating_mul(size));
}

fn port(info: &ValueInfoProto) -> PortSummary {
    let ty = match info.r#type.as_ref().and_then(|ty| ty.value.as_ref()) {
        Some(TypeValue::Tensor(declared)) => {
            let dtype = match declared.elem_type {
                tensor::STRING => "string",
                other => tensor::dtype(other).map_or("?", |dtype| dtype.name()),
            };
            let dims = match &declared.shape {
                Some(shape) => {
                    shape.dim.iter().map(|dim| dimension(dim.value.as_ref())).collect::<Vec<_>>().join(", ")
                }
                None => "…".to_owned(),
            };
            format!("{dtype}[{dims}]")
        }
        Some(TypeValue::Sequence(_)) => "sequence".to_owned(),
        Some(TypeValue::Optional(_)) => "optional".to_owned(),
        Some(TypeValue::Map(_)) => "map".to_owned(),
        Some(TypeValue::SparseTensor(_)) => "sparse tensor".to_owned(),
        None => "?".to_owned(),
    };
    PortSummary { name: info.name.clone(), ty }
}

fn dimension(value: Option<&DimensionValue>) -> String {
    match value {
        Some(DimensionValue::Value(size)) => size.to_string(),
        Some(DimensionValue::Param(name)) if !name.is_empty() => name.clone(),
        _ => "?".to_owned(),
    }
}
