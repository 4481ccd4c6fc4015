//! [`Param`]: a tensor that belongs to a module's state.

use super::ParamId;
use super::adapter::LowRank;
use super::derived::{Derived, Version};
use super::lock::{Lock, Once};
use crate::tensor::{DType, Shape};
use alloc::{boxed::Box, sync::Arc};
use core::any::Any;
use core::fmt;
use core::ops::Deref;

/// What a [`Param`] may hold: tensors of each kind.
pub trait Parameter: Clone + fmt::Debug + Send + Sync + 'static {
    /// Names a device.
    type Device: Clone + PartialEq + Send;

    /// A matrix of the same kind.
    type Matrix: Parameter<Device = Self::Device, Matrix = Self::Matrix>;

    /// The device that holds the value.
    fn device(&self) -> Self::Device;

    /// The dims.
    fn shape(&self) -> Shape;

    /// Whether the value is a leaf whose gradient is wanted; never for integers and bools, which have no gradients.
    fn is_require_grad(&self) -> bool;

    /// Whether gradients flow through the value: it is such a leaf, or was computed from one.
    fn is_tracked(&self) -> bool;

    /// The value as a leaf whose gradient is wanted, or as a constant. Either way it forgets what it was computed from; a
    /// leaf whose gradient is wanted already stays the same leaf.
    fn set_require_grad(self, require_grad: bool) -> Self;

    /// The value as a constant.
    fn detach(self) -> Self;

    /// Copies to another device.
    fn to_device(self, device: &Self::Device) -> Self;

    /// Says to the device that the value will be used again and again.
    fn prepare(self) -> Self;

    /// The dtype, if it is another than the device's usual one for the kind.
    fn unusual_dtype(&self) -> Option<DType>;

    /// Converts to another dtype of the same kind.
    fn to_dtype(self, dtype: DType) -> Self;

    /// Zeros in place of the elements.
    fn zeros(self) -> Self;

    /// `self + scale · b · a` in the dims of `self`; `transposed` says that these are the product's, turned.
    fn add_product(self, b: Self::Matrix, a: Self::Matrix, scale: f64, transposed: bool) -> Self;
}

/// A function that a parameter's value passes on its way from or to a record.
type Mapper<T> = Arc<dyn Fn(T) -> T + Send + Sync>;

/// What happens to a parameter's value when it is loaded from a record or saved to one; nothing by default.
pub struct ParamMapper<T: Parameter> {
    load: Option<Mapper<T>>,
    save: Option<Mapper<T>>,
}

impl<T: Parameter> ParamMapper<T> {
    /// The value to use, from the value in a record.
    pub fn on_load(&self, value: T) -> T {
        match &self.load {
            Some(mapper) => mapper(value),
            None => value,
        }
    }

    /// The value for a record, from the value in use.
    pub fn on_save(&self, value: T) -> T {
        match &self.save {
            Some(mapper) => mapper(value),
            None => value,
        }
    }

    /// The mapper for the same values of another type, given the ways there and back.
    pub(super) fn convert<U: Parameter + 'static>(
        &self,
        there: fn(T) -> U,
        back: fn(U) -> T,
    ) -> ParamMapper<U>
    where
        T: 'static,
    {
        let convert = |mapper: &Mapper<T>| -> Mapper<U> {
            let mapper = mapper.clone();
            Arc::new(move |value| there(mapper(back(value))))
        };
        ParamMapper { load: self.load.as_ref().map(convert), save: self.save.as_ref().map(convert) }
    }
}

impl<T: Parameter> Clone for ParamMapper<T> {
    fn clone(&self) -> Self {
        Self { load: self.load.clone(), save: self.save.clone() }
    }
}

impl<T: Parameter> Default for ParamMapper<T> {
    fn default() -> Self {
        Self { load: None, save: None }
    }
}

impl<T: Parameter> fmt::Debug for ParamMapper<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParamMapper")
            .field("load", &self.load.is_some())
            .field("save", &self.save.is_some())
            .finish()
    }
}

/// Makes a parameter's first value, on a device, with or without gradients.
type Init<T> = Box<dyn FnOnce(&<T as Parameter>::Device, bool) -> T + Send>;

/// A value that nobody has asked for yet.
struct Pending<T: Parameter> {
    init: Init<T>,
    device: T::Device,
    require_grad: bool,
    shape: Shape,
    dtype: Option<DType>,
}

impl<T: Parameter> Pending<T> {
    /// The value: a leaf or a constant, whatever it took to make it.
    fn initialize(self) -> T {
        let value = (self.init)(&self.device, self.require_grad).detach();
        let value = match self.dtype {
            Some(dtype) => value.to_dtype(dtype),
            None => value,
        };
        value.set_require_grad(self.require_grad)
    }
}

/// A tensor that belongs to a module's state: it is recorded, visited, and, when it holds floats, trained.
///
/// The first value is made when it is first asked for, so that a module whose weights are loaded from a record never
/// computes the random ones. Its shape and device are known before.
///
/// The value of a trained parameter is a leaf of the gradients' graph. What changes the value (loading, moving, another
/// dtype, [`Param::map`]) makes a new leaf: nothing is recorded that leads back to the old one.
pub struct Param<T: Parameter> {
    /// Identifies the parameter in records and optimizers.
    pub id: ParamId,
    state: Once<T>,
    pending: Lock<Option<Pending<T>>>,
    mapper: ParamMapper<T>,
    version: Version,
    derived: Derived,
    /// A [`LowRank`] of `T`. Its type is not named here: it leads from matrix to matrix, and a type `Param<Tensor<_, D>>` of which
    /// the compiler does not know the backend yet would have no end.
    low_rank: Option<Arc<dyn Any + Send + Sync>>,
}

impl<T: Parameter> Param<T> {
    /// A parameter with a value.
    pub fn initialized(id: ParamId, value: T) -> Self {
        Self::from_mapped_value(id, value, ParamMapper::default())
    }

    /// A parameter whose value is made by `init` on first use, with these dims.
    pub fn uninitialized<F>(
        id: ParamId,
        init: F,
        device: T::Device,
        is_require_grad: bool,
        shape: Shape,
    ) -> Self
    where
        F: FnOnce(&T::Device, bool) -> T + Send + 'static,
    {
        let pending =
            Pending { init: Box::new(init), device, require_grad: is_require_grad, shape, dtype: None };
        Self {
            id,
            state: Once::new(),
            pending: Lock::new(Some(pending)),
            mapper: ParamMapper::default(),
            version: Version::new(),
            derived: Derived::default(),
            low_rank: None,
        }
    }

    /// Says which dtype the value has: one that is loaded from a record, whose formats may not know it, gets it back.
    ///
    /// A value that is there already is converted. One of a dtype that is not the device's usual one passes its dtype on
    /// to what is loaded in its place.
    #[must_use]
    pub fn with_dtype(mut self, dtype: DType) -> Self {
        if let Some(pending) = self.pending.get_mut() {
            pending.dtype = Some(dtype);
            return self;
        }
        self.replace(|value| value.to_dtype(dtype))
    }

    /// A parameter from the parts that [`Param::consume`] yields.
    pub fn from_mapped_value(id: ParamId, value: T, param_mapper: ParamMapper<T>) -> Self {
        Self {
            id,
            state: Once::initialized(value.prepare()),
            pending: Lock::new(None),
            mapper: param_mapper,
            version: Version::new(),
            derived: Derived::default(),
            low_rank: None,
        }
    }

    /// The value, made now if it was not yet; the whole one where the parameter has a low-rank pair.
    pub fn val(&self) -> T {
        match self.low_rank() {
            Some(pair) => pair.applied(self.base_val()),
            None => self.base_val(),
        }
    }

    /// The parameter's own value, without what a low-rank pair adds to it: the leaf that an optimizer knows.
    pub fn base_val(&self) -> T {
        self.value().clone()
    }

    /// The low-rank pair beside the value; see [`Module::with_low_rank`](super::Module::with_low_rank).
    pub fn low_rank(&self) -> Option<&LowRank<T>> {
        self.low_rank.as_deref().and_then(|pair| pair.downcast_ref())
    }

    /// The pair, which the parameter has no more.
    pub(crate) fn take_low_rank(&mut self) -> Option<LowRank<T>> {
        let pair = self.low_rank.take()?.downcast::<LowRank<T>>().ok()?;
        Some(Arc::unwrap_or_clone(pair))
    }

    /// The parameter with a pair beside it.
    pub(crate) fn with_low_rank(self, pair: LowRank<T>) -> Self {
        Self { low_rank: Some(Arc::new(pair)), version: Version::new(), ..self }
    }

    /// Changes the parameter itself; its pair stays.
    fn beside_low_rank(mut self, change: impl FnOnce(Self) -> Self) -> Self {
        match self.take_low_rank() {
            Some(pair) => change(self).with_low_rank(pair),
            None => change(self),
        }
    }

    /// Whether gradients flow through the value, or through its low-rank pair.
    pub fn is_tracked(&self) -> bool {
        self.value().is_tracked() || self.low_rank().is_some_and(LowRank::is_tracked)
    }

    /// The parameter with zeros as its value.
    pub(super) fn zeros(self) -> Self {
        self.replace(Parameter::zeros)
    }

    /// The value by reference; without what a low-rank pair adds to it.
    pub(crate) fn value(&self) -> &T {
        self.state.get_or_init(|| match self.pending.lock().take() {
            Some(pending) => pending.initialize().prepare(),
            None => unreachable!("a parameter has a value or a way to make one"),
        })
    }

    /// Names the value: parameters with the same version have the same value.
    pub(crate) fn version(&self) -> &Version {
        &self.version
    }

    /// What was computed from this parameter and others, or is computed now; it is kept here for as long as all of them
    /// have these versions.
    pub(crate) fn derive<U>(&self, versions: &[&Version], compute: impl FnOnce() -> U) -> U
    where
        U: Clone + Send + Sync + 'static,
    {
        self.derived.get_or_compute(versions, compute)
    }

    /// Whether the value was made.
    pub fn is_initialized(&self) -> bool {
        self.state.get().is_some()
    }

    /// The value; the parameter is gone.
    pub fn into_value(mut self) -> T {
        let pair = self.take_low_rank();
        let (_, value, _) = self.consume();
        match pair {
            Some(pair) => pair.applied(value),
            None => value,
        }
    }

    /// The id, the parameter's own value and the mapper. A low-rank pair is gone.
    pub fn consume(self) -> (ParamId, T, ParamMapper<T>) {
        self.value();
        match self.state.into_inner() {
            Some(value) => (self.id, value, self.mapper),
            None => unreachable!("the value was just made"),
        }
    }

    /// Replaces the value by a function of it.
    ///
    /// Where the value was a leaf and the function computes with it, the result is a leaf in its place: a trained parameter
    /// stays one. A result that the function detached is a constant.
    #[must_use]
    pub fn map<F: FnOnce(T) -> T>(self, func: F) -> Self {
        self.beside_low_rank(|param| {
            let (id, value, mapper) = param.consume();
            let was_leaf = value.is_require_grad();
            let value = func(value);
            let value = if was_leaf && value.is_tracked() { value.set_require_grad(true) } else { value };
            Self::from_mapped_value(id, value, mapper)
        })
    }

    /// Replaces the value by a function of it as a constant; a leaf becomes another leaf.
    fn replace<F: FnOnce(T) -> T>(self, func: F) -> Self {
        self.beside_low_rank(|param| {
            let (id, value, mapper) = param.consume();
            let require_grad = value.is_require_grad();
            Self::from_mapped_value(id, func(value.detach()).set_require_grad(require_grad), mapper)
        })
    }

    /// Sets what happens to a value that is loaded from a record.
    #[must_use]
    pub fn load_mapper<F: Fn(T) -> T + Send + Sync + 'static>(mut self, func: F) -> Self {
        self.mapper.load = Some(Arc::new(func));
        self
    }

    /// Whether something happens to a value that is loaded from a record: it may have another shape there.
    pub fn is_mapped_on_load(&self) -> bool {
        self.mapper.load.is_some()
    }

    /// Sets what happens to the value on its way into a record.
    #[must_use]
    pub fn save_mapper<F: Fn(T) -> T + Send + Sync + 'static>(mut self, func: F) -> Self {
        self.mapper.save = Some(Arc::new(func));
        self
    }

    /// Changes how the first value is made; a value that is there is changed now.
    #[must_use]
    pub fn init_mapper<F: FnOnce(T) -> T + Send + 'static>(mut self, func: F) -> Self
    where
        T: 'static,
    {
        match self.pending.get_mut().take() {
            Some(Pending { init, device, require_grad, shape, dtype }) => {
                let init: Init<T> =
                    Box::new(move |device, require_grad| func(init(device, require_grad).detach()));
                *self.pending.get_mut() = Some(Pending { init, device, require_grad, shape, dtype });
                self
            }
            None => self.map(func),
        }
    }

    /// The device, without making the value.
    pub fn lazy_device(&self) -> T::Device {
        match &*self.pending.lock() {
            Some(pending) => pending.device.clone(),
            None => self.value().device(),
        }
    }

    /// The dims, without making the value.
    pub fn lazy_shape(&self) -> Shape {
        match &*self.pending.lock() {
            Some(pending) => pending.shape.clone(),
            None => self.value().shape(),
        }
    }

    /// The dtype, if it is another than the device's usual one for the kind, without making the value.
    pub fn lazy_unusual_dtype(&self) -> Option<DType> {
        match &*self.pending.lock() {
            Some(pending) => pending.dtype,
            None => self.state.get().and_then(Parameter::unusual_dtype),
        }
    }

    /// Whether gradients are wanted, without making the value.
    pub fn lazy_is_require_grad(&self) -> bool {
        match &*self.pending.lock() {
            Some(pending) => pending.require_grad,
            None => self.value().is_require_grad(),
        }
    }

    /// Says whether gradients are wanted: `false` keeps the parameter in records and out of training.
    #[must_use]
    pub fn set_require_grad(mut self, require_grad: bool) -> Self {
        if let Some(pending) = self.pending.get_mut() {
            pending.require_grad = require_grad;
            return self;
        }
        self.map(|value| value.set_require_grad(require_grad))
    }

    /// Moves to a device; a value that was not made yet will be made there.
    #[must_use]
    pub fn move_to_device(self, device: &T::Device) -> Self {
        if self.lazy_device() == *device { self } else { self.fork_to_device(device) }
    }

    /// Copies to a device, as a leaf of its own even where it lies there already; a value that was not made yet will be
    /// made there.
    #[must_use]
    pub(super) fn fork_to_device(mut self, device: &T::Device) -> Self {
        if let Some(pending) = self.pending.get_mut() {
            pending.device = device.clone();
            return self;
        }
        self.replace(|value| value.to_device(device))
    }

    /// This parameter with a loaded value: on this one's device, through its mapper, and with gradients as this one.
    ///
    /// Neither this parameter's own value nor its initialization runs. A low-rank pair begins anew: the value is the whole one.
    #[must_use]
    pub fn transform_for_load(mut self, value: T, id: ParamId) -> Self {
        let pair = self.take_low_rank();
        let (device, require_grad) = (self.lazy_device(), self.lazy_is_require_grad());
        let dtype = self.lazy_unusual_dtype();
        let value = value.detach();
        let value = if value.device() == device { value } else { value.to_device(&device) };
        let value = match dtype {
            Some(dtype) => value.to_dtype(dtype),
            None => value,
        };
        let value = self.mapper.on_load(value).set_require_grad(require_grad);
        let loaded = Self::from_mapped_value(id, value, self.mapper);
        match pair {
            Some(pair) => loaded.with_low_rank(pair.begun()),
            None => loaded,
        }
    }

    /// This parameter with another value: on this one's device and with gradients as this one, but, unlike
    /// [`Param::transform_for_load`], not through its mapper.
    ///
    /// Neither this parameter's own value nor its initialization runs.
    #[must_use]
    pub fn with_value(mut self, value: T) -> Self {
        let mapper = core::mem::take(&mut self.mapper);
        let id = self.id;
        let loaded = self.transform_for_load(value, id);
        Self { mapper, ..loaded }
    }

    /// This parameter as a record holds it, what a low-rank pair adds in it.
    #[must_use]
    pub fn transform_for_save(&self) -> Self {
        let require_grad = self.value().is_require_grad();
        let value = self.val();
        Self::initialized(self.id, self.mapper.on_save(value.detach()).set_require_grad(require_grad))
    }

    /// This parameter, with its id and its mapper, on a backend whose tensors are `U`, given the ways there and back.
    pub(super) fn convert<U: Parameter + 'static>(&self, there: fn(T) -> U, back: fn(U) -> T) -> Param<U>
    where
        T: 'static,
    {
        Param::from_mapped_value(self.id, there(self.base_val()), self.mapper.convert(there, back))
    }

    /// The parameter's pair beside a parameter of another backend, which is this one there.
    pub(super) fn convert_low_rank<U: Parameter>(
        &self,
        param: Param<U>,
        convert: impl Fn(&Param<T::Matrix>) -> Param<U::Matrix>,
    ) -> Param<U> {
        match self.low_rank() {
            Some(pair) => param.with_low_rank(pair.convert(convert)),
            None => param,
        }
    }

    /// Changes the parameter and its pair's matrices alike.
    pub(super) fn each(
        mut self,
        change: impl FnOnce(Self) -> Self,
        pair: impl Fn(Param<T::Matrix>) -> Param<T::Matrix>,
    ) -> Self {
        match self.take_low_rank() {
            Some(matrices) => change(self).with_low_rank(matrices.map_each(|_, matrix| pair(matrix))),
            None => change(self),
        }
    }

    /// The same parameter with a constant in place of its value.
    pub(super) fn with_constant(&self, value: T) -> Self {
        Self::from_mapped_value(self.id, value.detach(), self.mapper.clone())
    }
}

impl<T: Parameter> Clone for Param<T> {
    /// Makes the value first, so that both have the same.
    fn clone(&self) -> Self {
        Self {
            version: self.version.clone(),
            derived: self.derived.clone(),
            low_rank: self.low_rank.clone(),
            ..Self::from_mapped_value(self.id, self.base_val(), self.mapper.clone())
        }
    }
}

impl<T: Parameter> Deref for Param<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value()
    }
}

impl<T: Parameter> fmt::Display for Param<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Param: {}", self.id)
    }
}

impl<T: Parameter> fmt::Debug for Param<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Param: {} - {:?}", self.id, self.mapper)
    }
}
