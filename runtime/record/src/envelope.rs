//! What stands around a module's fields in a record file.

use crate::param_id::deserialize_text;
use alloc::string::{String, ToString};
use core::marker::PhantomData;
use kiln_types::{DType, DTypeKind};
use serde::{Deserialize, Serialize};

/// The version of Burn whose records Kiln writes.
pub const BURN_VERSION: &str = "0.20.1";

/// The precision in which a record is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// f32 and i32.
    #[default]
    Full,
    /// f16 and i16.
    Half,
    /// f64 and i64.
    Double,
}

impl Precision {
    /// The name of the settings type.
    pub fn settings(self) -> &'static str {
        match self {
            Precision::Full => "FullPrecisionSettings",
            Precision::Half => "HalfPrecisionSettings",
            Precision::Double => "DoublePrecisionSettings",
        }
    }

    /// The dtype in which elements of a dtype are stored.
    pub fn dtype(self, dtype: DType) -> DType {
        match (dtype.kind(), self) {
            (DTypeKind::Bool, _) => DType::Bool,
            (DTypeKind::Float, Precision::Full) => DType::F32,
            (DTypeKind::Float, Precision::Half) => DType::F16,
            (DTypeKind::Float, Precision::Double) => DType::F64,
            (DTypeKind::Int, Precision::Full) => DType::I32,
            (DTypeKind::Int, Precision::Half) => DType::I16,
            (DTypeKind::Int, Precision::Double) => DType::I64,
        }
    }

    /// The Rust types of floats and integers, as their names are recorded.
    pub fn element_names(self) -> (&'static str, &'static str) {
        match self {
            Precision::Full => ("f32", "i32"),
            Precision::Half => ("half::binary16::f16", "i16"),
            Precision::Double => ("f64", "i64"),
        }
    }
}

/// What a record says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// Name of the float type.
    #[serde(deserialize_with = "deserialize_text")]
    pub float: String,
    /// Name of the integer type.
    #[serde(deserialize_with = "deserialize_text")]
    pub int: String,
    /// The recorder's type.
    #[serde(deserialize_with = "deserialize_text")]
    pub format: String,
    /// The version of Burn's records that this is.
    #[serde(deserialize_with = "deserialize_text")]
    pub version: String,
    /// Name of the precision settings.
    #[serde(deserialize_with = "deserialize_text")]
    pub settings: String,
}

impl Metadata {
    /// The metadata of a recorder, `format` being the path of its type.
    pub fn new(format: String, precision: Precision) -> Self {
        let (float, int) = precision.element_names();
        Self {
            float: float.to_string(),
            int: int.to_string(),
            format,
            version: BURN_VERSION.to_string(),
            settings: precision.settings().to_string(),
        }
    }

    /// Whether the record was written by a version of Burn after the one Kiln follows.
    pub fn is_newer(&self) -> bool {
        let parts = |version: &str| -> [u64; 2] {
            let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
            [parts.next().unwrap_or(0), parts.next().unwrap_or(0)]
        };
        parts(&self.version) > parts(BURN_VERSION)
    }
}

/// A record as it is stored: metadata, then the module's fields.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Envelope<I> {
    /// What the record says of itself.
    pub metadata: Metadata,
    /// The fields.
    pub item: I,
    /// Burn has a marker here, which is empty but has a name.
    #[serde(default, rename = "_b")]
    pub marker: PhantomData<()>,
}

impl<I> Envelope<I> {
    /// Puts metadata around fields.
    pub fn new(metadata: Metadata, item: I) -> Self {
        Self { metadata, item, marker: PhantomData }
    }
}

/// The beginning of a record, to say what it is when the rest does not fit.
#[derive(Clone, Debug, Deserialize)]
pub struct EnvelopeHead {
    /// What the record says of itself.
    pub metadata: Metadata,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_are_seen() {
        let mut metadata = Metadata::new(String::new(), Precision::Full);
        for (version, newer) in
            [("0.20.1", false), ("0.20.9", false), ("0.9.0", false), ("0.21.0", true), ("1.0", true)]
        {
            metadata.version = version.to_string();
            assert_eq!(metadata.is_newer(), newer, "{version}");
        }
    }
}
