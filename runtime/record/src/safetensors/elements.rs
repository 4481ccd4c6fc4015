//! What a header calls the elements of tensors.

use crate::Stored;
use alloc::{format, string::String, vec::Vec};
use kiln_types::{DType, Minifloat};

/// What a header says of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elements {
    /// What a tensor holds.
    Stored(Stored),
    /// What no tensor holds.
    Unsupported(&'static Unsupported),
}

/// Elements that the format has, and no tensor.
#[derive(Debug, PartialEq, Eq)]
pub struct Unsupported {
    name: &'static str,
    bits: usize,
    what: &'static str,
}

/// All of them (`Dtype` of the reference implementation).
const UNSUPPORTED: [Unsupported; 4] = [
    Unsupported { name: "F4", bits: 4, what: "floats of 4 bits" },
    Unsupported { name: "F6_E2M3", bits: 6, what: "floats of 6 bits" },
    Unsupported { name: "F6_E3M2", bits: 6, what: "floats of 6 bits" },
    Unsupported { name: "C64", bits: 64, what: "complex numbers" },
];

/// The format's floats of eight bits.
const MINIFLOATS: [(&str, Minifloat); 5] = [
    ("F8_E4M3", Minifloat::E4M3Fn),
    ("F8_E4M3FNUZ", Minifloat::E4M3Fnuz),
    ("F8_E5M2", Minifloat::E5M2),
    ("F8_E5M2FNUZ", Minifloat::E5M2Fnuz),
    ("F8_E8M0", Minifloat::E8M0Fnu),
];

impl Elements {
    /// Those of a name in a header; else what is to be said about the name.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        if let Some((_, format)) = MINIFLOATS.into_iter().find(|(known, _)| *known == name) {
            return Ok(Elements::Stored(Stored::Minifloat(format)));
        }
        if let Some(unsupported) = UNSUPPORTED.iter().find(|unsupported| unsupported.name == name) {
            return Ok(Elements::Unsupported(unsupported));
        }
        match parse_dtype_name(name)? {
            dtype if dtype.is_packed() => Err(format!("{name} is no dtype of the format")),
            dtype => Ok(Elements::Stored(Stored::DType(dtype))),
        }
    }

    /// Bytes of a tensor of a shape in the file. `None` when they are no whole number, or more than memory can have.
    pub(super) fn bytes_of(self, shape: &[usize]) -> Option<usize> {
        match self {
            Elements::Stored(Stored::DType(dtype)) => dtype.bytes_of(shape),
            Elements::Stored(Stored::Minifloat(_)) => DType::U8.bytes_of(shape),
            Elements::Unsupported(Unsupported { bits, .. }) => {
                let bits = DType::U8.bytes_of(shape)?.checked_mul(*bits)?;
                bits.is_multiple_of(8).then_some(bits / 8)
            }
        }
    }

    /// The name in a header.
    pub fn name(self) -> &'static str {
        match self {
            Elements::Stored(Stored::DType(dtype)) => dtype_name(dtype),
            Elements::Stored(Stored::Minifloat(format)) => {
                MINIFLOATS.iter().find(|(_, known)| *known == format).map_or(format.name(), |(name, _)| name)
            }
            Elements::Unsupported(Unsupported { name, .. }) => name,
        }
    }
}

impl core::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} ({})", self.what, self.name)
    }
}

/// The name of a dtype in a header.
pub fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "F64",
        DType::F32 => "F32",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        DType::I64 => "I64",
        DType::I32 => "I32",
        DType::I16 => "I16",
        DType::I8 => "I8",
        DType::U64 => "U64",
        DType::U32 => "U32",
        DType::U16 => "U16",
        DType::U8 => "U8",
        DType::I4 => "I4",
        DType::U4 => "U4",
        DType::Bool => "BOOL",
    }
}

/// The inverse of [`dtype_name`]; else what is to be said about the name.
pub(super) fn parse_dtype_name(name: &str) -> Result<DType, String> {
    DType::ALL.into_iter().find(|dtype| dtype_name(*dtype) == name).ok_or_else(|| {
        let stored = DType::ALL.into_iter().filter(|dtype| !dtype.is_packed());
        let known: Vec<_> = stored.map(dtype_name).collect();
        format!("dtype {name:?} is not one of {}", known.join(", "))
    })
}
