//! What names of a program stand for: tensors of real numbers, and of complex ones.

use super::call::{Result, Tensor, unsupported};
use crate::error::ImportErrorKind;
use kiln_types::DType;

/// A tensor of complex numbers, which a graph of ONNX has none of: its real and imaginary parts are two tensors.
#[derive(Clone, Debug)]
pub(super) struct Complex {
    pub parts: [String; 2],
    /// The dtype of each part.
    pub dtype: DType,
    pub sizes: Vec<Option<i64>>,
}

impl Complex {
    pub fn part(&self, part: Part) -> Tensor {
        let [real, imaginary] = &self.parts;
        let name = match part {
            Part::Real => real,
            Part::Imaginary => imaginary,
        };
        Tensor { name: name.clone(), dtype: self.dtype, sizes: self.sizes.clone() }
    }
}

/// What a rule for real numbers says of complex ones.
pub(super) fn not_real() -> ImportErrorKind {
    unsupported("complex numbers where an operator's rule takes real ones")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Real,
    Imaginary,
}

/// Arguments that stand for one part of complex numbers, each by its name.
pub(super) type Parts<'s> = &'s [(&'s str, Part)];

/// What a name of a program stands for.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Tensor(Tensor),
    Complex(Complex),
}

impl Value {
    /// A tensor of real numbers.
    pub fn real(self) -> Result<Tensor> {
        match self {
            Value::Tensor(tensor) => Ok(tensor),
            Value::Complex(_) => Err(not_real()),
        }
    }

    pub fn output(self) -> Output {
        match self {
            Value::Tensor(tensor) => Output::Real(tensor.name),
            Value::Complex(complex) => Output::Complex(complex.parts),
        }
    }
}

/// What stands for one result of any kind.
#[derive(Clone, Debug)]
pub(super) enum Output {
    Real(String),
    /// Real and imaginary parts.
    Complex([String; 2]),
}
