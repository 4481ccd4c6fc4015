//! Tensors of small whole numbers: their sums are exact in any order.

use kiln_tensor::backend::Backend;
use kiln_tensor::{DType, TensorData};

pub fn tensor<B: Backend>(shape: &[usize], seed: usize, dtype: DType, device: &B::Device) -> B::Primitive {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|n| ((n * 31 + seed * 17) % 1009 % 9) as f32 - 4.0).collect();
    B::cast(B::from_data(TensorData::new(values, shape), device), dtype)
}

pub fn floats<B: Backend>(tensor: B::Primitive) -> Vec<f32> {
    B::into_data(tensor).expect("a device").convert_dtype(DType::F32).to_vec().expect("floats")
}
