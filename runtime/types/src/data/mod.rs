//! A tensor's contents away from any backend.

mod compare;
mod nested;

pub use compare::Tolerance;

use crate::{Bytes, DType, Distribution, Element, Scalar, Shape};
use alloc::{format, string::String, vec, vec::Vec};
use rand_core::RngCore;

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
    pub fn new<E: Element, S: Into<Shape>>(elements: Vec<E>, shape: S) -> Self {
        let shape = shape.into();
        assert_eq!(
            elements.len(),
            shape.num_elements(),
            "a tensor of shape {shape} cannot be made from {} elements",
            elements.len()
        );
        Self { bytes: Bytes::from_elements(elements), shape: shape.dims.into_vec(), dtype: E::DTYPE }
    }

    /// Data from raw bytes, checked against shape and dtype.
    pub fn from_bytes(bytes: Bytes, shape: Vec<usize>, dtype: DType) -> Result<Self, DataError> {
        let expected = dtype.bytes_of(&shape);
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

    /// Zeros (`false` for bool).
    pub fn zeros<E: Element, S: Into<Shape>>(shape: S) -> Self {
        Self::full(shape, E::default())
    }

    /// Ones (`true` for bool).
    pub fn ones<E: Element, S: Into<Shape>>(shape: S) -> Self {
        Self::full(shape, E::from_scalar(Scalar::Int(1)))
    }

    /// One value everywhere.
    pub fn full<E: Element, S: Into<Shape>>(shape: S, value: E) -> Self {
        let shape = shape.into();
        Self::new(vec![value; shape.num_elements()], shape)
    }

    /// One value everywhere, converted to `dtype`.
    pub fn full_dtype<E: Element, S: Into<Shape>>(shape: S, value: E, dtype: DType) -> Self {
        Self::full(shape, value).convert_dtype(dtype)
    }

    /// Random values.
    pub fn random<E: Element, R: RngCore, S: Into<Shape>>(
        shape: S,
        distribution: Distribution,
        rng: &mut R,
    ) -> Self {
        let shape = shape.into();
        let values = (0..shape.num_elements()).map(|_| E::from_scalar(distribution.sample(E::DTYPE, rng)));
        Self::new(values.collect(), shape)
    }

    /// Number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Number of dims.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The elements in place.
    ///
    /// # Errors
    /// When the data has another dtype, or its bytes are not aligned for it (a memory map's may not be).
    pub fn as_slice<E: Element>(&self) -> Result<&[E], DataError> {
        self.expect_dtype::<E>()?;
        bytemuck::checked::try_cast_slice(&self.bytes).map_err(|e| DataError::NotViewable(format!("{e}")))
    }

    /// The elements for writing; shared or borrowed bytes are copied first.
    ///
    /// # Errors
    /// When the data has another dtype.
    pub fn as_mut_slice<E: Element>(&mut self) -> Result<&mut [E], DataError> {
        self.expect_dtype::<E>()?;
        bytemuck::checked::try_cast_slice_mut(self.bytes.make_mut())
            .map_err(|e| DataError::NotViewable(format!("{e}")))
    }

    /// A copy of the elements.
    ///
    /// # Errors
    /// When the data has another dtype.
    pub fn to_vec<E: Element>(&self) -> Result<Vec<E>, DataError> {
        match self.as_slice::<E>() {
            Ok(elements) => Ok(elements.to_vec()),
            Err(DataError::NotViewable(_)) => self
                .bytes
                .chunks_exact(size_of::<E>())
                .map(|bytes| {
                    bytemuck::checked::try_pod_read_unaligned(bytes)
                        .map_err(|e| DataError::NotViewable(format!("{e}")))
                })
                .collect(),
            Err(error) => Err(error),
        }
    }

    /// The elements; data that was made from a vector gives that vector back, other data is copied.
    ///
    /// # Errors
    /// When the data has another dtype.
    pub fn into_vec<E: Element>(self) -> Result<Vec<E>, DataError> {
        self.expect_dtype::<E>()?;
        match self.bytes.try_into_elements::<E>() {
            Ok(elements) => Ok(elements),
            Err(bytes) => Self { bytes, ..self }.to_vec(),
        }
    }

    /// The bytes of the elements.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of the elements.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    fn expect_dtype<E: Element>(&self) -> Result<(), DataError> {
        if self.dtype == E::DTYPE {
            Ok(())
        } else {
            Err(DataError::DTypeMismatch { requested: E::DTYPE, actual: self.dtype })
        }
    }
}

/// All elements in row-major order: `[1.0, 2.0]`.
impl core::fmt::Display for TensorData {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut list = f.debug_list();
        if self.dtype == DType::F32 {
            // The shortest form of an f32 is not that of the f64 of equal value.
            list.entries(self.iter::<f32>());
        } else {
            for scalar in self.scalars() {
                match scalar {
                    Scalar::Float(x) => list.entry(&x),
                    Scalar::Int(x) => list.entry(&x),
                    Scalar::UInt(x) => list.entry(&x),
                    Scalar::Bool(x) => list.entry(&x),
                };
            }
        }
        list.finish()
    }
}

#[cfg(test)]
mod tests;
