//! Tensors in modules: constants as they are, state inside a [`Param`].

use super::constant::constant_methods;
use super::{
    AutodiffModule, ConstantRecord, Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault,
    ModuleMapper, ModuleVisitor, Param, ParamId, Parameter,
};
use crate::record::RecordCheck;
use crate::tensor::backend::{AutodiffBackend, Backend};
use crate::tensor::{Bool, DType, Float, Int, Shape, Tensor, TensorData, TensorKind};
use alloc::format;

/// Adds a device that is not there yet.
fn add_device<B: Backend>(mut devices: Devices<B>, device: B::Device) -> Devices<B> {
    if !devices.contains(&device) {
        devices.push(device);
    }
    devices
}

impl<B: Backend, const D: usize> Param<Tensor<B, D>> {
    /// A trainable parameter with a new id.
    pub fn from_tensor(value: Tensor<B, D>) -> Self {
        Param::initialized(ParamId::new(), value.require_grad())
    }

    /// A trainable parameter with a new id, from data.
    pub fn from_data<T: Into<TensorData>>(data: T, device: &B::Device) -> Self {
        Self::from_tensor(Tensor::from_data(data, device))
    }
}

/// Implements everything for tensors of one kind.
macro_rules! tensor_module {
    (
        $kind:ident, $name:literal,
        is_require_grad: |$of:ident| $is_require_grad:expr,
        is_tracked: |$tracked:ident| $is_tracked:expr,
        set_require_grad: |$set:ident, $flag:ident| $set_require_grad:expr,
        detach: |$detach:ident| $detached:expr,
        visit: |$seen:ident, $visitor:ident| $visiting:expr,
        map: |$mapped:ident, $mapper:ident| $mapping:expr,
        add_product: |$base:ident, $b:ident, $a:ident, $scale:ident, $transposed:ident| $sum:expr
    ) => {
        impl<B: Backend, const D: usize> Parameter for Tensor<B, D, $kind> {
            type Device = B::Device;
            type Matrix = Tensor<B, 2, $kind>;

            fn device(&self) -> B::Device {
                Tensor::device(self)
            }

            fn shape(&self) -> Shape {
                Tensor::shape(self)
            }

            fn is_require_grad(&self) -> bool {
                let $of = self;
                $is_require_grad
            }

            fn is_tracked(&self) -> bool {
                let $tracked = self;
                $is_tracked
            }

            fn set_require_grad(self, $flag: bool) -> Self {
                let $set = self;
                $set_require_grad
            }

            fn detach(self) -> Self {
                let $detach = self;
                $detached
            }

            fn to_device(self, device: &B::Device) -> Self {
                Tensor::to_device(self, device)
            }

            fn prepare(self) -> Self {
                Tensor::from_backend(B::prepare(self.into_backend()))
            }

            fn unusual_dtype(&self) -> Option<DType> {
                let dtype = Tensor::dtype(self);
                (dtype != <$kind as TensorKind<B>>::default_dtype()).then_some(dtype)
            }

            fn to_dtype(self, dtype: DType) -> Self {
                Tensor::cast(self, dtype)
            }

            fn zeros(self) -> Self {
                self.zeros_like()
            }

            fn add_product(self, b: Self::Matrix, a: Self::Matrix, scale: f64, transposed: bool) -> Self {
                let ($base, $b, $a, $scale, $transposed) = (self, b, a, scale, transposed);
                $sum
            }
        }

        impl<B: Backend, const D: usize> Module<B> for Tensor<B, D, $kind> {
            constant_methods!();

            fn to_device(self, device: &B::Device) -> Self {
                Tensor::to_device(self, device)
            }

            fn fork(self, device: &B::Device) -> Self {
                Tensor::to_device(Parameter::detach(self), device)
            }

            fn collect_devices(&self, devices: Devices<B>) -> Devices<B> {
                add_device::<B>(devices, Tensor::device(self))
            }
        }

        impl<B: AutodiffBackend, const D: usize> AutodiffModule<B> for Tensor<B, D, $kind> {
            type InnerModule = Tensor<B::InnerBackend, D, $kind>;

            fn valid(&self) -> Self::InnerModule {
                self.clone().inner()
            }
        }

        impl<B: Backend, const D: usize> ModuleDisplayDefault for Tensor<B, D, $kind> {
            fn content(&self, content: Content) -> Option<Content> {
                let text = format!("Tensor {{rank: {D}, shape: {:?}}}", Tensor::shape(self).as_slice());
                content.add_formatted(&text).optional()
            }
        }

        impl<B: Backend, const D: usize> ModuleDisplay for Tensor<B, D, $kind> {}

        impl<B: Backend, const D: usize> Module<B> for Param<Tensor<B, D, $kind>> {
            type Record = Param<Tensor<B, D, $kind>>;

            fn visit<V: ModuleVisitor<B>>(&self, visitor: &mut V) {
                let ($seen, $visitor) = (self, visitor);
                $visiting
            }

            fn map<M: ModuleMapper<B>>(self, mapper: &mut M) -> Self {
                let ($mapped, $mapper) = (self, mapper);
                $mapping
            }

            fn into_record(self) -> Self::Record {
                self.transform_for_save()
            }

            fn load_record(self, record: Self::Record) -> Self {
                let (id, value, _) = record.consume();
                // Records in exact precision have the dtypes of where they were made.
                let usual = <$kind as TensorKind<B>>::default_dtype();
                let value = match self.lazy_unusual_dtype() {
                    None => Parameter::detach(value).cast(usual),
                    Some(_) => value,
                };
                self.transform_for_load(value, id)
            }

            fn check_record(&self, record: &Self::Record, check: &mut RecordCheck) {
                let kind = <$kind as TensorKind<B>>::default_dtype().kind();
                let found = (Tensor::dtype(&record.val()), record.lazy_shape());
                check.parameter(kind, &self.lazy_shape(), self.is_mapped_on_load(), found);
            }

            fn to_device(self, device: &B::Device) -> Self {
                self.each(|param| param.move_to_device(device), |matrix| matrix.move_to_device(device))
            }

            fn fork(self, device: &B::Device) -> Self {
                self.each(|param| param.fork_to_device(device), |matrix| matrix.fork_to_device(device))
            }

            fn collect_devices(&self, devices: Devices<B>) -> Devices<B> {
                add_device::<B>(devices, self.lazy_device())
            }
        }

        impl<B: AutodiffBackend, const D: usize> AutodiffModule<B> for Param<Tensor<B, D, $kind>> {
            type InnerModule = Param<Tensor<B::InnerBackend, D, $kind>>;

            fn valid(&self) -> Self::InnerModule {
                let inner = self.convert(Tensor::inner, Tensor::from_inner);
                self.convert_low_rank(inner, |matrix| matrix.convert(Tensor::inner, Tensor::from_inner))
            }
        }

        impl<B: Backend, const D: usize> ModuleDisplayDefault for Param<Tensor<B, D, $kind>> {
            fn content(&self, content: Content) -> Option<Content> {
                let show_id = content.display_settings.show_param_id();
                let id = if show_id { format!(", id: {}", self.id) } else { Default::default() };
                let shape = self.lazy_shape();
                let text =
                    format!("ParamTensor {{rank: {D}, shape: {:?}, kind: {}{id}}}", shape.as_slice(), $name);
                content.add_formatted(&text).optional()
            }
        }

        impl<B: Backend, const D: usize> ModuleDisplay for Param<Tensor<B, D, $kind>> {}
    };
}

tensor_module!(
    Float, "float",
    is_require_grad: |tensor| Tensor::is_require_grad(tensor),
    is_tracked: |tensor| Tensor::is_tracked(tensor),
    set_require_grad: |tensor, flag| Tensor::set_require_grad(tensor, flag),
    detach: |tensor| Tensor::detach(tensor),
    visit: |param, visitor| match param.low_rank() {
        Some(_) => visitor.visit_low_rank(param),
        None => visitor.visit_float(param),
    },
    map: |param, mapper| match param.low_rank() {
        Some(_) => mapper.map_low_rank(param),
        None => mapper.map_float(param),
    },
    add_product: |base, b, a, scale, transposed| {
        let product = if transposed { a.transpose().matmul(b.transpose()) } else { b.matmul(a) };
        let dims: [usize; D] = base.dims();
        base + product.reshape(dims) * scale
    }
);
tensor_module!(
    Int, "int",
    is_require_grad: |_tensor| false,
    is_tracked: |_tensor| false,
    set_require_grad: |tensor, _flag| tensor,
    detach: |tensor| tensor,
    visit: |param, visitor| visitor.visit_int(param),
    map: |param, mapper| mapper.map_int(param),
    // Only floats have a pair.
    add_product: |base, _b, _a, _scale, _transposed| base
);
tensor_module!(
    Bool, "bool",
    is_require_grad: |_tensor| false,
    is_tracked: |_tensor| false,
    set_require_grad: |tensor, _flag| tensor,
    detach: |tensor| tensor,
    visit: |param, visitor| visitor.visit_bool(param),
    map: |param, mapper| mapper.map_bool(param),
    add_product: |base, _b, _a, _scale, _transposed| base
);
