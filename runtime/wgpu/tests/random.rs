//! Random numbers are the CPU's, for the same seed.

use kiln_ndarray::NdArray;
use kiln_tensor::backend::Backend;
use kiln_tensor::{DType, Distribution, Shape, TensorData};
use kiln_wgpu::Wgpu;

/// A few draws after a seed.
fn drawn<B: Backend>() -> Vec<TensorData> {
    let device = B::Device::default();
    B::seed(&device, 7);
    let draw = |distribution, dtype| {
        let tensor = B::random(Shape::from([3, 50]), distribution, dtype, &device);
        B::into_data(tensor).expect("a device")
    };
    let mut all = vec![
        draw(Distribution::Default, DType::F32),
        draw(Distribution::Normal(1.0, 2.0), DType::F32),
        draw(Distribution::Uniform(-3.0, 9.0), DType::I32),
        draw(Distribution::Default, DType::I32),
        draw(Distribution::Bernoulli(0.3), DType::Bool),
    ];
    let ones = B::full(Shape::from([200]), 1.0.into(), DType::F32, &device);
    let key = B::random_key(&device);
    all.push(B::into_data(B::dropout(ones, 0.4, key)).expect("a device"));
    all
}

#[test]
fn the_same_seed_draws_the_same_numbers_as_on_the_cpu() {
    assert_eq!(drawn::<Wgpu>(), drawn::<NdArray>());
}
