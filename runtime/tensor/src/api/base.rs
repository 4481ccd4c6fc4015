//! The tensor itself, and how it is made, read and moved.

use super::kind::{Float, Int, TensorKind};
use crate::backend::{self, Backend, ExecutionError, Primitive, held, held_for};
use crate::check::{self, ensure};
use crate::{DType, Scalar, Shape, TensorData};
use core::fmt::Debug;
use core::marker::PhantomData;

/// A tensor on a backend `B`, of rank `D` and of a kind (`Float`, `Int` or `Bool`); its shape and dtype are known at
/// run time.
///
/// Operations take tensors by value. A clone is cheap: it shares the elements, and an operation writes in place when
/// it holds the last reference. Wrong shapes panic with the operation's name and the shapes.
pub struct Tensor<B: Backend, const D: usize, K: TensorKind<B> = Float> {
    primitive: B::Primitive,
    kind: PhantomData<fn() -> K>,
}

impl<B: Backend, const D: usize, K: TensorKind<B>> Clone for Tensor<B, D, K> {
    fn clone(&self) -> Self {
        Self::wrap(self.primitive.clone())
    }
}

impl<B: Backend, const D: usize, K: TensorKind<B>> Debug for Tensor<B, D, K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Tensor")
            .field("kind", &K::name())
            .field("shape", &self.shape().dims)
            .field("dtype", &self.dtype())
            .finish_non_exhaustive()
    }
}

impl<B: Backend, const D: usize, K: TensorKind<B>, T: Into<TensorData>> From<T> for Tensor<B, D, K> {
    fn from(data: T) -> Self {
        Self::from_data(data, &B::Device::default())
    }
}

/// The device and the dtype of a tensor that is made; a device alone gives the kind's usual dtype.
#[derive(Clone, Debug)]
pub struct TensorCreationOptions<B: Backend> {
    /// Where the tensor is made.
    pub device: B::Device,
    /// Its dtype, if not the usual one.
    pub dtype: Option<DType>,
}

impl<B: Backend> TensorCreationOptions<B> {
    /// On a device, with the usual dtype.
    pub fn new(device: B::Device) -> Self {
        Self { device, dtype: None }
    }

    /// With another dtype.
    pub fn with_dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// On another device.
    pub fn with_device(mut self, device: B::Device) -> Self {
        self.device = device;
        self
    }
}

impl<B: Backend> Default for TensorCreationOptions<B> {
    fn default() -> Self {
        Self::new(B::Device::default())
    }
}

impl<B: Backend> From<&B::Device> for TensorCreationOptions<B> {
    fn from(device: &B::Device) -> Self {
        Self::new(device.clone())
    }
}

impl<B: Backend> From<(&B::Device, DType)> for TensorCreationOptions<B> {
    fn from((device, dtype): (&B::Device, DType)) -> Self {
        Self::new(device.clone()).with_dtype(dtype)
    }
}

impl<B: Backend, const D: usize, K: TensorKind<B>> Tensor<B, D, K> {
    /// A result of the backend, known to have rank `D` and a dtype of the kind.
    pub(crate) fn wrap(primitive: B::Primitive) -> Self {
        debug_assert_eq!(primitive.dims().len(), D, "a backend's result has another rank");
        debug_assert_eq!(primitive.dtype().kind(), K::KIND, "a backend's result has another kind");
        Self { primitive, kind: PhantomData }
    }

    /// A tensor from a backend's own.
    ///
    /// # Panics
    /// When its rank is not `D` or its dtype is not of the kind.
    pub fn from_backend(primitive: B::Primitive) -> Self {
        check::rank("from_backend", primitive.dims(), D);
        expect_kind::<B, K>("from_backend", primitive.dtype());
        Self::wrap(primitive)
    }

    /// The backend's tensor.
    pub fn into_backend(self) -> B::Primitive {
        self.primitive
    }

    /// The backend's tensor, which stays.
    pub(crate) fn as_backend(&self) -> &B::Primitive {
        &self.primitive
    }

    /// A tensor of what [`Tensor::into_primitive`] gives, under Burn's name for [`Tensor::from_backend`].
    ///
    /// # Panics
    /// When its rank is not `D` or its dtype is not of the kind.
    pub fn from_primitive(primitive: K::Primitive) -> Self {
        Self::from_backend(K::into_backend(primitive))
    }

    /// See [`Tensor::from_primitive`].
    pub fn new(primitive: K::Primitive) -> Self {
        Self::from_primitive(primitive)
    }

    /// The backend's tensor, as Burn's kinds wrap it.
    pub fn into_primitive(self) -> K::Primitive {
        K::from_backend(self.primitive)
    }

    /// The backend's tensor, borrowed.
    pub fn primitive(&self) -> &B::Primitive {
        &self.primitive
    }

    /// Replaces the tensor by a function of it, without holding a second reference meanwhile.
    pub fn inplace<F: FnOnce(Self) -> Self>(&mut self, f: F) {
        let placeholder = B::full(Shape::from([1; D]), Scalar::Int(0), self.dtype(), &self.device());
        *self = f(core::mem::replace(self, Self::wrap(placeholder)));
    }

    /// The number of dims.
    pub fn rank(&self) -> usize {
        D
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.primitive.dtype()
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.primitive.shape()
    }

    /// The dims.
    pub fn dims(&self) -> [usize; D] {
        match self.primitive.dims().try_into() {
            Ok(dims) => dims,
            // `wrap` would have been given a tensor of another rank.
            Err(_) => check::fail("dims", format_args!("{} has not rank {D}", self.shape())),
        }
    }

    /// The dims, borrowed.
    pub(crate) fn sizes(&self) -> &[usize] {
        self.primitive.dims()
    }

    /// The device that holds the tensor.
    pub fn device(&self) -> B::Device {
        B::device(&self.primitive)
    }

    /// Copies to another device.
    pub fn to_device(self, device: &B::Device) -> Self {
        Self::wrap(B::to_device(self.primitive, device))
    }

    /// A tensor from data, converted to the kind's usual dtype (see [`Tensor::from_data_dtype`]).
    ///
    /// # Panics
    /// When the data has another rank, or is of integers that the usual dtype does not hold.
    pub fn from_data<T: Into<TensorData>>(data: T, device: &B::Device) -> Self {
        let (data, dtype) = (data.into(), K::default_dtype());
        ensure!(
            !(data.dtype.is_int() && dtype.is_int()) || data.fits(dtype),
            "from_data",
            "the backend's integers are {dtype}, which does not hold all of these {} numbers",
            data.dtype
        );
        Self::from_data_dtype(data, device, dtype)
    }

    /// A tensor from data, converted to a dtype of the kind; data of that dtype is not copied.
    ///
    /// # Panics
    /// When the data has another rank, or the dtype is not of the kind.
    pub fn from_data_dtype<T: Into<TensorData>>(data: T, device: &B::Device, dtype: DType) -> Self {
        expect_kind::<B, K>("from_data", dtype);
        Self::wrap(from_data::<B>(data.into(), device, dtype, D))
    }

    /// A tensor whose elements nobody has set yet (they are zeros).
    pub fn empty<S: Into<Shape>>(shape: S, options: impl Into<TensorCreationOptions<B>>) -> Self {
        Self::filled("empty", shape.into(), Scalar::Int(0), options.into())
    }

    /// Zeros.
    pub fn zeros<S: Into<Shape>>(shape: S, options: impl Into<TensorCreationOptions<B>>) -> Self {
        Self::filled("zeros", shape.into(), Scalar::Int(0), options.into())
    }

    /// Ones.
    pub fn ones<S: Into<Shape>>(shape: S, options: impl Into<TensorCreationOptions<B>>) -> Self {
        Self::filled("ones", shape.into(), Scalar::Int(1), options.into())
    }

    /// One value everywhere.
    pub fn full<S: Into<Shape>, E: Into<Scalar>>(
        shape: S,
        fill_value: E,
        options: impl Into<TensorCreationOptions<B>>,
    ) -> Self {
        Self::filled("full", shape.into(), fill_value.into(), options.into())
    }

    /// Zeros of the same shape, dtype and device.
    pub fn zeros_like(&self) -> Self {
        self.full_like(0)
    }

    /// Ones of the same shape, dtype and device.
    pub fn ones_like(&self) -> Self {
        self.full_like(1)
    }

    /// One value in the same shape, dtype and device.
    pub fn full_like<E: Into<Scalar>>(&self, fill_value: E) -> Self {
        Self::wrap(B::full(self.shape(), fill_value.into(), self.dtype(), &self.device()))
    }

    fn filled(op: &str, shape: Shape, value: Scalar, options: TensorCreationOptions<B>) -> Self {
        check::rank(op, &shape, D);
        let dtype = options.dtype.unwrap_or_else(K::default_dtype);
        expect_kind::<B, K>(op, dtype);
        let held = held_for::<B>(op, value, dtype, &options.device);
        Self::wrap(B::full(shape, value, held, &options.device))
    }

    /// Reads the tensor back.
    ///
    /// # Panics
    /// When the device failed; see [`Tensor::try_into_data`].
    pub fn into_data(self) -> TensorData {
        check::ran("into_data", self.try_into_data())
    }

    /// Reads the tensor back.
    ///
    /// # Panics
    /// When the device failed.
    pub fn to_data(&self) -> TensorData {
        self.clone().into_data()
    }

    /// Reads the tensor back.
    ///
    /// # Errors
    /// When the device failed.
    pub fn try_into_data(self) -> Result<TensorData, ExecutionError> {
        B::into_data(self.primitive)
    }

    /// Reads the tensor back without blocking the thread.
    ///
    /// # Errors
    /// When the device failed.
    pub async fn into_data_async(self) -> Result<TensorData, ExecutionError> {
        B::into_data_async(self.primitive).await
    }

    /// Reads the tensor back without blocking the thread.
    ///
    /// # Errors
    /// When the device failed.
    pub async fn to_data_async(&self) -> Result<TensorData, ExecutionError> {
        B::into_data_async(self.primitive.clone()).await
    }

    /// The only element.
    ///
    /// # Panics
    /// When there are more or none, or the device failed.
    pub fn into_scalar(self) -> K::Elem {
        only::<K::Elem>(self.into_data())
    }

    /// The only element.
    ///
    /// # Errors
    /// When the device failed.
    ///
    /// # Panics
    /// When there are more or none.
    pub fn try_into_scalar(self) -> Result<K::Elem, ExecutionError> {
        self.try_into_data().map(only::<K::Elem>)
    }

    /// The only element, without blocking the thread.
    ///
    /// # Errors
    /// When the device failed.
    ///
    /// # Panics
    /// When there are more or none.
    pub async fn into_scalar_async(self) -> Result<K::Elem, ExecutionError> {
        self.into_data_async().await.map(only::<K::Elem>)
    }

    /// Converts to another dtype of the same kind.
    ///
    /// # Panics
    /// When the dtype is of another kind; see [`Tensor::convert`].
    pub fn cast<F: Into<DType>>(self, dtype: F) -> Self {
        self.convert::<K>(dtype.into())
    }

    /// Converts to a float dtype, from any kind.
    ///
    /// # Panics
    /// When the dtype is no float.
    pub fn to_float<F: Into<DType>>(self, dtype: F) -> Tensor<B, D> {
        self.convert(dtype.into())
    }

    /// Converts to an integer dtype, from any kind: floats truncate and saturate.
    ///
    /// # Panics
    /// When the dtype is no integer.
    pub fn to_int<I: Into<DType>>(self, dtype: I) -> Tensor<B, D, Int> {
        self.convert(dtype.into())
    }

    /// Converts to a dtype of any kind: floats to integers truncate and saturate, non-zero is `true`.
    ///
    /// # Panics
    /// When the dtype is not of the kind `K2`.
    pub fn convert<K2: TensorKind<B>>(self, dtype: DType) -> Tensor<B, D, K2> {
        expect_kind::<B, K2>("cast", dtype);
        let primitive = self.primitive;
        let dtype = held::<B>(dtype, &B::device(&primitive));
        Tensor::wrap(if primitive.dtype() == dtype { primitive } else { B::cast(primitive, dtype) })
    }
}

/// A dtype that the kind holds.
#[track_caller]
fn expect_kind<B: Backend, K: TensorKind<B>>(op: &str, dtype: DType) {
    ensure!(dtype.kind() == K::KIND, op, "{dtype} is not a dtype of {} tensors", K::name());
}

#[track_caller]
fn from_data<B: Backend>(data: TensorData, device: &B::Device, dtype: DType, rank: usize) -> B::Primitive {
    ensure!(data.rank() == rank, "from_data", "rank {rank} was expected, the shape is {:?}", data.shape);
    backend::from_data::<B>(data, dtype, device)
}

/// The only element of the data.
#[track_caller]
fn only<E: crate::Element>(data: TensorData) -> E {
    ensure!(data.num_elements() == 1, "into_scalar", "{:?} has not exactly one element", data.shape);
    data.iter::<E>().next().unwrap_or_default()
}
