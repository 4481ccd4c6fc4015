//! One numeric suite over every dtype. The values are small enough to be exact in all of them.

use super::message_of;
use crate::supported;
use kiln_tensor::backend::Backend;
use kiln_tensor::module;
use kiln_tensor::{
    Activation, Bool, ConvOptions, DType, Distribution, Float, Int, Numeric, PadMode, PoolOptions, Scalar,
    ScatterOp, Tensor, TensorData, TensorKind, Tolerance, activation, s,
};

/// A tensor of a dtype.
fn of<B: Backend, const D: usize, K: TensorKind<B>>(
    data: impl Into<TensorData>,
    dtype: DType,
) -> Tensor<B, D, K> {
    Tensor::from_data_dtype(data, &B::Device::default(), dtype)
}

/// Asserts dtype, shape and elements.
#[track_caller]
fn is<B: Backend, const D: usize, K: TensorKind<B>>(
    actual: Tensor<B, D, K>,
    expected: impl Into<TensorData>,
    dtype: DType,
) {
    assert_eq!(actual.dtype(), dtype);
    actual.into_data().assert_eq(&expected.into().convert_dtype(dtype), true);
}

/// All dtypes of a kind that the device has.
fn all_of<B: Backend, K: TensorKind<B>>() -> impl Iterator<Item = DType> {
    supported::<B>().filter(|dtype| dtype.kind() == K::KIND)
}

/// The dtype of positions.
fn index<B: Backend>() -> DType {
    <Int as TensorKind<B>>::default_dtype()
}

/// The two operands of what follows.
fn operands<B: Backend, K: Numeric<B>>(dtype: DType) -> (Tensor<B, 2, K>, Tensor<B, 2, K>) {
    (of([[1, 2, 3], [4, 5, 6]], dtype), of([[6, 5, 4], [3, 2, 1]], dtype))
}

fn arithmetic_of<B: Backend, K: Numeric<B>>(dtype: DType) {
    let (a, b) = operands::<B, K>(dtype);
    is(a.clone() + b.clone(), [[7, 7, 7], [7, 7, 7]], dtype);
    is(b.clone().max_pair(a.clone()) - b.clone().min_pair(a.clone()), [[5, 3, 1], [1, 3, 5]], dtype);
    is(a.clone() * b.clone(), [[6, 10, 12], [12, 10, 6]], dtype);
    is((a.clone() * b.clone()) / b.clone(), [[1, 2, 3], [4, 5, 6]], dtype);
    is(b.clone() % a.clone(), [[0, 1, 1], [3, 2, 1]], dtype);
    is(a.clone() + 1, [[2, 3, 4], [5, 6, 7]], dtype);
    is(7 - a.clone(), [[6, 5, 4], [3, 2, 1]], dtype);
    is(a.clone() * 2.0, [[2, 4, 6], [8, 10, 12]], dtype);
    is(a.clone().powi_scalar(2), [[1, 4, 9], [16, 25, 36]], dtype);
    is(a.clone().clamp(2, 5), [[2, 2, 3], [4, 5, 5]], dtype);
    is(a.clone().abs().sign(), [[1, 1, 1], [1, 1, 1]], dtype);
    // 2 · 3 matrices: the rows of one with the rows of the other.
    is(a.clone().matmul(b.clone().transpose()), [[28, 10], [73, 28]], dtype);
    is(a.clone().unsqueeze::<3>().matmul(b.transpose().unsqueeze()), [[[28, 10], [73, 28]]], dtype);
    is(a.clone().slice(0..1).flatten::<1>(0, 1).dot(of([3, 2, 1], dtype)), [10], dtype);
}

fn reductions_of<B: Backend, K: Numeric<B>>(dtype: DType) {
    let (a, b) = operands::<B, K>(dtype);
    is(a.clone().sum(), [21], dtype);
    is(a.clone().sum_dim(0), [[5, 7, 9]], dtype);
    is(a.clone().mean_dim(1), [[2], [5]], dtype);
    is(a.clone().slice(0..1).prod(), [6], dtype);
    is(a.clone().max_dim(1), [[3], [6]], dtype);
    is(b.clone().min(), [1], dtype);
    is(b.clone().argmax(1), [[0], [0]], index::<B>());
    is(b.clone().sort(1), [[4, 5, 6], [1, 2, 3]], dtype);
    is(a.clone().argsort_descending(1), [[2, 1, 0], [2, 1, 0]], index::<B>());
    is(a.clone().topk(2, 1), [[3, 2], [6, 5]], dtype);
    is(a.clone().cumsum(1), [[1, 3, 6], [4, 9, 15]], dtype);
    is(a.clone().cumprod(1), [[1, 2, 6], [4, 20, 120]], dtype);
    is(b.cummax(1), [[6, 6, 6], [3, 3, 3]], dtype);
    is(a.max_abs(), [6], dtype);
}

fn places_of<B: Backend, K: Numeric<B>>(dtype: DType) {
    let (a, b) = operands::<B, K>(dtype);
    let mask = a.clone().greater(b.clone());
    is(mask.clone(), [[false, false, false], [true, true, true]], DType::Bool);
    is(a.clone().lower_equal_elem(2), [[true, true, false], [false, false, false]], DType::Bool);
    is(a.clone().mask_fill(mask.clone(), 9), [[1, 2, 3], [9, 9, 9]], dtype);
    is(a.clone().mask_where(mask, b.clone()), [[1, 2, 3], [3, 2, 1]], dtype);
    let rows = of::<B, 1, Int>([2, 0], DType::I32);
    is(a.clone().select(1, rows), [[3, 1], [6, 4]], dtype);
    let column = of::<B, 2, Int>([[2], [0]], DType::U8);
    is(a.clone().gather(1, column.clone()), [[3], [4]], dtype);
    let added = a.clone().scatter(1, column, of([[1], [2]], dtype), ScatterOp::Add);
    is(added, [[1, 2, 4], [6, 5, 6]], dtype);
    is(a.clone().slice_assign(s![.., 0..2], b.clone().slice(s![.., 0..2])), [[6, 5, 3], [3, 2, 6]], dtype);
    is(Tensor::cat(vec![a.clone(), b], 0).slice(1..3), [[4, 5, 6], [6, 5, 4]], dtype);
    is(a.clone().repeat_dim(1, 2).slice(0..1), [[1, 2, 3, 1, 2, 3]], dtype);
    is(a.clone().pad((1, 0, 0, 0), 7), [[7, 1, 2, 3], [7, 4, 5, 6]], dtype);
    is(a.clone().pad_with(&[(0, 0), (0, 1)], PadMode::Reflect, 0), [[1, 2, 3, 2], [4, 5, 6, 5]], dtype);
    is(a.clone().flip([1]).triu(0), [[3, 2, 1], [0, 5, 4]], dtype);
    is(of::<B, 1, K>([1, 0], dtype).one_hot::<2>(2), [[0, 1], [1, 0]], dtype);
    let device = B::Device::default();
    is(Tensor::<B, 1, K>::full([2], 3, (&device, dtype)), [3, 3], dtype);
    is(Tensor::<B, 2, K>::eye_with([2, 2], 0, dtype, &device), [[1, 0], [0, 1]], dtype);
    is(a.zeros_like().slice(0..1), [[0, 0, 0]], dtype);
    let _alone = crate::drawing();
    let random = a.random_like(Distribution::Uniform(1.0, 5.0));
    assert_eq!(random.dtype(), dtype);
    assert!(random.into_data().iter::<f64>().all(|x| (1.0..=5.0).contains(&x)));
    // Rank 0.
    is(of::<B, 0, K>(3, dtype) + of::<B, 0, K>(4, dtype), 7, dtype);
}

fn conversions_of<B: Backend, K: Numeric<B>>(dtype: DType) {
    let (a, _) = operands::<B, K>(dtype);
    for other in supported::<B>() {
        let expected = a.to_data().convert_dtype(other);
        let back = match other.kind() {
            kind if kind == <Float as TensorKind<B>>::KIND => {
                let there = a.clone().convert::<Float>(other);
                there.to_data().assert_eq(&expected, true);
                there.convert::<K>(dtype)
            }
            kind if kind == <Int as TensorKind<B>>::KIND => {
                let there = a.clone().convert::<Int>(other);
                there.to_data().assert_eq(&expected, true);
                there.convert::<K>(dtype)
            }
            _ => {
                is(a.clone().convert::<Bool>(other), [[true; 3]; 2], DType::Bool);
                continue;
            }
        };
        is(back, [[1, 2, 3], [4, 5, 6]], dtype);
    }
    let text = a.to_string();
    let number =
        if dtype.is_float() { "[[1.0, 2.0, 3.0],\n [4.0, 5.0, 6.0]]" } else { "[[1, 2, 3],\n [4, 5, 6]]" };
    assert!(text.contains(number), "{text}");
    assert!(text.contains(&format!("dtype:  \"{dtype}\"")), "{text}");
    let json = serde_json::to_string(&a).unwrap();
    is(serde_json::from_str::<Tensor<B, 2, K>>(&json).unwrap(), [[1, 2, 3], [4, 5, 6]], dtype);
    assert!(serde_json::from_str::<Tensor<B, 1, K>>(&json).is_err());
    let Some(other) = all_of::<B, K>().find(|other| *other != dtype) else { return };
    let wrong = message_of(move || drop(a.clone() + a.cast(other)));
    let text = format!(
        "add: the operands are {dtype} and {other}; cast one of them, as in `.cast(DType::{dtype:?})`"
    );
    assert_eq!(wrong, text);
}

pub fn numbers<B: Backend>() {
    fn all<B: Backend, K: Numeric<B>>() {
        for dtype in all_of::<B, K>() {
            arithmetic_of::<B, K>(dtype);
            reductions_of::<B, K>(dtype);
            places_of::<B, K>(dtype);
            conversions_of::<B, K>(dtype);
        }
    }
    all::<B, Float>();
    all::<B, Int>();
}

/// Numbers that an integer dtype does not have are bounds and are compared as what they are.
pub fn numbers_out_of_range<B: Backend>() {
    for dtype in all_of::<B, Int>() {
        let Some((least, greatest)) = dtype.integers() else { continue };
        let numbers: Vec<i128> = vec![least, least + 1, 5, greatest - 1, greatest];
        let data = |numbers: &[i128]| match dtype {
            DType::U64 => {
                TensorData::new(numbers.iter().map(|&x| x as u64).collect::<Vec<_>>(), [numbers.len()])
            }
            _ => TensorData::new(numbers.iter().map(|&x| x as i64).collect::<Vec<_>>(), [numbers.len()]),
        };
        let x = || of::<B, 1, Int>(data(&numbers), dtype);
        let compared = |number: Scalar, truths: [&dyn Fn(i128) -> bool; 6]| {
            let expected = truths.map(|truth| numbers.iter().map(|&x| truth(x)).collect::<Vec<_>>());
            let found = [
                x().equal_elem(number),
                x().not_equal_elem(number),
                x().lower_elem(number),
                x().lower_equal_elem(number),
                x().greater_elem(number),
                x().greater_equal_elem(number),
            ];
            for (found, expected) in found.into_iter().zip(expected) {
                is(found, TensorData::new(expected, [numbers.len()]), DType::Bool);
            }
        };
        for number in [-(1 << 63), -1000, -1, 0, 6, 255, 1000, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
        {
            let scalar = i64::try_from(number).map_or(Scalar::UInt(number as u64), Scalar::Int);
            compared(
                scalar,
                [
                    &|x| x == number,
                    &|x| x != number,
                    &|x| x < number,
                    &|x| x <= number,
                    &|x| x > number,
                    &|x| x >= number,
                ],
            );
            let bounded = |f: &dyn Fn(i128) -> i128| {
                data(&numbers.iter().map(|&x| f(x).clamp(least, greatest)).collect::<Vec<_>>())
            };
            is(x().clamp_min(scalar), bounded(&|x| x.max(number)), dtype);
            is(x().clamp_max(scalar), bounded(&|x| x.min(number)), dtype);
            is(x().max_pair_scalar(scalar), bounded(&|x| x.max(number)), dtype);
            is(x().min_pair_scalar(scalar), bounded(&|x| x.min(number)), dtype);
            if number <= 1000 {
                is(x().clamp(scalar, Scalar::Int(1000)), bounded(&|x| x.clamp(number, 1000)), dtype);
            }
        }
        let five = |op: fn(i128, i128) -> bool| move |x: i128| op(2 * x, 11);
        compared(
            Scalar::Float(5.5),
            [
                &|_| false,
                &|_| true,
                &five(|a, b| a < b),
                &five(|a, b| a <= b),
                &five(|a, b| a > b),
                &five(|a, b| a >= b),
            ],
        );
        let all = |truth: bool| move |_: i128| truth;
        let [yes, no] = [all(true), all(false)];
        compared(Scalar::Float(f64::NAN), [&no, &yes, &no, &no, &no, &no]);
        compared(Scalar::Float(f64::INFINITY), [&no, &yes, &yes, &yes, &no, &no]);
        compared(Scalar::Float(f64::NEG_INFINITY), [&no, &yes, &no, &no, &yes, &yes]);
    }
}

/// What floats alone can do, against the same in f64.
pub fn fractions<B: Backend>() {
    type Case<B> = (&'static str, fn(Tensor<B, 2>) -> Tensor<B, 2>);
    let cases: Vec<Case<B>> = vec![
        ("exp", |x| x.exp()),
        ("log", |x| x.abs().log()),
        ("log1p", |x| x.abs().log1p()),
        ("sqrt", |x| x.abs().sqrt()),
        ("tanh", |x| x.tanh()),
        ("erf", |x| x.erf()),
        ("sin", |x| x.sin()),
        ("recip", |x| x.recip()),
        ("powf", |x| x.abs().powf_scalar(1.5)),
        ("round", |x| x.round()),
        ("var", |x| x.var(1)),
        ("softmax", |x| activation::softmax(x, 1)),
        ("log_softmax", |x| activation::log_softmax(x, 1)),
        ("gelu", |x| activation::gelu(x)),
        ("silu", |x| activation::silu(x)),
        ("prelu", |x| {
            let alpha = Tensor::full([1], 0.5, (&x.device(), x.dtype()));
            activation::prelu(x, alpha)
        }),
        ("layer_norm", |x| {
            let ones = Tensor::<B, 1>::ones([3], (&x.device(), x.dtype()));
            module::layer_norm(x, ones.clone(), Some(ones), 1e-5)
        }),
        ("rms_norm", |x| {
            let ones = Tensor::<B, 1>::ones([3], (&x.device(), x.dtype()));
            module::rms_norm(x, ones, 1e-5)
        }),
        ("batch_norm", |x| {
            let ones = Tensor::<B, 1>::ones([3], (&x.device(), x.dtype()));
            module::batch_norm(x, ones.clone(), ones.clone(), ones.clone(), ones, 1e-5)
        }),
        ("linear", |x| {
            let weight = x.clone().transpose().matmul(x.clone());
            let bias = x.clone().slice(0..1).flatten(0, 1);
            module::linear_activated(x, weight, Some(bias), Activation::Relu)
        }),
        ("conv2d", |x| {
            let image: Tensor<B, 4> = x.clone().unsqueeze();
            let weight = image.clone().slice(s![.., .., 0..1, 0..2]);
            module::conv2d(image, weight, None, ConvOptions::new([1, 1], [0, 0], [1, 1], 1)).flatten(0, 2)
        }),
        ("avg_pool2d", |x| {
            module::avg_pool2d(x.unsqueeze(), [1, 2], [1, 1], [0, 0], true, false).flatten(0, 2)
        }),
        ("attention", |x| {
            let x: Tensor<B, 4> = x.unsqueeze();
            module::attention(x.clone(), x.clone(), x, None, Default::default()).flatten(0, 2)
        }),
    ];
    let data = [[0.5, -1.25, 2.0], [1.5, 0.25, -0.75]];
    for (name, case) in cases {
        let exact = case(of(data, DType::F64)).into_data();
        for dtype in all_of::<B, Float>() {
            let result = case(of(data, dtype));
            assert_eq!(result.dtype(), dtype, "{name}");
            let tolerance = match dtype {
                DType::F16 => Tolerance::rel_abs(4e-3, 4e-3),
                DType::BF16 => Tolerance::rel_abs(3e-2, 3e-2),
                _ => Tolerance::rel_abs(1e-5, 1e-5),
            };
            let result = result.into_data().convert_dtype(DType::F64);
            assert_eq!(result.shape, exact.shape, "{name} of {dtype}");
            result.assert_approx_eq::<f64>(&exact, tolerance);
        }
    }
    for dtype in all_of::<B, Float>() {
        is(of::<B, 1, Float>([0.5, 0.25], dtype).round(), [0, 0], dtype);
        let x = of::<B, 1, Float>([1.5, 2.5, 3.5, 4.25, 7.75, 1024.0], dtype);
        is(x.clone().round(), [2, 2, 4, 4, 8, 1024], dtype);
        is(x.clone().neg().round(), [-2, -2, -4, -4, -8, -1024], dtype);
        is(x.clone().floor(), [1, 2, 3, 4, 7, 1024], dtype);
        is(x.clone().ceil(), [2, 3, 4, 5, 8, 1024], dtype);
        is(x.neg().trunc(), [-1, -2, -3, -4, -7, -1024], dtype);
        let ends = of::<B, 1, Float>([f64::INFINITY, f64::NEG_INFINITY, f64::NAN], dtype);
        ends.clone().round().into_data().assert_eq(&ends.into_data(), true);
    }
    if supported::<B>().any(|dtype| dtype == DType::F64) {
        let far = |round: fn(Tensor<B, 1>) -> Tensor<B, 1>, wholes: [f64; 4]| {
            let x = of([4503599627370495.5, -4503599627370494.5, 0.49999999999999994, -1e300], DType::F64);
            round(x).into_data().assert_eq(&wholes.into(), true);
        };
        far(Tensor::round, [4503599627370496.0, -4503599627370494.0, 0.0, -1e300]);
        far(Tensor::floor, [4503599627370495.0, -4503599627370495.0, 0.0, -1e300]);
        far(Tensor::ceil, [4503599627370496.0, -4503599627370494.0, 1.0, -1e300]);
        far(Tensor::trunc, [4503599627370495.0, -4503599627370494.0, 0.0, -1e300]);
    }
    // A mask may have been made in f32, whose lowest number stays finite: a query that it hides all keys from gets their mean.
    for dtype in all_of::<B, Float>() {
        let zeros = || Tensor::<B, 4>::zeros([1, 1, 3, 2], &Default::default()).cast(dtype);
        let keys = zeros().slice([0..1, 0..1, 0..2]);
        let values = of::<B, 4, Float>([[[[1.0, 2.0], [3.0, 4.0]]]], dtype);
        let (hidden, never) = (f32::MIN, f32::NEG_INFINITY);
        let mask = of::<B, 4, Float>([[[[0.0, hidden], [hidden, hidden], [never, 0.0]]]], DType::F32);
        let found = module::attention(zeros(), keys, values, Some(mask.into()), Default::default());
        is(found, [[[[1, 2], [2, 3], [3, 4]]]], dtype);
    }
}

/// What integers alone can do.
pub fn bits<B: Backend>() {
    for dtype in all_of::<B, Int>() {
        let x = of::<B, 1, Int>([6, 5, 1], dtype);
        let y = of::<B, 1, Int>([3, 4, 1], dtype);
        is(x.clone().bitwise_and(y.clone()), [2, 4, 1], dtype);
        is(x.clone().bitwise_or(y.clone()), [7, 5, 1], dtype);
        is(x.clone().bitwise_xor(y.clone()), [5, 1, 0], dtype);
        is(x.clone().bitwise_left_shift(of([1, 2, 3], dtype)), [12, 20, 8], dtype);
        is(x.clone().bitwise_right_shift_scalar(1), [3, 2, 0], dtype);
        is(x.clone().bitwise_not().bitwise_not(), [6, 5, 1], dtype);
        // The greatest numbers of a dtype are the same as floats.
        let most = dtype.integers().map_or(0, |(_, most)| i64::try_from(most).unwrap_or(i64::MAX));
        let row = || of::<B, 3, Int>([[[most - 2, most - 1, most - 3, 2]]], dtype);
        let pairs = || PoolOptions::new([2], [1], [0], [1], false);
        let maxima = [[[most - 1, most - 1, most - 3]]];
        is(module::max_pool(row(), pairs()), maxima, dtype);
        let (found, places) = module::max_pool_with_indices(row(), pairs());
        is(found, maxima, dtype);
        is(places, [[[1, 1, 2]]], index::<B>());
        if matches!(dtype, DType::I64 | DType::I32 | DType::I16 | DType::I8) {
            is((-x.clone()) / 4, [-1, -1, 0], dtype);
            is((-x.clone()) % 4, [2, 3, 3], dtype);
            is((-x.clone()).fmod_scalar(4), [-2, -1, -1], dtype);
        }
        is(x.clone().float(), [6.0, 5.0, 1.0], <Float as TensorKind<B>>::default_dtype());
        is(x.equal(y), [false, false, true], DType::Bool);
    }
}

/// What a device has no dtype for has a stand-in, as long as the numbers fit.
pub fn stand_ins<B: Backend>() {
    let device = B::Device::default();
    let large = || TensorData::from([1_i64 << 40]);
    if index::<B>() == DType::I64 {
        is(Tensor::<B, 1, Int>::from_data(large(), &device), [1_i64 << 40], DType::I64);
    } else {
        let text = message_of(move || drop(Tensor::<B, 1, Int>::from_data(large(), &B::Device::default())));
        assert!(text.contains("does not hold all of these i64 numbers"), "{text}");
    }
    // Integers of four bits are held in eight, or as the device's own.
    let nibbles = TensorData::from([-8_i64, 7]).convert_dtype(DType::I4);
    let eight = if B::supports(&device, DType::I8) { DType::I8 } else { index::<B>() };
    is(Tensor::<B, 1, Int>::from_data_dtype(nibbles, &device, DType::I4), [-8, 7], eight);
    let asked = Tensor::<B, 1, Int>::from_data_dtype([7_i64], &device, DType::I64);
    let wide = Tensor::<B, 1>::from_data_dtype([0.5_f64], &device, DType::F64);
    let floats = if B::supports(&device, DType::F64) { DType::F64 } else { DType::F32 };
    is(wide.clone() + wide.clone().cast(DType::F64), [1.0], floats);
    let short = if B::supports(&device, DType::U16) { DType::U16 } else { index::<B>() };
    is(wide.to_int(DType::U16), [0], short);
    is(Tensor::<B, 1, Int>::ones([2], (&device, DType::I8)), [1, 1], eight);
    if B::supports(&device, DType::I64) {
        is(asked, [7], DType::I64);
        return;
    }
    is(asked, [7], index::<B>());
    let text = message_of(move || {
        drop(Tensor::<B, 1, Int>::from_data_dtype(large(), &B::Device::default(), DType::I64))
    });
    assert!(text.contains("has no i64, and i32, which stands in for it, does not hold all"), "{text}");
    let full = |number: i64, dtype| {
        message_of(move || drop(Tensor::<B, 1, Int>::full([2], number, (&B::Device::default(), dtype))))
    };
    let text = full(-(1 << 40), DType::I64);
    assert!(text.starts_with("full: ") && text.contains("has no i64, and i32"), "{text}");
    let text = full(1 << 40, DType::U64);
    assert!(text.contains("has no u64, and i32, which stands in for it, does not hold the number"), "{text}");
    is(Tensor::<B, 1, Int>::full([2], -(1_i64 << 31), (&device, DType::I64)), [i32::MIN; 2], index::<B>());
}

pub fn truths<B: Backend>() {
    let x = of::<B, 2, Bool>([[true, false], [true, true]], DType::Bool);
    is(x.clone().bool_and(x.clone().transpose()), [[true, false], [false, true]], DType::Bool);
    is(x.clone().equal(x.clone().transpose()), [[true, false], [false, true]], DType::Bool);
    is(x.clone().any_dim(1), [[true], [true]], DType::Bool);
    is(x.clone().all_dim(1), [[false], [true]], DType::Bool);
    is(
        Tensor::cat(vec![x.clone(), x.clone().bool_not()], 1),
        [[true, false, false, true], [true, true, false, false]],
        DType::Bool,
    );
    is(x.clone().select(0, of([1], DType::I64)), [[true, true]], DType::Bool);
    is(x.clone().slice_fill(s![0, ..], true), [[true, true], [true, true]], DType::Bool);
    is(x.clone().flip([1]), [[false, true], [true, true]], DType::Bool);
    is(x.clone().repeat(&[1, 2]), [[true, false, true, false], [true; 4]], DType::Bool);
    is(x.clone().int(), [[1, 0], [1, 1]], index::<B>());
    let json = serde_json::to_string(&x).unwrap();
    is(
        serde_json::from_str::<Tensor<B, 2, Bool>>(&json).unwrap(),
        [[true, false], [true, true]],
        DType::Bool,
    );
    assert!(x.to_string().contains("[[true, false],\n [true, true]]"));
}
