//! Reductions, arguments of extremes, scans.

use super::{assert_close, bits, counting, has, mask, positions, read, tensor};
use kiln_tensor::backend::{Backend, Primitive, SliceRange};
use kiln_tensor::{ArgReduceOp, CumulativeOp, DType, Element, ReduceOp, f16};

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
        (out.dims().to_vec(), read::<B, f32>(out))
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
    // NaN equals NaN: along rows and along columns, in every float.
    let rows = [f32::NAN, 1., f32::NAN, 7., 2., f32::NAN, f32::NAN, 9., 5., 5., 1., 5.];
    for dtype in crate::supported::<B>().filter(|dtype| dtype.is_float()) {
        let rows = B::cast(tensor::<B, f32>(&rows, &[3, 4]), dtype);
        for op in [ArgReduceOp::Max, ArgReduceOp::Min] {
            for last in [false, true] {
                let wanted = match (last, op) {
                    (false, ArgReduceOp::Max) => [0, 1, 0],
                    (false, ArgReduceOp::Min) => [0, 1, 2],
                    (true, ArgReduceOp::Max) => [2, 2, 3],
                    (true, ArgReduceOp::Min) => [2, 2, 2],
                };
                assert_eq!(positions::<B>(B::arg_reduce(op, rows.clone(), 1, last)), wanted, "{dtype}");
                let columns = B::permute(B::reshape(rows.clone(), [3, 4].into()), &[1, 0]);
                assert_eq!(positions::<B>(B::arg_reduce(op, columns, 0, last)), wanted, "{dtype}");
            }
        }
    }
}

/// Extremes that stand several times, in lanes that lie together, that lie beside each other, and that are longer than one group goes over.
pub fn argument_of_extremes_of_long_lanes<B: Backend>() {
    const LENGTH: usize = 10_000;
    let mut lanes = vec![0.0_f32; 3 * LENGTH];
    // Of the first lane far apart, of the second side by side at its end; the third has a NaN.
    for (at, value) in [(17, 5.0), (4_500, 5.0), (9_100, 5.0), (700, -3.0), (8_200, -3.0)] {
        lanes[at] = value;
    }
    lanes[LENGTH + 9_998..2 * LENGTH].fill(2.0);
    lanes[2 * LENGTH + 5] = 9.0;
    lanes[2 * LENGTH + 6_000] = f32::NAN;
    let x = tensor::<B, f32>(&lanes, &[3, LENGTH]);
    let beside: Vec<f32> =
        (0..LENGTH).flat_map(|at| [0, 1, 2].map(|lane| lanes[lane * LENGTH + at])).collect();
    let turned = tensor::<B, f32>(&beside, &[LENGTH, 3]);
    for (op, last, wanted) in [
        (ArgReduceOp::Max, false, [17, 9_998, 6_000]),
        (ArgReduceOp::Max, true, [9_100, 9_999, 6_000]),
        (ArgReduceOp::Min, false, [700, 0, 6_000]),
        (ArgReduceOp::Min, true, [8_200, 9_997, 6_000]),
    ] {
        assert_eq!(positions::<B>(B::arg_reduce(op, x.clone(), 1, last)), wanted, "{op:?}, {last}");
        assert_eq!(
            positions::<B>(B::arg_reduce(op, turned.clone(), 0, last)),
            wanted,
            "{op:?}, {last}, turned"
        );
    }
    let hundred = B::slice(x, &[1, 100].map(|end| SliceRange { start: 0, end, step: 1 }));
    assert_eq!(positions::<B>(B::arg_reduce(ArgReduceOp::Max, hundred, 1, true)), [17]);
}

pub fn scans<B: Backend>() {
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

/// The four forms of a scan: whether each element is left out of its own result, and whether it runs from the end.
const FORMS: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

/// A scan, one element after another.
fn in_order<T: Copy>(
    lane: &[T],
    first: T,
    join: impl Fn(T, T) -> T,
    (exclusive, reverse): (bool, bool),
) -> Vec<T> {
    let mut results = vec![first; lane.len()];
    let mut before = first;
    for step in 0..lane.len() {
        let at = if reverse { lane.len() - 1 - step } else { step };
        let with = join(before, lane[at]);
        results[at] = if exclusive { before } else { with };
        before = with;
    }
    results
}

/// Compares scans of lanes, which lie one after another, and one element of each after another, with those in order.
fn check_lanes<B: Backend, T: Element + bytemuck::Pod>(
    op: CumulativeOp,
    lanes: &[Vec<T>],
    form: (bool, bool),
    expected: impl Fn(&[T]) -> Vec<T>,
    same: impl Fn(T, T) -> bool,
) {
    let (count, length) = (lanes.len(), lanes[0].len());
    let together = tensor::<B, T>(&lanes.concat(), &[count, length]);
    let apart: Vec<T> = (0..length).flat_map(|at| lanes.iter().map(move |lane| lane[at])).collect();
    let apart = tensor::<B, T>(&apart, &[length, count]);
    let (exclusive, reverse) = form;
    let by_lane = read::<B, T>(B::cumulative(op, together, 1, exclusive, reverse));
    let by_element = read::<B, T>(B::cumulative(op, apart, 0, exclusive, reverse));
    for (n, lane) in lanes.iter().enumerate() {
        for (at, expected) in expected(lane).into_iter().enumerate() {
            for found in [by_lane[n * length + at], by_element[at * count + n]] {
                assert!(
                    same(found, expected),
                    "{op:?} of {count} lanes of {length}, {form:?}: lane {n} has {found:?} at {at}, expected {expected:?}"
                );
            }
        }
    }
}

/// What a reduction does with two numbers.
type Join<T> = fn(T, T) -> T;

/// A few long lanes, which backends may reduce in parts: whole numbers of every dtype, of which sums and products wrap.
pub fn scans_of_long_lanes<B: Backend>() {
    fn all<B: Backend, T: Element + bytemuck::Pod + PartialOrd>(
        sum: Join<T>,
        product: Join<T>,
        [zero, one, least, most]: [T; 4],
        number: fn(u32) -> T,
    ) {
        if !has::<B>(T::DTYPE) {
            return;
        }
        let cases: [(CumulativeOp, Join<T>, T); 4] = [
            (CumulativeOp::Sum, sum, zero),
            (CumulativeOp::Prod, product, one),
            (CumulativeOp::Max, |a, b| if a < b { b } else { a }, least),
            (CumulativeOp::Min, |a, b| if b < a { b } else { a }, most),
        ];
        for (op, join, first) in cases {
            for (form, count) in FORMS.into_iter().zip([1, 2, 3, 1]) {
                // Odd numbers, so that no product ends at 0; extremes change along the lane.
                let lane = |n: u32| (0..5000).map(|at| number((at * (n + 2)) ^ (at / 7 + n) | 1)).collect();
                let lanes: Vec<Vec<T>> = (0..count).map(lane).collect();
                let expected = |lane: &[T]| in_order(lane, first, join, form);
                check_lanes::<B, T>(op, &lanes, form, expected, |a, b| a == b);
            }
        }
    }
    macro_rules! integers {
        ($($ty:ident)*) => {
            $(all::<B, $ty>($ty::wrapping_add, $ty::wrapping_mul, [0, 1, $ty::MIN, $ty::MAX], |x| x as $ty);)*
        };
    }
    integers!(i64 i32 i16 i8 u64 u32 u16 u8);
}

/// Likewise floats, whose sums differ by the order in which they are made.
pub fn scans_of_long_float_lanes<B: Backend>() {
    // Small numbers of both signs, of which the sums grow.
    let number = |n: u32, at: u32| ((at * (n + 3) * 7919) % 1000) as f64 / 1000.0 - 0.25;
    let lanes = |count: u32, length: u32| -> Vec<Vec<f64>> {
        (0..count).map(|n| (0..length).map(|at| number(n, at)).collect()).collect()
    };
    let exact = |lanes: &[Vec<f64>]| -> Vec<Vec<f32>> {
        lanes.iter().map(|lane| lane.iter().map(|&x| x as f32).collect()).collect()
    };
    let sums = |form| {
        move |lane: &[f32]| {
            let lane: Vec<f64> = lane.iter().map(|&x| f64::from(x)).collect();
            in_order(&lane, 0.0, |a, b| a + b, form).into_iter().map(|x| x as f32).collect::<Vec<_>>()
        }
    };
    // One by one in f32, 70,001 sums of such numbers are wrong by 2e-5 of the largest.
    let close = |a: f32, b: f32| (a - b).abs() <= 4e-5 * b.abs().max(100.0);
    for (form, count) in FORMS.into_iter().zip([3, 1, 2, 1]) {
        check_lanes::<B, f32>(CumulativeOp::Sum, &exact(&lanes(count, 5_000)), form, sums(form), close);
        check_lanes::<B, f32>(CumulativeOp::Sum, &exact(&lanes(4 - count, 70_001)), form, sums(form), close);
    }
    // The largest so far, until there is a NaN.
    let mut with_nan = exact(&lanes(2, 5_000));
    with_nan[1][3_000] = f32::NAN;
    let larger = |a: f32, b: f32| if a.is_nan() || a > b { a } else { b };
    let same = |a: f32, b: f32| a == b || (a.is_nan() && b.is_nan());
    for form in FORMS {
        let expected = |lane: &[f32]| in_order(lane, f32::NEG_INFINITY, larger, form);
        check_lanes::<B, f32>(CumulativeOp::Max, &with_nan, form, expected, same);
    }
    // Few that are not 1 or -1, so that products are exact in any order.
    let factor = |at: usize| match (at % 997, at % 1009) {
        (0, _) => 2.0,
        (_, 0) => 0.5,
        _ => [1.0, -1.0, -1.0][at % 3],
    };
    let powers: Vec<f32> = (0..70_001).map(factor).collect();
    let expected = |lane: &[f32]| in_order(lane, 1.0, |a, b| a * b, (false, true));
    check_lanes::<B, f32>(CumulativeOp::Prod, &[powers], (false, true), expected, same);
    // Halves are joined in more digits than they have.
    if has::<B>(DType::F16) {
        let halves: Vec<f16> = (0..5_000).map(|at| f16::from_f32([0.25, 0.5, -0.5][at % 3])).collect();
        let expected = |lane: &[f16]| {
            let lane: Vec<f32> = lane.iter().map(|x| x.to_f32()).collect();
            let sums = in_order(&lane, 0.0, |a, b| a + b, (false, false));
            sums.into_iter().map(f16::from_f32).collect::<Vec<_>>()
        };
        check_lanes::<B, f16>(CumulativeOp::Sum, &[halves], (false, false), expected, |a, b| a == b);
    }
}
