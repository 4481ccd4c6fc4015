//! The type of a value.

use super::Dim;
use kiln_types::DType;
use std::fmt;

/// Dtype and dims of a tensor value.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Dims, outermost first.
    pub dims: Vec<Dim>,
}

impl TensorType {
    /// A type from parts.
    pub fn new(dtype: DType, dims: impl IntoIterator<Item = impl Into<Dim>>) -> Self {
        Self { dtype, dims: dims.into_iter().map(Into::into).collect() }
    }

    /// Number of dims.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Number of elements.
    pub fn num_elements(&self) -> Dim {
        Dim::product(&self.dims)
    }

    /// The dims as numbers, when all are known.
    pub fn shape(&self) -> Option<Vec<usize>> {
        self.dims.iter().map(Dim::as_size).collect()
    }

    /// The same dims with another dtype.
    pub fn with_dtype(&self, dtype: DType) -> Self {
        Self { dtype, dims: self.dims.clone() }
    }

    /// The same dtype with other dims.
    pub fn with_dims(&self, dims: Vec<Dim>) -> Self {
        Self { dtype: self.dtype, dims }
    }
}

impl fmt::Display for TensorType {
    /// `f32[batch, 3, 224, 224]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, dim) in self.dims.iter().enumerate() {
            if i > 0 {
                write!(f, ", ")?;
            }
            write!(f, "{dim}")?;
        }
        write!(f, "]")
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
