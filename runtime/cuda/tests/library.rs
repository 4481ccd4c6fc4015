//! What asks NVIDIA's libraries themselves, or those that stand in for them (`scripts/cuda_driver.sh`). Numbers are small and whole, so that sums
//! are exact in any order.

use kiln_cuda::{Cuda, CudaDevice, Graph};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::Backend;
use kiln_tensor::{Activation, DType, Scalar, Tensor, TensorData};

const DEVICE: CudaDevice = CudaDevice { index: 0 };

/// Rows, columns and depth of products that the library is asked for.
const SIZE: [usize; 3] = [260, 264, 256];

fn numbers(shape: &[usize], seed: usize) -> TensorData {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|n| ((n * 31 + seed * 17) % 1009 % 9) as f32 - 4.0).collect();
    TensorData::new(values, shape)
}

fn tensor<B: Backend>(shape: &[usize], seed: usize, device: &B::Device) -> B::Primitive {
    B::from_data(numbers(shape, seed), device)
}

fn floats<B: Backend>(tensor: B::Primitive) -> Vec<f32> {
    B::into_data(tensor).expect("a device").convert_dtype(DType::F32).to_vec().expect("floats")
}

/// With and without bias, row by row and column by column, of halves, of a batch.
fn products<B: Backend>(device: &B::Device) -> Vec<Vec<f32>> {
    let [rows, columns, depth] = SIZE;
    let mut all = Vec::new();
    let x = || tensor::<B>(&[rows, depth], 1, device);
    let weight = || tensor::<B>(&[depth, columns], 2, device);
    let bias = tensor::<B>(&[columns], 3, device);
    all.push(floats::<B>(B::matmul(x(), weight())));
    all.push(floats::<B>(B::linear(x(), weight(), Some(bias), None)));
    let turned = |t: B::Primitive| B::permute(t, &[1, 0]);
    let (left, right) = (tensor::<B>(&[depth, rows], 4, device), tensor::<B>(&[columns, depth], 5, device));
    all.push(floats::<B>(B::matmul(turned(left.clone()), turned(right.clone()))));
    all.push(floats::<B>(B::matmul(x(), turned(right))));
    all.push(floats::<B>(B::matmul(turned(left), weight())));
    let (many, one) =
        (tensor::<B>(&[3, 100, depth], 6, device), tensor::<B>(&[1, depth, columns], 7, device));
    all.push(floats::<B>(B::matmul(many, one)));
    all
}

#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn large_products_agree_with_the_cpu() {
    for (n, (own, expected)) in
        products::<Cuda>(&DEVICE).iter().zip(products::<NdArray>(&Default::default())).enumerate()
    {
        assert_eq!(*own, expected, "product {n}");
    }
}

#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn products_of_halves_agree_with_the_cpu() {
    fn product<B: Backend>(device: &B::Device) -> Vec<f32> {
        let [rows, columns, depth] = SIZE;
        let half = |t| B::cast(t, DType::F16);
        // Sums of few terms are halves, all of them.
        let ones = B::full([rows, depth].into(), Scalar::Float(0.25), DType::F16, device);
        floats::<B>(B::matmul(ones, half(tensor::<B>(&[depth, columns], 2, device))))
    }
    assert_eq!(product::<Cuda>(&DEVICE), product::<NdArray>(&Default::default()));
}

#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn gelu_follows_products_of_halves() {
    fn product<B: Backend>(device: &B::Device) -> Vec<f32> {
        let [rows, columns, depth] = SIZE;
        let half = |t| B::cast(t, DType::F16);
        let small = B::full([rows, depth].into(), Scalar::Float(1.0 / 64.0), DType::F16, device);
        let (weight, bias) = (tensor::<B>(&[depth, columns], 2, device), tensor::<B>(&[columns], 3, device));
        floats::<B>(B::linear(small, half(weight), Some(half(bias)), Some(Activation::GeluTanh)))
    }
    for (x, y) in product::<Cuda>(&DEVICE).iter().zip(product::<NdArray>(&Default::default())) {
        assert!((x - y).abs() <= 2e-3 * y.abs().max(0.25), "{x} and not {y}");
    }
}

/// Larger than what is copied at a time, several on their way at once, and of host memory that is used again meanwhile.
#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn large_tensors_arrive_whole() {
    let sizes = [17_000, 3 << 20, (2 << 20) + 5];
    let values = |size: usize| -> Vec<f32> { (0..size).map(|n| (n % 1_000_003) as f32).collect() };
    let tensors =
        sizes.map(|size| Cuda::<f32, i64>::from_data(TensorData::new(values(size), [size]), &DEVICE));
    for (size, tensor) in sizes.into_iter().zip(tensors) {
        assert_eq!(floats::<Cuda>(tensor), values(size));
    }
}

#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn graphs_hold_products_of_the_library() {
    fn matrix(shape: [usize; 2], seed: usize) -> Tensor<Cuda, 2> {
        Tensor::from_data(numbers(&shape, seed), &DEVICE)
    }
    let [rows, columns, depth] = SIZE;
    let weight = matrix([depth, columns], 2);
    let input = |seed| matrix([rows, depth], seed);
    let graph = Graph::capture(input(1), |x| x.matmul(weight.clone()).exp()).expect("a graph");
    for seed in [1, 8, 9] {
        let replayed = graph.replay(input(seed)).expect("a replay");
        let direct = input(seed).matmul(weight.clone()).exp();
        replayed.into_data().assert_eq(&direct.into_data(), true);
    }
}
