//! The tensor suite on a backend that has only what it must: every fused operation is composed.

mod suite;

use kiln_ndarray::{NdArray, NdArrayDevice, NdArrayTensor};
use kiln_tensor::backend::{Backend, ExecutionError, SliceRange};
use kiln_tensor::*;

/// The CPU backend without its fused operations.
#[derive(Clone, Debug, Default)]
struct Plain;

type Cpu = NdArray;
type T = NdArrayTensor;

/// Hands methods over to the CPU backend.
macro_rules! hand_over {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $output:ty;)*) => {
        $(fn $name($($arg: $ty),*) -> $output {
            Cpu::$name($($arg),*)
        })*
    };
}

impl Backend for Plain {
    type Device = NdArrayDevice;
    type Primitive = T;
    type FloatElem = f32;
    type IntElem = i64;
    type BoolElem = bool;

    hand_over! {
        fn name(device: &NdArrayDevice) -> String;
        fn seed(device: &NdArrayDevice, seed: u64) -> ();
        fn from_data(data: TensorData, device: &NdArrayDevice) -> T;
        fn into_data(tensor: T) -> Result<TensorData, ExecutionError>;
        fn device(tensor: &T) -> NdArrayDevice;
        fn to_device(tensor: T, device: &NdArrayDevice) -> T;
        fn full(shape: Shape, value: Scalar, dtype: DType, device: &NdArrayDevice) -> T;
        fn random(shape: Shape, distribution: Distribution, dtype: DType, device: &NdArrayDevice) -> T;
        fn arange(start: i64, end: i64, step: i64, dtype: DType, device: &NdArrayDevice) -> T;
        fn cast(tensor: T, dtype: DType) -> T;
        fn unary(op: UnaryOp, tensor: T) -> T;
        fn binary(op: BinaryOp, lhs: T, rhs: T) -> T;
        fn binary_scalar(op: BinaryOp, lhs: T, rhs: Scalar) -> T;
        fn compare(op: CompareOp, lhs: T, rhs: T) -> T;
        fn compare_scalar(op: CompareOp, lhs: T, rhs: Scalar) -> T;
        fn select_where(mask: T, on_true: T, on_false: T) -> T;
        fn reshape(tensor: T, shape: Shape) -> T;
        fn permute(tensor: T, axes: &[usize]) -> T;
        fn expand(tensor: T, shape: Shape) -> T;
        fn slice(tensor: T, ranges: &[SliceRange]) -> T;
        fn slice_assign(tensor: T, ranges: &[SliceRange], value: T) -> T;
        fn cat(tensors: Vec<T>, dim: usize) -> T;
        fn select(tensor: T, dim: usize, indices: T) -> T;
        fn select_assign(tensor: T, dim: usize, indices: T, value: T, op: ScatterOp) -> T;
        fn gather(tensor: T, dim: usize, indices: T) -> T;
        fn scatter(tensor: T, dim: usize, indices: T, value: T, op: ScatterOp) -> T;
        fn nonzero(tensor: T) -> T;
        fn sort(tensor: T, dim: usize, descending: bool) -> (T, T);
        fn reduce(op: ReduceOp, tensor: T, axes: &[usize]) -> T;
        fn arg_reduce(op: ArgReduceOp, tensor: T, dim: usize, select_last: bool) -> T;
        fn cumulative(op: CumulativeOp, tensor: T, dim: usize, exclusive: bool, reverse: bool) -> T;
        fn matmul(lhs: T, rhs: T) -> T;
        fn conv(x: T, weight: T, bias: Option<T>, options: &ConvOptions) -> T;
        fn conv_transpose(x: T, weight: T, bias: Option<T>, options: &ConvTransposeOptions) -> T;
        fn pool(op: PoolOp, x: T, options: &PoolOptions) -> T;
        fn max_pool_with_indices(x: T, options: &PoolOptions) -> (T, T);
    }
}

suite::run_on!(super::Plain);

/// A query without any key left.
#[test]
fn attention_without_keys_is_zero() {
    let ones = |n| Tensor::<Plain, 4>::ones([1, 1, n, 1], &NdArrayDevice::Cpu);
    let causal = AttentionOptions { is_causal: true, ..AttentionOptions::default() };
    suite::same(module::attention(ones(2), ones(1), ones(1), None, causal), [[[[0.0f32], [1.0]]]]);
}
