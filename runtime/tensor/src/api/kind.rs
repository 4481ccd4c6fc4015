//! The kinds of tensors.

use crate::backend::{AutodiffBackend, Backend};
use crate::{DType, DTypeKind, Element};
use core::fmt::Debug;

/// Floating-point tensors; the default kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Float;

/// A backend's float tensor, as Burn wraps it. (A quantized tensor is a float tensor here.)
#[derive(Clone, Debug)]
pub enum TensorPrimitive<B: Backend> {
    /// The tensor.
    Float(B::Primitive),
}

impl<B: Backend> TensorPrimitive<B> {
    /// The tensor.
    pub fn tensor(self) -> B::Primitive {
        let Self::Float(tensor) = self;
        tensor
    }
}

/// Integer tensors, signed and unsigned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Int;

/// Boolean tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bool;

/// A kind of tensor: which dtypes it holds, and as what one element reads back.
pub trait TensorKind<B: Backend>: Clone + Debug + Default + Send + Sync + 'static {
    /// An element on the host.
    type Elem: Element;

    /// What [`Tensor::into_primitive`](crate::Tensor::into_primitive) gives.
    type Primitive;

    /// The dtypes of this kind.
    const KIND: DTypeKind;

    /// The kind's name.
    fn name() -> &'static str;

    /// Wraps a backend's tensor.
    fn from_backend(tensor: B::Primitive) -> Self::Primitive;

    /// The backend's tensor.
    fn into_backend(primitive: Self::Primitive) -> B::Primitive;

    /// The dtype that tensors of this kind get when nothing else is said.
    fn default_dtype() -> DType {
        Self::Elem::DTYPE
    }
}

impl<B: Backend> TensorKind<B> for Float {
    type Elem = B::FloatElem;
    type Primitive = TensorPrimitive<B>;

    const KIND: DTypeKind = DTypeKind::Float;

    fn name() -> &'static str {
        "Float"
    }

    fn from_backend(tensor: B::Primitive) -> Self::Primitive {
        TensorPrimitive::Float(tensor)
    }

    fn into_backend(primitive: Self::Primitive) -> B::Primitive {
        primitive.tensor()
    }
}

impl<B: Backend> TensorKind<B> for Int {
    type Elem = B::IntElem;
    type Primitive = B::Primitive;

    const KIND: DTypeKind = DTypeKind::Int;

    fn name() -> &'static str {
        "Int"
    }

    fn from_backend(tensor: B::Primitive) -> Self::Primitive {
        tensor
    }

    fn into_backend(primitive: Self::Primitive) -> B::Primitive {
        primitive
    }
}

impl<B: Backend> TensorKind<B> for Bool {
    type Elem = B::BoolElem;
    type Primitive = B::Primitive;

    const KIND: DTypeKind = DTypeKind::Bool;

    fn name() -> &'static str {
        "Bool"
    }

    fn from_backend(tensor: B::Primitive) -> Self::Primitive {
        tensor
    }

    fn into_backend(primitive: Self::Primitive) -> B::Primitive {
        primitive
    }

    fn default_dtype() -> DType {
        DType::Bool
    }
}

/// Kinds with the basic operations: all.
pub trait BasicOps<B: Backend>: TensorKind<B> {}

impl<B: Backend, K: TensorKind<B>> BasicOps<B> for K {}

/// Kinds of numbers: [`Float`] and [`Int`].
pub trait Numeric<B: Backend>: BasicOps<B> {}

impl<B: Backend> Numeric<B> for Float {}
impl<B: Backend> Numeric<B> for Int {}

/// Kinds with an order: the [`Numeric`] ones.
pub trait Ordered<B: Backend>: Numeric<B> {}

impl<B: Backend, K: Numeric<B>> Ordered<B> for K {}

/// The kind that a tensor of an autodiff backend has on the inner backend.
pub trait BasicAutodiffOps<B: AutodiffBackend>: BasicOps<B> {
    /// The same kind there.
    type InnerKind: BasicOps<B::InnerBackend>;
}

impl<B: AutodiffBackend> BasicAutodiffOps<B> for Float {
    type InnerKind = Float;
}

impl<B: AutodiffBackend> BasicAutodiffOps<B> for Int {
    type InnerKind = Int;
}

impl<B: AutodiffBackend> BasicAutodiffOps<B> for Bool {
    type InnerKind = Bool;
}
