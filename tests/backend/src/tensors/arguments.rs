//! What methods take, and what they say when it is wrong.

use super::{message_of, same, tensor};
use kiln_tensor::backend::Backend;
use kiln_tensor::{ConvOptions, DType, Float, Int, Tensor, activation, module, s};

/// Something that panics.
type Failure = Box<dyn FnOnce()>;

pub fn slices<B: Backend>() {
    let x = tensor::<B, 2, Int>([[1, 2, 3, 4], [5, 6, 7, 8]]);
    same(x.clone().slice([0..1, 1..3]), [[2, 3]]);
    same(x.clone().slice(1..), [[5, 6, 7, 8]]);
    same(x.clone().slice(s![-1, ..;2]), [[5, 7]]);
    same(x.clone().slice(s![.., 0..4;-1]), [[4, 3, 2, 1], [8, 7, 6, 5]]);
    same(x.clone().slice(s![.., 0..4;-2]), [[4, 2], [8, 6]]);
    same(x.clone().slice(s![..=0, -2..-1]), [[3]]);
    same(x.clone().slice(s![0..;2]), [[1, 2, 3, 4]]);
    same(x.clone().slice([0..2, 2..100]), [[3, 4], [7, 8]]);
    assert_eq!(x.slice(s![.., 4..100]).dims(), [2, 0]);
}

pub fn reshapes<B: Backend>() {
    let x = tensor::<B, 2, Int>([[1, 2, 3, 4], [5, 6, 7, 8]]);
    assert_eq!(x.clone().reshape([-1, 2]).dims(), [4, 2]);
    assert_eq!(x.clone().reshape([0, 2, -1]).dims(), [2, 2, 2]);
    assert_eq!(x.clone().reshape([8usize]).dims(), [8]);
    assert_eq!(x.clone().reshape(x.shape()).dims(), [2, 4]);
    let empty = x.slice(0..0);
    assert_eq!(empty.clone().reshape([4usize, 0]).dims(), [4, 0]);
    assert_eq!(empty.reshape([0, 2, 2]).dims(), [0, 2, 2]);
}

pub fn failures_name_the_operation<B: Backend>() {
    let a = || tensor::<B, 2, Float>([[1.0, 2.0, 3.0]; 2]);
    let cases: Vec<(&str, Failure)> = vec![
        ("matmul: [2, 3] and [2, 3]: 3 columns meet 2 rows", Box::new(move || drop(a().matmul(a())))),
        ("add: [2, 3] and [3, 2] do not broadcast", Box::new(move || drop(a() + a().transpose()))),
        ("sum: there is no dim 2 in rank 2", Box::new(move || drop(a().sum_dim(2)))),
        ("reshape: [2, 3] has 6 elements, [2, 2] has 4", Box::new(move || drop(a().reshape([2, 2])))),
        (
            "reshape: [2, 3] cannot become [-1, 4]: no size for -1 fits",
            Box::new(move || drop(a().reshape([-1, 4]))),
        ),
        ("squeeze: dim 0 of [2, 3] is not 1", Box::new(move || drop(a().squeeze_dim::<1>(0)))),
        (
            "cat: [2, 3] and [3, 2] differ outside of dim 0, along which they are joined",
            Box::new(move || drop(Tensor::cat(vec![a(), a().transpose()], 0))),
        ),
        (
            "from_data: rank 1 was expected, the shape is [1, 1]",
            Box::new(|| drop(tensor::<B, 1, Float>([[1.0]]))),
        ),
        ("cast: i32 is not a dtype of Float tensors", Box::new(move || drop(a().cast(DType::I32)))),
        ("into_scalar: [2, 3] has not exactly one element", Box::new(move || drop(a().try_into_scalar()))),
        (
            "expand: [4503599627370500, 4096, 3] has more elements than memory can have",
            Box::new(move || drop(a().slice([0..1, 0..3]).expand([4_503_599_627_370_500_i64, 4096, 3]))),
        ),
        (
            "reshape: [4503599627370500, 4096] has more elements than memory can have",
            Box::new(move || drop(a().reshape([4_503_599_627_370_500_i64, 4096]))),
        ),
        ("expand: [2, 3] does not expand to [4, 3]", Box::new(move || drop(a().expand([4, 3])))),
        ("topk: dim 1 of [2, 3] has fewer than 4 elements", Box::new(move || drop(a().topk(4, 1)))),
    ];
    check(cases);
    if B::supports(&B::Device::default(), DType::F16) {
        let single = move || a().cast(DType::F32);
        let half = || tensor::<B, 1, Float>([1.0, 2.0]).cast(DType::F16);
        check(vec![(
            "linear: the input is f32 and the bias f16; cast one of them, as in `.cast(DType::F32)`",
            Box::new(move || drop(module::linear(single(), single().transpose(), Some(half())))),
        )]);
    }
}

fn check(cases: Vec<(&str, Failure)>) {
    for (expected, case) in cases {
        assert_eq!(message_of(case), expected);
    }
}

/// The usual mistakes with what layers are made of.
pub fn failures_name_the_shapes<B: Backend>() {
    fn ones<B: Backend, const D: usize>(dims: [usize; D]) -> Tensor<B, D> {
        Tensor::ones(dims, &B::Device::default())
    }
    let indices = || tensor::<B, 1, Int>([0, 1]);
    let x = || ones::<B, 4>([1, 3, 8, 8]);
    let convolved = move |weight: [usize; 4], bias: Option<usize>| {
        let bias = bias.map(|size| ones::<B, 1>([size]));
        let options = ConvOptions::new([1, 1], [0, 0], [1, 1], 1);
        drop(module::conv2d(x(), ones(weight), bias, options));
    };
    check(vec![
        (
            "conv: [1, 3, 8, 8] has 3 channels, a weight [4, 1, 3, 3] in 1 groups takes 1",
            Box::new(move || convolved([4, 1, 3, 3], None)),
        ),
        (
            "conv: a bias [3] does not fit a weight [4, 3, 3, 3]",
            Box::new(move || convolved([4, 3, 3, 3], Some(3))),
        ),
        (
            "conv: a kernel of 9 does not fit dim 2 of [1, 3, 8, 8], padded by 0 and 0",
            Box::new(move || convolved([4, 3, 9, 9], None)),
        ),
        (
            "pool: a window of 9 does not fit dim 2 of [1, 3, 8, 8], padded by 0 and 0",
            Box::new(move || drop(module::max_pool2d(x(), [9, 9], [1, 1], [0, 0], [1, 1], false))),
        ),
        (
            "linear: the last dim of [2, 3] does not fit a weight [4, 5], which is [in, out]",
            Box::new(|| drop(module::linear(ones::<B, 2>([2, 3]), ones([4, 5]), None))),
        ),
        (
            "layer_norm: a weight [4] does not cover the last dims of [2, 3]",
            Box::new(|| drop(module::layer_norm(ones::<B, 2>([2, 3]), ones::<B, 1>([4]), None, 1e-5))),
        ),
        (
            "group_norm: 2 groups do not divide the 3 channels of [1, 3, 8, 8]",
            Box::new(move || drop(module::group_norm(x(), None, None, 2, 1e-5))),
        ),
        (
            "batch_norm: a parameter [4] does not fit the 3 channels of [1, 3, 8, 8]",
            Box::new(move || {
                let four = || ones::<B, 1>([4]);
                drop(module::batch_norm(x(), four(), four(), four(), four(), 1e-5));
            }),
        ),
        (
            "softmax: there is no dim 2 in rank 2",
            Box::new(|| drop(activation::softmax(ones::<B, 2>([2, 3]), 2))),
        ),
        (
            "prelu: 2 slopes do not fit the channels (dim 1) of [1, 3, 8, 8]",
            Box::new(move || drop(activation::prelu(x(), ones([2])))),
        ),
        (
            "slice: 5 ranges were given for a tensor of shape [1, 3, 8, 8]",
            Box::new(move || drop(x().slice([(); 5].map(|()| 0..1)))),
        ),
        ("narrow: 7..7+2 is not within dim 2 of [1, 3, 8, 8]", Box::new(move || drop(x().narrow(2, 7, 2)))),
        (
            "split: [4, 5] do not add up to dim 2 of [1, 3, 8, 8]",
            Box::new(move || drop(x().split_with_sizes(vec![4, 5], 2))),
        ),
        ("permute: [0, 1, 1, 2] does not permute 4 dims", Box::new(move || drop(x().permute([0, 1, 1, 2])))),
        ("flatten: dim 2 comes after dim 1", Box::new(move || drop(x().flatten::<2>(2, 1)))),
        (
            "squeeze: [1, 3, 8, 8] becomes [3, 8, 8], rank 2 was expected",
            Box::new(move || drop(x().squeeze::<2>())),
        ),
        (
            "unsqueeze: [1, 3, 8, 8] becomes [1, 3, 8, 8, 1], rank 4 was expected",
            Box::new(move || drop(x().unsqueeze_dim::<4>(4))),
        ),
        ("one_hot: rank 1 becomes 2, not 3", Box::new(move || drop(indices().one_hot::<3>(2)))),
        (
            "gather: indices [1, 1, 1, 9] do not fit a tensor [1, 3, 8, 8] along dim 0",
            Box::new(move || {
                drop(x().gather(0, Tensor::<B, 4, Int>::zeros([1, 1, 1, 9], &B::Device::default())));
            }),
        ),
        (
            "slice_assign: values [1, 1, 2, 2] do not fit the slice, which is [1, 1, 8, 3]",
            Box::new(move || {
                drop(x().slice_assign(s![.., 0, .., 0..3], ones::<B, 4>([1, 1, 2, 2])));
            }),
        ),
        (
            "mask_where: [1, 3, 4, 8] and [1, 3, 8, 8] do not broadcast",
            Box::new(move || {
                drop(x().mask_where(ones::<B, 4>([1, 3, 4, 8]).bool(), x()));
            }),
        ),
        (
            "zeros: rank 2 was expected, the shape is [3]",
            Box::new(|| drop(Tensor::<B, 2>::zeros([3], &B::Device::default()))),
        ),
        ("pad: 3 pairs for rank 2", Box::new(|| drop(ones::<B, 2>([2, 2]).pad([(1, 1); 3], 0.0)))),
        ("stack: there are no tensors to join", Box::new(|| drop(Tensor::<B, 1>::stack::<2>(vec![], 0)))),
    ]);
}
