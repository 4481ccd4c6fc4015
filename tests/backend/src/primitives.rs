//! What every backend must do, generic over it.

pub mod attention;
pub mod casts;
pub mod elementwise;
pub mod fused;
pub mod indexing;
pub mod layout;
pub mod making;
pub mod orders;
pub mod products;
pub mod quantized;
pub mod reduction;
pub mod windows;

use kiln_tensor::backend::{Backend, Primitive, held, hold};
use kiln_tensor::{DType, Element, TensorData};

/// A tensor from elements; of the dtype that stands in where the backend has not theirs.
pub fn tensor<B: Backend, E: Element + bytemuck::NoUninit>(elements: &[E], shape: &[usize]) -> B::Primitive {
    hold::<B>(TensorData::new(elements.to_vec(), shape), &B::Device::default())
}

/// The dtype in which the backend holds another.
pub fn held_as<B: Backend>(dtype: DType) -> DType {
    held::<B>(dtype, &B::Device::default())
}

/// Whether the backend computes with a dtype.
pub fn has<B: Backend>(dtype: DType) -> bool {
    B::supports(&B::Device::default(), dtype)
}

/// A bool tensor.
pub fn mask<B: Backend>(elements: &[u8], shape: &[usize]) -> B::Primitive {
    let elements: Vec<bool> = elements.iter().map(|&element| element != 0).collect();
    B::from_data(TensorData::new(elements, shape), &B::Device::default())
}

/// `0, 1, 2, …` in a shape.
pub fn counting<B: Backend>(shape: &[usize]) -> B::Primitive {
    let elements: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| i as f32).collect();
    tensor::<B, f32>(&elements, shape)
}

/// The elements, as the dtype they have or should have.
#[track_caller]
pub fn read<B: Backend, E: Element + bytemuck::AnyBitPattern>(tensor: B::Primitive) -> Vec<E> {
    assert_eq!(tensor.dtype(), held_as::<B>(E::DTYPE));
    let data = B::into_data(tensor).expect("a backend in these tests reads back").convert_dtype(E::DTYPE);
    data.bytes.chunks_exact(size_of::<E>()).map(bytemuck::pod_read_unaligned).collect()
}

/// Positions, which have the backend's own integer dtype.
#[track_caller]
pub fn positions<B: Backend>(tensor: B::Primitive) -> Vec<i64> {
    assert_eq!(tensor.dtype(), B::IntElem::DTYPE);
    B::into_data(tensor).expect("a backend in these tests reads back").iter().collect()
}

/// The elements of a bool tensor as 0 and 1.
#[track_caller]
pub fn bits<B: Backend>(tensor: B::Primitive) -> Vec<u8> {
    assert_eq!(tensor.dtype(), DType::Bool);
    B::into_data(tensor).expect("a backend in these tests reads back").bytes.to_vec()
}

/// Asserts closeness, relative above 1 and absolute below; NaN equals NaN.
#[track_caller]
pub fn assert_close(actual: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(actual.len(), expected.len(), "{actual:?} against {expected:?}");
    for (i, (&a, &e)) in actual.iter().zip(expected).enumerate() {
        let close = a == e || (a.is_nan() && e.is_nan()) || (a - e).abs() <= tolerance * e.abs().max(1.0);
        assert!(close, "element {i}: {a}, expected {e}, in {actual:?} against {expected:?}");
    }
}
