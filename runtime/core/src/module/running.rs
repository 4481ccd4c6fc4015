//! [`RunningState`]: a statistic that a layer updates while it is used.

use super::lock::Lock;
use super::{
    AutodiffModule, Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper,
    ModuleVisitor, Param, ParamId, Parameter,
};
use crate::tensor::Tensor;
use crate::tensor::backend::{AutodiffBackend, Backend};
use alloc::sync::Arc;
use core::fmt;

/// A tensor that a module changes in its `forward`, such as the mean that batch normalization keeps.
///
/// Clones share it, so that a module that is used through one of them is updated in all. What is made of a clone (by an optimizer's
/// step, [`Module::map`], a record that is loaded, another device, [`AutodiffModule::valid`]) is a state of its own: to keep a
/// module as it is, keep its record. It is recorded like a parameter and never trained.
pub struct RunningState<V: Parameter> {
    state: Arc<Lock<Param<V>>>,
    frozen: bool,
}

impl<V: Parameter> RunningState<V> {
    /// A state with a new id.
    pub fn new(value: V) -> Self {
        Self::with_id(ParamId::new(), value)
    }

    /// A state with a given id.
    pub fn with_id(id: ParamId, value: V) -> Self {
        Self::from_param(Param::initialized(id, value))
    }

    /// A state whose first value is the parameter's; it is not made before it is used.
    pub fn from_param(param: Param<V>) -> Self {
        Self { state: Arc::new(Lock::new(param.set_require_grad(false))), frozen: false }
    }

    /// The state as one that its layer leaves as it is, or one that it moves again; see
    /// [`Module::freeze`](super::Module::freeze).
    #[must_use]
    pub fn set_frozen(mut self, frozen: bool) -> Self {
        self.frozen = frozen;
        self
    }

    /// Whether the layer leaves the state as it is, and works with it as in inference.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// The state with another parameter in it, frozen as before.
    fn replace(self, change: impl FnOnce(Param<V>) -> Param<V>) -> Self {
        let frozen = self.frozen;
        Self::from_param(change(self.into_param())).set_frozen(frozen)
    }

    /// A state from a record.
    pub fn from_record(record: Param<V>) -> Self {
        Self::from_param(record)
    }

    /// Sets the value, for all clones.
    pub fn update(&self, value: V) {
        let mut param = self.state.lock();
        *param = param.with_constant(value);
    }

    /// The id, which clones share.
    pub fn id(&self) -> ParamId {
        self.state.lock().id
    }

    /// The value.
    pub fn value(&self) -> V {
        self.state.lock().val()
    }

    /// The value, by the name that a parameter's has: generated source reads a statistic that something else uses too.
    pub fn val(&self) -> V {
        self.value()
    }

    /// The value with all updates; the same as [`RunningState::value`], since updates are applied at once.
    pub fn value_sync(&self) -> V {
        self.value()
    }

    /// The state as a parameter of its own; it stays uninitialized if no clone shares it.
    fn into_param(self) -> Param<V> {
        match Arc::try_unwrap(self.state) {
            Ok(state) => state.into_inner(),
            Err(shared) => shared.lock().clone(),
        }
    }
}

impl<V: Parameter> Clone for RunningState<V> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), frozen: self.frozen }
    }
}

impl<V: Parameter> fmt::Debug for RunningState<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunningState(id={})", self.id())
    }
}

impl<V: Parameter> fmt::Display for RunningState<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl<V: Parameter> ModuleDisplayDefault for RunningState<V> {
    fn content(&self, content: Content) -> Option<Content> {
        content.add_formatted("RunningState").optional()
    }
}

impl<V: Parameter> ModuleDisplay for RunningState<V> {}

impl<B: Backend, const D: usize> RunningState<Tensor<B, D>> {
    /// Shows a visitor the state as a parameter.
    pub(super) fn visit_param<V: ModuleVisitor<B>>(&self, visitor: &mut V) {
        visitor.visit_float(&self.state.lock());
    }

    /// What a mapper makes of the state as a parameter.
    pub(super) fn map_param<M: ModuleMapper<B>>(self, mapper: &mut M) -> Self {
        self.replace(|param| mapper.map_float(param))
    }
}

impl<B: Backend, const D: usize> Module<B> for RunningState<Tensor<B, D>> {
    type Record = Param<Tensor<B, D>>;

    fn visit<V: ModuleVisitor<B>>(&self, visitor: &mut V) {
        visitor.visit_running(self);
    }

    fn map<M: ModuleMapper<B>>(self, mapper: &mut M) -> Self {
        mapper.map_running(self)
    }

    fn into_record(self) -> Self::Record {
        self.into_param().transform_for_save()
    }

    fn load_record(self, record: Self::Record) -> Self {
        self.replace(|param| param.load_record(record))
    }

    fn check_record(&self, record: &Self::Record, check: &mut crate::record::RecordCheck) {
        Module::check_record(&*self.state.lock(), record, check);
    }

    fn to_device(self, device: &B::Device) -> Self {
        self.replace(|param| param.move_to_device(device))
    }

    fn fork(self, device: &B::Device) -> Self {
        self.replace(|param| param.fork(device))
    }

    fn collect_devices(&self, devices: Devices<B>) -> Devices<B> {
        self.state.lock().collect_devices(devices)
    }
}

impl<B: AutodiffBackend, const D: usize> AutodiffModule<B> for RunningState<Tensor<B, D>> {
    type InnerModule = RunningState<Tensor<B::InnerBackend, D>>;

    fn valid(&self) -> Self::InnerModule {
        RunningState::from_param(self.state.lock().valid()).set_frozen(self.frozen)
    }
}
