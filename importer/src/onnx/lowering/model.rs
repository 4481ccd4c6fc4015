//! A model's parts that lowering looks up.

use crate::error::ImportErrorKind;
use crate::onnx::parameters::Parameters;
use crate::onnx::proto::{
    FunctionProto, ModelProto, NodeProto, OperatorSetIdProto, TypeValue, ValueInfoProto,
};
use crate::onnx::scope::{QuantizedScopes, SlashPaths};
use crate::onnx::source::Folder;
use std::collections::HashMap;

/// A model's parts that lowering looks up.
pub(crate) struct Model<'m> {
    pub(crate) folder: &'m Folder,
    pub(crate) functions: HashMap<(&'m str, &'m str, &'m str), Function<'m>>,
    /// Versions of the operator sets by domain.
    pub(crate) opsets: HashMap<&'m str, i64>,
    /// What initializers are to the original network.
    pub(crate) parameters: Parameters,
    /// Modules that names tell.
    pub(crate) paths: SlashPaths,
    /// Where nodes that a quantizer made are.
    pub(crate) quantized: QuantizedScopes,
    /// Ranks of the outputs, as far as the file declares them.
    pub(crate) output_ranks: HashMap<&'m str, usize>,
}

/// A function, and what every call of it needs.
pub(crate) struct Function<'m> {
    pub(crate) proto: &'m FunctionProto,
    /// Versions of the operator sets by domain, those of its caller apart.
    pub(crate) opsets: HashMap<&'m str, i64>,
}

impl<'m> Model<'m> {
    /// Indexes a model; a function defined twice is an error.
    pub(crate) fn new(proto: &'m ModelProto, folder: &'m Folder) -> Result<Self, ImportErrorKind> {
        let mut functions = HashMap::new();
        for proto in &proto.functions {
            let key = (domain_of(&proto.domain), proto.name.as_str(), proto.overload.as_str());
            let function = Function { proto, opsets: opsets(&proto.opset_import) };
            if functions.insert(key, function).is_some() {
                return Err(ImportErrorKind::DuplicateFunction(proto.name.clone()));
            }
        }
        let parameters = Parameters::of(proto);
        let paths = proto.graph.as_ref().map(SlashPaths::of).unwrap_or_default();
        let quantized =
            proto.graph.as_ref().map(|graph| QuantizedScopes::of(graph, &paths)).unwrap_or_default();
        let outputs = proto.graph.iter().flat_map(|graph| &graph.output);
        let output_ranks =
            outputs.filter_map(|output| Some((output.name.as_str(), declared_rank(output)?))).collect();
        let mut opsets = opsets(&proto.opset_import);
        // ONNX Runtime's tools may not declare their own domain, of which there is one version; ONNX Runtime loads such models.
        opsets.entry("com.microsoft").or_insert(1);
        Ok(Self { folder, functions, opsets, parameters, paths, quantized, output_ranks })
    }
}

fn declared_rank(value: &ValueInfoProto) -> Option<usize> {
    match value.r#type.as_ref()?.value.as_ref()? {
        TypeValue::Tensor(declared) => Some(declared.shape.as_ref()?.dim.len()),
        TypeValue::Sequence(_) | TypeValue::Map(_) | TypeValue::SparseTensor(_) | TypeValue::Optional(_) => {
            None
        }
    }
}

/// The domain without ONNX's two spellings of its own.
pub(crate) fn domain_of(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// The operator as messages name it.
pub(crate) fn operator_name(node: &NodeProto) -> String {
    match domain_of(&node.domain) {
        "" => node.op_type.clone(),
        domain => format!("{domain}.{}", node.op_type),
    }
}

/// Versions of the operator sets by domain.
fn opsets(imports: &[OperatorSetIdProto]) -> HashMap<&str, i64> {
    imports.iter().map(|import| (domain_of(&import.domain), import.version)).collect()
}
