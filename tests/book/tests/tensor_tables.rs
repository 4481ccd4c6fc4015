//! The tables of tensor operations: each row once, in the order and with the arguments that the book gives, on values
//! that are small enough to check by eye.

use burn::backend::NdArray;
use burn::tensor::quantization::{Calibration, QuantScheme, QuantValue, compute_q_params, compute_range};
use burn::tensor::{
    Bool, DType, Distribution, Float, IndexingUpdateOp, Int, Tensor, TensorData, Tolerance, activation, grid,
    linalg,
};

type B = NdArray;
type Device = burn::tensor::Device<B>;

fn floats<const D: usize>(data: impl Into<TensorData>) -> Tensor<B, D> {
    Tensor::from_data(data, &Device::default())
}

fn ints<const D: usize>(data: impl Into<TensorData>) -> Tensor<B, D, Int> {
    Tensor::from_data(data, &Device::default())
}

fn bools<const D: usize>(data: impl Into<TensorData>) -> Tensor<B, D, Bool> {
    Tensor::from_data(data, &Device::default())
}

/// Asserts shape and elements, within a tolerance for floats.
#[track_caller]
fn is<const D: usize, K: burn::tensor::BasicOps<B>>(
    actual: Tensor<B, D, K>,
    expected: impl Into<TensorData>,
) {
    let (actual, expected) = (actual.into_data(), expected.into());
    if actual.dtype.is_float() {
        assert_eq!(actual.shape, expected.shape);
        actual.assert_approx_eq::<f32>(&expected.convert::<f32>(), Tolerance::rel_abs(1e-5, 1e-6));
    } else {
        actual.assert_eq(&expected, false);
    }
}

#[test]
fn basic_operations_shape() {
    let device = Device::default();
    let x = floats::<2>([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    is(Tensor::cat(vec![x.clone(), x.clone()], 0).slice(1..3), [[4.0, 5.0, 6.0], [1.0, 2.0, 3.0]]);
    assert_eq!(Tensor::<B, 2>::empty([2, 3], &device).dims(), [2, 3]);
    is(Tensor::<B, 2>::from_backend(x.clone().into_backend()), x.to_data());
    assert_eq!(Tensor::stack::<3>(vec![x.clone(), x.clone()], 0).dims(), [2, 2, 3]);
    let sizes = |parts: Vec<Tensor<B, 2>>| parts.iter().map(|part| part.dims()[1]).collect::<Vec<_>>();
    assert_eq!(sizes(x.clone().chunk(2, 1)), [2, 1]);
    assert_eq!(sizes(x.clone().split(2, 1)), [2, 1]);
    assert_eq!(sizes(x.clone().split_with_sizes(vec![1, 2], 1)), [1, 2]);
    assert_eq!((x.device(), x.dtype(), x.dims()), (device, DType::F32, [2, 3]));
    is(x.clone().slice(0..1).expand([2, 3]), [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]);
    is(x.clone().flatten::<1>(0, 1), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    is(x.clone().flip([0, 1]), [[6.0, 5.0, 4.0], [3.0, 2.0, 1.0]]);
    is(x.clone().narrow(1, 1, 2), [[2.0, 3.0], [5.0, 6.0]]);
    is(x.clone().permute([1, 0]), [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]);
    assert_eq!(x.clone().unsqueeze::<4>().movedim(3, 0).dims(), [3, 1, 1, 2]);
    is(x.clone().slice(0..1).repeat_dim(0, 2), [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]);
    assert_eq!(x.clone().repeat(&[2, 3]).dims(), [4, 9]);
    assert_eq!(x.clone().reshape([3, 2]).dims(), [3, 2]);
    is(x.clone().roll(&[1, 1], &[0, 1]), [[6.0, 4.0, 5.0], [3.0, 1.0, 2.0]]);
    is(x.clone().roll_dim(1, 0), [[4.0, 5.0, 6.0], [1.0, 2.0, 3.0]]);
    assert_eq!(x.shape().dims::<2>(), [2, 3]);
    is(x.clone().slice([0..1, 1..3]), [[2.0, 3.0]]);
    is(x.clone().slice_assign([0..1, 0..1], floats([[9.0]])).slice(0..1), [[9.0, 2.0, 3.0]]);
    is(x.clone().slice_fill([0..1, 0..2], 7.0).slice(0..1), [[7.0, 7.0, 3.0]]);
    is(x.clone().slice_dim(1, 0..1), [[1.0], [4.0]]);
    let row: Tensor<B, 1> = x.clone().slice(0..1).squeeze_dim(0);
    is(row.clone(), [1.0, 2.0, 3.0]);
    is(row.clone().unsqueeze::<2>().squeeze::<1>(), [1.0, 2.0, 3.0]);
    is(x.clone().swap_dims(0, 1), x.clone().transpose().into_data());
    is(x.clone().to_device(&Device::default()), x.to_data());
    assert_eq!(row.clone().unsqueeze::<3>().dims(), [1, 1, 3]);
    assert_eq!(row.clone().unsqueeze_dim::<2>(1).dims(), [3, 1]);
    assert_eq!(row.unsqueeze_dims::<3>(&[0, 2]).dims(), [1, 3, 1]);
    assert_eq!(x.slice([0..1, 0..1]).into_scalar(), 1.0);
}

#[test]
fn basic_operations_truth() {
    let x = ints::<2>([[0, 1], [2, 3]]);
    is(x.clone().all(), [false]);
    is(x.clone().all_dim(1), [[false], [true]]);
    is(x.clone().any(), [true]);
    is(x.clone().any_dim(1), [[true], [true]]);
    is(x.clone().equal(ints([[0, 0], [2, 2]])), [[true, false], [true, false]]);
    is(x.not_equal(ints([[0, 0], [2, 2]])), [[false, true], [false, true]]);
    is(bools::<1>([true, false]).equal(bools([true, true])), [true, false]);
}

#[test]
fn numeric_operations_elementwise() {
    let device = Device::default();
    is(Tensor::<B, 2>::eye(2, &device), [[1.0, 0.0], [0.0, 1.0]]);
    is(Tensor::<B, 1>::full([2], 1.5, &device), [1.5, 1.5]);
    is(Tensor::<B, 1, Int>::ones([2], &device), [1, 1]);
    is(Tensor::<B, 1, Int>::zeros([2], &device), [0, 0]);
    let (x, y) = (floats::<1>([-2.0, 3.0]), floats::<1>([4.0, 2.0]));
    is(x.clone().abs(), [2.0, 3.0]);
    is(x.clone().add(y.clone()), [2.0, 5.0]);
    is(x.clone().add_scalar(1), [-1.0, 4.0]);
    assert!(x.clone().all_close(x.clone(), None, None));
    is(x.clone().bool(), [true, true]);
    is(x.clone().clamp(-1.0, 1.0), [-1.0, 1.0]);
    is(x.clone().clamp_max(1.0), [-2.0, 1.0]);
    is(x.clone().clamp_min(1.0), [1.0, 3.0]);
    is(x.clone().contains_nan(), [false]);
    is(x.clone().div(y.clone()), [-0.5, 1.5]);
    is(x.clone().div_scalar(2.0), [-1.0, 1.5]);
    is(x.clone().equal_elem(3.0), [false, true]);
    is(x.full_like(5.0), [5.0, 5.0]);
    is(x.clone().greater(y.clone()), [false, true]);
    is(x.clone().greater_elem(3.0), [false, false]);
    is(x.clone().greater_equal(y.clone()), [false, true]);
    is(x.clone().greater_equal_elem(3.0), [false, true]);
    is(x.clone().lower(y.clone()), [true, false]);
    is(x.clone().lower_elem(3.0), [true, false]);
    is(x.clone().lower_equal(y.clone()), [true, false]);
    is(x.clone().lower_equal_elem(3.0), [true, true]);
    is(x.clone().max_pair(y.clone()), [4.0, 3.0]);
    is(x.clone().min_pair(y.clone()), [-2.0, 2.0]);
    is(x.clone().mul(y.clone()), [-8.0, 6.0]);
    is(x.clone().mul_scalar(2), [-4.0, 6.0]);
    is(x.clone().neg(), [2.0, -3.0]);
    is(x.clone().not_equal_elem(3.0), [true, false]);
    is(x.ones_like(), [1.0, 1.0]);
    is(y.clone().powf(x.clone()), [0.0625, 8.0]);
    is(ints::<1>([2, 3]).powi(ints([3, 2])), [8, 9]);
    is(y.clone().powf_scalar(0.5), [2.0, 2.0f32.sqrt()]);
    is(x.clone().powi_scalar(2), [4.0, 9.0]);
    is(x.clone().rem(y.clone()), [2.0, 1.0]);
    is(x.clone() % 2.0, [0.0, 1.0]);
    is(x.clone().sign(), [-1.0, 1.0]);
    is(x.clone().sub(y.clone()), [-6.0, 1.0]);
    is(x.clone().sub_scalar(1), [-3.0, 2.0]);
    is(1.0 - x.clone(), [3.0, -2.0]);
    is(x.zeros_like(), [0.0, 0.0]);
}

#[test]
fn numeric_operations_along_dims() {
    let x = floats::<2>([[3.0, -5.0], [1.0, 2.0]]);
    is(x.clone().argmax(1), [[0], [1]]);
    is(x.clone().argmin(0), [[1, 0]]);
    is(x.clone().argsort(1), [[1, 0], [0, 1]]);
    is(x.clone().argsort_descending(1), [[0, 1], [1, 0]]);
    is(x.clone().gather(1, ints([[1], [0]])), [[-5.0], [1.0]]);
    is(x.clone().max(), [3.0]);
    is(x.clone().max_abs(), [5.0]);
    is(x.clone().max_abs_dim(1), [[5.0], [2.0]]);
    is(x.clone().max_dim(1), [[3.0], [2.0]]);
    let (values, indices) = x.clone().max_dim_with_indices(1);
    is(values, [[3.0], [2.0]]);
    is(indices, [[0], [1]]);
    is(x.clone().mean(), [0.25]);
    is(x.clone().mean_dim(0), [[2.0, -1.5]]);
    is(x.clone().min(), [-5.0]);
    is(x.clone().min_dim(1), [[-5.0], [1.0]]);
    is(x.clone().min_dim_with_indices(1).1, [[1], [0]]);
    is(x.clone().prod(), [-30.0]);
    is(x.clone().prod_dim(1), [[-15.0], [2.0]]);
    is(x.clone().sort(1), [[-5.0, 3.0], [1.0, 2.0]]);
    is(x.clone().sort_descending(1), [[3.0, -5.0], [2.0, 1.0]]);
    is(x.clone().sort_with_indices(1).1, [[1, 0], [0, 1]]);
    is(x.clone().sort_descending_with_indices(1).1, [[0, 1], [1, 0]]);
    is(x.clone().sum(), [1.0]);
    is(x.clone().sum_dim(1), [[-2.0], [3.0]]);
    is(x.clone().topk(1, 1), [[3.0], [2.0]]);
    is(x.topk_with_indices(1, 1).1, [[0], [1]]);
}

#[test]
fn numeric_operations_places() {
    let x = floats::<2>([[1.0, 2.0], [3.0, 4.0]]);
    let mask = x.clone().greater_elem(2.0);
    is(x.clone().mask_fill(mask.clone(), 0.0), [[1.0, 2.0], [0.0, 0.0]]);
    is(x.clone().mask_where(mask, x.clone() * 10.0), [[1.0, 2.0], [30.0, 40.0]]);
    is(ints::<1>([1, 0]).one_hot::<2>(2), [[0, 1], [1, 0]]);
    is(ints::<1>([1, 0]).one_hot_fill::<2>(2, 5.0, -1.0, -1), [[-1, 5], [5, -1]]);
    is(x.clone().pad((1, 0, 0, 1), 9.0), [[9.0, 1.0, 2.0], [9.0, 3.0, 4.0], [9.0, 9.0, 9.0]]);
    let (indices, values) = (ints([[1], [0]]), floats([[10.0], [20.0]]));
    let scattered = x.clone().scatter(1, indices, values, IndexingUpdateOp::Add);
    is(scattered, [[1.0, 12.0], [23.0, 4.0]]);
    is(x.clone().select(0, ints([1, 0])), [[3.0, 4.0], [1.0, 2.0]]);
    let assigned = x.clone().select_assign(0, ints([0]), floats([[1.0, 1.0]]), IndexingUpdateOp::Add);
    is(assigned, [[2.0, 3.0], [3.0, 4.0]]);
    is(x.clone().tril(0), [[1.0, 0.0], [3.0, 4.0]]);
    is(x.triu(0), [[1.0, 2.0], [0.0, 4.0]]);
}

#[test]
fn float_operations() {
    let device = Device::default();
    let x = floats::<1>([0.5, -1.5]);
    assert_eq!(x.clone().cast(DType::F16).dtype(), DType::F16);
    type Case = (fn(Tensor<B, 1>) -> Tensor<B, 1>, fn(f32) -> f32);
    let cases: [Case; 14] = [
        (Tensor::ceil, f32::ceil),
        (Tensor::cos, f32::cos),
        (Tensor::cosh, f32::cosh),
        (Tensor::exp, f32::exp),
        (Tensor::floor, f32::floor),
        (|x| x.abs().log(), |x| x.abs().ln()),
        (|x| x.abs().log1p(), |x| x.abs().ln_1p()),
        (Tensor::recip, f32::recip),
        (Tensor::round, f32::round_ties_even),
        (Tensor::sin, f32::sin),
        (Tensor::sinh, f32::sinh),
        (|x| x.abs().sqrt(), |x| x.abs().sqrt()),
        (Tensor::tan, f32::tan),
        (Tensor::tanh, f32::tanh),
    ];
    for (operation, expected) in cases {
        is(operation(x.clone()), [expected(0.5), expected(-1.5)]);
    }
    // torch.erf
    is(x.clone().erf(), [0.520_499_9, -0.966_105_16]);
    is(1.0 / x.clone(), [2.0, -2.0 / 3.0]);
    is(Tensor::<B, 1>::from_floats([1.0, 2.0], &device), [1.0, 2.0]);
    is(Tensor::<B, 1>::from_full_precision(x.to_full_precision()), [0.5, -1.5]);
    is(x.clone().int(), [0, -1]);
    is(x.clone().is_close(x.clone(), None, None), [true, true]);
    let odd = floats::<1>([f32::NAN, f32::NEG_INFINITY, 0.0]);
    is(odd.clone().is_finite(), [false, false, true]);
    is(odd.clone().is_inf(), [false, true, false]);
    is(odd.is_nan(), [true, false, false]);
    is(floats::<2>([[1.0, 2.0]]).matmul(floats([[3.0], [4.0]])), [[11.0]]);
    assert_eq!(Tensor::<B, 2>::random([2, 3], Distribution::Default, &device).dims(), [2, 3]);
    assert_eq!(x.random_like(Distribution::Normal(0.0, 1.0)).dims(), [2]);
    let y = floats::<2>([[1.0, 2.0, 6.0]]);
    is(y.clone().var(1), [[7.0]]);
    is(y.clone().var_bias(1), [[14.0 / 3.0]]);
    is(y.clone().var_mean(1).1, [[3.0]]);
    is(y.var_mean_bias(1).0, [[14.0 / 3.0]]);
}

#[test]
fn int_operations() {
    let device = Device::default();
    is(Tensor::<B, 1, Int>::arange(5..8, &device), [5, 6, 7]);
    is(Tensor::<B, 1, Int>::arange_step(5..10, 2, &device), [5, 7, 9]);
    let (x, y) = (ints::<1>([6, 5]), ints::<1>([3, 1]));
    is(x.clone().bitwise_and(y.clone()), [2, 1]);
    is(x.clone().bitwise_and_scalar(4), [4, 4]);
    is(x.clone().bitwise_not(), [-7, -6]);
    is(x.clone().bitwise_left_shift(y.clone()), [48, 10]);
    is(x.clone().bitwise_left_shift_scalar(1), [12, 10]);
    is(x.clone().bitwise_right_shift(y.clone()), [0, 2]);
    is(x.clone().bitwise_right_shift_scalar(1), [3, 2]);
    is(x.clone().bitwise_or(y.clone()), [7, 5]);
    is(x.clone().bitwise_or_scalar(1), [7, 5]);
    is(x.clone().bitwise_xor(y), [5, 4]);
    is(x.clone().bitwise_xor_scalar(1), [7, 4]);
    is(x.float(), [6.0, 5.0]);
    is(Tensor::<B, 1, Int>::from_ints([1, 2], &device), [1, 2]);
    let random = Tensor::<B, 1, Int>::int_random([50], Distribution::Uniform(0.0, 5.0), &device).into_data();
    assert!(random.iter::<i64>().all(|x| (0..5).contains(&x)));
    is(Tensor::<B, 2, Int>::cartesian_grid::<_, 3>([1, 2], &device), [[[0, 0], [0, 1]]]);
}

#[test]
fn bool_operations() {
    let device = Device::default();
    is(Tensor::<B, 2, Bool>::diag_mask([2, 2], 0, &device), [[false, true], [true, false]]);
    is(Tensor::<B, 2, Bool>::tril_mask([2, 2], 0, &device), [[false, true], [false, false]]);
    is(Tensor::<B, 2, Bool>::triu_mask([2, 2], 0, &device), [[false, false], [true, false]]);
    let x = bools::<1>([true, false]);
    is(x.clone().argwhere(), [[0]]);
    is(x.clone().bool_and(bools([true, true])), [true, false]);
    is(x.clone().bool_not(), [false, true]);
    is(x.clone().bool_or(bools([true, true])), [true, true]);
    is(x.clone().float(), [1.0, 0.0]);
    is(x.clone().int(), [1, 0]);
    is(x.nonzero().remove(0), [0]);
}

#[test]
fn quantization_operations() {
    let (scheme, x) = (QuantScheme::default().with_value(QuantValue::Q8S), floats::<1>([-1.0, 0.25, 1.0]));
    let qparams = compute_q_params(&scheme, compute_range(&scheme, &x, &Calibration::MinMax));
    is(x.quantize(&scheme, qparams).dequantize(), [-1.0, 32.0 / 127.0, 1.0]);
}

/// Against `torch.nn.functional`.
#[test]
fn activation_functions() {
    let x = floats::<2>([[-1.0, 0.5]]);
    let is = |actual: Tensor<B, 2>, expected: [f32; 2]| is(actual, [expected]);
    is(activation::gelu(x.clone()), [-0.158_655_27, 0.345_731_23]);
    is(activation::hard_sigmoid(x.clone(), 1.0 / 6.0, 0.5), [1.0 / 3.0, 0.583_333_3]);
    is(activation::leaky_relu(x.clone(), 0.1), [-0.1, 0.5]);
    is(activation::log_sigmoid(x.clone()), [-1.313_261_7, -0.474_077]);
    is(activation::log_softmax(x.clone(), 1), [-1.701_413_3, -0.201_413_3]);
    is(activation::mish(x.clone()), [-0.303_401_46, 0.375_245_33]);
    is(activation::prelu(x.clone(), floats([0.25])), [-0.25, 0.5]);
    is(activation::quiet_softmax(x.clone(), 1), [0.121_951_655, 0.546_549_4]);
    is(activation::relu(x.clone()), [0.0, 0.5]);
    is(activation::sigmoid(x.clone()), [0.268_941_43, 0.622_459_35]);
    is(activation::silu(x.clone()), [-0.268_941_43, 0.311_229_68]);
    is(activation::softmax(x.clone(), 1), [0.182_425_52, 0.817_574_5]);
    is(activation::softmin(x.clone(), 1), [0.817_574_5, 0.182_425_52]);
    is(activation::softplus(x.clone(), 1.0), [0.313_261_7, 0.974_077]);
    is(activation::tanh(x), [-0.761_594_2, 0.462_117_17]);
}

#[test]
fn grids_and_norms() {
    let (x, y) = (ints::<1>([1, 2]), ints::<1>([5, 6, 7]));
    let [rows, columns] = grid::meshgrid(&[x.clone(), y.clone()], grid::GridIndexing::Matrix);
    is(rows, [[1, 1, 1], [2, 2, 2]]);
    is(columns, [[5, 6, 7], [5, 6, 7]]);
    let [rows, columns] = grid::meshgrid(&[x, y], grid::GridIndexing::Cartesian);
    is(rows, [[1, 2], [1, 2], [1, 2]]);
    is(columns, [[5, 5], [6, 6], [7, 7]]);
    let x = floats::<2>([[3.0, -4.0]]);
    is(linalg::vector_norm(x.clone(), 2.0, 1), [[5.0]]);
    is(linalg::vector_norm(x.clone(), 1.0, 1), [[7.0]]);
    is(linalg::vector_norm(x, f64::INFINITY, 1), [[4.0]]);
}

/// What 0.20 has beyond the tables; the numbers are PyTorch's.
#[test]
fn grids_are_read_and_losses_are_functions() {
    use burn::tensor::loss::cross_entropy_with_logits;
    use burn::tensor::ops::{GridSampleOptions, GridSamplePaddingMode, InterpolateMode};
    let maps = floats::<3>([[[1.0, 0.0, 0.5], [0.5, -1.0, 0.0]]]);
    let grid = grid::affine_grid_2d(maps, [1, 1, 2, 3]);
    let top = [[-0.5, 0.5], [0.5, 1.0], [1.5, 1.5]];
    is(grid.clone(), [[top, [[-0.5, -1.5], [0.5, -1.0], [1.5, -0.5]]]]);
    let one = grid::affine_grid_2d(floats::<3>([[[1.0, 0.0, 0.25], [0.0, 1.0, 0.0]]]), [1, 1, 1, 1]);
    is(one, [[[[0.25, 0.0]]]]);
    let image = floats::<4>([[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]]);
    let read = image.clone().grid_sample_2d(grid.clone(), GridSampleOptions::default());
    is(read, [[[[4.25, 2.875, 0.0], [0.0, 1.375, 0.0]]]]);
    let corners = GridSampleOptions::new(InterpolateMode::Bilinear).with_align_corners(true);
    let read = image.clone().grid_sample_2d(grid.clone(), corners);
    is(read, [[[[3.75, 5.5, 2.25], [1.125, 2.5, 1.875]]]]);
    let border =
        GridSampleOptions::new(InterpolateMode::Nearest).with_padding_mode(GridSamplePaddingMode::Border);
    is(image.clone().grid_sample_2d(grid.clone(), border), [[[[4.0, 6.0, 6.0], [1.0, 3.0, 3.0]]]]);
    assert_eq!(image.grid_sample_2d(grid, InterpolateMode::Bicubic).dims(), [1, 1, 2, 3]);
    let (logits, probabilities) =
        (floats::<2>([[1.0, 2.0, 0.0], [0.5, -1.0, 0.0]]), floats::<2>([[0.2, 0.8, 0.0], [1.0, 0.0, 0.0]]));
    let loss: f32 = cross_entropy_with_logits(logits, probabilities).into_scalar();
    assert!((loss - 0.6059).abs() < 1e-4, "{loss}");
}

/// What every backend takes and gives, also where nothing is recorded.
#[test]
fn gradients_that_are_not_recorded() {
    let x: Tensor<B, 1, Float> = floats([1.0]).require_grad();
    assert!(!x.is_require_grad());
    is(x.detach().set_require_grad(true), [1.0]);
}
