//! The front end for exported programs of PyTorch (`torch.export.save`, `.pt2`).
//!
//! A program is a list of calls of ATen's operators on named tensors, with the module around each, and a signature that says which
//! inputs are parameters. `kiln-weights` reads the archive; `schema` declares the program's text; `translation` walks over the calls, and
//! `operators` holds the rule of each, which writes nodes of ONNX that mean the same: everything behind this front end is the
//! ONNX one's. `views` undoes what programs change in place.

mod call;
mod defaults;
mod dtype;
mod operators;
mod results;
mod schema;
mod scopes;
mod training;
mod translation;
mod value;
mod views;

use crate::error::{ImportError, ImportErrorKind, ImportResult, UnsupportedOperator};
use crate::onnx::operator::KILN;
use crate::onnx::proto::{
    DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, TypeValue,
    ValueInfoProto,
};
use call::{Result, unsupported};
use kiln_record::Stored;
use kiln_types::{DType, quoted};
use kiln_weights::{ExportedProgram, LazyTensor, ProgramTensor};
use schema::{
    Argument, Graph, InputSpec, Name, OutputSpec, Program, Size, SymBool, SymFloat, SymInt, TensorMeta,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use translation::Translation;
use value::{Output, Value};

pub(crate) use training::losses;
pub(crate) use translation::DOMAIN;

/// What to do about operators that Kiln does not know.
pub(crate) const ADVICE: Option<&str> =
    Some("`program.run_decompositions()` before `torch.export.save` may write it in operators that are");

/// The format's name in messages.
const FORMAT: &str = "PyTorch program";

fn malformed(reason: impl Into<String>) -> ImportErrorKind {
    ImportErrorKind::Malformed { format: FORMAT, reason: reason.into() }
}

/// The program in an archive, as a model of ONNX.
///
/// # Errors
/// When the file is no archive of an exported program, or it has what cannot be translated. Operators that Kiln does not know become
/// nodes of a domain that nobody knows. In a program that is to be trained, layers decide by themselves what training does to
/// their statistics.
pub(crate) fn model(file: bytes::Bytes, trainable: bool) -> ImportResult<ModelProto> {
    let size = file.len();
    let (program, archive) = read(file)?;
    translate(&program, &archive, size, trainable)
}

/// The program in an archive, and the archive.
fn read(file: bytes::Bytes) -> ImportResult<(Program, ExportedProgram)> {
    let archive = ExportedProgram::read(&kiln_types::Bytes::from_owner(file));
    let archive = archive.map_err(|error| malformed(error.to_string()))?;
    // The message may hold any text of the file.
    let text = |error: serde_json::Error| {
        malformed(format!("its text breaks a rule: {}", quoted(&error.to_string())))
    };
    let schema::Versioned { schema_version } = serde_json::from_slice(&archive.program).map_err(text)?;
    if schema_version.major != schema::MAJOR {
        return Err(malformed(format!(
            "it has version {}.{} of the format, and Kiln knows {}; save it again with PyTorch 2.8 or later: \
             `torch.export.save(torch.export.load(path), path)`",
            schema_version.major,
            schema_version.minor,
            schema::MAJOR
        ))
        .into());
    }
    let program: Program = serde_json::from_slice(&archive.program).map_err(text)?;
    Ok((program, archive))
}

fn translate(
    program: &Program,
    archive: &ExportedProgram,
    size: usize,
    trainable: bool,
) -> ImportResult<ModelProto> {
    let graph = &program.graph_module.graph;
    let mut to = Translation::new(graph, program.opset_version.get("aten").copied().unwrap_or(0), size);
    to.trainable = trainable;
    let mut made =
        GraphProto { name: class_of(graph).unwrap_or("main_graph").to_owned(), ..GraphProto::default() };
    inputs(program, archive, size, &mut to, &mut made)?;
    to.graph(graph);
    let ended = outputs(program, &mut to, &mut made);
    let opset = to.opset;
    let (nodes, mut problems) = to.finish();
    made.node = nodes;
    if let Err(error) = ended {
        // An output is undefined where a call before it went wrong, which is told already.
        let follows = matches!(*error.kind, ImportErrorKind::Undefined(_)) && !problems.is_empty();
        problems.extend((!follows).then_some(error));
    }
    if !problems.is_empty() {
        let unknown = unknown_operators(&made.node, opset);
        if !unknown.is_empty() {
            problems.insert(0, ImportErrorKind::Unsupported(unknown).into());
        }
        let kind = match <[ImportError; 1]>::try_from(problems) {
            Ok([only]) => return Err(only),
            Err(several) => ImportErrorKind::Several(several),
        };
        return Err(kind.into());
    }
    let import = |domain: &str, version: i64| OperatorSetIdProto { domain: domain.to_owned(), version };
    Ok(ModelProto {
        ir_version: i64::try_from(schema::MAJOR).unwrap_or_default(),
        producer_name: "pytorch".to_owned(),
        producer_version: program.torch_version.clone(),
        graph: Some(made),
        opset_import: vec![import("", crate::onnx::NEWEST_OPSET), import(DOMAIN, opset), import(KILN, 1)],
        ..ModelProto::default()
    })
}

/// The class of the network, which all calls tell.
fn class_of(graph: &Graph) -> Option<&str> {
    let stack = graph.nodes.iter().find_map(|node| scopes::root_class(node))?;
    Some(stack.rsplit('.').next().unwrap_or(stack))
}

fn unknown_operators(nodes: &[NodeProto], opset: i64) -> Vec<UnsupportedOperator> {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    // What a rule could not translate has told so itself.
    let unknown = |node: &&NodeProto| node.domain == DOMAIN && !operators::is_known(&node.op_type);
    for node in nodes.iter().filter(unknown) {
        found.entry(&node.op_type).or_default().push(node.name.clone());
    }
    let operator = |(name, nodes): (&str, Vec<String>)| UnsupportedOperator {
        operator: format!("{}.{name}", DOMAIN),
        opset,
        known: None,
        nodes,
        advice: ADVICE,
    };
    found.into_iter().map(operator).collect()
}

// ---- inputs ----

fn interface(what: &'static str, name: &str, reason: impl Into<String>) -> ImportErrorKind {
    ImportErrorKind::Interface { what, name: name.to_owned(), reason: reason.into() }
}

/// What a tensor of the model's own is to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Parameter,
    Buffer { persistent: bool },
    Constant,
}

impl Held {
    /// As PyTorch's exporter to ONNX has it.
    fn as_str(self) -> &'static str {
        match self {
            Held::Parameter => "PARAMETER",
            Held::Buffer { .. } => "BUFFER",
            Held::Constant => "CONSTANT_TENSOR",
        }
    }

    fn is_persistent(self) -> bool {
        matches!(self, Held::Buffer { persistent: true })
    }
}

/// A tensor of the model's own: what it is called in the program, and its key.
struct Own<'p> {
    name: &'p str,
    key: &'p str,
    held: Held,
}

impl<'p> Own<'p> {
    /// Nothing for an input that whoever runs the model gives, and for one without a value.
    fn of(spec: &'p InputSpec) -> Result<Option<Self>> {
        let (arg, key, held) = match spec {
            InputSpec::Parameter { arg, parameter_name } => (arg, parameter_name, Held::Parameter),
            InputSpec::Buffer { arg, buffer_name, persistent } => {
                (arg, buffer_name, Held::Buffer { persistent: *persistent })
            }
            InputSpec::TensorConstant { arg, tensor_constant_name } => {
                (arg, tensor_constant_name, Held::Constant)
            }
            // Tokens only say in which order effects are had, which have rules of their own.
            InputSpec::UserInput { .. } | InputSpec::ConstantInput { .. } | InputSpec::Token {} => {
                return Ok(None);
            }
            InputSpec::CustomObj { custom_obj_name } => {
                return Err(interface("input", custom_obj_name, "is an object that is no tensor"));
            }
        };
        Ok(Some(Self { name: &arg.name, key, held }))
    }

    fn tensor<'a>(&self, archive: &'a ExportedProgram) -> Result<ProgramTensor<'a>> {
        let tensor = match self.held {
            Held::Parameter | Held::Buffer { persistent: true } => archive.weight(self.key),
            Held::Buffer { persistent: false } | Held::Constant => archive.constant(self.key),
        };
        tensor.map_err(|error| ImportErrorKind::Tensor {
            tensor: self.key.to_owned(),
            reason: error.to_string(),
        })
    }
}

fn inputs<'p>(
    program: &'p Program,
    archive: &ExportedProgram,
    size: usize,
    to: &mut Translation<'p>,
    made: &mut GraphProto,
) -> ImportResult<()> {
    let specs = &program.graph_module.signature.input_specs;
    // The model's own first, which keep their names.
    own_tensors(specs, archive, size, to, made)?;
    Ok(user_inputs(specs, to, made)?)
}

/// Makes initializers of the tensors of the model's own.
fn own_tensors<'p>(
    specs: &'p [InputSpec],
    archive: &ExportedProgram,
    size: usize,
    to: &mut Translation<'p>,
    made: &mut GraphProto,
) -> Result<()> {
    let mut targets = Vec::new();
    // Views may hold the elements of a storage any number of times.
    let mut left = size.saturating_mul(4).saturating_add(1 << 28);
    let mut tied: HashMap<Place, String> = HashMap::new();
    for spec in specs {
        let Some(own) = Own::of(spec)? else { continue };
        let (tensor, complex) = match own.tensor(archive)? {
            ProgramTensor::Real(tensor) => (tensor, false),
            ProgramTensor::Complex(pairs) => (pairs, true),
        };
        let is_parameter = own.held == Held::Parameter;
        if is_parameter {
            targets.push(own.key);
        }
        left = left
            .checked_sub(tensor.num_bytes())
            .ok_or(ImportErrorKind::Disproportionate { what: "the elements of its tensors" })?;
        let place = Place::of(tensor);
        to.keep(own.name, own.key);
        if let Some(first) = tied.get(&place).filter(|_| is_parameter) {
            bind_held(own.name, first, complex, to)?;
            continue;
        }
        let initializer = to.unique(own.key);
        if is_parameter {
            tied.insert(place, initializer.clone());
        }
        made.initializer.push(contents(&initializer, tensor)?);
        let frozen = is_parameter && to.meta(own.name).is_some_and(|meta| meta.requires_grad == Some(false));
        made.value_info.push(told(&initializer, own.held, frozen));
        bind_held(own.name, &initializer, complex, to)?;
    }
    // As PyTorch's exporter to ONNX tells it; names with quotation marks are no names of Python.
    let plain = targets.into_iter().filter(|key| !key.contains(['\'', '\n']));
    let signature = plain.map(|key| format!("PARAMETER target='{key}'\n")).collect();
    made.metadata_props.push(entry("pkg.torch.export.ExportedProgram.graph_signature", signature));
    Ok(())
}

/// Makes inputs of those that whoever runs the model gives.
fn user_inputs<'p>(specs: &'p [InputSpec], to: &mut Translation<'p>, made: &mut GraphProto) -> Result<()> {
    let mut dims = Dims::default();
    let own = specs.iter().filter_map(|spec| Own::of(spec).ok().flatten());
    let mut given: HashSet<&str> = own.map(|own| own.name).collect();
    for spec in specs {
        let InputSpec::UserInput { arg } = spec else { continue };
        if let Argument::Tensor(Name { name }) | Argument::SymInt(SymInt::Name(name)) = arg
            && !given.insert(name)
        {
            return Err(ImportErrorKind::Duplicate(name.clone()));
        }
        match arg {
            Argument::Tensor(tensor) => {
                let meta =
                    to.meta(&tensor.name).ok_or_else(|| ImportErrorKind::Undefined(tensor.name.clone()))?;
                if to.is_described_complex(&tensor.name) {
                    let reason = "is complex; take the pairs that `torch.view_as_real` yields, and make complex numbers of them by \
                         `torch.view_as_complex`";
                    return Err(interface("input", &tensor.name, reason));
                }
                let name = to.unique(&tensor.name);
                let ty = dims.of(&name, meta);
                let ty = ty.map_err(|error| interface("input", &tensor.name, error.to_string()))?;
                made.input.push(info(name.clone(), ty));
                to.bind(&tensor.name, Output::Real(name))?;
            }
            Argument::SymInt(SymInt::Name(size)) => {
                let name = to.unique(size);
                made.input.push(info(name.clone(), tensor_type(DType::I64, Vec::new())));
                to.bind(size, Output::Real(name))?;
            }
            // What the program was made for.
            Argument::None(_)
            | Argument::Int(_)
            | Argument::Float(_)
            | Argument::Bool(_)
            | Argument::String(_)
            | Argument::Complex(_)
            | Argument::SymInt(SymInt::Int(_))
            | Argument::SymFloat(SymFloat::Float(_))
            | Argument::SymBool(SymBool::Bool(_))
            | Argument::ScalarType(_)
            | Argument::MemoryFormat(_)
            | Argument::Layout(_)
            | Argument::Device(_) => {}
            Argument::SymFloat(SymFloat::Name(name)) | Argument::SymBool(SymBool::Name(name)) => {
                let reason = "is a number that varies; give it as a tensor";
                return Err(interface("input", name, reason));
            }
            Argument::Tensors(_)
            | Argument::OptionalTensor(_)
            | Argument::OptionalTensors(_)
            | Argument::Ints(_)
            | Argument::Floats(_)
            | Argument::SymInts(_)
            | Argument::Graph(_)
            | Argument::Strings(_)
            | Argument::SymFloats(_)
            | Argument::SymBools(_)
            | Argument::Bools(_)
            | Argument::CustomObj(_)
            | Argument::Operator(_)
            | Argument::NestedTensors(_)
            | Argument::IntLists(_)
            | Argument::FloatLists(_)
            | Argument::Named(_) => {
                return Err(unsupported("an input that is neither a tensor nor a number"));
            }
        }
    }
    Ok(())
}

/// Binds a name to an initializer, of which complex numbers are the pairs.
fn bind_held<'p>(name: &'p str, initializer: &str, complex: bool, to: &mut Translation<'p>) -> Result<()> {
    if !complex {
        return to.bind(name, Output::Real(initializer.to_owned()));
    }
    let rank = to.described_part(name)?.rank();
    let names = translation::part_names(name).map(|name| to.unique(&name));
    let parts = to.split_pairs(initializer, rank, names);
    to.bind(name, Output::Complex(parts))
}

fn entry(key: &str, value: String) -> StringStringEntryProto {
    StringStringEntryProto { key: key.to_owned(), value }
}

/// What PyTorch's exporter to ONNX tells of an initializer, and whether it is a parameter without gradients.
fn told(name: &str, held: Held, frozen: bool) -> ValueInfoProto {
    let persistent = if held.is_persistent() { "True" } else { "False" };
    let mut metadata_props = vec![
        entry("pkg.torch.export.graph_signature.InputSpec.kind", held.as_str().to_owned()),
        entry("pkg.torch.export.graph_signature.InputSpec.persistent", persistent.to_owned()),
    ];
    metadata_props.extend(frozen.then(|| entry(crate::onnx::REQUIRES_GRAD, "False".to_owned())));
    ValueInfoProto { name: name.to_owned(), metadata_props, ..ValueInfoProto::default() }
}

/// Where a tensor lies, and as what: parameters of one place are one.
#[derive(PartialEq, Eq, Hash)]
struct Place {
    storage: usize,
    stored: Stored,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl Place {
    fn of(tensor: &LazyTensor) -> Self {
        Self {
            storage: std::sync::Arc::as_ptr(tensor.storage()).addr(),
            stored: tensor.stored(),
            offset: tensor.offset(),
            shape: tensor.shape().to_vec(),
            strides: tensor.strides().to_vec(),
        }
    }
}

fn contents(name: &str, tensor: &LazyTensor) -> Result<TensorProto> {
    let broken = |reason: String| ImportErrorKind::Tensor { tensor: name.to_owned(), reason };
    let data = tensor.data().map_err(|error| broken(error.to_string()))?;
    let dims = data.shape.iter().map(|&dim| i64::try_from(dim)).collect::<std::result::Result<_, _>>();
    Ok(TensorProto {
        dims: dims.map_err(|_| broken("is too large".to_owned()))?,
        data_type: dtype::data_type(data.dtype),
        name: name.to_owned(),
        raw_data: bytes::Bytes::from_owner(data.bytes),
        ..TensorProto::default()
    })
}

/// Names for dims of the inputs: those of PyTorch's symbols mean nothing.
#[derive(Default)]
struct Dims<'p> {
    names: HashMap<&'p str, String>,
}

impl<'p> Dims<'p> {
    fn of(&mut self, input: &str, meta: &'p TensorMeta) -> Result<TypeProto> {
        let dtype = dtype::of_scalar_type(meta.dtype)?;
        let dim = |(axis, size): (usize, &'p Size)| DimensionProto {
            value: match size {
                Size::Int(size) => Some(DimensionValue::Value(*size)),
                // An expression of other sizes is a size of its own.
                Size::Expr { expr_str, .. } => symbol(expr_str).map(|symbol| {
                    let name = self.names.entry(symbol).or_insert_with(|| format!("{input}_dim_{axis}"));
                    DimensionValue::Param(name.clone())
                }),
            },
        };
        Ok(tensor_type(dtype, meta.sizes.iter().enumerate().map(dim).collect()))
    }
}

/// The symbol that an expression is, if it is one: `s77`, or `Symbol('s77', positive=True, integer=True)`.
fn symbol(expression: &str) -> Option<&str> {
    let name = match expression.strip_prefix("Symbol('") {
        Some(rest) => rest.split_once('\'')?.0,
        None => expression,
    };
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    plain.then_some(name)
}

fn tensor_type(dtype: DType, dim: Vec<DimensionProto>) -> TypeProto {
    let tensor =
        TensorTypeProto { elem_type: dtype::data_type(dtype), shape: Some(TensorShapeProto { dim }) };
    TypeProto { value: Some(TypeValue::Tensor(tensor)), ..TypeProto::default() }
}

fn info(name: String, ty: TypeProto) -> ValueInfoProto {
    ValueInfoProto { name, r#type: Some(ty), ..ValueInfoProto::default() }
}

/// Dims where they are numbers.
fn dims_of(sizes: &[Option<i64>]) -> Vec<DimensionProto> {
    sizes.iter().map(|size| DimensionProto { value: size.map(DimensionValue::Value) }).collect()
}

// ---- outputs ----

fn outputs<'p>(program: &'p Program, to: &mut Translation<'p>, made: &mut GraphProto) -> ImportResult<()> {
    let inputs = made.input.iter().map(|input| input.name.clone());
    let mut taken: HashSet<String> =
        inputs.chain(made.initializer.iter().map(|tensor| tensor.name.clone())).collect();
    let call = program.graph_module.module_call_graph.iter().find(|call| call.fqn.is_empty());
    let spec = call.and_then(|call| call.signature.as_ref()).map(|signature| signature.out_spec.as_str());
    let mut names = spec.map(results::names).unwrap_or_default();
    let specs = &program.graph_module.signature.output_specs;
    let user = specs.iter().filter(|spec| matches!(spec, OutputSpec::UserOutput { .. })).count();
    if names.len() != user {
        names = vec![None; user];
    }
    let mut names = names.into_iter();
    for (position, spec) in specs.iter().enumerate() {
        let changed = |what: &str, name: &str| {
            unsupported(format!(
                "changing {what} {}, which a model keeps as it is; in evaluation mode (`model.eval()`) most networks do not",
                quoted(name)
            ))
        };
        let arg = match spec {
            OutputSpec::UserOutput { arg } => arg,
            OutputSpec::BufferMutation { buffer_name } if to.is_moved_by_layers(buffer_name) => continue,
            OutputSpec::BufferMutation { buffer_name } => {
                return Err(changed("the buffer", buffer_name).into());
            }
            OutputSpec::ParameterMutation { parameter_name } => {
                return Err(changed("the parameter", parameter_name).into());
            }
            // Callers of a generated function keep their tensors, and have no effects to put into order.
            OutputSpec::UserInputMutation { .. } | OutputSpec::Token {} => continue,
            OutputSpec::LossOutput { .. }
            | OutputSpec::GradientToParameter { .. }
            | OutputSpec::GradientToUserInput { .. } => {
                return Err(unsupported(
                    "a program with its own backward pass; export the network's forward pass",
                )
                .into());
            }
        };
        let named = names.next().flatten();
        // What else there is is a number or `None`, which the program yields whatever it is given.
        if let Some(name) = translation::named(arg) {
            output(name, position, named, to, &mut taken, made)?;
        }
    }
    Ok(())
}

/// An output under the name that the network gave it, or the one that its value has.
fn output<'p>(
    name: &'p str,
    position: usize,
    named: Option<String>,
    to: &mut Translation<'p>,
    taken: &mut HashSet<String>,
    made: &mut GraphProto,
) -> ImportResult<()> {
    let Value::Tensor(value) = to.value(name)? else {
        let reason = "is complex; yield the pairs that `torch.view_as_real` makes of it";
        return Err(interface("output", name, reason).into());
    };
    let own = if value.name == name { name.to_owned() } else { format!("output_{position}") };
    let wanted = named.unwrap_or(own);
    let name = if value.name == wanted && taken.insert(wanted.clone()) {
        wanted
    } else {
        let copy = to.unique(&wanted);
        to.write("", "Identity", &[&value.name], vec![copy.clone()], Vec::new());
        copy
    };
    made.output.push(info(name, tensor_type(value.dtype, dims_of(&value.sizes))));
    Ok(())
}
