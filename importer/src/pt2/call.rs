//! One call in a program: its arguments, and the nodes that stand for it.

use super::schema::{
    self, Argument, Name, Node, OptionalTensor, Size, SymBool, SymFloat, SymInt, TensorMeta,
};
use super::translation::Translation;
use super::value::{Part, Parts, Value, not_real};
use super::{defaults, dtype};
use crate::data::scalar_bytes;
use crate::error::ImportErrorKind;
use crate::ir::RuleError;
use crate::onnx::operator::KILN;
use crate::onnx::proto::{AttributeProto, GraphProto, TensorProto, attribute_type};
use bytes::Bytes;
use kiln_types::{DType, Scalar, quoted};
use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;

/// The names of what stands for a call's results, in order; what nobody computes is left out at the end.
pub(super) type Outputs = Vec<String>;

pub(super) type Result<T> = std::result::Result<T, ImportErrorKind>;

/// A tensor: the name of a value of the graph, and what the program says of it.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub name: String,
    pub dtype: DType,
    /// Its dims where they are numbers.
    pub sizes: Vec<Option<i64>>,
}

impl Tensor {
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// The axis that a dim counts, which may count from the end; a tensor without dims has one to name.
    pub fn axis(&self, dim: i64) -> Result<i64> {
        axis(dim, self.rank())
    }

    /// The size along an axis, if it is a number.
    pub fn size(&self, axis: i64) -> Option<i64> {
        usize::try_from(axis).ok().and_then(|axis| self.sizes.get(axis).copied().flatten())
    }
}

impl Deref for Tensor {
    type Target = str;

    fn deref(&self) -> &str {
        &self.name
    }
}

/// The axis that a dim counts in a tensor of a rank.
pub(super) fn axis(dim: i64, rank: usize) -> Result<i64> {
    let axes = i64::try_from(rank.max(1)).unwrap_or(i64::MAX);
    let axis = if dim < 0 { dim.saturating_add(axes) } else { dim };
    if (0..axes).contains(&axis) { Ok(axis) } else { Err(RuleError::Axis { axis: dim, rank }.into()) }
}

/// A size or an index: known, or a scalar of the graph.
#[derive(Clone, Debug)]
pub(super) enum Int {
    Known(i64),
    Value(String),
}

impl Int {
    /// Whether both are the same, as far as that is known.
    pub fn is(&self, other: &Int) -> bool {
        match (self, other) {
            (Int::Known(own), Int::Known(other)) => own == other,
            (Int::Value(own), Int::Value(other)) => own == other,
            (Int::Known(_), Int::Value(_)) | (Int::Value(_), Int::Known(_)) => false,
        }
    }
}

/// A number: known, or a scalar of the graph.
#[derive(Clone, Debug)]
pub(super) enum Number {
    Known(Scalar),
    Value(String, DType),
}

impl Number {
    /// The kind of number that it is.
    pub fn dtype(&self) -> DType {
        match self {
            Number::Known(Scalar::Bool(_)) => DType::Bool,
            Number::Known(Scalar::Int(_) | Scalar::UInt(_)) => DType::I64,
            Number::Known(Scalar::Float(_)) => DType::F32,
            Number::Value(_, dtype) => *dtype,
        }
    }

    /// The number as a float, if it is known.
    pub fn known(&self) -> Option<f64> {
        match self {
            Number::Known(scalar) => Some(scalar.to_f64()),
            Number::Value(..) => None,
        }
    }
}

// ---- attributes ----

fn attribute(name: &str, r#type: i32) -> AttributeProto {
    AttributeProto { name: name.to_owned(), r#type, ..AttributeProto::default() }
}

pub(super) fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { i, ..attribute(name, attribute_type::INT) }
}

pub(super) fn flag(name: &str, value: bool) -> AttributeProto {
    int(name, i64::from(value))
}

pub(super) fn float(name: &str, f: f64) -> AttributeProto {
    AttributeProto { f: f as f32, ..attribute(name, attribute_type::FLOAT) }
}

pub(super) fn ints(name: &str, ints: impl Into<Vec<i64>>) -> AttributeProto {
    AttributeProto { ints: ints.into(), ..attribute(name, attribute_type::INTS) }
}

pub(super) fn string(name: &str, text: &str) -> AttributeProto {
    AttributeProto { s: Bytes::copy_from_slice(text.as_bytes()), ..attribute(name, attribute_type::STRING) }
}

pub(super) fn strings<'t>(name: &str, texts: impl Iterator<Item = &'t str>) -> AttributeProto {
    let strings = texts.map(|text| Bytes::copy_from_slice(text.as_bytes())).collect();
    AttributeProto { strings, ..attribute(name, attribute_type::STRINGS) }
}

pub(super) fn graph(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(Box::new(graph)), ..attribute(name, attribute_type::GRAPH) }
}

/// Something valid that Kiln does not do.
pub(super) fn unsupported(what: impl Into<String>) -> ImportErrorKind {
    RuleError::Unsupported { what: what.into() }.into()
}

/// An argument with a value that its operator forbids.
pub(super) fn invalid(argument: &str, reason: impl Into<String>) -> ImportErrorKind {
    RuleError::Attribute { attribute: argument.to_owned(), reason: reason.into() }.into()
}

fn wrong_kind(argument: &str) -> ImportErrorKind {
    invalid(argument, "is of a kind that its operator does not take")
}

fn missing(input: &str) -> ImportErrorKind {
    RuleError::MissingInput { input: input.to_owned() }.into()
}

/// Most axes of a tensor, as in PyTorch.
pub(super) const MAX_RANK: usize = 64;

/// What the program says of the dims of a tensor, which may be as many as PyTorch allows.
pub(super) fn sizes(meta: &TensorMeta) -> Result<Vec<Option<i64>>> {
    if meta.sizes.len() > MAX_RANK {
        return Err(unsupported(format!("a tensor of rank {}", meta.sizes.len())));
    }
    let size = |size: &Size| match size {
        Size::Int(size) if *size < 0 => Err(invalid("sizes", format!("has {size}, which is no size"))),
        Size::Int(size) => Ok(Some(*size)),
        Size::Expr { .. } => Ok(None),
    };
    meta.sizes.iter().map(size).collect()
}

/// One call, and where its nodes are written.
pub(super) struct Call<'c, 'p> {
    pub(super) to: &'c mut Translation<'p>,
    pub(super) node: &'p Node,
    /// What a rule for real numbers sees of complex ones: of these arguments a part, and of others nothing. With some, the results
    /// are parts, too.
    parts: Option<Parts<'c>>,
    /// Which arguments somebody has looked at.
    read: Rc<[Cell<bool>]>,
}

impl<'c, 'p> Call<'c, 'p> {
    pub fn new(to: &'c mut Translation<'p>, node: &'p Node) -> Self {
        let read = node.inputs.iter().map(|_| Cell::new(false)).collect();
        Self { to, node, parts: None, read }
    }

    /// The same call, for a part of each of these arguments.
    pub fn of_parts<'s>(&'s mut self, parts: Parts<'s>) -> Call<'s, 'p> {
        Call { to: self.to, node: self.node, parts: Some(parts), read: Rc::clone(&self.read) }
    }
}

impl<'p> Call<'_, 'p> {
    // ---- complex numbers ----

    /// Whether an operand or a result is complex.
    pub fn is_complex(&self) -> bool {
        let operands = self.node.inputs.iter().any(|input| self.is_complex_argument(&input.arg));
        operands || self.yields_complex()
    }

    fn is_complex_argument(&self, argument: &Argument) -> bool {
        let holds = |name: &Name| self.to.holds_complex(&name.name);
        match argument {
            Argument::Tensor(tensor) | Argument::OptionalTensor(OptionalTensor::Tensor(tensor)) => {
                holds(tensor)
            }
            Argument::Tensors(list) => list.iter().any(holds),
            Argument::OptionalTensors(list) => {
                list.iter().any(|tensor| matches!(tensor, OptionalTensor::Tensor(tensor) if holds(tensor)))
            }
            Argument::Complex(number) => number.imag.0 != 0.0,
            _ => false,
        }
    }

    /// Whether an argument is complex.
    pub fn takes_complex(&self, name: &str) -> bool {
        self.argument(name).is_some_and(|argument| self.is_complex_argument(argument))
    }

    /// Whether a result is complex.
    pub fn yields_complex(&self) -> bool {
        self.to.results(self.node).any(|name| self.to.is_described_complex(name))
    }

    /// Whether an argument has a part that is not known to be 0.
    pub fn has_part(&mut self, name: &str, part: Part) -> Result<bool> {
        match (part, self.argument(name)) {
            (Part::Real, Some(Argument::Complex(number))) => Ok(number.real.0 != 0.0 || number.imag.0 == 0.0),
            (Part::Real, _) => Ok(true),
            (Part::Imaginary, _) if !self.takes_complex(name) => Ok(false),
            (Part::Imaginary, Some(Argument::Complex(_))) => Ok(true),
            (Part::Imaginary, _) => match self.value(name)? {
                Value::Tensor(_) => Ok(false),
                Value::Complex(complex) => Ok(!self.to.are_zeros(&complex.parts[1])),
            },
        }
    }

    /// A list of tensors of any kind.
    pub fn values(&mut self, name: &str) -> Result<Vec<Value>> {
        match self.argument(name) {
            Some(Argument::Tensors(list)) => list.iter().map(|tensor| self.to.value(&tensor.name)).collect(),
            _ => Ok(self.tensors(name)?.into_iter().map(Value::Tensor).collect()),
        }
    }

    /// The part of complex numbers that an argument stands for.
    fn part_of(&self, argument: &str) -> Option<Part> {
        let parts = self.parts?;
        parts.iter().find(|(name, _)| *name == argument).map(|(_, part)| *part)
    }

    /// What the program says of an argument that is a tensor.
    pub fn meta(&self, name: &str) -> Option<&'p TensorMeta> {
        match self.argument(name) {
            Some(Argument::Tensor(tensor)) => self.to.meta(&tensor.name),
            _ => None,
        }
    }

    /// The value of an argument, of any kind.
    pub fn value(&mut self, name: &str) -> Result<Value> {
        match self.argument(name) {
            Some(Argument::Tensor(tensor) | Argument::OptionalTensor(OptionalTensor::Tensor(tensor))) => {
                self.to.value(&tensor.name)
            }
            _ => self.tensor(name).map(Value::Tensor),
        }
    }

    /// A tensor of the program that an argument names, or the part of it that the argument stands for.
    fn read(&mut self, argument: &str, name: &str) -> Result<Tensor> {
        let value = self.to.value(name)?;
        match (value, self.part_of(argument)) {
            (Value::Complex(complex), Some(part)) => Ok(complex.part(part)),
            (Value::Tensor(tensor), Some(Part::Imaginary)) => Ok(self.zeros_like(tensor)),
            (value, _) => value.real(),
        }
    }

    /// Zeros in the shape of a tensor: the imaginary parts of real numbers.
    pub fn zeros_like(&mut self, tensor: Tensor) -> Tensor {
        let known: Option<Vec<i64>> = tensor.sizes.iter().copied().collect();
        let shape = match known {
            Some(known) => self.int64s(&known),
            None => self.shape(&tensor),
        };
        let name = self.filled(&shape, Scalar::Int(0), tensor.dtype);
        self.to.note_zeros(&name);
        Tensor { name, ..tensor }
    }

    /// A complex number, or the part of it that an argument stands for.
    fn complex_number(&self, argument: &str, number: &schema::Complex) -> Result<Number> {
        match self.part_of(argument) {
            Some(Part::Imaginary) => Ok(Number::Known(Scalar::Float(number.imag.0))),
            None if number.imag.0 != 0.0 => Err(not_real()),
            Some(Part::Real) | None => Ok(Number::Known(Scalar::Float(number.real.0))),
        }
    }

    fn described(&self, name: &str) -> Result<Tensor> {
        match self.parts {
            Some(_) => self.to.described_part(name),
            None => self.to.described(name),
        }
    }

    // ---- arguments, by the names of the operator's schema ----

    fn argument(&self, name: &str) -> Option<&'p Argument> {
        let given = |name: &str| self.node.inputs.iter().position(|input| input.name == name);
        // Operators that work in place call `self` what others call `input`.
        let place = given(name).or_else(|| if name == "input" { given("self") } else { None })?;
        self.read.get(place)?.set(true);
        self.node.inputs.get(place).map(|input| &input.arg).filter(|argument| !argument.is_none())
    }

    /// Says that arguments make no difference to what a rule writes.
    pub fn ignore(&self, names: &[&str]) {
        for name in names {
            let _ = self.argument(name);
        }
    }

    /// Says that a rule looks at arguments by their places, or at none.
    pub fn ignore_all(&self) {
        self.read.iter().for_each(|read| read.set(true));
    }

    /// An error when an argument was given that nothing looked at: it would be ignored silently.
    pub fn finish(&self) -> Result<()> {
        let unread = self.node.inputs.iter().zip(self.read.iter()).filter(|(_, read)| !read.get());
        match unread.map(|(input, _)| input).find(|input| !defaults::is_moot(&input.name, &input.arg)) {
            None => Ok(()),
            Some(input) => Err(unsupported(format!("the argument {} of this operator", quoted(&input.name)))),
        }
    }

    /// Whether an argument is given, and not `None`.
    pub fn has(&self, name: &str) -> bool {
        self.argument(name).is_some()
    }

    pub fn tensor(&mut self, name: &str) -> Result<Tensor> {
        self.optional_tensor(name)?.ok_or_else(|| missing(name))
    }

    pub fn optional_tensor(&mut self, name: &str) -> Result<Option<Tensor>> {
        match self.argument(name) {
            None => Ok(None),
            Some(Argument::Tensor(tensor) | Argument::OptionalTensor(OptionalTensor::Tensor(tensor))) => {
                self.read(name, &tensor.name).map(Some)
            }
            // A scalar where a schema has a tensor.
            Some(_) => {
                let number = self.number(name)?;
                let dtype = number.dtype();
                let name = self.number_value(&number, dtype)?;
                Ok(Some(Tensor { name, dtype, sizes: Vec::new() }))
            }
        }
    }

    pub fn tensors(&mut self, name: &str) -> Result<Vec<Tensor>> {
        let tensors = self.optional_tensors(name)?;
        tensors.into_iter().map(|tensor| tensor.ok_or_else(|| wrong_kind(name))).collect()
    }

    /// A list of tensors of which some may be absent.
    pub fn optional_tensors(&mut self, name: &str) -> Result<Vec<Option<Tensor>>> {
        match self.argument(name) {
            None => Err(missing(name)),
            Some(Argument::Tensors(list)) => {
                list.iter().map(|tensor| self.read(name, &tensor.name).map(Some)).collect()
            }
            Some(Argument::OptionalTensors(list)) => {
                let read = |tensor: &'p OptionalTensor| match tensor {
                    OptionalTensor::Tensor(tensor) => self.read(name, &tensor.name).map(Some),
                    OptionalTensor::None(_) => Ok(None),
                };
                list.iter().map(read).collect()
            }
            Some(_) => Err(wrong_kind(name)),
        }
    }

    /// A number that must be known.
    pub fn int(&mut self, name: &str) -> Result<i64> {
        match self.size(name)? {
            Int::Known(value) => Ok(value),
            Int::Value(_) => Err(RuleError::NotConstant { input: name.to_owned() }.into()),
        }
    }

    pub fn int_or(&mut self, name: &str, default: i64) -> Result<i64> {
        if self.has(name) { self.int(name) } else { Ok(default) }
    }

    pub fn optional_int(&mut self, name: &str) -> Result<Option<i64>> {
        if self.has(name) { self.int(name).map(Some) } else { Ok(None) }
    }

    /// A number that may be computed from sizes or data.
    pub fn size(&mut self, name: &str) -> Result<Int> {
        self.optional_size(name)?.ok_or_else(|| missing(name))
    }

    pub fn optional_size(&mut self, name: &str) -> Result<Option<Int>> {
        match self.argument(name) {
            None => Ok(None),
            Some(Argument::Int(value)) => Ok(Some(Int::Known(*value))),
            Some(Argument::Bool(value)) => Ok(Some(Int::Known(i64::from(*value)))),
            Some(Argument::SymInt(value)) => self.sym_int(value).map(Some),
            Some(_) => Err(wrong_kind(name)),
        }
    }

    pub fn size_or(&mut self, name: &str, default: i64) -> Result<Int> {
        Ok(self.optional_size(name)?.unwrap_or(Int::Known(default)))
    }

    fn sym_int(&mut self, value: &'p SymInt) -> Result<Int> {
        match value {
            SymInt::Int(value) => Ok(Int::Known(*value)),
            SymInt::Name(name) => self.to.read(name).map(|scalar| Int::Value(scalar.name)),
        }
    }

    /// Whether a number is known not to be negative.
    pub fn is_count(&self, name: &str) -> bool {
        match self.argument(name) {
            Some(Argument::Int(value) | Argument::SymInt(SymInt::Int(value))) => *value >= 0,
            Some(Argument::SymInt(SymInt::Name(name))) => self.to.is_count(name),
            _ => false,
        }
    }

    /// Notes that the result is not negative.
    pub fn yields_count(&mut self) {
        if let Some(name) = self.to.results(self.node).next() {
            self.to.note_count(name);
        }
    }

    /// A list of numbers, some of which may be computed. A number alone is a list of one.
    pub fn sizes(&mut self, name: &str) -> Result<Vec<Int>> {
        match self.argument(name) {
            None => Err(missing(name)),
            Some(Argument::Ints(list)) => Ok(list.iter().map(|&value| Int::Known(value)).collect()),
            Some(Argument::SymInts(list)) => list.iter().map(|value| self.sym_int(value)).collect(),
            // An empty list says nothing of its kind.
            Some(Argument::Tensors(list)) if list.is_empty() => Ok(Vec::new()),
            Some(_) => self.size(name).map(|size| vec![size]),
        }
    }

    pub fn ints(&mut self, name: &str) -> Result<Vec<i64>> {
        let known = |size: Int| match size {
            Int::Known(value) => Ok(value),
            Int::Value(_) => Err(RuleError::NotConstant { input: name.to_owned() }.into()),
        };
        self.sizes(name)?.into_iter().map(known).collect()
    }

    pub fn ints_or(&mut self, name: &str, default: &[i64]) -> Result<Vec<i64>> {
        if self.has(name) { self.ints(name) } else { Ok(default.to_vec()) }
    }

    /// Numbers for each of some axes: one for all, or one each.
    pub fn spread(&mut self, name: &str, default: i64, axes: usize) -> Result<Vec<i64>> {
        let given = self.ints_or(name, &[default])?;
        match given.as_slice() {
            [only] => Ok(vec![*only; axes]),
            [] => Ok(vec![default; axes]),
            given if given.len() == axes => Ok(given.to_vec()),
            given => Err(invalid(name, format!("has {} numbers for {axes} axes", given.len()))),
        }
    }

    /// Axes of a tensor, each counted from its beginning; none when the argument is absent or empty.
    pub fn axes(&mut self, name: &str, of: &Tensor) -> Result<Vec<i64>> {
        self.ints_or(name, &[])?.into_iter().map(|dim| of.axis(dim)).collect()
    }

    /// One axis of a tensor.
    pub fn axis(&mut self, name: &str, default: i64, of: &Tensor) -> Result<i64> {
        let dim = self.int_or(name, default)?;
        of.axis(dim)
    }

    pub fn float(&mut self, name: &str) -> Result<f64> {
        let number = self.number(name)?;
        number.known().ok_or_else(|| RuleError::NotConstant { input: name.to_owned() }.into())
    }

    pub fn float_or(&mut self, name: &str, default: f64) -> Result<f64> {
        if self.has(name) { self.float(name) } else { Ok(default) }
    }

    pub fn floats_or(&mut self, name: &str, default: &[f64]) -> Result<Vec<f64>> {
        match self.argument(name) {
            None => Ok(default.to_vec()),
            Some(Argument::Floats(list)) => Ok(list.iter().map(|value| value.0).collect()),
            Some(Argument::Ints(list)) => Ok(list.iter().map(|&value| value as f64).collect()),
            Some(_) => self.float(name).map(|value| vec![value]),
        }
    }

    pub fn bool_or(&mut self, name: &str, default: bool) -> Result<bool> {
        match self.argument(name) {
            None => Ok(default),
            Some(Argument::Bool(value) | Argument::SymBool(SymBool::Bool(value))) => Ok(*value),
            Some(Argument::Int(value)) => Ok(*value != 0),
            Some(_) => Err(wrong_kind(name)),
        }
    }

    pub fn string_or(&self, name: &str, default: &'p str) -> Result<&'p str> {
        match self.argument(name) {
            None => Ok(default),
            Some(Argument::String(text)) => Ok(text),
            Some(_) => Err(wrong_kind(name)),
        }
    }

    /// An argument that is a word where it may be a number too.
    pub fn text(&self, name: &str) -> Option<&'p str> {
        match self.argument(name) {
            Some(Argument::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The size of a tensor along an axis, known or computed.
    pub fn size_of(&mut self, tensor: &Tensor, axis: i64) -> Int {
        match tensor.size(axis) {
            Some(size) => Int::Known(size),
            None => {
                let size = self.size_at(tensor, axis);
                Int::Value(self.squeeze(&size, &[0]))
            }
        }
    }

    /// A size that an operator yields of two.
    pub fn size_op(&mut self, operator: &str, left: &Int, right: &Int) -> Int {
        match (operator, left, right) {
            ("Add", Int::Known(0), size) | ("Add" | "Sub", size, Int::Known(0)) => return size.clone(),
            ("Mul", Int::Known(1), size) | ("Mul" | "Div", size, Int::Known(1)) => return size.clone(),
            (_, Int::Known(left), Int::Known(right)) => {
                let known = match operator {
                    "Add" => left.checked_add(*right),
                    "Sub" => left.checked_sub(*right),
                    "Mul" => left.checked_mul(*right),
                    "Div" => left.checked_div(*right),
                    _ => None,
                };
                if let Some(known) = known {
                    return Int::Known(known);
                }
            }
            _ => {}
        }
        let (left, right) = (self.size_value(left), self.size_value(right));
        Int::Value(self.op(operator, &[&left, &right], Vec::new()))
    }

    /// A number of any kind.
    pub fn number(&mut self, name: &str) -> Result<Number> {
        let known = match self.argument(name) {
            None => return Err(missing(name)),
            Some(Argument::Complex(number)) => return self.complex_number(name, number),
            Some(Argument::Tensor(tensor)) => {
                let value = self.read(name, &tensor.name)?;
                return Ok(Number::Value(value.name, value.dtype));
            }
            // The imaginary part of a real number.
            Some(_) if self.part_of(name) == Some(Part::Imaginary) => Scalar::Int(0),
            Some(
                Argument::SymInt(SymInt::Name(name))
                | Argument::SymFloat(SymFloat::Name(name))
                | Argument::SymBool(SymBool::Name(name)),
            ) => {
                let value = self.to.read(name)?;
                return Ok(Number::Value(value.name, value.dtype));
            }
            Some(Argument::Int(value) | Argument::SymInt(SymInt::Int(value))) => Scalar::Int(*value),
            Some(Argument::Bool(value) | Argument::SymBool(SymBool::Bool(value))) => Scalar::Bool(*value),
            Some(Argument::Float(value) | Argument::SymFloat(SymFloat::Float(value))) => {
                Scalar::Float(value.0)
            }
            Some(_) => return Err(wrong_kind(name)),
        };
        Ok(Number::Known(known))
    }

    pub fn optional_number(&mut self, name: &str) -> Result<Option<Number>> {
        if self.has(name) { self.number(name).map(Some) } else { Ok(None) }
    }

    /// What the program says of a result that is a tensor: all results, those in lists among them, are counted.
    pub fn result(&self, position: usize) -> Result<Tensor> {
        let name = self.to.results(self.node).nth(position).ok_or_else(|| missing("output"))?;
        self.described(name)
    }

    /// What the program says of each result.
    pub fn results(&self) -> impl Iterator<Item = Result<Tensor>> {
        self.to.results(self.node).map(|name| self.described(name))
    }

    /// Whether anything reads a result: PyTorch names those that nothing does.
    pub fn is_used(&self, position: usize) -> bool {
        let name = self.to.results(self.node).nth(position);
        name.is_some_and(|name| !name.ends_with(&format!("_unused_{position}")))
    }

    /// The dtype of the first result.
    pub fn result_dtype(&self) -> Result<DType> {
        self.result(0).map(|result| result.dtype)
    }

    /// A tensor of floats in the dtype of the result, if that is one of floats: within `torch.autocast` operators take others than they compute in,
    /// and no casts stand in the program.
    pub fn as_result(&mut self, x: Tensor) -> Result<Tensor> {
        let dtype = self.result_dtype()?;
        if !(x.dtype.is_float() && dtype.is_float()) {
            return Ok(x);
        }
        Ok(Tensor { name: self.cast_tensor(&x, dtype), dtype, ..x })
    }

    /// The number of results, those in lists among them.
    pub fn result_count(&self) -> usize {
        self.to.results(self.node).count()
    }

    // ---- nodes ----

    /// Writes a node with one output.
    pub fn op(&mut self, operator: &str, inputs: &[&str], attributes: Vec<AttributeProto>) -> String {
        let output = self.to.fresh();
        self.to.write("", operator, inputs, vec![output.clone()], attributes);
        output
    }

    /// Writes a node of ONNX Runtime's domain.
    pub fn contrib(&mut self, operator: &str, inputs: &[&str], attributes: Vec<AttributeProto>) -> String {
        let output = self.to.fresh();
        self.to.write("com.microsoft", operator, inputs, vec![output.clone()], attributes);
        output
    }

    /// Writes a node of Kiln's own domain.
    pub fn kiln(&mut self, operator: &str, inputs: &[&str], attributes: Vec<AttributeProto>) -> String {
        let output = self.to.fresh();
        self.to.write(KILN, operator, inputs, vec![output.clone()], attributes);
        output
    }

    /// Writes a node with several outputs.
    pub fn ops(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
        outputs: usize,
    ) -> Vec<String> {
        self.written("", operator, inputs, attributes, outputs)
    }

    /// Writes a node of Kiln's own domain with several outputs.
    pub fn kiln_ops(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
        outputs: usize,
    ) -> Vec<String> {
        self.written(KILN, operator, inputs, attributes, outputs)
    }

    fn written(
        &mut self,
        domain: &str,
        operator: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
        outputs: usize,
    ) -> Vec<String> {
        let outputs: Vec<String> = (0..outputs).map(|_| self.to.fresh()).collect();
        self.to.write(domain, operator, inputs, outputs.clone(), attributes);
        outputs
    }

    fn constant(&mut self, dims: Vec<i64>, dtype: DType, raw: Vec<u8>) -> String {
        let data_type = dtype::data_type(dtype);
        let tensor = TensorProto { dims, data_type, raw_data: raw.into(), ..TensorProto::default() };
        let value =
            AttributeProto { t: Some(Box::new(tensor)), ..attribute("value", attribute_type::TENSOR) };
        self.op("Constant", &[], vec![value])
    }

    /// A constant without dims.
    pub fn scalar(&mut self, value: Scalar, dtype: DType) -> String {
        let raw = scalar_bytes(value, dtype);
        self.constant(Vec::new(), dtype, raw)
    }

    /// A float constant without dims.
    pub fn number_of(&mut self, value: f64, dtype: DType) -> String {
        self.scalar(Scalar::Float(value), dtype)
    }

    pub fn int64(&mut self, value: i64) -> String {
        self.scalar(Scalar::Int(value), DType::I64)
    }

    /// A list of integers.
    pub fn int64s(&mut self, values: &[i64]) -> String {
        let raw = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(vec![i64::try_from(values.len()).unwrap_or(i64::MAX)], DType::I64, raw)
    }

    /// A list of floats.
    pub fn floats(&mut self, values: &[f64], dtype: DType) -> String {
        let raw = values.iter().flat_map(|&value| scalar_bytes(Scalar::Float(value), dtype)).collect();
        self.constant(vec![i64::try_from(values.len()).unwrap_or(i64::MAX)], dtype, raw)
    }

    /// A tensor of a shape, which is a list, with one value everywhere.
    pub fn filled(&mut self, shape: &str, value: Scalar, dtype: DType) -> String {
        let (data_type, raw_data) = (dtype::data_type(dtype), scalar_bytes(value, dtype).into());
        let tensor = TensorProto { dims: vec![1], data_type, raw_data, ..TensorProto::default() };
        let value =
            AttributeProto { t: Some(Box::new(tensor)), ..attribute("value", attribute_type::TENSOR) };
        self.op("ConstantOfShape", &[shape], vec![value])
    }

    /// A size as a scalar.
    pub fn size_value(&mut self, size: &Int) -> String {
        match size {
            Int::Known(value) => self.int64(*value),
            Int::Value(name) => name.clone(),
        }
    }

    /// A size as a list of one.
    pub fn size_list(&mut self, size: &Int) -> String {
        self.sizes_value(std::slice::from_ref(size))
    }

    /// Sizes as a list.
    pub fn sizes_value(&mut self, sizes: &[Int]) -> String {
        let known: Option<Vec<i64>> = sizes
            .iter()
            .map(|size| match size {
                Int::Known(value) => Some(*value),
                Int::Value(_) => None,
            })
            .collect();
        if let Some(known) = known {
            return self.int64s(&known);
        }
        let mut parts = Vec::with_capacity(sizes.len());
        for size in sizes {
            parts.push(match size {
                Int::Known(value) => self.int64s(&[*value]),
                Int::Value(name) => {
                    let one = self.int64s(&[1]);
                    self.op("Reshape", &[name, &one], Vec::new())
                }
            });
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        if let [only] = parts.as_slice() {
            return (*only).to_owned();
        }
        self.op("Concat", &parts, vec![int("axis", 0)])
    }

    /// A number as a scalar of a dtype.
    pub fn number_value(&mut self, number: &Number, dtype: DType) -> Result<String> {
        match number {
            Number::Known(value) => Ok(self.scalar(*value, dtype)),
            Number::Value(name, from) => Ok(self.cast(name, *from, dtype)),
        }
    }

    /// An argument that is a number, as a scalar of a dtype.
    pub fn operand(&mut self, name: &str, dtype: DType) -> Result<String> {
        let number = self.number(name)?;
        self.number_value(&number, dtype)
    }

    pub fn cast(&mut self, value: &str, from: DType, to: DType) -> String {
        if from == to {
            return value.to_owned();
        }
        let cast = self.op("Cast", &[value], vec![int("to", i64::from(dtype::data_type(to)))]);
        if from.is_int() && to.is_float() {
            self.to.note_integers(&cast, value, from);
        }
        cast
    }

    /// The integers that a tensor of floats is known to be, and their dtype.
    pub fn integers(&self, tensor: &Tensor) -> Option<(String, DType)> {
        self.to.integers(tensor)
    }

    /// A tensor in another dtype.
    pub fn cast_tensor(&mut self, tensor: &Tensor, to: DType) -> String {
        self.cast(&tensor.name, tensor.dtype, to)
    }

    /// The shape of a value, as a list.
    pub fn shape(&mut self, value: &str) -> String {
        self.op("Shape", &[value], Vec::new())
    }

    /// The size along an axis, as a list of one.
    pub fn size_at(&mut self, value: &str, axis: i64) -> String {
        self.op("Shape", &[value], vec![int("start", axis), int("end", axis + 1)])
    }

    pub fn transpose(&mut self, value: &str, perm: &[i64]) -> String {
        if perm.iter().enumerate().all(|(at, &axis)| usize::try_from(axis) == Ok(at)) {
            return value.to_owned();
        }
        self.op("Transpose", &[value], vec![ints("perm", perm)])
    }

    pub fn unsqueeze(&mut self, value: &str, axes: &[i64]) -> String {
        if axes.is_empty() {
            return value.to_owned();
        }
        let axes = self.int64s(axes);
        self.op("Unsqueeze", &[value, &axes], Vec::new())
    }

    pub fn squeeze(&mut self, value: &str, axes: &[i64]) -> String {
        if axes.is_empty() {
            return value.to_owned();
        }
        let axes = self.int64s(axes);
        self.op("Squeeze", &[value, &axes], Vec::new())
    }

    /// From an index up to another along an axis.
    pub fn slice(&mut self, value: &str, axis: i64, [start, end]: [&Int; 2], step: i64) -> String {
        let (start, end) = (self.size_list(start), self.size_list(end));
        let axis = self.int64s(&[axis]);
        if step == 1 {
            return self.op("Slice", &[value, &start, &end, &axis], Vec::new());
        }
        let step = self.int64s(&[step]);
        self.op("Slice", &[value, &start, &end, &axis, &step], Vec::new())
    }
}
