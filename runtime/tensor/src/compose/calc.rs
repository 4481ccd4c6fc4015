//! Short names for the backend methods that compositions are made of.

use crate::backend::{Backend, Primitive, SliceRange};
use crate::check::ensure;
use crate::{
    BinaryOp, CompareOp, DType, Dims, Element, InlineVec, ReduceOp, Scalar, Shape, TensorData, UnaryOp,
};
use alloc::vec::Vec;

/// A backend's tensor.
pub(crate) type T<B> = <B as Backend>::Primitive;

/// `a + b`.
pub(crate) fn add<B: Backend>(a: T<B>, b: T<B>) -> T<B> {
    B::binary(BinaryOp::Add, a, b)
}

/// `a - b`.
pub(crate) fn sub<B: Backend>(a: T<B>, b: T<B>) -> T<B> {
    B::binary(BinaryOp::Sub, a, b)
}

/// `a * b`.
pub(crate) fn mul<B: Backend>(a: T<B>, b: T<B>) -> T<B> {
    B::binary(BinaryOp::Mul, a, b)
}

/// `a / b`.
pub(crate) fn div<B: Backend>(a: T<B>, b: T<B>) -> T<B> {
    B::binary(BinaryOp::Div, a, b)
}

/// `a + s`.
pub(crate) fn add_scalar<B: Backend>(a: T<B>, s: f64) -> T<B> {
    B::binary_scalar(BinaryOp::Add, a, Scalar::Float(s))
}

/// `a * s`.
pub(crate) fn mul_scalar<B: Backend>(a: T<B>, s: f64) -> T<B> {
    B::binary_scalar(BinaryOp::Mul, a, Scalar::Float(s))
}

/// `1 - a`.
pub(crate) fn one_minus<B: Backend>(a: T<B>) -> T<B> {
    add_scalar::<B>(B::unary(UnaryOp::Neg, a), 1.0)
}

/// `a > s`.
pub(crate) fn above<B: Backend>(a: T<B>, s: f64) -> T<B> {
    B::compare_scalar(CompareOp::Greater, a, Scalar::Float(s))
}

/// Arithmetic mean over `axes`, which stay with size 1.
pub(crate) fn mean<B: Backend>(a: T<B>, axes: &[usize]) -> T<B> {
    B::reduce(ReduceOp::Mean, a, axes)
}

/// The same elements under other dims.
pub(crate) fn reshape<B: Backend>(a: T<B>, dims: &[usize]) -> T<B> {
    if a.dims() == dims { a } else { B::reshape(a, Shape::from(dims)) }
}

/// Reshapes a vector of `n` elements so that it broadcasts along `axis` of tensors of the given rank.
pub(crate) fn along<B: Backend>(vector: T<B>, axis: usize, rank: usize) -> T<B> {
    let mut dims = Dims::repeat(1, rank);
    dims[axis] = vector.shape().num_elements();
    reshape::<B>(vector, &dims)
}

/// Puts dims of size 1 before the others until the rank is `rank`.
pub(crate) fn lead_to_rank<B: Backend>(a: T<B>, rank: usize) -> T<B> {
    if a.dims().len() >= rank {
        return a;
    }
    let mut dims = Dims::repeat(1, rank - a.dims().len());
    dims.extend_from_slice(a.dims());
    reshape::<B>(a, &dims)
}

/// A tensor of one value with `rank` dims of size 1, on the device of `like`.
pub(crate) fn scalar_like<B: Backend>(like: &T<B>, value: Scalar, dtype: DType, rank: usize) -> T<B> {
    B::full(Shape::from(Dims::repeat(1, rank)), value, dtype, &B::device(like))
}

/// The dtype of positions on a backend.
pub(crate) fn index_dtype<B: Backend>() -> DType {
    <B::IntElem as Element>::DTYPE
}

/// Positions along one dim as an index tensor.
pub(crate) fn indices<B: Backend>(positions: Vec<i64>, like: &T<B>) -> T<B> {
    let n = positions.len();
    index_tensor::<B>(positions, Shape::from([n]), &B::device(like))
}

/// Positions that were computed on the host.
///
/// # Panics
/// When the backend's integers do not hold them.
pub(crate) fn index_tensor<B: Backend>(positions: Vec<i64>, shape: Shape, device: &B::Device) -> T<B> {
    let data = TensorData::new(positions, shape);
    let dtype = index_dtype::<B>();
    ensure!(data.fits(dtype), "indices", "positions beyond those that {dtype} holds");
    B::from_data(data.convert_dtype(dtype), device)
}

/// Weights computed on the host as a tensor of the dtype of `like`; rounded there, since a device may have no f64.
pub(crate) fn weights<B: Backend>(values: Vec<f64>, dims: Vec<usize>, like: &T<B>) -> T<B> {
    B::from_data(TensorData::new(values, dims).convert_dtype(like.dtype()), &B::device(like))
}

/// The identity permutation with two axes exchanged.
pub(crate) fn swapped(rank: usize, a: usize, b: usize) -> Dims {
    let mut axes: Dims = (0..rank).collect();
    axes.swap(a, b);
    axes
}

/// The dtype in which what would overflow in a dtype, or be rounded too coarsely, is computed: f32 for floats of 16 bits.
pub fn wide(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        dtype => dtype,
    }
}

/// Computes in the [wide] dtype.
pub(crate) fn widened<B: Backend>(a: T<B>, f: impl FnOnce(T<B>) -> T<B>) -> T<B> {
    let dtype = a.dtype();
    to_dtype::<B>(f(to_dtype::<B>(a, wide(dtype))), dtype)
}

/// Like [`widened`], for a parameter that meets a widened operand.
pub(crate) fn to_dtype<B: Backend>(a: T<B>, dtype: DType) -> T<B> {
    if a.dtype() == dtype { a } else { B::cast(a, dtype) }
}

/// The `n`-th element of the outermost dim, without that dim.
pub(crate) fn nth<B: Backend>(a: T<B>, n: usize) -> T<B> {
    let dims = a.shape().dims;
    reshape::<B>(narrow::<B>(a, 0, n, 1), &dims[1..])
}

/// `start..start + length` of one dim.
pub(crate) fn narrow<B: Backend>(a: T<B>, dim: usize, start: usize, length: usize) -> T<B> {
    let mut ranges: InlineVec<SliceRange> =
        a.shape().dims.iter().map(|&size| SliceRange::full(size)).collect();
    ranges[dim] = SliceRange { start, end: start + length, step: 1 };
    B::slice(a, &ranges)
}
