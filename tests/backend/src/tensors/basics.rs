//! Every method at least once, on values small enough to check by eye.

use super::{close, finished, same, tensor};
use kiln_tensor::backend::{Backend, held};
use kiln_tensor::{
    Bool, DType, Distribution, Element, Float, FloatDType, Int, Minifloat, PadMode, ReduceOp, ScatterOp,
    Tensor, TensorData, ToElement, Transaction, module, s,
};

pub fn creation<B: Backend>() {
    let device = B::Device::default();
    same(Tensor::<B, 2>::zeros([1, 2], &device), [[0.0, 0.0]]);
    same(Tensor::<B, 1>::full([2], 3.5, &device), [3.5, 3.5]);
    let few = Tensor::<B, 1, Int>::ones([2], (&device, DType::U8));
    assert_eq!(few.dtype(), held::<B>(DType::U8, &device));
    same(Tensor::<B, 1, Bool>::ones([2], &device), [true, true]);
    same(Tensor::<B, 2>::eye(2, &device), [[1.0, 0.0], [0.0, 1.0]]);
    same(Tensor::<B, 1, Int>::arange(5..8, &device), [5, 6, 7]);
    same(Tensor::<B, 1, Int>::range(5, 0, -2, &device), [5, 3, 1]);
    close(Tensor::<B, 1>::range(0.0, 1.0, 0.4, &device), [0.0f32, 0.4, 0.8]);
    let grid = Tensor::<B, 2, Int>::cartesian_grid::<_, 3>([1, 2], &device);
    same(grid, [[[0, 0], [0, 1]]]);
    let _alone = crate::drawing();
    let random = Tensor::<B, 1>::random([100], Distribution::Uniform(-1.0, 1.0), &device).into_data();
    random.assert_within_range(-1.0f32..1.0);
    same(tensor::<B, 1, Int>([3, 4]).zeros_like(), [0, 0]);
}

pub fn reads<B: Backend>() {
    let x = tensor::<B, 1, Float>([1.5]);
    assert_eq!(x.clone().into_scalar().to_f32(), 1.5);
    assert_eq!(x.to_data().iter::<f32>().collect::<Vec<_>>(), [1.5]);
    assert_eq!((x.rank(), x.dims(), x.dtype()), (1, [1], B::FloatElem::DTYPE));
}

pub fn transactions<B: Backend>() {
    let (a, b) = (tensor::<B, 1, Float>([1.0]), tensor::<B, 2, Int>([[2]]));
    let read = Transaction::default().register(a).register(b).execute();
    read[0].assert_eq(&TensorData::from([1.0f32]).convert::<B::FloatElem>(), true);
    read[1].assert_eq(&TensorData::from([[2i64]]).convert::<B::IntElem>(), true);
}

pub fn casts<B: Backend>() {
    let x = tensor::<B, 1, Float>([1.9, -0.5, 0.0]);
    same(x.clone().int(), [1, 0, 0]);
    same(x.clone().bool(), [true, true, false]);
    same(x.clone().bool().float(), [1.0, 1.0, 0.0]);
    let device = x.device();
    assert_eq!(x.clone().cast(DType::F16).dtype(), held::<B>(DType::F16, &device));
    assert_eq!(x.clone().cast(FloatDType::BF16).dtype(), held::<B>(DType::BF16, &device));
    same(x.clone().convert::<Int>(DType::I8), [1i8, 0, 0]);
    same(x.clone().to_int(DType::I8).to_float(DType::F16), [1.0, 0.0, 0.0]);
    assert_eq!(x.clone().cast(DType::F16).float().dtype(), B::FloatElem::DTYPE);
    assert_eq!(x.to_int(DType::U8).int().dtype(), B::IntElem::DTYPE);
}

pub fn arithmetic<B: Backend>() {
    let (a, b) = (tensor::<B, 2, Float>([[1.0, 2.0]]), tensor::<B, 2, Float>([[10.0], [20.0]]));
    same(a.clone() + b.clone(), [[11.0, 12.0], [21.0, 22.0]]);
    same(b.clone() - a.clone(), [[9.0, 8.0], [19.0, 18.0]]);
    same(a.clone() * b.clone(), [[10.0, 20.0], [20.0, 40.0]]);
    same(b / a.clone(), [[10.0, 5.0], [20.0, 10.0]]);
    same(tensor::<B, 1, Int>([4, 10, 0]).powf_scalar(0.5), [2, 3, 0]);
    same(tensor::<B, 1, Int>([4, -3, 0]).powf_scalar(2.0), [16, 9, 0]);
    same(a.clone().powf_scalar(2.0).max_pair(a.clone() + 1), [[2.0, 4.0]]);
    same(-a.clone(), [[-1.0, -2.0]]);
    same(a.clone().clamp(1.5, 1.75), [[1.5, 1.75]]);
    same(tensor::<B, 1, Int>([-7, 7]) % 3, [2, 1]);
    same(tensor::<B, 1, Int>([-7, 7]).fmod_scalar(3), [-1, 1]);
    same(tensor::<B, 2, Float>([[1.0, 2.0]]).matmul(a.transpose()), [[5.0]]);
    same(tensor::<B, 1, Float>([1.0, 2.0]).dot(tensor([3.0, 4.0])), [11.0]);
}

pub fn scalars_on_both_sides<B: Backend>() {
    let x = tensor::<B, 1, Float>([1.0, 2.0, 4.0]);
    same(x.clone() * 2.0 + 1.0, [3.0, 5.0, 9.0]);
    same(1.0 - x.clone(), [0.0, -1.0, -3.0]);
    same(1.0 / x.clone(), [1.0, 0.5, 0.25]);
    same(3.0 / x, [3.0, 1.5, 0.75]);
    same(10 - tensor::<B, 1, Int>([1, 2]), [9, 8]);
    same(9 / tensor::<B, 1, Int>([2, 4]), [4, 2]);
}

pub fn comparisons<B: Backend>() {
    let x = tensor::<B, 1, Float>([1.0, 5.0, 3.0]);
    same(x.clone().greater_elem(3.0), [false, true, false]);
    same(x.clone().equal_elem(5.0), [false, true, false]);
    same(x.clone().lower_equal(tensor([1.0])), [true, false, false]);
    same(x.clone().not_equal(x.clone()).any(), [false]);
    same(x.clone().all(), [true]);
    same(tensor::<B, 2, Int>([[0, 1], [0, 0]]).any_dim(1), [[true], [false]]);
}

pub fn shapes<B: Backend>() {
    let x = tensor::<B, 2, Int>([[1, 2, 3], [4, 5, 6]]);
    same(x.clone().transpose(), [[1, 4], [2, 5], [3, 6]]);
    same(x.clone().flatten::<1>(0, 1), [1, 2, 3, 4, 5, 6]);
    assert_eq!(x.clone().unsqueeze_dim::<3>(1).dims(), [2, 1, 3]);
    assert_eq!(x.clone().unsqueeze::<4>().dims(), [1, 1, 2, 3]);
    assert_eq!(x.clone().unsqueeze_dims::<4>(&[0, -1]).dims(), [1, 2, 3, 1]);
    assert_eq!(x.clone().unsqueeze_dims::<5>(&[0, -1, -1]).dims(), [1, 2, 3, 1, 1]);
    assert_eq!(x.clone().unsqueeze_dims::<4>(&[-1, -2]).dims(), [2, 1, 3, 1]);
    assert_eq!(x.clone().unsqueeze_dims::<4>(&[0, 0]).dims(), [1, 1, 2, 3]);
    assert_eq!(x.clone().unsqueeze_dims::<4>(&[3, 3]).dims(), [2, 3, 1, 1]);
    assert_eq!(x.clone().unsqueeze::<4>().squeeze_dims::<3>(&[0]).dims(), [1, 2, 3]);
    assert_eq!(x.clone().unsqueeze::<4>().squeeze::<2>().dims(), [2, 3]);
    same(x.clone().slice(0..1).expand([2, 3]), [[1, 2, 3], [1, 2, 3]]);
    same(x.clone().flip([1]), [[3, 2, 1], [6, 5, 4]]);
    same(x.clone().roll_dim(1, 1), [[3, 1, 2], [6, 4, 5]]);
    same(x.clone().roll(&[1, -1], &[0, 1]), [[5, 6, 4], [2, 3, 1]]);
    assert_eq!(x.clone().unsqueeze::<3>().movedim(0, 2).dims(), [2, 3, 1]);
    assert_eq!(x.clone().unsqueeze::<3>().permute([2, 0, 1]).dims(), [3, 1, 2]);
    same(x.clone().repeat_dim(0, 2).narrow(0, 1, 2), [[4, 5, 6], [1, 2, 3]]);
    same(x.clone().slice(s![..1, ..]).repeat(&[1, 2]), [[1, 2, 3, 1, 2, 3]]);
    same(x.clone().slice(0..1).pad((1, 0, 0, 1), 9), [[9, 1, 2, 3], [9, 9, 9, 9]]);
    let row = x.slice(0..1);
    same(row.clone().pad_with(&[(0, 0), (2, 2)], PadMode::Reflect, 0), [[3, 2, 1, 2, 3, 2, 1]]);
    same(row.clone().pad_with(&[(0, 0), (1, 2)], PadMode::Edge, 0), [[1, 1, 2, 3, 3, 3]]);
    same(row.pad_with(&[(0, 0), (1, 1)], PadMode::Wrap, 0), [[3, 1, 2, 3, 1]]);
}

pub fn joins_and_parts<B: Backend>() {
    let (a, b) = (tensor::<B, 2, Int>([[1, 2]]), tensor::<B, 2, Int>([[3, 4]]));
    same(Tensor::cat(vec![a.clone(), b.clone()], 0), [[1, 2], [3, 4]]);
    assert_eq!(Tensor::stack::<3>(vec![a.clone(), b.clone()], 0).dims(), [2, 1, 2]);
    let x = tensor::<B, 1, Int>([0, 1, 2, 3, 4]);
    let sizes = |parts: Vec<Tensor<B, 1, Int>>| parts.iter().map(|t| t.dims()[0]).collect::<Vec<_>>();
    assert_eq!(sizes(x.clone().chunk(2, 0)), [3, 2]);
    assert_eq!(sizes(x.clone().split(2, 0)), [2, 2, 1]);
    assert_eq!(sizes(x.clone().split_with_sizes(vec![1, 4], 0)), [1, 4]);
    same(x.clone().iter_dim(0).next_back().unwrap(), [4]);
    same(x.unfold::<2, _>(0, 3, 2), [[0, 1, 2], [2, 3, 4]]);
    // What is in one window only stays out of the others, whatever it is.
    let image = tensor::<B, 4, Float>([[[[1.0, 2.0, f32::INFINITY]]]]);
    same(module::unfold4d(image, [1, 2], [1, 1], [0, 0], [1, 1]), [[[1.0, 2.0], [2.0, f32::INFINITY]]]);
}

pub fn indexing<B: Backend>() {
    let x = tensor::<B, 2, Int>([[1, 2, 3], [4, 5, 6]]);
    same(x.clone().select(1, tensor([2, 0])), [[3, 1], [6, 4]]);
    same(x.clone().take::<2, 3>(0, tensor([[1], [0]])), [[[4, 5, 6]], [[1, 2, 3]]]);
    same(x.clone().take_wrapped::<0, 1>(1, tensor(-1)), [3, 6]);
    // A dim's size need not be a number of the indices' dtype.
    for size in [256, 300] {
        let long = Tensor::<B, 1, Int>::arange(0..size, &B::Device::default());
        let narrow = Tensor::<B, 1, Int>::from_data([255_u8, 3], &B::Device::default()).cast(DType::U8);
        same(long.clone().take_wrapped::<1, 1>(0, narrow.clone()), [255, 3]);
        same(long.gather_wrapped(0, narrow), [255, 3]);
    }
    same(x.clone().gather(1, tensor([[2], [0]])), [[3], [4]]);
    same(x.clone().gather_wrapped(1, tensor([[-1], [0]])), [[3], [4]]);
    let updated = x.clone().scatter(1, tensor([[2], [0]]), tensor([[10], [20]]), ScatterOp::Add);
    same(updated, [[1, 2, 13], [24, 5, 6]]);
    let rows = x.clone().select_assign(0, tensor([1, 1]), x.clone(), ScatterOp::Add);
    same(rows, [[1, 2, 3], [9, 12, 15]]);
    same(x.clone().slice_assign(s![.., 1..], tensor([[0, 0], [7, 8]])), [[1, 0, 0], [4, 7, 8]]);
    same(x.clone().slice_fill(s![0, ..], 9), [[9, 9, 9], [4, 5, 6]]);
    same(x.clone().slice_dim(1, 0..1), [[1], [4]]);
    let mask = x.clone().greater_elem(3);
    same(x.clone().mask_fill(mask.clone(), 0), [[1, 2, 3], [0, 0, 0]]);
    same(x.clone().mask_where(mask.clone(), tensor([[9]])), [[1, 2, 3], [9, 9, 9]]);
    same(x.clone().masked_select(mask.clone()), [4, 5, 6]);
    same(mask.slice([0..2, 0..1]).argwhere(), [[1, 0]]);
    same(x.clone().triu(1), [[0, 2, 3], [0, 0, 6]]);
    same(x.tril(0), [[1, 0, 0], [4, 5, 0]]);
    same(tensor::<B, 1, Int>([1, -1, 7]).one_hot::<2>(3), [[0, 1, 0], [0, 0, 1], [0, 0, 0]]);
    same(tensor::<B, 1, Float>([0.0, 1.0]).one_hot_fill::<2>(2, 5.0, -1.0, 0), [[5.0, -1.0], [-1.0, 5.0]]);
}

pub fn nd_indexing<B: Backend>() {
    let x = tensor::<B, 3, Int>([[[0, 1], [2, 3]], [[4, 5], [6, 7]]]);
    // ONNX's examples of GatherND.
    same(x.clone().gather_nd::<2, 2>(tensor([[0, 1], [1, 0]]), 0), [[2, 3], [4, 5]]);
    same(x.clone().gather_nd::<2, 2>(tensor([[1], [0]]), 1), [[2, 3], [4, 5]]);
    same(x.clone().gather_nd::<1, 0>(tensor([1, -1, 0]), 0), 6);
    same(x.clone().gather_nd::<3, 2>(tensor([[[1, -2], [0, 1]], [[-1, 1], [-2, 0]]]), 1), [[2, 1], [7, 4]]);
    let updates = tensor::<B, 2, Int>([[9, 9], [8, 8]]);
    let updated = x.scatter_nd(tensor::<B, 2, Int>([[0, 0], [-1, 1]]), updates, ScatterOp::Assign);
    same(updated, [[[9, 9], [2, 3]], [[4, 5], [8, 8]]]);
}

pub fn reductions<B: Backend>() {
    let x = tensor::<B, 2, Float>([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    same(x.clone().sum(), [21.0]);
    same(x.clone().sum_dim(0), [[5.0, 7.0, 9.0]]);
    same(x.clone().mean_dim(-1), [[2.0], [5.0]]);
    same(x.clone().reduce(ReduceOp::Prod, &[0, 1]), [[720.0]]);
    same(x.clone().sum_dims_squeeze::<1, _>(&[1]), [6.0, 15.0]);
    same(x.clone().argmax(1), [[2], [2]]);
    let (least, at) = x.clone().min_dim_with_indices(0);
    same(least, [[1.0, 2.0, 3.0]]);
    same(at, [[0, 0, 0]]);
    same((-x.clone()).max_abs_dim(1), [[3.0], [6.0]]);
    same(x.clone().cumsum(1), [[1.0, 3.0, 6.0], [4.0, 9.0, 15.0]]);
    same(x.max(), [6.0]);
}

pub fn sorting<B: Backend>() {
    let x = tensor::<B, 1, Int>([3, 1, 2]);
    same(x.clone().sort(0), [1, 2, 3]);
    let (values, indices) = x.clone().sort_descending_with_indices(0);
    same(values, [3, 2, 1]);
    same(indices, [0, 2, 1]);
    same(x.clone().argsort(0), [1, 2, 0]);
    same(x.clone().topk(2, 0), [3, 2]);
    let (values, indices) = x.topk_by(2, 0, false);
    same(values, [1, 2]);
    same(indices, [1, 2]);
}

pub fn floats<B: Backend>() {
    let x = tensor::<B, 2, Float>([[1.0, 2.0, 6.0], [4.0, 4.0, 4.0]]);
    close(x.clone().var(1), [[7.0f32], [0.0]]);
    close(x.clone().var_bias(1), [[14.0f32 / 3.0], [0.0]]);
    let (variance, mean) = x.clone().var_mean(1);
    close(variance, [[7.0f32], [0.0]]);
    close(mean, [[3.0f32], [4.0]]);
    // numpy.cov(x.T)
    close(x.clone().cov(0, 1), [[4.5f32, 3.0, -3.0], [3.0, 2.0, -2.0], [-3.0, -2.0, 2.0]]);
    // Sums of many equal numbers are rounded; f32 in any case.
    let equal = TensorData::new(vec![1_000_000.1f32; 777], [1, 777]);
    let equal = Tensor::<B, 2>::from_data_dtype(equal, &B::Device::default(), DType::F32);
    assert!(equal.var(1).into_data().iter::<f32>().all(|variance| variance < 1e-6));
    let odd = tensor::<B, 1, Float>([f32::NAN, f32::INFINITY, 1.0]);
    same(odd.clone().is_nan(), [true, false, false]);
    same(odd.clone().is_inf(), [false, true, false]);
    same(odd.clone().is_finite(), [false, false, true]);
    same(odd.clone().contains_nan(), [true]);
    same(odd.clone().is_close(odd.clone(), None, None), [false, true, true]);
    assert!(x.clone().all_close(x.clone() + 1e-7, None, None));
    same(tensor::<B, 1, Float>([0.5, 1.5, -2.5]).round(), [0.0, 2.0, -2.0]);
    let cross = tensor::<B, 1, Float>([1.0, 2.0, 3.0]).cross(tensor([4.0, 5.0, 6.0]), 0);
    same(cross, [-3.0, 6.0, -3.0]);
}

pub fn integers<B: Backend>() {
    let x = tensor::<B, 1, Int>([6, -1]);
    same(x.clone().bitwise_and_scalar(3), [2, 3]);
    same(x.clone().bitwise_not(), [-7, 0]);
    same(x.clone().bitwise_right_shift_scalar(1), [3, -1]);
    same(x.float(), [6.0, -1.0]);
}

pub fn bools<B: Backend>() {
    let device = B::Device::default();
    let x = tensor::<B, 1, Bool>([true, false]);
    same(!x.clone(), [false, true]);
    same(x.clone().bool_xor(tensor([true, true])), [false, true]);
    same(x.clone().nonzero().remove(0), [0]);
    same(Tensor::<B, 2, Bool>::tril_mask([2, 2], 0, &device), [[false, true], [false, false]]);
    same(Tensor::<B, 2, Bool>::triu_mask([2, 2], 0, &device), [[false, false], [true, false]]);
    same(Tensor::<B, 2, Bool>::diag_mask([2, 2], 1, &device), [[true, false], [true, true]]);
}

pub fn inplace_keeps_rank<B: Backend>() {
    let mut x = tensor::<B, 2, Int>([[1, 2]]);
    x.inplace(|x| x + 1);
    same(x, [[2, 3]]);
}

pub fn rank_0<B: Backend>() {
    let x = tensor::<B, 0, Float>(2.0);
    assert_eq!(x.clone().into_scalar().to_f32(), 2.0);
    same(x.clone() + 1.0, TensorData::from(3.0));
    same(x.clone().sum(), [2.0]);
    same(x.clone().reshape([1, 1]), [[2.0]]);
    same(x.clone().unsqueeze_dim::<1>(0).squeeze_dim::<0>(0), 2.0);
    same(x.expand([2]), [2.0, 2.0]);
}

pub fn traced_programs<B: Backend>() {
    use kiln_tensor::{Activation, Traced, elementwise};
    let (a, b) = (tensor::<B, 2, Float>([[1.0, -2.0]]), tensor::<B, 2, Float>([[4.0], [9.0]]));
    let result = elementwise([a.clone(), b.clone()], |[a, b]| {
        let root = b.sqrt();
        2.0 - a.clone() * root.clone() + (a.activation(Activation::Relu) / root)
    });
    close(result, [[0.5f32, 6.0], [-1.0 + 1.0 / 3.0, 8.0]]);
    same(elementwise([a.clone()], |[a]| a.clone().mask_where(a.greater_elem(0.0), 7.0)), [[7.0, -2.0]]);
    // Unused operands still decide the shape.
    same(elementwise([a.clone(), b.clone()], |[a, _]| a), [[1.0, -2.0], [1.0, -2.0]]);
    let mask = a.clone().greater_elem(0.0);
    let both = Tensor::<B, 2>::elementwise([mask.clone().into(), b.clone().into()], |[mask, b]| {
        b.mask_where(mask, 1.0) * 2
    });
    same(both, [[2.0, 8.0], [2.0, 18.0]]);
    let numbers = Tensor::<B, 2, Int>::elementwise([mask.into()], |[mask]| {
        Traced::constant(5, DType::I64).mask_where(mask.clone(), 3) + mask.cast(DType::I64)
    });
    same(numbers, [[4, 5]]);
    // A value that outlives its program has no part in those after it.
    let mut kept = None;
    let doubled = elementwise([a.clone()], |[a]| {
        kept = Some(a.clone());
        a * 2.0
    });
    same(doubled, [[2.0, -4.0]]);
    // One program may be run while another is recorded.
    let one = elementwise([a.clone()], |[x]| {
        same(elementwise([b.clone()], |[b]| b.clone() * 2.0 + b), [[12.0], [27.0]]);
        x.clone() * x + 1.0
    });
    same(one, [[2.0, 5.0]]);
    drop(kept);
    // The backend's own dtypes, without naming them.
    let own = Tensor::<B, 2, Int>::elementwise([a.clone().into()], |[a]| a.int() + Traced::from(2).int());
    assert_eq!(own.dtype(), B::IntElem::DTYPE);
    same(own, [[3, 0]]);
    // Several results of one pass, with a number that is no part of the program and the places of elements.
    let [sum, scaled] = kiln_tensor::elementwise_all([a.clone(), b.clone()], |[a, b]| {
        let place = a.iota(1).float();
        [a.clone() + b, a * Traced::parameter(0.5) + place]
    });
    same(sum, [[5.0, 2.0], [10.0, 7.0]]);
    same(scaled, [[0.5, 0.0], [0.5, 0.0]]);
}

pub fn linear_algebra<B: Backend>() {
    use kiln_tensor::grid::{GridIndexing, GridSparsity, IndexPos, meshgrid, meshgrid_stack};
    use kiln_tensor::linalg;
    let x = tensor::<B, 2, Float>([[3.0, -4.0], [0.0, 2.0]]);
    close(linalg::vector_norm(x.clone(), 2.0, 1), [[5.0f32], [2.0]]);
    close(linalg::vector_norm(x.clone(), 0, 1), [[2.0f32], [1.0]]);
    close(linalg::vector_norm(x.clone(), f64::NEG_INFINITY, 1), [[3.0f32], [0.0]]);
    close(linalg::lp_norm(x.clone(), 3.0, 1), [[91.0f32.cbrt()], [2.0]]);
    same(linalg::diag::<B, 2, 1, _>(x.clone()), [3.0, 2.0]);
    same(linalg::trace::<B, 2, 1>(x.clone()), [5.0]);
    same(linalg::matvec(x.clone(), tensor::<B, 1, Float>([1.0, 1.0])), [-1.0, 2.0]);
    let row = tensor::<B, 1, Int>([1, 2]);
    same(linalg::outer::<B, 1, 2, _>(row.clone(), row.clone()), [[1, 2], [2, 4]]);
    close(linalg::cosine_similarity(x.clone(), x.clone(), -1, None), [[1.0f32], [1.0]]);
    let (lu, order) = linalg::lu_decomposition(tensor::<B, 2, Float>([[1.0, 2.0], [4.0, 6.0]]));
    close(lu, [[4.0f32, 6.0], [0.25, 0.5]]);
    same(order, [1, 0]);
    // Rows change places; a column of zeros under a pivot; no rows at all.
    close(
        linalg::det(tensor::<B, 2, Float>([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0], [0.0, 1.0, 4.0]])),
        [[-21.0f32]],
    );
    close(
        linalg::det(tensor::<B, 3, Float>([[[1.0, 2.0], [2.0, 4.0]], [[-2.0, 0.0], [0.0, 3.0]]])),
        [[[0.0f32]], [[-6.0]]],
    );
    same(linalg::det(Tensor::<B, 3>::zeros([2, 0, 0], &x.device())), [[[1.0]], [[1.0]]]);
    close(
        linalg::inverse(tensor::<B, 2, Float>([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0], [0.0, 1.0, 4.0]])),
        [[0.0f32, 1.0 / 3.0, 0.0], [4.0 / 7.0, 0.0, -1.0 / 7.0], [-1.0 / 7.0, 0.0, 2.0 / 7.0]],
    );
    close(
        linalg::inverse(tensor::<B, 3, Float>([[[1.0, 2.0], [2.0, 3.0]], [[-2.0, 0.0], [0.0, 4.0]]])),
        [[[-3.0f32, 2.0], [2.0, -1.0]], [[-0.5, 0.0], [0.0, 0.25]]],
    );
    same(linalg::inverse(Tensor::<B, 3>::zeros([2, 0, 0], &x.device())), [[[0.0; 0]; 0]; 2]);
    let [rows, columns] = meshgrid(&[row.clone(), tensor::<B, 1, Int>([5, 6, 7])], GridIndexing::Matrix);
    same(rows, [[1, 1, 1], [2, 2, 2]]);
    same(columns, [[5, 6, 7], [5, 6, 7]]);
    let [rows, _] = meshgrid(&[row.clone(), row.clone()], GridSparsity::Sparse);
    same(rows, [[1], [2]]);
    assert_eq!(meshgrid_stack::<B, 2, 3, _>(&[row.clone(), row], IndexPos::Last).dims(), [2, 2, 2]);
}

pub fn decision_trees<B: Backend>() {
    use kiln_tensor::compose::Trees;
    use kiln_tensor::tree::leaves;
    // Three leaves, and two branches above them; the second tree is a leaf.
    let features = tensor::<B, 1, Int>([0, 0, 0, 1, 0]);
    let thresholds = tensor::<B, 1, Float>([0.0, 0.0, 0.0, 0.5, -1.0]);
    let roots = tensor::<B, 1, Int>([3, 1]);
    let samples = tensor::<B, 2, Float>([[0.0, 0.75], [0.0, 0.5], [-1.0, 0.25]]);
    let children = tensor::<B, 2, Int>([[0, 0], [1, 1], [2, 2], [0, 4], [1, 2]]);
    let walk = |samples, children, depth| {
        leaves::<B>(samples, features.clone(), thresholds.clone(), children, roots.clone(), depth)
    };
    same(walk(samples.clone(), children.clone(), 2), [[0, 1], [1, 1], [2, 1]]);
    same(walk(samples, children.clone(), 0), [[3, 1], [3, 1], [3, 1]]);
    let none = Tensor::<B, 2>::zeros([0, 2], &B::Device::default());
    assert_eq!(walk(none, children, 2).dims(), [0, 2]);
    // What is missing goes its own way.
    let children = tensor::<B, 2, Int>([[0, 0, 0], [1, 1, 1], [2, 2, 2], [0, 4, 4], [1, 2, 0]]);
    let samples = tensor::<B, 2, Float>([[f32::NAN, f32::NAN], [-2.0, f32::NAN], [f32::NAN, 1.0]]);
    same(walk(samples, children, 2), [[0, 1], [2, 1], [0, 1]]);

    // Trees of unlike depth, and so many samples that nodes are worth laying out anew: as level by level. A branch's children are before it.
    let (ends, nodes) = (20i64, 60i64);
    let mut state = 1u32;
    let mut below = |most: i64| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        i64::from(state >> 8) % most
    };
    let number = |drawn: i64| if drawn == 0 { f32::NAN } else { drawn as f32 / 2.0 };
    for ways in [2usize, 3] {
        let data = |numbers: Vec<i64>, shape: &[usize]| {
            Tensor::<B, 1, Int>::from_data(
                TensorData::new(numbers, [shape.iter().product()]),
                &B::Device::default(),
            )
        };
        let features: Vec<i64> = (0..nodes).map(|_| below(4)).collect();
        let thresholds: Vec<f32> = (0..nodes).map(|_| number(1 + below(8))).collect();
        let children: Vec<i64> = (0..nodes)
            .flat_map(|node| {
                (0..ways).map(|_| if node < ends { node } else { below(node) }).collect::<Vec<_>>()
            })
            .collect();
        let roots: Vec<i64> = (0..11).map(|tree| nodes - 1 - tree * 5).collect();
        for count in [1usize, 3, 70, 200] {
            let samples: Vec<f32> = (0..count * 4).map(|_| number(below(9))).collect();
            let samples =
                Tensor::<B, 1>::from_data(TensorData::new(samples, [count * 4]), &B::Device::default());
            let thresholds =
                Tensor::<B, 1>::from_data(TensorData::new(thresholds.clone(), [60]), &B::Device::default());
            let trees = || Trees {
                features: data(features.clone(), &[60]).into_backend(),
                thresholds: thresholds.clone().into_backend(),
                children: data(children.clone(), &[60, ways]).reshape([60, ways]).into_backend(),
                roots: data(roots.clone(), &[11]).into_backend(),
            };
            let samples = samples.reshape([count, 4]).into_backend();
            let own = B::tree_leaves(samples.clone(), trees(), 40);
            let composed = kiln_tensor::compose::tree_leaves::<B>(samples, trees(), 40);
            let [own, composed] = [own, composed].map(Tensor::<B, 2, Int>::from_backend);
            assert_eq!(own.dtype(), composed.dtype());
            assert_eq!(
                own.into_data().iter::<i64>().collect::<Vec<_>>(),
                composed.into_data().iter::<i64>().collect::<Vec<_>>()
            );
        }
    }
}

pub fn chances_of_pairs<B: Backend>() {
    use kiln_tensor::classes::pairwise_coupling;
    // Any three chances that agree with each other are those of pairs; of two classes nothing is left to agree.
    let chances = [0.5f32, 0.3, 0.2];
    let pairs: Vec<f32> = chances.iter().flat_map(|a| chances.iter().map(move |b| a / (a + b))).collect();
    let pairs = Tensor::from_data(TensorData::new(pairs, [1, 3, 3]), &B::Device::default());
    pairwise_coupling::<B>(pairs)
        .into_data()
        .assert_approx_eq::<f32>(&TensorData::from([chances]), kiln_tensor::Tolerance::rel_abs(1e-2, 1e-2));
    let none = Tensor::<B, 3>::zeros([0, 2, 2], &B::Device::default());
    assert_eq!(pairwise_coupling(none).dims(), [0, 2]);
}

pub fn sums_over_letters<B: Backend>() {
    use kiln_tensor::linalg::einsum;
    let a = tensor::<B, 2, Float>([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).into_backend();
    let b = tensor::<B, 2, Float>([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).into_backend();
    same(einsum::<B, 2, Float>("ij,jk->ki", vec![a.clone(), b.clone()]), [[4.0, 10.0], [5.0, 11.0]]);
    same(einsum::<B, 2, Float>("ij,jk", vec![a.clone(), b.clone()]), [[4.0, 5.0], [10.0, 11.0]]);
    same(einsum::<B, 0, Float>("ij->", vec![a.clone()]), 21.0);
    same(einsum::<B, 2, Float>("... j -> j ...", vec![a.clone()]), [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]);
    let square = tensor::<B, 2, Float>([[1.0, 2.0], [3.0, 4.0]]).into_backend();
    same(einsum::<B, 1, Float>("ii->i", vec![square.clone()]), [1.0, 4.0]);
    same(einsum::<B, 0, Float>("ii", vec![square.clone()]), 5.0);
    let batch = tensor::<B, 3, Float>([[[1.0, 2.0], [3.0, 4.0]], [[0.0, 1.0], [1.0, 0.0]]]).into_backend();
    let product = einsum::<B, 3, Float>("b...j,...jk->b...k", vec![batch.clone(), square.clone()]);
    same(product, [[[7.0, 10.0], [15.0, 22.0]], [[3.0, 4.0], [1.0, 2.0]]]);
    let three = einsum::<B, 1, Float>(
        "bij,jk,k->b",
        vec![batch, square, tensor::<B, 1, Float>([1.0, -1.0]).into_backend()],
    );
    same(three, [-10.0, -2.0]);
}

pub fn quantized<B: Backend>() {
    use kiln_tensor::quantization::{
        Calibration, QuantLevel, QuantScheme, QuantValue, QuantizationMode, QuantizationScheme,
        QuantizationType, compute_q_params, compute_range,
    };
    let x = tensor::<B, 2, Float>([[-1.27, 0.504], [0.0, 0.126]]);
    let scheme = QuantScheme::default().with_value(QuantValue::Q8S);
    let qparams = compute_q_params(&scheme, compute_range(&scheme, &x, &Calibration::MinMax));
    close(qparams.scales.clone(), [0.01f32]);
    close(x.clone().quantize(&scheme, qparams).dequantize(), [[-1.27f32, 0.5], [0.0, 0.13]]);
    let old = QuantizationScheme::PerTensor(QuantizationMode::Symmetric, QuantizationType::QInt8);
    close(x.clone().quantize_dynamic(&old), [[-1.27f32, 0.5], [0.0, 0.13]]);
    // The second row has a scale of its own, 0.126 / 127, and is exact.
    close(x.quantize_dynamic(&scheme.with_level(QuantLevel::Block(2))), [[-1.27f32, 0.5], [0.0, 0.126]]);
    let coarse = QuantScheme::default().with_value(QuantValue::Q2S);
    close(tensor::<B, 1, Float>([0.0, 0.0]).quantize_dynamic(&coarse), [0.0f32, 0.0]);
    close(tensor::<B, 1, Float>([-4.0, 1.0, 3.0]).quantize_dynamic(&coarse), [-4.0f32, 0.0, 4.0]);
}

pub fn floats_of_few_bits<B: Backend>() {
    let device = B::Device::default();
    for format in Minifloat::ALL {
        let values = (0..=u8::MAX).map(|bits| format.from_bits(bits));
        // Not all devices have numbers as small as the least scales.
        let finite = values.filter(|x| x.is_finite() && (format != Minifloat::E8M0Fnu || x.abs() > 1e-30));
        let mut around: Vec<f64> =
            finite.flat_map(|x| [1.0, 1.03, 1.0625, 1.125, 1.25, 1.4].map(|y| x * y)).collect();
        around.extend([1e-9, 1e6, f64::INFINITY, f64::NAN]);
        if format != Minifloat::E8M0Fnu {
            around.extend([-1e-9, -1e6, f64::NEG_INFINITY, 0.0]);
        }
        let numbers: Vec<f32> = around.iter().map(|x| *x as f32).collect();
        let x = Tensor::<B, 1>::from_data_dtype(TensorData::from(numbers.as_slice()), &device, DType::F32);
        for (saturate, rounded) in
            [(true, x.clone().round_to(format)), (false, x.round_to_or_overflow(format))]
        {
            assert_eq!(rounded.dtype(), held::<B>(format.dtype(), &device));
            for (x, found) in numbers.iter().zip(rounded.into_data().iter::<f64>()) {
                let expected = format.round(f64::from(*x), saturate);
                let is_it = found == expected || (found.is_nan() && expected.is_nan());
                assert!(is_it, "{format:?} of {x}: {found}, not {expected}");
            }
        }
    }
}

pub fn without_blocking<B: Backend>() {
    let x = tensor::<B, 2, Bool>([[true, false, true], [false, false, true]]);
    same(finished(x.clone().argwhere_async()), [[0, 0], [0, 2], [1, 2]]);
    same(x.clone().argwhere(), [[0, 0], [0, 2], [1, 2]]);
    let [rows, columns] = finished(x.nonzero_async()).try_into().unwrap();
    same(rows, [0, 0, 1]);
    same(columns, [0, 2, 2]);
    let none = tensor::<B, 1, Bool>([false, false]);
    assert_eq!(finished(none.argwhere_async()).dims(), [0, 1]);
    let one = tensor::<B, 1, Float>([1.5]);
    assert_eq!(finished(one.clone().into_scalar_async()).unwrap().to_f32(), 1.5);
    assert!(finished(one.clone().all_close_async(one.clone(), None, None)));
    let numbers = tensor::<B, 2, Int>([[1, 2, 3], [4, 5, 6]]);
    let mask = numbers.clone().greater_elem(4);
    same(finished(numbers.clone().masked_select_async(mask)), [5, 6]);
    let read = finished(Transaction::default().register(one).register(numbers).execute_async()).unwrap();
    assert_eq!(read[1].iter::<i64>().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    let (lu, order) = finished(kiln_tensor::linalg::lu_decomposition_async(tensor::<B, 2, Float>([
        [1.0, 2.0],
        [4.0, 6.0],
    ])));
    close(lu, [[4.0f32, 6.0], [0.25, 0.5]]);
    same(order, [1, 0]);
}

/// More operands and steps than a kernel takes at once.
pub fn long_programs<B: Backend>() {
    use kiln_tensor::elementwise;
    // Sums that half precision holds as well.
    let operands: [Tensor<B, 2>; 20] = std::array::from_fn(|i| tensor([[(i % 2) as f32, -((i % 2) as f32)]]));
    let sum = elementwise(operands.clone(), |operands| {
        operands.into_iter().reduce(|sum, x| sum + x * 2.0).expect("there are operands")
    });
    same(sum, [[20.0, -20.0]]);
    let [first, ..] = operands;
    let many = elementwise([first + 1.0], |[x]| (0..300).fold(x.clone(), |sum, _| x.clone() - sum));
    same(many, [[1.0, 1.0]]);
}

/// Softmax over nothing but -inf is NaN, also where a float mask adds it; a bool mask without any key yields zeros, as in
/// PyTorch.
pub fn nothing_left<B: Backend>() {
    use kiln_tensor::{activation, module};
    let x = tensor::<B, 2, Float>([[f32::NEG_INFINITY; 3], [f32::NEG_INFINITY, 0.0, 0.0]]);
    let rows = activation::softmax(x.clone(), 1);
    same(rows.clone().is_nan(), [[true; 3], [false; 3]]);
    same(rows.slice(1..2), [[0.0, 0.5, 0.5]]);
    same(activation::log_softmax(x.clone(), 1).slice(0..1).is_nan(), [[true; 3]]);
    let q: Tensor<B, 4> = Tensor::ones([1, 1, 2, 4], &B::Device::default());
    let kv: Tensor<B, 4> = Tensor::ones([1, 1, 3, 4], &B::Device::default());
    let kept = x.clone().equal_elem(0.0);
    let attended =
        |mask| module::attention(q.clone(), kv.clone(), kv.clone(), Some(mask), Default::default());
    close(attended(kept.into()), [[[[0.0f32; 4], [1.0; 4]]]]);
    same(attended(x.into()).is_nan(), [[[[true; 4], [false; 4]]]]);
}
