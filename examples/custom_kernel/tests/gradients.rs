//! The kernel beside its plain version on the CPU, values and gradients.

use custom_kernel::{AutodiffBackend, Backend, dense_relu, reference};
use kiln::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use kiln::backend::{Autodiff, NdArray, Wgpu};
use kiln::tensor::{DType, Distribution, Tensor, TensorData, Tolerance};

const CLOSE: fn() -> Tolerance<f32> = || Tolerance::absolute(2e-5);

/// `x`, weight, bias, and what the result is multiplied by before it is summed.
type Case = [TensorData; 4];

fn case(x: [usize; 3], weight: [usize; 3], bias: [usize; 3]) -> Case {
    let result = [x[0].max(weight[0]).max(bias[0]), x[1], weight[2]];
    let device = Default::default();
    [x, weight, bias, result].map(|shape| {
        Tensor::<NdArray, 3>::random(shape, Distribution::Uniform(-1.0, 1.0), &device).into_data()
    })
}

fn cases() -> Vec<Case> {
    vec![
        case([2, 3, 4], [2, 4, 5], [2, 3, 5]),
        // Parts of squares on all sides, and what is broadcast.
        case([3, 33, 17], [1, 17, 40], [1, 1, 40]),
        case([1, 16, 16], [2, 16, 16], [1, 16, 1]),
        case([1, 1, 50], [1, 50, 1], [4, 1, 1]),
        case([2, 2, 1], [2, 1, 2], [1, 1, 1]),
    ]
}

fn results<B: AutodiffBackend>(
    case: &Case,
    of: fn(Tensor<B, 3>, Tensor<B, 3>, Tensor<B, 3>) -> Tensor<B, 3>,
) -> Vec<TensorData> {
    let device = Default::default();
    let [x, weight, bias, factor] =
        case.each_ref().map(|data| Tensor::<B, 3>::from_data(data.clone(), &device));
    let leaves = [x, weight, bias].map(Tensor::require_grad);
    let [x, weight, bias] = leaves.clone();
    let y = of(x, weight, bias);
    let value = y.to_data();
    let gradients = (y * factor).sum().backward();
    let gradient = |leaf: Tensor<B, 3>| leaf.grad(&gradients).expect("a leaf has a gradient").into_data();
    core::iter::once(value).chain(leaves.map(gradient)).collect()
}

fn agrees<B: AutodiffBackend>() {
    for case in cases() {
        let expected = results::<Autodiff<NdArray>>(&case, reference);
        let found = results::<B>(&case, dense_relu);
        for (found, expected) in found.iter().zip(&expected) {
            found.assert_approx_eq(expected, CLOSE());
        }
    }
}

#[test]
fn the_kernel_and_its_gradients_are_the_plain_versions() {
    agrees::<Autodiff<Wgpu>>();
    agrees::<Autodiff<Wgpu, BalancedCheckpointing>>();
}

#[test]
fn other_backends_compute_the_plain_version() {
    agrees::<Autodiff<NdArray>>();
}

#[test]
fn views_and_other_dtypes_are_taken() {
    fn turned<B: Backend>(case: &Case, dtype: DType) -> TensorData {
        let device = Default::default();
        let [x, weight, bias, _] =
            case.each_ref().map(|data| Tensor::<B, 3>::from_data(data.clone(), &device).cast(dtype));
        dense_relu(x.swap_dims(1, 2), weight.swap_dims(1, 2), bias.swap_dims(1, 2))
            .cast(DType::F32)
            .into_data()
    }
    let case = case([2, 20, 7], [2, 9, 20], [1, 9, 7]);
    let expected = turned::<NdArray>(&case, DType::F32);
    turned::<Wgpu>(&case, DType::F32).assert_approx_eq(&expected, CLOSE());
    let device = Default::default();
    if <Wgpu as kiln::tensor::backend::Backend>::supports(&device, DType::F16) {
        turned::<Wgpu>(&case, DType::F16).assert_approx_eq(&expected, Tolerance::<f32>::absolute(2e-2));
    }
}

#[test]
#[should_panic = "dense_relu: x [1, 2, 3], weight [1, 4, 5] and bias [1, 1, 5] do not fit"]
fn shapes_that_do_not_fit_are_named() {
    let device = Default::default();
    let ones = |shape: [usize; 3]| Tensor::<Wgpu, 3>::ones(shape, &device);
    dense_relu(ones([1, 2, 3]), ones([1, 4, 5]), ones([1, 1, 5]));
}
