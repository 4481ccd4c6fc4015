//! What files keep of tensors' elements.

use alloc::vec::Vec;
use kiln_types::{Bytes, DType, Minifloat};

/// What a file keeps of each element of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stored {
    /// The element itself, of a dtype.
    DType(DType),
    /// A float of eight bits, which tensors hold in 16.
    Minifloat(Minifloat),
}

impl Stored {
    /// The dtype of a tensor that holds it.
    pub const fn dtype(self) -> DType {
        match self {
            Stored::DType(dtype) => dtype,
            Stored::Minifloat(format) => format.dtype(),
        }
    }

    /// Bytes of an element in the file.
    pub const fn size(self) -> usize {
        match self {
            Stored::DType(dtype) => dtype.size(),
            Stored::Minifloat(_) => 1,
        }
    }

    /// The name used in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Stored::DType(dtype) => dtype.name(),
            Stored::Minifloat(format) => format.name(),
        }
    }

    /// The file's bytes, which a tensor of [`dtype`](Self::dtype) has as they are, or widened.
    pub fn widened(self, bytes: Bytes) -> Bytes {
        match self {
            Stored::DType(_) => bytes,
            Stored::Minifloat(format) => {
                let values = format.widened();
                let wide: Vec<u16> = bytes
                    .iter()
                    .map(|bits| values.get(usize::from(*bits)).copied().unwrap_or_default())
                    .collect();
                bytes.release();
                Bytes::from_elements(wide)
            }
        }
    }
}

impl From<DType> for Stored {
    fn from(dtype: DType) -> Self {
        Stored::DType(dtype)
    }
}
