//! What methods take, and what they say when it is wrong.

use super::{message_of, same, tensor};
use kiln_tensor::backend::Backend;
use kiln_tensor::{DType, Float, Int, Tensor, s};

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
        (
            "mul: the operands are f32 and f64; cast one of them, as in `.cast(DType::F32)`",
            Box::new(move || drop(a() * a().cast(DType::F64))),
        ),
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
        ("expand: [2, 3] does not expand to [4, 3]", Box::new(move || drop(a().expand([4, 3])))),
        ("topk: dim 1 of [2, 3] has fewer than 4 elements", Box::new(move || drop(a().topk(4, 1)))),
    ];
    for (expected, case) in cases {
        assert_eq!(message_of(case), expected);
    }
}
