//! From a file to a graph.

use super::lowering::{Lowering, MAX_DEPTH, Model, domain_of, label, operator_name, subgraphs};
use super::operator::Operand;
use super::ops;
use super::proto::{
    DimensionValue, FunctionProto, GraphProto, ModelProto, NodeProto, TypeValue, ValueInfoProto,
};
use super::source::{Folder, SourceFile};
use super::{bound, tensor, wire};
use crate::error::{ImportError, ImportErrorKind, ImportResult, UnsupportedOperator};
use crate::ir::{BoundInput, Budget, Dim, Graph, TensorType, ValueId};
use bytes::Bytes;
use kiln_record::FileKind;
use kiln_types::{DType, Scalar};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

/// What a caller may decide about an import.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Sizes for named dims: `batch` → 1. A dim without a name is `{input}_dim_{axis}`.
    pub bind_dims: BTreeMap<String, usize>,
    /// Contents for inputs, by name, in row-major order: they become constants.
    pub bind_inputs: BTreeMap<String, Vec<Scalar>>,
    /// Keep what matters for training only: Dropout, and BatchNorm in place.
    pub trainable: bool,
    /// Keys of parameters that the file has as one with others, and that get contents of their own.
    pub untie: Vec<String>,
}

/// Reads a model file, which is mapped; weights stay in the map until they are used.
///
/// # Errors
/// When the file is not a valid model, breaks a rule of its operators, or has operators that Kiln does not know.
pub fn load(path: &Path, options: &LoadOptions) -> ImportResult<Graph> {
    load_with_sources(path, options).map(|(graph, _)| graph)
}

/// As [`load`]; also yields the files that were read: the model's own, and those with external data that was needed. A build has to
/// look at all of them.
///
/// # Errors
/// As [`load`].
pub fn load_with_sources(path: &Path, options: &LoadOptions) -> ImportResult<(Graph, Vec<SourceFile>)> {
    let in_file = |error: ImportError| ImportError { file: path.to_owned(), ..error };
    let folder = Folder::open(path).map_err(|kind| in_file(kind.into()))?;
    let graph = read_model(folder.model(), &folder, options).map_err(in_file)?;
    Ok((graph, folder.into_sources()))
}

/// Reads a model from memory; it may have no external data.
///
/// # Errors
/// As [`load`].
pub fn load_bytes(bytes: impl Into<Bytes>, options: &LoadOptions) -> ImportResult<Graph> {
    read_model(bytes.into(), &Folder::none(), options)
}

fn malformed(reason: impl Into<String>) -> ImportErrorKind {
    ImportErrorKind::Malformed { format: "ONNX", reason: reason.into() }
}

/// The messages of a file; an exported program of PyTorch is translated into some, for training if it is to be trained.
pub(super) fn decode(bytes: Bytes, trainable: bool) -> ImportResult<ModelProto> {
    let kind = FileKind::of(&bytes);
    match kind {
        // No bytes are a valid message.
        Some(FileKind::Empty) => return Err(malformed(FileKind::Empty.sentence()).into()),
        Some(FileKind::Zip) => return exported_program(bytes, trainable),
        _ => {}
    }
    wire::decode(bytes).map_err(|error| kind.and_then(other_file).map_or(error, malformed).into())
}

#[cfg(feature = "pt2")]
fn exported_program(bytes: Bytes, trainable: bool) -> ImportResult<ModelProto> {
    crate::pt2::model(bytes, trainable)
}

#[cfg(not(feature = "pt2"))]
fn exported_program(_: Bytes, _: bool) -> ImportResult<ModelProto> {
    Err(malformed(format!(
        "{}; exported programs of PyTorch (`.pt2`) are read with the feature `pt2` of `kiln-build`, and a checkpoint has a name \
         that ends with `.pt` or `.pth`",
        FileKind::Zip.sentence()
    ))
    .into())
}

/// What a file is that cannot be decoded, and what to do about it.
fn other_file(kind: FileKind) -> Option<String> {
    let advice = match kind {
        FileKind::Onnx => return None,
        FileKind::Json => "a model is a file that ends with `.onnx`",
        FileKind::Hdf5 => {
            "with Keras 3, `model.export(\"model.onnx\", format=\"onnx\")` makes an ONNX model of it"
        }
        FileKind::Gguf => "export the model that it was made from to ONNX",
        FileKind::TfLite => "tf2onnx makes an ONNX model of it: `python -m tf2onnx.convert --tflite …`",
        FileKind::NumpyArray => "a model is more than an array",
        FileKind::Safetensors => {
            "`kiln convert` makes a skeleton of it, under a name that ends with `.safetensors`"
        }
        FileKind::Pickle => "a checkpoint of PyTorch has a name that ends with `.pt` or `.pth`",
        FileKind::Empty
        | FileKind::Zip
        | FileKind::LfsPointer
        | FileKind::WebPage
        | FileKind::Gzip
        | FileKind::Bzip2
        | FileKind::Xz
        | FileKind::Zstd
        | FileKind::SevenZip
        | FileKind::Zeros => return Some(kind.sentence().to_owned()),
    };
    Some(format!("{}; {advice}", kind.sentence()))
}

fn read_model(bytes: Bytes, folder: &Folder, options: &LoadOptions) -> ImportResult<Graph> {
    let size = bytes.len() as u64;
    let proto = decode(bytes, options.trainable)?;
    let Some(source) = &proto.graph else {
        return Err(malformed("it holds no graph").into());
    };
    let model = Model::new(&proto, folder)?;
    let buffers = model.parameters.buffers();
    let tied_keys = model.parameters.without(source.initializer.iter().map(|tensor| tensor.name.as_str()));
    let budget = Budget::of_file(size);
    let mut graph = Graph { name: source.name.clone(), tied_keys, buffers, budget, ..Graph::default() };
    let mut lowering = Lowering::new(&mut graph, &model, options.trainable);
    match check_operators(&model, source) {
        Err(kind @ ImportErrorKind::Unsupported(_)) => lowering.note(kind.into(), [])?,
        checked => checked?,
    }
    let names: Vec<&str> = source.output.iter().map(|output| output.name.as_str()).collect();
    let outputs = lower(&mut lowering, source, options, &names);
    let outputs = lowering.conclude(outputs)?;
    let nodes = std::mem::take(&mut lowering.builder.nodes);
    graph.root.nodes = nodes;
    (graph.output_names, graph.root.outputs) = outputs.into_iter().unzip();
    super::untie::find_ties(&mut graph);
    for key in &options.untie {
        super::untie::untie(&mut graph, key)?;
    }
    Ok(graph)
}

/// The names and values of the graph's outputs. Those of a sequence are its items'.
fn lower<'m>(
    lowering: &mut Lowering<'_, 'm>,
    source: &'m GraphProto,
    options: &LoadOptions,
    names: &[&'m str],
) -> ImportResult<Vec<(String, ValueId)>> {
    add_inputs(lowering, source, options)?;
    lowering.initializers(source)?;
    let outputs = lowering.body(&source.node, names)?;
    let mut values: Vec<(String, ValueId)> = Vec::with_capacity(outputs.len());
    for (operand, &name) in outputs.iter().zip(names) {
        let at = values.len();
        let strings = &mut lowering.builder.graph.strings;
        match operand {
            Operand::Tensor(value) => values.push((name.to_owned(), *value)),
            Operand::Strings(places) => {
                strings.outputs.insert(at);
                values.push((name.to_owned(), *places));
            }
            Operand::Maps(rows, keys) => {
                strings.columns.insert(at, keys.to_vec());
                values.push((name.to_owned(), *rows));
            }
            Operand::Sequence(items) if !items.is_empty() => {
                lowering.spend_numbered(items.len(), name)?;
                lowering.builder.graph.output_sequences.push(at..at + items.len());
                values.extend(items.iter().enumerate().map(|(n, &item)| (format!("{name}_{n}"), item)));
            }
            Operand::Sequence(_) | Operand::Absent => {
                return Err(ImportErrorKind::Interface {
                    what: "output",
                    name: name.to_owned(),
                    reason: format!("holds nothing: it is {}", operand.kind()),
                }
                .into());
            }
        }
    }
    Ok(values)
}

// ---- inputs ----

fn add_inputs<'m>(
    lowering: &mut Lowering<'_, 'm>,
    source: &'m GraphProto,
    options: &LoadOptions,
) -> ImportResult<()> {
    // Files of the first versions list initializers among the inputs.
    let constants: HashSet<&str> = source
        .initializer
        .iter()
        .map(|tensor| tensor.name.as_str())
        .chain(source.sparse_initializer.iter().filter_map(|t| t.values.as_ref()).map(|v| v.name.as_str()))
        .collect();
    let mut names = Vec::new();
    let inputs = source.input.iter().filter(|input| !constants.contains(input.name.as_str()));
    for (position, input) in inputs.clone().enumerate() {
        let ty = match input_type(input, options, &mut names) {
            Ok(ty) => ty,
            Err(kind) => {
                lowering.note(kind.into(), [input.name.as_str()])?;
                continue;
            }
        };
        if let Some(numbers) = options.bind_inputs.get(&input.name) {
            if let Err(kind) = bind_input(lowering, position, input, &ty, numbers) {
                lowering.note(kind.into(), [input.name.as_str()])?;
            }
            continue;
        }
        let value = lowering.builder.input(&input.name, ty);
        let mut operand = Operand::Tensor(value);
        if let Some(TypeValue::Tensor(tensor)) = input.r#type.as_ref().and_then(|ty| ty.value.as_ref()) {
            lowering.note_narrow(value, tensor.elem_type);
            if tensor.elem_type == tensor::STRING {
                operand = Operand::Strings(value);
                let graph = &mut *lowering.builder.graph;
                graph.strings.inputs.insert(graph.inputs.len() - 1);
            }
        }
        lowering.bind(&input.name, Some(operand))?;
    }
    names.sort();
    names.dedup();
    let inputs: Vec<String> = inputs.map(|input| input.name.clone()).collect();
    for name in options.bind_inputs.keys().filter(|name| !inputs.contains(name)) {
        let unknown = ImportErrorKind::UnknownInput { name: name.clone(), known: inputs.clone() };
        lowering.note(unknown.into(), [])?;
    }
    for name in options.bind_dims.keys().filter(|name| !names.contains(name)) {
        let unknown = ImportErrorKind::UnknownDim { name: name.clone(), known: names.clone() };
        lowering.note(unknown.into(), [])?;
    }
    Ok(())
}

/// Makes a constant of an input.
fn bind_input<'m>(
    lowering: &mut Lowering<'_, 'm>,
    position: usize,
    input: &'m ValueInfoProto,
    ty: &TensorType,
    numbers: &[Scalar],
) -> Result<(), ImportErrorKind> {
    let element = match input.r#type.as_ref().and_then(|ty| ty.value.as_ref()) {
        Some(TypeValue::Tensor(tensor)) => tensor.elem_type,
        _ => 0,
    };
    if element == tensor::STRING {
        let reason = "is a tensor of strings, which cannot be bound to numbers".to_owned();
        return Err(ImportErrorKind::Interface { what: "input", name: input.name.clone(), reason });
    }
    let data = bound::contents(&input.name, ty, numbers)?;
    let bound = BoundInput { position, name: input.name.clone(), data: data.clone() };
    lowering.builder.graph.bound_inputs.push(bound);
    let value = lowering.listed(&input.name, data)?;
    lowering.note_narrow(value, element);
    lowering.bind(&input.name, Some(Operand::Tensor(value)))
}

fn input_type(
    input: &ValueInfoProto,
    options: &LoadOptions,
    names: &mut Vec<String>,
) -> Result<TensorType, ImportErrorKind> {
    let fail = |reason: &str| ImportErrorKind::Interface {
        what: "input",
        name: input.name.clone(),
        reason: reason.to_owned(),
    };
    let tensor = match input.r#type.as_ref().and_then(|ty| ty.value.as_ref()) {
        Some(TypeValue::Tensor(tensor)) => tensor,
        Some(TypeValue::Sequence(_)) => return Err(fail("is a sequence, which is not supported")),
        Some(TypeValue::Optional(_)) => return Err(fail("is optional, which is not supported")),
        Some(TypeValue::Map(_)) => return Err(fail("is a map, which is not supported")),
        Some(TypeValue::SparseTensor(_)) => return Err(fail("is a sparse tensor, which is not supported")),
        None => return Err(fail("has no type; run onnx.shape_inference or export the model again")),
    };
    let dtype = match tensor.elem_type {
        tensor::STRING => DType::I64,
        other => tensor::dtype(other).map_err(|reason| fail(&reason))?,
    };
    let Some(shape) = &tensor.shape else {
        return Err(fail(
            "has no shape, so that its rank is unknown; give it one with \
             `onnx.tools.update_model_dims` (dims may be names), or export the model again with a sample input",
        ));
    };
    if shape.dim.len() > tensor::MAX_RANK {
        return Err(fail(&format!("has rank {}", shape.dim.len())));
    }
    let dim = |(axis, dim): (usize, &super::proto::DimensionProto)| {
        let unnamed = || format!("{}_dim_{axis}", input.name);
        let name = match &dim.value {
            Some(DimensionValue::Value(size)) if *size >= 0 => return Dim::constant(*size),
            Some(DimensionValue::Param(name)) if !is_no_name(name) => name.clone(),
            _ => unnamed(),
        };
        let bound = options.bind_dims.get(&name).map(|&size| Dim::from(size));
        names.push(name.clone());
        bound.unwrap_or_else(|| Dim::symbol(name))
    };
    let dims: Vec<Dim> = shape.dim.iter().enumerate().map(dim).collect();
    Ok(TensorType { dtype, dims })
}

/// What exporters write as the name of a dim that has none: `?`, `None`, `-1`. Equal names are equal sizes, which these are not.
fn is_no_name(name: &str) -> bool {
    !name.contains(char::is_alphabetic) || name.eq_ignore_ascii_case("none")
}

/// The last part of a value's name, if it can hint at what the value is.
pub(super) fn hint(name: &str) -> Option<&str> {
    let last = name.rsplit(['/', ':', '.']).next().unwrap_or(name);
    let plain =
        !last.is_empty() && last.len() <= 40 && last.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (plain && !last.starts_with(|c: char| c.is_ascii_digit())).then_some(last)
}

// ---- the check that every operator is known ----

/// Finds every node whose operator Kiln does not know, in functions and branches too.
pub(super) fn check_operators<'m>(
    model: &'m Model<'m>,
    source: &'m GraphProto,
) -> Result<(), ImportErrorKind> {
    for (&domain, &version) in &model.opsets {
        if domain.is_empty() && !(1..=ops::NEWEST_OPSET).contains(&version) {
            return Err(ImportErrorKind::Opset {
                domain: domain.to_owned(),
                version,
                newest: ops::NEWEST_OPSET,
            });
        }
    }
    let mut found = BTreeMap::new();
    let mut visited: HashSet<*const FunctionProto> = HashSet::new();
    // Nodes and the operator sets in effect, innermost last. A list of what is left to do, since functions and graphs may lie
    // inside each other as deep as the file wants.
    let root = Rc::new(Imports { own: &model.opsets, caller: None });
    let mut work: Vec<(&'m [NodeProto], Rc<Imports<'m>>)> = vec![(&source.node, root)];
    while let Some((nodes, imports)) = work.pop() {
        let Some((node, rest)) = nodes.split_first() else { continue };
        work.push((rest, imports.clone()));
        let key = (domain_of(&node.domain), node.op_type.as_str(), node.overload.as_str());
        match model.functions.get(&key) {
            // Deeper calls are refused when they are inlined.
            Some(function) if imports.depth() < MAX_DEPTH && visited.insert(function.proto) => {
                let inner = Imports { own: &function.opsets, caller: Some(imports.clone()) };
                work.push((&function.proto.node, Rc::new(inner)));
            }
            Some(_) => {}
            None => check_operator(node, imports.version(key.0), &mut found),
        }
        work.extend(subgraphs(node).map(|graph| (graph.node.as_slice(), imports.clone())));
    }
    let found: Vec<UnsupportedOperator> = found.into_values().collect();
    if found.is_empty() { Ok(()) } else { Err(ImportErrorKind::Unsupported(found)) }
}

fn check_operator(node: &NodeProto, opset: i64, found: &mut BTreeMap<(String, i64), UnsupportedOperator>) {
    let domain = domain_of(&node.domain);
    if ops::find(domain, &node.op_type, opset).is_some() {
        return;
    }
    let operator = operator_name(node);
    let known = ops::versions(domain, &node.op_type);
    let entry = found.entry((operator.clone(), opset));
    let advice = ops::advice(domain, &node.op_type);
    let entry = entry.or_insert(UnsupportedOperator { operator, opset, known, nodes: Vec::new(), advice });
    entry.nodes.push(label(node));
}

/// Versions of the operator sets by domain: a function's own, and its callers' where it names none.
struct Imports<'m> {
    own: &'m HashMap<&'m str, i64>,
    caller: Option<Rc<Imports<'m>>>,
}

impl Imports<'_> {
    fn callers(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |imports| imports.caller.as_deref())
    }

    fn depth(&self) -> usize {
        self.callers().count()
    }

    fn version(&self, domain: &str) -> i64 {
        self.callers().find_map(|imports| imports.own.get(domain).copied()).unwrap_or(0)
    }
}
