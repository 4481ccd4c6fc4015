//! Where a loader finds the parameters of a module.

use crate::tensor::{DType, TensorData};
use alloc::vec::Vec;
use kiln_record::safetensors::Safetensors;
use kiln_record::{NamedRecord, ParamId};

/// Parameters by path.
pub trait Parameters {
    /// Dtype and shape of a parameter as stored.
    fn entry(&self, path: &str) -> Option<(DType, &[usize])>;

    /// A parameter as stored.
    fn data(&self, path: &str) -> Option<TensorData>;

    /// The dtype that a parameter gets; `default` is the backend's for its kind.
    fn dtype(&self, path: &str, stored: DType, default: DType) -> DType;

    /// The id of a parameter, if ids are stored.
    fn id(&self, path: &str) -> Option<ParamId>;

    /// All paths, sorted.
    fn paths(&self) -> Vec<&str>;

    /// Whether the variants of enums are part of a path.
    fn has_variants(&self) -> bool;
}

impl Parameters for Safetensors {
    fn entry(&self, path: &str) -> Option<(DType, &[usize])> {
        let entry = Safetensors::entry(self, path)?;
        Some((entry.dtype()?, entry.shape.as_slice()))
    }

    fn data(&self, path: &str) -> Option<TensorData> {
        self.tensor(path)
    }

    fn dtype(&self, path: &str, stored: DType, default: DType) -> DType {
        if self.has_backend_dtypes() || default.is_bool() {
            return default;
        }
        match self.original_dtype(path).unwrap_or(stored) {
            // f32 is what "a float" is in a record; the backend may compute with another.
            DType::F32 => default,
            dtype => dtype,
        }
    }

    fn id(&self, path: &str) -> Option<ParamId> {
        Safetensors::id(self, path)
    }

    fn paths(&self) -> Vec<&str> {
        Safetensors::paths(self).collect()
    }

    fn has_variants(&self) -> bool {
        false
    }
}

impl Parameters for NamedRecord {
    fn entry(&self, path: &str) -> Option<(DType, &[usize])> {
        self.parameters.get(path).map(|(_, data)| (data.dtype, data.shape.as_slice()))
    }

    fn data(&self, path: &str) -> Option<TensorData> {
        self.parameters.get(path).map(|(_, data)| data.clone())
    }

    fn dtype(&self, _path: &str, _stored: DType, default: DType) -> DType {
        default
    }

    fn id(&self, path: &str) -> Option<ParamId> {
        self.parameters.get(path).map(|(id, _)| *id)
    }

    fn paths(&self) -> Vec<&str> {
        self.parameters.keys().map(|path| path.as_str()).collect()
    }

    fn has_variants(&self) -> bool {
        true
    }
}
