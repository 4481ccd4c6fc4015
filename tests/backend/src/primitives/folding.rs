//! Reductions, arguments of extremes, running folds.

use super::{assert_close, bits, counting, has, mask, positions, read, tensor};
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{ArgReduceOp, CumulativeOp, DType, ReduceOp};

pub fn reductions<B: Backend>() {
    let x = tensor::<B, f32>(&[1., 2., 3., -4., 5., 6.], &[2, 3]);
    let run = |op| read::<B, f32>(B::reduce(op, x.clone(), &[1]));
    assert_eq!(run(ReduceOp::Sum), [6., 7.]);
    assert_eq!(run(ReduceOp::Prod), [6., -120.]);
    assert_close(&run(ReduceOp::Mean), &[2., 7. / 3.], 1e-6);
    assert_eq!(run(ReduceOp::Max), [3., 6.]);
    assert_eq!(run(ReduceOp::Min), [1., -4.]);
    let m = mask::<B>(&[0, 1, 0, 0], &[2, 2]);
    assert_eq!(bits::<B>(B::reduce(ReduceOp::Any, m.clone(), &[1])), [1, 0]);
    assert_eq!(bits::<B>(B::reduce(ReduceOp::All, m, &[0])), [0, 0]);
    let nan = tensor::<B, f32>(&[1., f32::NAN, 2.], &[3]);
    assert!(read::<B, f32>(B::reduce(ReduceOp::Max, nan.clone(), &[0]))[0].is_nan());
    assert!(read::<B, f32>(B::reduce(ReduceOp::Min, nan, &[0]))[0].is_nan());
    let ints = tensor::<B, i32>(&[-7, 2], &[2]);
    assert_eq!(read::<B, i32>(B::reduce(ReduceOp::Mean, ints.clone(), &[0])), [-2]);
    assert_eq!(read::<B, i32>(B::reduce(ReduceOp::Max, ints, &[0])), [2]);
    // A million elements: the error must not grow with their number.
    let many = B::full([1 << 20].into(), 0.1.into(), DType::F32, &B::Device::default());
    assert_close(&read::<B, f32>(B::reduce(ReduceOp::Sum, many, &[0])), &[104_857.6], 1e-5);
}

pub fn reduction_axes<B: Backend>() {
    let x = counting::<B>(&[2, 3, 4]);
    let sum = |axes: &[usize]| {
        let out = B::reduce(ReduceOp::Sum, x.clone(), axes);
        (out.shape().dims, read::<B, f32>(out))
    };
    assert_eq!(sum(&[0]), (vec![1, 3, 4], (0..12).map(|i| (2 * i + 12) as f32).collect()));
    assert_eq!(sum(&[1]), (vec![2, 1, 4], vec![12., 15., 18., 21., 48., 51., 54., 57.]));
    assert_eq!(sum(&[0, 2]), (vec![1, 3, 1], vec![60., 92., 124.]));
    assert_eq!(sum(&[1, 2]), (vec![2, 1, 1], vec![66., 210.]));
    assert_eq!(sum(&[0, 1, 2]), (vec![1, 1, 1], vec![276.]));
    let turned = B::reduce(ReduceOp::Max, B::permute(x, &[2, 0, 1]), &[0, 1]);
    assert_eq!(read::<B, f32>(turned), [15., 19., 23.]);
}

pub fn empty_reductions<B: Backend>() {
    let x = counting::<B>(&[2, 0]);
    let run = |op| read::<B, f32>(B::reduce(op, x.clone(), &[1]));
    assert_eq!(run(ReduceOp::Sum), [0., 0.]);
    assert_eq!(run(ReduceOp::Prod), [1., 1.]);
    assert!(run(ReduceOp::Mean)[0].is_nan());
    assert_eq!(run(ReduceOp::Max), [f32::NEG_INFINITY; 2]);
    let ints = tensor::<B, i32>(&[], &[0]);
    assert_eq!(read::<B, i32>(B::reduce(ReduceOp::Min, ints.clone(), &[0])), [i32::MAX]);
    assert_eq!(read::<B, i32>(B::reduce(ReduceOp::Max, ints, &[0])), [i32::MIN]);
    if has::<B>(DType::I8) {
        let ints = tensor::<B, i8>(&[], &[0]);
        assert_eq!(read::<B, i8>(B::reduce(ReduceOp::Min, ints.clone(), &[0])), [127]);
        assert_eq!(read::<B, i8>(B::reduce(ReduceOp::Max, ints, &[0])), [-128]);
    }
    assert_eq!(B::reduce(ReduceOp::Sum, counting::<B>(&[0, 3]), &[1]).shape().dims, [0, 1]);
}

pub fn argument_of_extremes<B: Backend>() {
    let x = tensor::<B, f32>(&[1., 5., 5., 2., 0., 0.], &[2, 3]);
    let run = |op, dim, last| positions::<B>(B::arg_reduce(op, x.clone(), dim, last));
    assert_eq!(run(ArgReduceOp::Max, 1, false), [1, 0]);
    assert_eq!(run(ArgReduceOp::Max, 1, true), [2, 0]);
    assert_eq!(run(ArgReduceOp::Min, 1, true), [0, 2]);
    assert_eq!(run(ArgReduceOp::Max, 0, false), [1, 0, 0]);
    let nan = tensor::<B, f32>(&[1., f32::NAN, 7.], &[3]);
    assert_eq!(positions::<B>(B::arg_reduce(ArgReduceOp::Max, nan.clone(), 0, false)), [1]);
    assert_eq!(positions::<B>(B::arg_reduce(ArgReduceOp::Min, nan, 0, false)), [1]);
}

pub fn cumulative_folds<B: Backend>() {
    let x = tensor::<B, f32>(&[1., 2., 3., 4., 5., 6.], &[2, 3]);
    let run =
        |op, dim, exclusive, reverse| read::<B, f32>(B::cumulative(op, x.clone(), dim, exclusive, reverse));
    assert_eq!(run(CumulativeOp::Sum, 1, false, false), [1., 3., 6., 4., 9., 15.]);
    assert_eq!(run(CumulativeOp::Sum, 1, true, false), [0., 1., 3., 0., 4., 9.]);
    assert_eq!(run(CumulativeOp::Sum, 1, false, true), [6., 5., 3., 15., 11., 6.]);
    assert_eq!(run(CumulativeOp::Sum, 1, true, true), [5., 3., 0., 11., 6., 0.]);
    assert_eq!(run(CumulativeOp::Prod, 0, false, false), [1., 2., 3., 4., 10., 18.]);
    let x = tensor::<B, i16>(&[3, 1, 4, 1, 5], &[5]);
    assert_eq!(read::<B, i16>(B::cumulative(CumulativeOp::Max, x.clone(), 0, false, false)), [3, 3, 4, 4, 5]);
    assert_eq!(read::<B, i16>(B::cumulative(CumulativeOp::Min, x, 0, false, false)), [3, 1, 1, 1, 1]);
}
