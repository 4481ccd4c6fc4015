//! NumPy's scalars and arrays: what training scripts put beside the weights, and now and then the weights themselves.
//!
//! An array is `_reconstruct(ndarray, (0,), b"b")` with a state (version, shape, dtype, whether columns come first,
//! bytes), or `_frombuffer(bytes, dtype, shape, order)`; a scalar is `scalar(dtype, bytes)`; a dtype is
//! `dtype("f8", …)` whose state has its byte order.

use super::machine::Machine;
use super::value::{ArraySpec, Node, Value};
use crate::tensor::check_view;
use crate::{Result, WeightsError};
use kiln_types::{Bytes, DType, TensorData};

/// The functions of NumPy that build data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Numpy {
    /// A dtype of its name.
    DType,
    /// An array, whose state follows.
    Reconstruct,
    /// An array of bytes, a dtype, a shape and an order.
    FromBuffer,
    /// A number of a dtype and bytes.
    Scalar,
}

/// A dtype of NumPy's: its kind and its size in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ArrayType {
    /// `f`, `i`, `u`, `b` for bools, `c` for complex numbers, `U` and `S` for texts, `O` for objects, ….
    kind: u8,
    size: usize,
    big_endian: bool,
}

impl ArrayType {
    /// From what `numpy.dtype` is called with: `f8`, `<i4`, `U5`.
    fn parse(name: &str) -> Option<Self> {
        let (big_endian, name) = match name.strip_prefix(['<', '>', '|', '=']) {
            Some(rest) => (name.starts_with('>'), rest),
            None => (false, name),
        };
        let (kind, size) = name.split_at_checked(1)?;
        let size = if size.is_empty() { 0 } else { size.parse().ok()? };
        Some(Self { kind: *kind.as_bytes().first()?, size, big_endian })
    }

    /// The dtype that a tensor of such numbers has.
    fn dtype(self) -> Option<DType> {
        Some(match (self.kind, self.size) {
            (b'f', 8) => DType::F64,
            (b'f', 4) => DType::F32,
            (b'f', 2) => DType::F16,
            (b'i', 8) => DType::I64,
            (b'i', 4) => DType::I32,
            (b'i', 2) => DType::I16,
            (b'i', 1) => DType::I8,
            (b'u', 8) => DType::U64,
            (b'u', 4) => DType::U32,
            (b'u', 2) => DType::U16,
            (b'u', 1) => DType::U8,
            (b'b', 1) => DType::Bool,
            _ => return None,
        })
    }
}

impl Machine<'_> {
    /// Calls a function of NumPy's.
    pub(super) fn numpy(&mut self, function: Numpy, arguments: &[Value]) -> Result<Value> {
        let fail = || WeightsError::pickle("a NumPy object is built of other arguments than NumPy's own");
        match (function, arguments) {
            (Numpy::DType, [name, ..]) => {
                let name = self.arena.text(*name).ok_or_else(fail)?;
                let kind = ArrayType::parse(name).ok_or_else(fail)?;
                self.arena.add(Node::ArrayType(kind))
            }
            (Numpy::Reconstruct, _) => self.arena.add(Node::Array(None)),
            (Numpy::FromBuffer, [bytes, kind, shape, order]) => {
                let columns_first = self.arena.text(*order) == Some("F");
                let array = self.array(*shape, *kind, columns_first, *bytes)?;
                self.arena.add(array)
            }
            (Numpy::Scalar, [kind, bytes]) => {
                let Some(Node::ArrayType(kind)) = self.arena.node(*kind) else { return Err(fail()) };
                let cost = match self.arena.node(*bytes) {
                    Some(Node::Bytes(bytes)) => bytes.len() / 16,
                    _ => 0,
                };
                let kind = *kind;
                // Before they are read: many scalars may share them.
                self.arena.spend(cost)?;
                match self.arena.node(*bytes) {
                    Some(Node::Bytes(bytes)) => match scalar(kind, bytes).ok_or_else(fail)? {
                        Scalar::Number(value) => Ok(value),
                        Scalar::Text(text) => self.arena.add_text(text),
                    },
                    // An object, which is what it is without NumPy too.
                    _ => Ok(*bytes),
                }
            }
            _ => Err(fail()),
        }
    }

    /// The state of a dtype: version, byte order, and what only dtypes of several fields have.
    pub(super) fn array_type_state(&self, kind: ArrayType, state: Value) -> Result<ArrayType> {
        let order = self.arena.tuple(state).and_then(|fields| fields.get(1)).copied();
        let order = order.and_then(|order| self.arena.text(order));
        let order =
            order.ok_or_else(|| WeightsError::pickle("the state of a NumPy dtype has no byte order"))?;
        Ok(ArrayType { big_endian: order == ">", ..kind })
    }

    /// The state of an array.
    pub(super) fn array_state(&mut self, state: Value) -> Result<Node> {
        match self.arena.tuple(state) {
            Some([_version, shape, kind, Value::Bool(columns_first), content]) => {
                let (shape, kind, columns_first, content) = (*shape, *kind, *columns_first, *content);
                self.array(shape, kind, columns_first, content)
            }
            _ => Err(WeightsError::pickle("the state of a NumPy array has not its five parts")),
        }
    }

    /// An array of a shape and a dtype over bytes. One of objects or texts is there, but no tensor.
    fn array(&mut self, shape: Value, kind: Value, columns_first: bool, content: Value) -> Result<Node> {
        let Some(Node::ArrayType(kind)) = self.arena.node(kind) else {
            return Err(WeightsError::tensor("a NumPy array has no dtype"));
        };
        let kind = *kind;
        let Some(dtype) = kind.dtype() else {
            let complex = kind.kind == b'c';
            return Ok(if complex {
                Node::Refused("a NumPy array of complex numbers".into())
            } else {
                Node::Array(None)
            });
        };
        let shape = self.sizes(shape)?;
        let Some(Node::Bytes(bytes)) = self.arena.node(content) else {
            return Err(WeightsError::tensor(format!(
                "a NumPy array is made of {}",
                self.arena.kind(content)
            )));
        };
        let mut strides = vec![1_usize; shape.len()];
        let mut step = 1_usize;
        for at in 0..shape.len() {
            let at = if columns_first { at } else { shape.len() - 1 - at };
            if let (Some(stride), Some(dim)) = (strides.get_mut(at), shape.get(at)) {
                *stride = step;
                step = step.saturating_mul((*dim).max(1));
            }
        }
        check_view(&shape, &strides, 0, bytes.len() / dtype.size())?;
        self.arena.spend(2 * shape.len())?;
        let big_endian = kind.big_endian;
        Ok(Node::Array(Some(Box::new(ArraySpec { dtype, shape, strides, big_endian, bytes: content }))))
    }
}

/// A scalar's value.
enum Scalar {
    Number(Value),
    Text(String),
}

/// The value of a scalar of a dtype; `None` when the bytes do not fit.
fn scalar(kind: ArrayType, bytes: &[u8]) -> Option<Scalar> {
    let number = |value| Some(Scalar::Number(value));
    if kind.kind == b'U' {
        let (letters, _) = bytes.as_chunks::<4>();
        let code = |letter: &[u8; 4]| {
            if kind.big_endian { u32::from_be_bytes(*letter) } else { u32::from_le_bytes(*letter) }
        };
        let text = letters.iter().map(|letter| char::from_u32(code(letter)));
        return Some(Scalar::Text(text.collect::<Option<String>>()?.trim_end_matches('\0').to_owned()));
    }
    let Some(dtype) = kind.dtype() else { return number(Value::None) };
    if bytes.len() != dtype.size() {
        return None;
    }
    let mut little = bytes.to_vec();
    if kind.big_endian {
        little.reverse();
    }
    let mut wide = [0_u8; 8];
    wide.iter_mut().zip(&little).for_each(|(wide, byte)| *wide = *byte);
    let bits = u64::from_le_bytes(wide);
    match dtype {
        DType::F64 => number(Value::Float(f64::from_bits(bits))),
        DType::F32 => number(Value::Float(f32::from_bits(bits as u32).into())),
        DType::F16 => {
            let data = TensorData::from_bytes(Bytes::from_vec(little), vec![1], DType::F16).ok()?;
            let wide = data.convert_dtype(DType::F64);
            number(Value::Float(f64::from_ne_bytes(*wide.bytes.first_chunk()?)))
        }
        DType::Bool => number(Value::Bool(bits != 0)),
        DType::I64 => number(Value::Int(bits as i64)),
        DType::I32 => number(Value::Int((bits as i32).into())),
        DType::I16 => number(Value::Int((bits as i16).into())),
        DType::I8 => number(Value::Int((bits as i8).into())),
        _ => match i64::try_from(bits) {
            Ok(value) => number(Value::Int(value)),
            Err(_) => number(Value::Float(bits as f64)),
        },
    }
}
