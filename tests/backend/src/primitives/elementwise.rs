//! Unary and binary operations, comparisons, masks.

use super::{assert_close, bits, counting, has, held_as, mask, read, tensor};
use core::f32::consts::{E, FRAC_PI_3, FRAC_PI_6, LN_2, SQRT_2};
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{BinaryOp as Op, CompareOp, DType, Scalar, Shape, UnaryOp, bf16, f16};

pub fn float_arithmetic<B: Backend>() {
    let (a, b) = (tensor::<B, f32>(&[7., -7., 7., -7.], &[4]), tensor::<B, f32>(&[3., 3., -3., -3.], &[4]));
    let run = |op| read::<B, f32>(B::binary(op, a.clone(), b.clone()));
    assert_eq!(run(Op::Add), [10., -4., 4., -10.]);
    assert_eq!(run(Op::Sub), [4., -10., 10., -4.]);
    assert_eq!(run(Op::Mul), [21., -21., -21., 21.]);
    assert_close(&run(Op::Div), &[7. / 3., -7. / 3., -7. / 3., 7. / 3.], 1e-6);
    assert_eq!(run(Op::Remainder), [1., 2., -2., -1.]);
    assert_eq!(run(Op::Fmod), [1., -1., 1., -1.]);
    assert_close(&run(Op::Pow), &[343., -343., 1. / 343., -1. / 343.], 1e-5);
    assert_close(&run(Op::Atan2), &[1.165_904_5, -1.165_904_5, 1.975_688_1, -1.975_688_1], 1e-6);
    assert_eq!(run(Op::Max), [7., 3., 7., -3.]);
    assert_eq!(read::<B, f32>(B::binary_scalar(Op::Sub, a, Scalar::Int(1))), [6., -8., 6., -8.]);
}

/// To the last bit, however much larger the dividend is.
pub fn remainders<B: Backend>() {
    let mut numbers: Vec<f32> = vec![
        0.0,
        1.0,
        3.0,
        0.1,
        7.5,
        1e9,
        1e30,
        1e-10,
        123_456_790.0,
        16_777_217.0,
        1e-30,
        1e-37,
        3e-38,
        f32::MAX,
        f32::MIN_POSITIVE,
        f32::INFINITY,
        f32::NAN,
    ];
    numbers.extend(numbers.clone().iter().map(|x| -x));
    let pairs = || numbers.iter().flat_map(|&a| numbers.iter().map(move |&b| (a, b)));
    let (a, b): (Vec<f32>, Vec<f32>) = pairs().unzip();
    let shape = [a.len()];
    let run = |op| read::<B, f32>(B::binary(op, tensor::<B, f32>(&a, &shape), tensor::<B, f32>(&b, &shape)));
    // Some GPUs take numbers of this size for 0.
    let same = |x: f32, y: f32| x == y || x.is_nan() && y.is_nan() || x == 0.0 && y.abs() < f32::MIN_POSITIVE;
    for (n, (x, remainder)) in run(Op::Fmod).into_iter().zip(run(Op::Remainder)).enumerate() {
        let (a, b) = (a[n], b[n]);
        assert!(same(x, a % b), "fmod({a:e}, {b:e}): {x:e} instead of {:e}", a % b);
        let floored = if a % b != 0.0 && (a % b < 0.0) != (b < 0.0) { a % b + b } else { a % b };
        assert!(same(remainder, floored), "remainder({a:e}, {b:e}): {remainder:e} instead of {floored:e}");
    }
}

/// To the last bit: what is cut off at the point shows one that is missing.
pub fn whole_powers<B: Backend>() {
    if !has::<B>(DType::F64) {
        return;
    }
    let mut cases: Vec<(f64, f64, f64)> = Vec::new();
    for base in -40_i32..=1000 {
        for exponent in 0..=8 {
            // 53 bits hold all products of these, and more than these.
            if let Some(power) = i64::from(base).checked_pow(exponent).filter(|power| power.abs() < 1 << 53) {
                cases.push((base.into(), exponent.into(), power as f64));
                if base >= 0 {
                    cases.push(((base * base).into(), 0.5, base.into()));
                    cases.push(((base * base).into(), 1.5, i64::from(base).pow(3) as f64));
                }
            }
        }
    }
    let whole = [1.0, 2.0, -2.0, 0.0, -0.0, 3.0, 1.5, 0.0, -4.0, 2.0, f64::INFINITY, f64::NEG_INFINITY];
    let by = [64.0, 63.0, 63.0, -1.0, 3.0, -1.0, 2.0, 0.5, 0.5, 1e300, 0.5, 3.0];
    let (x, y): (Vec<f64>, Vec<f64>) =
        cases.iter().map(|&(x, y, _)| (x, y)).chain(whole.into_iter().zip(by)).unzip();
    let expected: Vec<f64> = cases.iter().map(|case| case.2).collect();
    let shape = [x.len()];
    let powers = B::binary(Op::Pow, tensor::<B, f64>(&x, &shape), tensor::<B, f64>(&y, &shape));
    let powers = read::<B, f64>(powers);
    let (own, others) = powers.split_at(cases.len());
    for ((&(x, y, _), own), expected) in cases.iter().zip(own).zip(expected) {
        assert_eq!(*own, expected, "{x} to the power of {y}");
    }
    assert_eq!(others[..3], [1.0, 2_f64.powi(63), -2_f64.powi(63)]);
    assert_eq!((others[3], others[4], others[4].is_sign_negative()), (f64::INFINITY, 0.0, true));
    assert!((others[5] - 1.0 / 3.0).abs() < 1e-15 && others[6] == 2.25 && others[7] == 0.0);
    assert!(others[8].is_nan());
    assert_eq!(others[9..], [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY]);
}

pub fn integer_arithmetic<B: Backend>() {
    let (a, b) = (tensor::<B, i64>(&[7, -7, 7, -7], &[4]), tensor::<B, i64>(&[3, 3, -3, -3], &[4]));
    let run = |op| read::<B, i64>(B::binary(op, a.clone(), b.clone()));
    assert_eq!(run(Op::Div), [2, -2, -2, 2]);
    assert_eq!(run(Op::Remainder), [1, 2, -2, -1]);
    assert_eq!(run(Op::Fmod), [1, -1, 1, -1]);
    assert_eq!(run(Op::BitwiseXor), [4, -6, -6, 4]);
    let powers = B::binary(
        Op::Pow,
        tensor::<B, i64>(&[2, -1, -1, 5], &[4]),
        tensor::<B, i64>(&[10, -3, -2, -1], &[4]),
    );
    assert_eq!(read::<B, i64>(powers), [1024, -1, 1, 0]);
    let beyond = B::binary_scalar(Op::Add, tensor::<B, i32>(&[i32::MAX], &[1]), 1.into());
    assert_eq!(read::<B, i32>(beyond), [i32::MIN]);
    if has::<B>(DType::I64) && has::<B>(DType::U64) {
        let beyond = B::binary_scalar(Op::Add, tensor::<B, i64>(&[i64::MAX], &[1]), 1i64.into());
        assert_eq!(read::<B, i64>(beyond), [i64::MIN]);
        let negated = B::unary(UnaryOp::BitwiseNot, tensor::<B, u64>(&[0, 5], &[2]));
        assert_eq!(read::<B, u64>(negated), [u64::MAX, !5]);
    }
}

pub fn narrow_integers_wrap<B: Backend>() {
    let u32s = |op, a, b| {
        read::<B, u32>(B::binary(op, tensor::<B, u32>(&[a], &[1]), tensor::<B, u32>(&[b], &[1])))[0]
    };
    if has::<B>(DType::U32) {
        assert_eq!(u32s(Op::Mul, u32::MAX, u32::MAX), 1);
        assert_eq!(u32s(Op::Div, u32::MAX, 2), i32::MAX as u32);
    }
    if !has::<B>(DType::I8) || !has::<B>(DType::U16) || !has::<B>(DType::U64) {
        return;
    }
    let i8s =
        |op, a, b| read::<B, i8>(B::binary(op, tensor::<B, i8>(&[a], &[1]), tensor::<B, i8>(&[b], &[1])))[0];
    assert_eq!(i8s(Op::Add, 127, 1), -128);
    assert_eq!(i8s(Op::Mul, -128, -1), -128);
    assert_eq!(i8s(Op::Div, -128, -1), -128);
    let u16s = |op, a, b| {
        read::<B, u16>(B::binary(op, tensor::<B, u16>(&[a], &[1]), tensor::<B, u16>(&[b], &[1])))[0]
    };
    assert_eq!(u16s(Op::Sub, 3, 5), 65534);
    assert_eq!(u16s(Op::Mul, 65535, 65535), 1);
    let large = tensor::<B, u64>(&[u64::MAX, 1], &[2]);
    assert_eq!(bits::<B>(B::compare_scalar(CompareOp::Greater, large.clone(), 5u64.into())), [1, 0]);
    assert_eq!(read::<B, u64>(B::binary_scalar(Op::Div, large, 2u64.into())), [i64::MAX as u64, 0]);
}

pub fn nan_rules<B: Backend>() {
    let (a, b) = (tensor::<B, f32>(&[f32::NAN, 1., 2.], &[3]), tensor::<B, f32>(&[1., f32::NAN, 3.], &[3]));
    for op in [Op::Max, Op::Min] {
        let result = read::<B, f32>(B::binary(op, a.clone(), b.clone()));
        assert!(result[0].is_nan() && result[1].is_nan() && !result[2].is_nan(), "{op:?}: {result:?}");
    }
    assert_eq!(bits::<B>(B::compare(CompareOp::LowerEqual, a.clone(), a.clone())), [0, 1, 1]);
    assert_eq!(bits::<B>(B::compare(CompareOp::NotEqual, a.clone(), a)), [1, 0, 0]);
}

/// So many elements that an invocation on a GPU computes several fours of them, of which the last group lacks some.
pub fn very_many_elements<B: Backend>() {
    let (rows, columns) = (4099, 1028);
    let row: Vec<f32> = (0..columns).map(|n| n as f32).collect();
    let column: Vec<f32> = (0..rows).map(|n| n as f32 * 0.5).collect();
    let x = tensor::<B, f32>(&row.repeat(rows), &[rows, columns]);
    let y = read::<B, f32>(B::binary(Op::Add, x, tensor::<B, f32>(&column, &[rows, 1])));
    for (y, column) in y.chunks(columns).zip(column) {
        assert!(y.iter().zip(&row).all(|(&y, &row)| y == row + column), "row of {column}");
    }
}

/// Copies of batches of matrices that lie column by column, of elements of all widths, alone and with what is done to them next.
pub fn rows_as_columns<B: Backend>() {
    let shapes: [(&[usize], &[usize]); 4] = [
        (&[259, 1001], &[1, 0]),
        (&[3, 65, 520], &[0, 2, 1]),
        (&[2, 130, 3, 170], &[0, 3, 2, 1]),
        (&[2, 40, 900], &[2, 0, 1]),
    ];
    for (dims, axes) in shapes {
        let count: usize = dims.iter().product();
        // Numbers that all of the dtypes hold.
        let numbers: Vec<f32> = (0..count).map(|n| (n * 7 % 101) as f32).collect();
        let mut strides: Vec<usize> = (0..dims.len()).map(|axis| dims[axis + 1..].iter().product()).collect();
        strides = axes.iter().map(|&axis| strides[axis]).collect();
        let turned: Vec<usize> = axes.iter().map(|&axis| dims[axis]).collect();
        let wanted: Vec<f32> = (0..count)
            .map(|mut place| {
                let axes = turned.iter().zip(&strides).rev();
                let at: usize = axes
                    .map(|(&dim, &stride)| {
                        let coordinate = place % dim;
                        place /= dim;
                        coordinate * stride
                    })
                    .sum();
                numbers[at]
            })
            .collect();
        for dtype in [DType::F32, DType::F16, DType::F64, DType::I64, DType::I16, DType::U8] {
            if !has::<B>(dtype) {
                continue;
            }
            let x = B::cast(tensor::<B, f32>(&numbers, dims), dtype);
            let copy = || B::reshape(B::permute(x.clone(), axes), Shape::from([count]));
            assert!(read::<B, f32>(B::cast(copy(), DType::F32)) == wanted, "{dtype:?} {dims:?} by {axes:?}");
            let next = B::binary_scalar(Op::Add, copy(), Scalar::Int(1));
            let wanted: Vec<f32> = wanted.iter().map(|x| x + 1.0).collect();
            assert!(
                read::<B, f32>(B::cast(next, DType::F32)) == wanted,
                "{dtype:?} {dims:?} by {axes:?}, and one"
            );
        }
    }
}

pub fn broadcasting<B: Backend>() {
    let x = counting::<B>(&[2, 3]);
    let row = tensor::<B, f32>(&[10., 20., 30.], &[1, 3]);
    let column = tensor::<B, f32>(&[100., 200.], &[2, 1]);
    assert_eq!(read::<B, f32>(B::binary(Op::Add, x.clone(), row.clone())), [10., 21., 32., 13., 24., 35.]);
    assert_eq!(read::<B, f32>(B::binary(Op::Sub, column.clone(), x)), [100., 99., 98., 197., 196., 195.]);
    assert_eq!(read::<B, f32>(B::binary(Op::Sub, row, column)), [-90., -80., -70., -190., -180., -170.]);
    let middle = B::binary(Op::Mul, counting::<B>(&[2, 1, 2]), counting::<B>(&[1, 2, 1]));
    assert_eq!(read::<B, f32>(middle), [0., 0., 0., 1., 0., 0., 2., 3.]);
    let transposed = B::permute(counting::<B>(&[3, 2]), &[1, 0]);
    let sum = B::binary(Op::Add, counting::<B>(&[2, 3]), transposed);
    assert_eq!(read::<B, f32>(sum), [0., 3., 6., 4., 7., 10.]);
    let none = B::binary(Op::Add, counting::<B>(&[0, 3]), counting::<B>(&[1, 3]));
    assert_eq!(none.shape().dims, [0, 3]);
}

pub fn in_place_is_not_seen<B: Backend>() {
    let x = counting::<B>(&[4]);
    let kept = x.clone();
    let x = B::unary(UnaryOp::Neg, x);
    let part = B::slice(x.clone(), &[kiln_tensor::backend::SliceRange { start: 1, end: 3, step: 1 }]);
    let x = B::binary(Op::Add, x.clone(), x);
    assert_eq!(read::<B, f32>(x), [0., -2., -4., -6.]);
    assert_eq!(read::<B, f32>(B::unary(UnaryOp::Abs, part)), [1., 2.]);
    assert_eq!(read::<B, f32>(kept), [0., 1., 2., 3.]);
}

pub fn comparisons<B: Backend>() {
    let (a, b) = (tensor::<B, i32>(&[1, 2, 3], &[3]), tensor::<B, i32>(&[2], &[1]));
    let run = |op| bits::<B>(B::compare(op, a.clone(), b.clone()));
    assert_eq!(run(CompareOp::Equal), [0, 1, 0]);
    assert_eq!(run(CompareOp::NotEqual), [1, 0, 1]);
    assert_eq!(run(CompareOp::Greater), [0, 0, 1]);
    assert_eq!(run(CompareOp::GreaterEqual), [0, 1, 1]);
    assert_eq!(run(CompareOp::Lower), [1, 0, 0]);
    assert_eq!(run(CompareOp::LowerEqual), [1, 1, 0]);
}

pub fn masks<B: Backend>() {
    let x = counting::<B>(&[2, 2]);
    let m = mask::<B>(&[1, 0], &[2, 1]);
    assert_eq!(read::<B, f32>(B::mask_fill(x.clone(), m.clone(), Scalar::Float(9.))), [9., 9., 2., 3.]);
    let other = tensor::<B, f32>(&[-1.], &[1, 1]);
    assert_eq!(read::<B, f32>(B::select_where(m.clone(), x, other)), [0., 1., -1., -1.]);
    assert_eq!(bits::<B>(B::unary(UnaryOp::Not, m.clone())), [0, 1]);
    let both = mask::<B>(&[1, 1], &[2, 1]);
    assert_eq!(bits::<B>(B::binary(Op::And, m.clone(), both.clone())), [1, 0]);
    assert_eq!(bits::<B>(B::binary(Op::Xor, m.clone(), both.clone())), [0, 1]);
    assert_eq!(bits::<B>(B::binary(Op::Or, m, both)), [1, 1]);
}

pub fn unary_values<B: Backend>() {
    let cases: &[(UnaryOp, f32, f32)] = &[
        (UnaryOp::Neg, 2., -2.),
        (UnaryOp::Abs, -2., 2.),
        (UnaryOp::Sign, -3., -1.),
        (UnaryOp::Sign, 0., 0.),
        (UnaryOp::Exp, 1., E),
        (UnaryOp::Log, 2., LN_2),
        (UnaryOp::Log1p, 1e-7, 1e-7),
        (UnaryOp::Sqrt, 2., SQRT_2),
        (UnaryOp::Recip, 4., 0.25),
        (UnaryOp::Sin, 1., 0.841_471),
        (UnaryOp::Cos, 1., 0.540_302_3),
        (UnaryOp::Tan, 1., 1.557_407_7),
        (UnaryOp::Asin, 0.5, FRAC_PI_6),
        (UnaryOp::Acos, 0.5, FRAC_PI_3),
        (UnaryOp::Atan, 0.5, 0.463_647_6),
        (UnaryOp::Sinh, 1., 1.175_201_2),
        (UnaryOp::Cosh, 1., 1.543_080_7),
        (UnaryOp::Tanh, 1., 0.761_594_2),
        (UnaryOp::Asinh, 1., 0.881_373_6),
        (UnaryOp::Acosh, 2., 1.316_957_8),
        (UnaryOp::Atanh, 0.5, 0.549_306_15),
        (UnaryOp::Erf, 0.5, 0.520_499_9),
        (UnaryOp::Floor, -1.5, -2.),
        (UnaryOp::Ceil, -1.5, -1.),
        (UnaryOp::Trunc, -1.5, -1.),
        (UnaryOp::Round, 2.5, 2.),
        (UnaryOp::Round, 3.5, 4.),
        (UnaryOp::Round, -0.5, 0.),
        (UnaryOp::Round, -2.6, -3.),
    ];
    for &(op, x, y) in cases {
        // A row long enough for vector code.
        let result = read::<B, f32>(B::unary(op, tensor::<B, f32>(&[x; 19], &[19])));
        assert_close(&result, &[y; 19], 2e-6);
        let double = B::unary(op, tensor::<B, f64>(&[f64::from(x)], &[1]));
        assert_close(&[read::<B, f64>(double)[0] as f32], &[y], 2e-6);
    }
    for x in [0.5, -0.5, -3.0, -100.0, -3e3, -1e10] {
        assert!(
            read::<B, f32>(B::unary(UnaryOp::Acosh, tensor::<B, f32>(&[x; 19], &[19])))[0].is_nan(),
            "{x}"
        );
        let double = B::unary(UnaryOp::Acosh, tensor::<B, f64>(&[f64::from(x)], &[1]));
        assert!(read::<B, f64>(double)[0].is_nan(), "{x}");
    }
    assert_eq!(read::<B, i32>(B::unary(UnaryOp::Sign, tensor::<B, i32>(&[-5, 0, 9], &[3]))), [-1, 0, 1]);
}

pub fn classes<B: Backend>() {
    let x = tensor::<B, f32>(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0., -1.], &[5]);
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16].map(held_as::<B>) {
        let x = B::cast(x.clone(), dtype);
        assert_eq!(bits::<B>(B::unary(UnaryOp::IsNan, x.clone())), [1, 0, 0, 0, 0]);
        assert_eq!(bits::<B>(B::unary(UnaryOp::IsInf, x)), [0, 1, 1, 0, 0]);
    }
}

pub fn shifts<B: Backend>() {
    let x = tensor::<B, u8>(&[0x81, 0x81, 0x81], &[3]);
    let by = tensor::<B, u8>(&[1, 7, 8], &[3]);
    assert_eq!(read::<B, u8>(B::binary(Op::ShiftLeft, x.clone(), by.clone())), [2, 0x80, 0]);
    assert_eq!(read::<B, u8>(B::binary(Op::ShiftRight, x, by)), [0x40, 1, 0]);
    let x = tensor::<B, i16>(&[-8, -8, 8], &[3]);
    let by = tensor::<B, i16>(&[1, 40, 40], &[3]);
    assert_eq!(read::<B, i16>(B::binary(Op::ShiftRight, x.clone(), by.clone())), [-4, -1, 0]);
    assert_eq!(read::<B, i16>(B::binary(Op::ShiftLeft, x, by)), [-16, 0, 0]);
}

pub fn halves<B: Backend>() {
    let x = tensor::<B, f16>(&[f16::from_f32(1.5), f16::from_f32(2.0)], &[2]);
    let y = B::binary(Op::Mul, x.clone(), x);
    assert_eq!(read::<B, f16>(y), [f16::from_f32(2.25), f16::from_f32(4.0)]);
    let x = tensor::<B, bf16>(&[bf16::from_f32(256.0)], &[1]);
    // 257 has nine significant bits, one too many.
    if has::<B>(DType::BF16) {
        assert_eq!(read::<B, bf16>(B::binary_scalar(Op::Add, x, Scalar::Int(1))), [bf16::from_f32(256.0)]);
    }
}
