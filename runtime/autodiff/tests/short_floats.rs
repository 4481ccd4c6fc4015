//! Gradients of floats of 16 bits, where sums, squares and numbers of elements leave their range or their precision.

use kiln_autodiff::Autodiff;
use kiln_ndarray::NdArray;
use kiln_tensor::module::{self, GridSampleOptions};
use kiln_tensor::{Activation, AttentionOptions, DType, Tensor, TensorData, activation};

type B = Autodiff<NdArray>;

fn tensor<const D: usize>(values: Vec<f64>, shape: [usize; D], dtype: DType) -> Tensor<B, D> {
    let data = TensorData::new(values, shape).convert_dtype(dtype);
    Tensor::from_data_dtype(data, &Default::default(), dtype)
}

fn floats<const D: usize>(x: Tensor<NdArray, D>) -> Vec<f64> {
    x.into_data().iter::<f64>().collect()
}

/// Numbers that are the same in all dtypes of floats.
fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|n| ((n * 31 + seed * 17) % 97 % 17) as f64 / 8.0 - 1.0).collect()
}

#[test]
fn means_of_many_elements_have_gradients() {
    let x = tensor(vec![1.0; 100_000], [100_000], DType::F16).require_grad();
    let gradients = x.clone().mean().backward();
    let found = floats(x.grad(&gradients).expect("a gradient"));
    // As near as f16 comes to 1e-5.
    assert!(found.iter().all(|x| (x - 1e-5).abs() < 6e-8), "{}", found[0]);

    let many = tensor((0..100_000).map(|n| f64::from(n % 2) * 2.0).collect(), [100_000], DType::F16);
    let variance = floats(many.clone().var(0).inner())[0];
    assert!((variance - 1.0).abs() < 1e-2, "{variance}");
    let pairs = tensor((0..4_000).map(|n| f64::from(n % 4) * 64.0).collect(), [2_000, 2], DType::F16);
    let covariance = floats(pairs.cov(0, 1).inner());
    assert!(covariance.iter().all(|x| (x / 4096.0 - 1.0).abs() < 1e-2), "{covariance:?}");
}

#[test]
fn slopes_of_large_numbers_are_finite() {
    let at = |op: Activation| {
        let x = tensor(vec![-300.0, 300.0, 0.5], [3], DType::F16).require_grad();
        let gradients = activation::apply(op, x.clone()).sum().backward();
        floats(x.grad(&gradients).expect("a gradient"))
    };
    let found = at(Activation::GeluTanh);
    assert_eq!(found[..2], [0.0, 1.0]);
    assert!((found[2] - 0.8674).abs() < 1e-3, "{found:?}");

    let [y, x] = [(); 2].map(|()| tensor(vec![300.0], [1], DType::F16).require_grad());
    let gradients = y.clone().atan2(x.clone()).sum().backward();
    let found = floats(y.grad(&gradients).expect("a gradient"));
    assert!((found[0] - 1.0 / 600.0).abs() < 1e-5, "{found:?}");

    // An infinite gradient outside of the ramp is none.
    let x = tensor(vec![10.0], [1], DType::F32).require_grad();
    let y = activation::apply(Activation::HardSigmoid { alpha: 0.2, beta: 0.5 }, x.clone());
    let gradients = (y * f32::INFINITY).sum().backward();
    assert_eq!(floats(x.grad(&gradients).expect("a gradient")), [0.0]);
}

#[test]
fn statistics_of_batches_are_not_rounded() {
    let run = |dtype: DType| {
        let spread = numbers(64 * 4, 1).into_iter().map(|x| 33.0 + x).collect();
        let rounded = tensor(spread, [64, 4], DType::BF16);
        let [x, weight, bias] = [
            rounded.cast(dtype).require_grad().reshape([64 * 4]),
            tensor(vec![1.0; 4], [4], dtype).require_grad(),
            tensor(vec![0.0; 4], [4], dtype).require_grad(),
        ];
        let factors = tensor(numbers(64 * 4, 2), [64, 4], dtype);
        let (y, mean, variance) = module::batch_norm_train(x.reshape([64, 4]), weight.clone(), bias, 1e-5);
        let gradients = (y * factors).sum().backward();
        let found = floats(weight.grad(&gradients).expect("a gradient"));
        (found, floats(mean.inner()), floats(variance.inner()))
    };
    let (expected, found) = (run(DType::F32), run(DType::BF16));
    let near = |found: &[f64], expected: &[f64], allowed: f64| {
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= allowed), "{found:?} {expected:?}");
    };
    near(&found.1, &expected.1, 1e-4);
    near(&found.2, &expected.2, 1e-4);
    near(&found.0, &expected.0, 1.0);
}

#[test]
fn shares_of_keys_are_computed_in_f32() {
    let run = |dtype: DType| {
        let shape = [1, 2, 64, 16];
        let of = |seed: usize| {
            let rounded = tensor(numbers(2 * 64 * 16, seed), shape, DType::BF16);
            (rounded * 2.0).cast(dtype).require_grad()
        };
        let [q, k, v] = [1, 2, 3].map(of);
        let y = module::attention(q.clone(), k, v, None, AttentionOptions::default());
        let factors = tensor(numbers(2 * 64 * 16, 4), shape, DType::BF16).cast(dtype);
        let gradients = (y * factors).sum().backward();
        floats(q.grad(&gradients).expect("a gradient"))
    };
    let (expected, found) = (run(DType::F32), run(DType::BF16));
    let largest = expected.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
    let worst = found.iter().zip(&expected).fold(0.0_f64, |worst, (a, b)| worst.max((a - b).abs()));
    assert!(worst < 0.01 * largest, "{worst} of {largest}");
}

#[test]
fn grids_of_16_bits_name_the_pixels_of_wide_images() {
    let columns: Vec<f64> = (0..1024).map(|n| f64::from(n % 256)).collect();
    let image = tensor(columns, [1, 1, 1, 1024], DType::BF16);
    // Multiples of 2^-7 are the same in bf16.
    let at: Vec<f64> = (0..128).flat_map(|n| [f64::from(n) / 128.0, 0.0]).collect();
    let read = |dtype: DType| {
        let grid = tensor(at.clone(), [1, 1, 128, 2], DType::BF16).cast(dtype);
        let found = module::grid_sample(image.clone().cast(dtype), grid, GridSampleOptions::default());
        floats(found.cast(DType::F32).inner())
    };
    let worst = read(DType::BF16).into_iter().zip(read(DType::F32)).map(|(a, b)| (a - b).abs());
    // As far as bf16 tells numbers up to 256 apart.
    let worst = worst.fold(0.0_f64, f64::max);
    assert!(worst <= 1.0, "{worst}");
}
