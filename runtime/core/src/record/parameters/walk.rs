//! Walking through a module with the path of each parameter in hand.

use super::mismatch::{COMPARED, MissingParameter, ParameterMismatch, WrongParameter, nearest};
use super::source::Parameters;
use crate::module::{ModuleMapper, ModuleVisitor, Param, ParamId, Parameter};
use crate::tensor::backend::{Backend, held, hold};
use crate::tensor::{Bool, DType, DTypeKind, Element, Int, Shape, Tensor, TensorData};
use alloc::{
    collections::BTreeSet,
    string::{String, ToString},
    vec::Vec,
};
use kiln_record::safetensors::TensorToWrite;

/// The path to where a walk is: the names of fields and indices, joined by dots.
#[derive(Debug, Default)]
pub struct Path {
    /// The path.
    pub text: String,
    lengths: Vec<usize>,
    /// Whether the variant of an enum module is part of it. Else the path is as if the enum were not there.
    variants: bool,
}

impl Path {
    /// Goes into a field of a container.
    pub fn enter(&mut self, name: &str, container: &str) {
        self.lengths.push(self.text.len());
        if container.starts_with("Enum:") && !self.variants {
            return;
        }
        if !self.text.is_empty() {
            self.text.push('.');
        }
        self.text.push_str(name);
    }

    /// Goes back.
    pub fn exit(&mut self) {
        if let Some(length) = self.lengths.pop() {
            self.text.truncate(length);
        }
    }
}

/// Puts stored tensors into the parameters that it maps.
pub struct Loader<'a, B: Backend> {
    device: &'a B::Device,
    source: Source<'a>,
}

/// The part of the loader that does not depend on the backend.
struct Source<'a> {
    stored: &'a dyn Parameters,
    path: Path,
    used: BTreeSet<String>,
    mismatch: ParameterMismatch,
}

impl<'a, B: Backend> Loader<'a, B> {
    pub fn new(stored: &'a dyn Parameters, device: &'a B::Device) -> Self {
        let source = Source {
            stored,
            path: Path { variants: stored.has_variants(), ..Path::default() },
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
        let shape = param.lazy_shape();
        let Some(data) = self.source.take(&shape, param.is_mapped_on_load(), dtype) else { return param };
        if !data.fits(held::<B>(data.dtype, self.device)) {
            self.source.wrong(&shape, dtype);
            return param;
        }
        let id = self.source.stored.id(&self.source.path.text).unwrap_or(param.id);
        let loaded = param.transform_for_load(make(hold::<B>(data, self.device)), id);
        if loaded.lazy_shape() != shape {
            self.source.wrong(&shape, dtype);
        }
        loaded
    }
}

impl Source<'_> {
    /// The data for the parameter at the current path, of this shape and of the kind of `default`. Where it is mapped
    /// on its way, the shape may be another, of the same rank and size.
    fn take(&mut self, shape: &Shape, mapped: bool, default: DType) -> Option<TensorData> {
        let path = self.path.text.clone();
        let Some((dtype, stored)) = self.stored.entry(&path) else {
            let nearest = None;
            self.mismatch.missing.push(MissingParameter { path, shape: shape.as_slice().to_vec(), nearest });
            return None;
        };
        let kind_fits = dtype.kind() == default.kind() || (default.is_bool() && dtype == DType::U8);
        let size_fits =
            stored.len() == shape.rank() && stored.iter().product::<usize>() == shape.num_elements();
        let fits = kind_fits && (stored == shape.as_slice() || mapped && size_fits);
        self.used.insert(path.clone());
        if !fits {
            self.wrong(shape, default);
            return None;
        }
        let wanted = self.stored.dtype(&path, dtype, default);
        Some(self.stored.data(&path)?.convert_dtype(wanted))
    }

    /// Notes that what is stored at the current path is not this.
    fn wrong(&mut self, shape: &Shape, default: DType) {
        let path = self.path.text.clone();
        let Some((dtype, stored)) = self.stored.entry(&path) else { return };
        let found = (dtype, stored.to_vec());
        let expected = (default.kind(), shape.as_slice().to_vec());
        self.mismatch.wrong.push(WrongParameter { path, expected, found });
    }

    fn finish(self, name: &str) -> Result<(), ParameterMismatch> {
        let mut mismatch = self.mismatch;
        mismatch.source = name.to_string();
        let paths = self.stored.paths().into_iter();
        mismatch.unused = paths.filter(|path| !self.used.contains(*path)).map(str::to_string).collect();
        if mismatch.is_empty() {
            return Ok(());
        }
        for missing in mismatch.missing.iter_mut().take(COMPARED) {
            let unused = mismatch.unused.iter().map(String::as_str);
            missing.nearest = nearest(&missing.path, unused).map(str::to_string);
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
        self.load(param, B::FloatElem::DTYPE, Tensor::from_backend)
    }

    /// A record has no place for the pair.
    fn map_low_rank<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        self.map_float(param)
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<B, D, Int>>) -> Param<Tensor<B, D, Int>> {
        self.load(param, B::IntElem::DTYPE, Tensor::from_backend)
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<B, D, Bool>>) -> Param<Tensor<B, D, Bool>> {
        self.load(param, DType::Bool, Tensor::from_backend)
    }
}

/// Collects the parameters that it visits.
#[derive(Default)]
pub struct Collector {
    pub tensors: Vec<TensorToWrite>,
    path: Path,
}

impl Collector {
    fn add(&mut self, id: ParamId, data: TensorData) {
        self.tensors.push(TensorToWrite::new(self.path.text.clone(), data).with_id(id));
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
        self.add(param.id, param.transform_for_save().into_value().into_data());
    }

    /// A record has no place for the pair: it holds the whole value.
    fn visit_low_rank<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.visit_float(param);
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.add(param.id, param.transform_for_save().into_value().into_data());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.add(param.id, param.transform_for_save().into_value().into_data());
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
