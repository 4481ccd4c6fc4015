//! Walking through a module with the path of each parameter in hand.

use super::mismatch::{MissingParameter, ParameterMismatch, WrongParameter, nearest};
use crate::module::{ModuleMapper, ModuleVisitor, Param, Parameter};
use crate::tensor::backend::Backend;
use crate::tensor::{Bool, DType, DTypeKind, Element, Int, Shape, Tensor, TensorData};
use alloc::{
    collections::BTreeSet,
    string::{String, ToString},
    vec::Vec,
};
use kiln_record::safetensors::{Safetensors, TensorToWrite};

/// The path to where a walk is: the names of fields and indices, joined by dots.
///
/// The variant of an enum module is not part of it: the module could as well be there without the enum.
#[derive(Default)]
struct Path {
    text: String,
    lengths: Vec<usize>,
}

impl Path {
    fn enter(&mut self, name: &str, container: &str) {
        self.lengths.push(self.text.len());
        if container.starts_with("Enum:") {
            return;
        }
        if !self.text.is_empty() {
            self.text.push('.');
        }
        self.text.push_str(name);
    }

    fn exit(&mut self) {
        if let Some(length) = self.lengths.pop() {
            self.text.truncate(length);
        }
    }
}

/// Puts the tensors of a file into the parameters that it maps.
pub struct Loader<'a, B: Backend> {
    device: &'a B::Device,
    source: Source<'a>,
}

/// The part of the loader that does not depend on the backend.
struct Source<'a> {
    file: &'a Safetensors,
    path: Path,
    used: BTreeSet<String>,
    mismatch: ParameterMismatch,
}

impl<'a, B: Backend> Loader<'a, B> {
    pub fn new(file: &'a Safetensors, device: &'a B::Device) -> Self {
        let source = Source {
            file,
            path: Path::default(),
            used: BTreeSet::new(),
            mismatch: ParameterMismatch::default(),
        };
        Self { device, source }
    }

    /// What did not fit, if anything.
    pub fn finish(self, name: &str) -> Result<(), ParameterMismatch> {
        self.source.finish(name)
    }

    fn load<T>(&mut self, param: Param<T>, dtype: DType, make: impl FnOnce(B::Primitive) -> T) -> Param<T>
    where
        T: Parameter<Device = B::Device>,
    {
        match self.source.take(&param.lazy_shape(), dtype) {
            Some(data) => {
                let (id, value) = (param.id, make(B::from_data(data, self.device)));
                param.transform_for_load(value, id)
            }
            None => param,
        }
    }
}

impl Source<'_> {
    /// The data for the parameter at the current path, of this shape and of the kind of `default`.
    fn take(&mut self, shape: &Shape, default: DType) -> Option<TensorData> {
        let path = self.path.text.clone();
        let Some(entry) = self.file.entry(&path) else {
            let nearest = None;
            self.mismatch.missing.push(MissingParameter { path, shape: shape.as_slice().to_vec(), nearest });
            return None;
        };
        let stored = entry.dtype;
        let kind_fits = stored.kind() == default.kind() || (default.is_bool() && stored == DType::U8);
        self.used.insert(path.clone());
        if entry.shape != shape.as_slice() || !kind_fits {
            self.mismatch.wrong.push(WrongParameter {
                path,
                expected: (default.kind(), shape.as_slice().to_vec()),
                found: (stored, entry.shape.clone()),
            });
            return None;
        }
        let wanted = self.wanted_dtype(&path, stored, default);
        let data = self.file.tensor(&path)?;
        Some(if data.dtype == wanted { data } else { data.convert_dtype(wanted) })
    }

    /// The dtype that a parameter gets.
    fn wanted_dtype(&self, path: &str, stored: DType, default: DType) -> DType {
        if self.file.version().is_none() || default.is_bool() {
            return default;
        }
        match self.file.original_dtype(path).unwrap_or(stored) {
            // f32 is what "a float" is in a record; the backend may compute with another.
            DType::F32 => default,
            dtype => dtype,
        }
    }

    fn finish(self, name: &str) -> Result<(), ParameterMismatch> {
        let mut mismatch = self.mismatch;
        mismatch.source = name.to_string();
        mismatch.unused =
            self.file.paths().filter(|path| !self.used.contains(*path)).map(str::to_string).collect();
        if mismatch.is_empty() {
            return Ok(());
        }
        for missing in &mut mismatch.missing {
            missing.nearest = nearest(&missing.path, &mismatch.unused);
        }
        Err(mismatch)
    }
}

impl<B: Backend> ModuleMapper<B> for Loader<'_, B> {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.source.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.source.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        self.load(param, B::FloatElem::DTYPE, Tensor::from_primitive)
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<B, D, Int>>) -> Param<Tensor<B, D, Int>> {
        self.load(param, B::IntElem::DTYPE, Tensor::from_primitive)
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<B, D, Bool>>) -> Param<Tensor<B, D, Bool>> {
        self.load(param, DType::Bool, Tensor::from_primitive)
    }
}

/// Collects the parameters that it visits.
#[derive(Default)]
pub struct Collector {
    pub tensors: Vec<TensorToWrite>,
    path: Path,
}

impl Collector {
    fn add(&mut self, data: TensorData) {
        self.tensors.push(TensorToWrite::new(self.path.text.clone(), data));
    }
}

impl<B: Backend> ModuleVisitor<B> for Collector {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.add(param.transform_for_save().into_value().into_data());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.add(param.transform_for_save().into_value().into_data());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.add(param.transform_for_save().into_value().into_data());
    }
}

/// The name of a kind in messages.
pub fn kind_name(kind: DTypeKind) -> &'static str {
    match kind {
        DTypeKind::Float => "float",
        DTypeKind::Int => "int",
        DTypeKind::Bool => "bool",
    }
}
