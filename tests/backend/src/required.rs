//! Backends that have only what they must: every method with a default body is left at it.
//!
//! [`Required`] passes the suite if the default bodies are right, and says what a new backend has to write. With
//! [`Narrow`] it has few dtypes, as some devices do, and stops at any other: what is composed may not go through them.

use core::fmt::Debug;
use core::marker::PhantomData;
use kiln_tensor::backend::{Backend, ExecutionError, Primitive, SliceRange};
use kiln_tensor::*;

/// Which dtypes a device has.
pub trait Dtypes: Clone + Debug + Default + Send + Sync + 'static {
    /// Whether it has this one.
    fn has(dtype: DType) -> bool;
}

/// Every dtype of the backend below.
#[derive(Clone, Debug, Default)]
pub struct Every;

impl Dtypes for Every {
    fn has(_dtype: DType) -> bool {
        true
    }
}

/// f32, i32 and bool.
#[derive(Clone, Debug, Default)]
pub struct Narrow;

impl Dtypes for Narrow {
    fn has(dtype: DType) -> bool {
        matches!(dtype, DType::F32 | DType::I32 | DType::Bool)
    }
}

/// The backend `B` without the methods that have default bodies, on a device with the dtypes `P`.
#[derive(Clone, Debug, Default)]
pub struct Required<B, P = Every>(PhantomData<(B, P)>);

type T<B> = <B as Backend>::Primitive;

/// A tensor of a dtype that the device has.
fn held<B: Backend, P: Dtypes>(tensor: T<B>) -> T<B> {
    assert!(P::has(tensor.dtype()), "the device has no {}", tensor.dtype());
    tensor
}

/// Hands methods over to the backend below.
macro_rules! hand_over {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $output:ty;)*) => {
        $(fn $name($($arg: $ty),*) -> $output {
            B::$name($($arg),*)
        })*
    };
}

/// Likewise, for methods that choose the dtype of what they yield.
macro_rules! hand_over_held {
    ($(fn $name:ident($($arg:ident: $ty:ty),*);)*) => {
        $(fn $name($($arg: $ty),*) -> T<B> {
            held::<B, P>(B::$name($($arg),*))
        })*
    };
}

impl<B: Backend, P: Dtypes> Backend for Required<B, P> {
    type Device = B::Device;
    type Primitive = T<B>;
    type FloatElem = B::FloatElem;
    type IntElem = B::IntElem;
    type BoolElem = B::BoolElem;

    fn supports(device: &B::Device, dtype: DType) -> bool {
        P::has(dtype) && B::supports(device, dtype)
    }

    hand_over_held! {
        fn from_data(data: TensorData, device: &B::Device);
        fn full(shape: Shape, value: Scalar, dtype: DType, device: &B::Device);
        fn random(shape: Shape, distribution: Distribution, dtype: DType, device: &B::Device);
        fn arange(start: i64, end: i64, step: i64, dtype: DType, device: &B::Device);
        fn cast(tensor: T<B>, dtype: DType);
        fn arg_reduce(op: ArgReduceOp, tensor: T<B>, dim: usize, select_last: bool);
    }

    hand_over! {
        fn name(device: &B::Device) -> String;
        fn seed(device: &B::Device, seed: u64) -> ();
        fn into_data(tensor: T<B>) -> Result<TensorData, ExecutionError>;
        fn device(tensor: &T<B>) -> B::Device;
        fn to_device(tensor: T<B>, device: &B::Device) -> T<B>;
        fn unary(op: UnaryOp, tensor: T<B>) -> T<B>;
        fn binary(op: BinaryOp, lhs: T<B>, rhs: T<B>) -> T<B>;
        fn binary_scalar(op: BinaryOp, lhs: T<B>, rhs: Scalar) -> T<B>;
        fn compare(op: CompareOp, lhs: T<B>, rhs: T<B>) -> T<B>;
        fn compare_scalar(op: CompareOp, lhs: T<B>, rhs: Scalar) -> T<B>;
        fn select_where(mask: T<B>, on_true: T<B>, on_false: T<B>) -> T<B>;
        fn reshape(tensor: T<B>, shape: Shape) -> T<B>;
        fn permute(tensor: T<B>, axes: &[usize]) -> T<B>;
        fn expand(tensor: T<B>, shape: Shape) -> T<B>;
        fn slice(tensor: T<B>, ranges: &[SliceRange]) -> T<B>;
        fn slice_assign(tensor: T<B>, ranges: &[SliceRange], value: T<B>) -> T<B>;
        fn cat(tensors: &[T<B>], dim: usize) -> T<B>;
        fn select(tensor: T<B>, dim: usize, indices: T<B>) -> T<B>;
        fn select_assign(tensor: T<B>, dim: usize, indices: T<B>, value: T<B>, op: ScatterOp) -> T<B>;
        fn gather(tensor: T<B>, dim: usize, indices: T<B>) -> T<B>;
        fn scatter(tensor: T<B>, dim: usize, indices: T<B>, value: T<B>, op: ScatterOp) -> T<B>;
        fn nonzero(tensor: T<B>) -> Result<T<B>, ExecutionError>;
        fn sort(tensor: T<B>, dim: usize, descending: bool) -> (T<B>, T<B>);
        fn reduce(op: ReduceOp, tensor: T<B>, axes: &[usize]) -> T<B>;
        fn cumulative(op: CumulativeOp, tensor: T<B>, dim: usize, exclusive: bool, reverse: bool) -> T<B>;
        fn matmul(lhs: T<B>, rhs: T<B>) -> T<B>;
        fn conv(x: T<B>, weight: T<B>, bias: Option<T<B>>, options: &ConvOptions) -> T<B>;
        fn conv_transpose(x: T<B>, weight: T<B>, bias: Option<T<B>>, options: &ConvTransposeOptions) -> T<B>;
        fn pool(op: PoolOp, x: T<B>, options: &PoolOptions) -> T<B>;
        fn max_pool_with_indices(x: T<B>, options: &PoolOptions) -> (T<B>, T<B>);
    }
}
