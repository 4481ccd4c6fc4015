//! A tensor's contents away from any backend.

use crate::{Bytes, DType, Element, Shape};
use alloc::{string::String, vec::Vec};

/// Contents of a tensor: bytes in native order (little-endian on every supported machine), row-major, with shape and
/// dtype.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorData {
    /// The elements, `dtype.size()` bytes each.
    pub bytes: Bytes,
    /// The dims, outermost first.
    pub shape: Vec<usize>,
    /// The element type.
    pub dtype: DType,
}

/// What can be wrong with a request on [`TensorData`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataError {
    /// The data has another dtype.
    #[error("data of dtype {actual} was read as {requested}")]
    DTypeMismatch {
        /// What was asked for.
        requested: DType,
        /// What it is.
        actual: DType,
    },
    /// The number of bytes does not fit shape and dtype.
    #[error("{shape:?} of {dtype} takes {expected} bytes, got {actual}")]
    SizeMismatch {
        /// The shape.
        shape: Vec<usize>,
        /// The dtype.
        dtype: DType,
        /// Bytes that shape and dtype need.
        expected: usize,
        /// Bytes there are.
        actual: usize,
    },
    /// The elements cannot be viewed in place.
    #[error("{0}")]
    NotViewable(String),
}

impl TensorData {
    /// Data from elements in row-major order.
    ///
    /// # Panics
    /// When the number of elements is not the product of the dims.
    pub fn new<E: Element, S: Into<Shape>>(elements: Vec<E>, shape: S) -> Self
    where
        E: bytemuck::NoUninit,
    {
        let shape = shape.into();
        assert_eq!(
            elements.len(),
            shape.num_elements(),
            "a tensor of shape {shape} cannot be made from {} elements",
            elements.len()
        );
        Self { bytes: Bytes::from_elements(elements), shape: shape.dims, dtype: E::DTYPE }
    }

    /// Data from raw bytes, checked against shape and dtype.
    pub fn from_bytes(bytes: Bytes, shape: Vec<usize>, dtype: DType) -> Result<Self, DataError> {
        let expected = shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d));
        match expected {
            Some(expected) if expected == bytes.len() => Ok(Self { bytes, shape, dtype }),
            _ => Err(DataError::SizeMismatch {
                expected: expected.unwrap_or(usize::MAX),
                actual: bytes.len(),
                shape,
                dtype,
            }),
        }
    }

    /// Number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }
}
