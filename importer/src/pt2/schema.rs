//! The text of an exported program: what of `torch/_export/serde/schema.py` (major version 8) means something to a compiler.

use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, HashMap};

/// The version of the schema that is read. Versions of one major number can be read by those who know it.
pub(super) const MAJOR: u64 = 8;

/// Longest name of a value, a call or an operator, each of which every operation that is made of a call bears. Those of PyTorch are made of the paths
/// of modules.
const MAX_NAME: usize = 1024;

/// A name that is not too long.
fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    if name.len() > MAX_NAME {
        let what = format!("a name of {} bytes, and the limit is {MAX_NAME}", name.len());
        return Err(serde::de::Error::custom(what));
    }
    Ok(name)
}

/// [`name`], where there is one.
fn optional_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    struct Bounded(#[serde(deserialize_with = "name")] String);
    Ok(Option::<Bounded>::deserialize(deserializer)?.map(|Bounded(name)| name))
}

#[derive(Deserialize)]
pub(super) struct Program {
    pub graph_module: GraphModule,
    #[serde(default)]
    pub torch_version: String,
    #[serde(default)]
    pub opset_version: BTreeMap<String, i64>,
}

/// What of a program is read before the rest: another version has another rest.
#[derive(Deserialize)]
pub(super) struct Versioned {
    pub schema_version: Version,
}

#[derive(Deserialize)]
pub(super) struct Version {
    pub major: u64,
    pub minor: u64,
}

#[derive(Deserialize)]
pub(super) struct GraphModule {
    pub graph: Graph,
    pub signature: Signature,
    #[serde(default)]
    pub module_call_graph: Vec<ModuleCall>,
}

/// How the network was called: the entry of the root, whose path is empty.
#[derive(Deserialize)]
pub(super) struct ModuleCall {
    pub fqn: String,
    pub signature: Option<ModuleCallSignature>,
}

#[derive(Deserialize)]
pub(super) struct ModuleCallSignature {
    pub out_spec: String,
}

#[derive(Deserialize)]
pub(super) struct Signature {
    pub input_specs: Vec<InputSpec>,
    pub output_specs: Vec<OutputSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum InputSpec {
    UserInput { arg: Argument },
    Parameter { arg: Name, parameter_name: String },
    Buffer { arg: Name, buffer_name: String, persistent: bool },
    TensorConstant { arg: Name, tensor_constant_name: String },
    CustomObj { custom_obj_name: String },
    Token {},
    ConstantInput {},
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OutputSpec {
    UserOutput { arg: Argument },
    LossOutput {},
    BufferMutation { buffer_name: String },
    ParameterMutation { parameter_name: String },
    GradientToParameter {},
    GradientToUserInput {},
    UserInputMutation {},
    Token {},
}

#[derive(Deserialize)]
pub(super) struct Graph {
    pub inputs: Vec<Argument>,
    pub outputs: Vec<Argument>,
    pub nodes: Vec<Node>,
    #[serde(default)]
    pub tensor_values: HashMap<String, TensorMeta>,
    #[serde(default)]
    pub sym_bool_values: HashMap<String, serde::de::IgnoredAny>,
    #[serde(default)]
    pub sym_float_values: HashMap<String, serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
pub(super) struct Node {
    #[serde(deserialize_with = "name")]
    pub target: String,
    pub inputs: Vec<NamedArgument>,
    pub outputs: Vec<Argument>,
    #[serde(default)]
    pub metadata: HashMap<String, String>,
    #[serde(default, deserialize_with = "optional_name")]
    pub name: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct NamedArgument {
    #[serde(deserialize_with = "name")]
    pub name: String,
    pub arg: Argument,
}

#[derive(Clone, Deserialize)]
pub(super) struct Name {
    #[serde(deserialize_with = "name")]
    pub name: String,
}

/// An argument or result; kinds that no operator here takes are read as such.
#[derive(Deserialize)]
pub(super) enum Argument {
    #[serde(rename = "as_none")]
    None(serde::de::IgnoredAny),
    #[serde(rename = "as_tensor")]
    Tensor(Name),
    #[serde(rename = "as_tensors")]
    Tensors(Vec<Name>),
    #[serde(rename = "as_optional_tensor")]
    OptionalTensor(OptionalTensor),
    #[serde(rename = "as_optional_tensors")]
    OptionalTensors(Vec<OptionalTensor>),
    #[serde(rename = "as_int")]
    Int(i64),
    #[serde(rename = "as_ints")]
    Ints(Vec<i64>),
    #[serde(rename = "as_float")]
    Float(Float),
    #[serde(rename = "as_floats")]
    Floats(Vec<Float>),
    #[serde(rename = "as_bool")]
    Bool(bool),
    #[serde(rename = "as_string")]
    String(String),
    #[serde(rename = "as_sym_int")]
    SymInt(SymInt),
    #[serde(rename = "as_sym_ints")]
    SymInts(Vec<SymInt>),
    #[serde(rename = "as_sym_float")]
    SymFloat(SymFloat),
    #[serde(rename = "as_sym_bool")]
    SymBool(SymBool),
    #[serde(rename = "as_scalar_type")]
    ScalarType(serde::de::IgnoredAny),
    #[serde(rename = "as_graph")]
    Graph(SubGraph),
    #[serde(rename = "as_complex")]
    Complex(Complex),
    #[serde(rename = "as_operator")]
    Operator(String),
    // Known, and not looked into.
    #[serde(rename = "as_strings")]
    Strings(serde::de::IgnoredAny),
    #[serde(rename = "as_sym_floats")]
    SymFloats(serde::de::IgnoredAny),
    #[serde(rename = "as_sym_bools")]
    SymBools(serde::de::IgnoredAny),
    #[serde(rename = "as_memory_format")]
    MemoryFormat(serde::de::IgnoredAny),
    #[serde(rename = "as_layout")]
    Layout(serde::de::IgnoredAny),
    #[serde(rename = "as_device")]
    Device(serde::de::IgnoredAny),
    #[serde(rename = "as_bools")]
    Bools(serde::de::IgnoredAny),
    #[serde(rename = "as_custom_obj")]
    CustomObj(serde::de::IgnoredAny),
    #[serde(rename = "as_nested_tensors")]
    NestedTensors(serde::de::IgnoredAny),
    #[serde(rename = "as_int_lists")]
    IntLists(serde::de::IgnoredAny),
    #[serde(rename = "as_float_lists")]
    FloatLists(serde::de::IgnoredAny),
    #[serde(rename = "as_string_to_argument")]
    Named(serde::de::IgnoredAny),
}

impl Argument {
    /// Whether it stands for an argument that is not given.
    pub fn is_none(&self) -> bool {
        matches!(self, Argument::None(_) | Argument::OptionalTensor(OptionalTensor::None(_)))
    }
}

#[derive(Deserialize)]
pub(super) enum OptionalTensor {
    #[serde(rename = "as_tensor")]
    Tensor(Name),
    #[serde(rename = "as_none")]
    None(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
pub(super) enum SymInt {
    #[serde(rename = "as_name", deserialize_with = "name")]
    Name(String),
    #[serde(rename = "as_int")]
    Int(i64),
}

#[derive(Deserialize)]
pub(super) enum SymFloat {
    #[serde(rename = "as_name", deserialize_with = "name")]
    Name(String),
    #[serde(rename = "as_float")]
    Float(Float),
}

#[derive(Deserialize)]
pub(super) enum SymBool {
    #[serde(rename = "as_name", deserialize_with = "name")]
    Name(String),
    #[serde(rename = "as_bool")]
    Bool(bool),
}

#[derive(Deserialize)]
pub(super) struct Complex {
    pub real: Float,
    pub imag: Float,
}

#[derive(Deserialize)]
pub(super) struct SubGraph {
    pub graph: Box<Graph>,
}

/// A float; those that JSON does not have are texts.
#[derive(Clone, Copy)]
pub(super) struct Float(pub f64);

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(number) => Ok(Self(number)),
            Written::Text(text) => match text.as_str() {
                "Infinity" => Ok(Self(f64::INFINITY)),
                "-Infinity" => Ok(Self(f64::NEG_INFINITY)),
                "NaN" => Ok(Self(f64::NAN)),
                _ => Err(serde::de::Error::custom("a text that is no float")),
            },
        }
    }
}

#[derive(Clone, Deserialize)]
pub(super) struct TensorMeta {
    pub dtype: u32,
    pub sizes: Vec<Size>,
    #[serde(default)]
    pub requires_grad: Option<bool>,
    #[serde(default)]
    pub strides: Vec<Size>,
    #[serde(default)]
    pub storage_offset: Size,
}

/// A size: a number, or an expression of sizes of the inputs.
#[derive(Clone, Deserialize)]
pub(super) enum Size {
    #[serde(rename = "as_int")]
    Int(i64),
    #[serde(rename = "as_expr")]
    Expr {
        expr_str: String,
        #[serde(default)]
        hint: Option<Hint>,
    },
}

/// What an expression was when the program was made.
#[derive(Clone, Deserialize)]
pub(super) struct Hint {
    #[serde(default)]
    pub as_int: Option<i64>,
}

impl Default for Size {
    fn default() -> Self {
        Size::Int(0)
    }
}

impl Size {
    /// The number that it is.
    pub fn known(&self) -> Option<i64> {
        match self {
            Size::Int(size) => Some(*size),
            Size::Expr { .. } => None,
        }
    }

    /// What it was when the program was made.
    pub fn hint(&self) -> Option<i64> {
        match self {
            Size::Int(size) => Some(*size),
            Size::Expr { hint, .. } => hint.as_ref().and_then(|hint| hint.as_int),
        }
    }
}
