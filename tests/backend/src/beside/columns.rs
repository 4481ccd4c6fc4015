//! Reduces along dims that lie across memory, and gradients that are such.

use super::{Results, assert_same, floats, integers, on, read, reals, whole};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::{Backend, SliceRange};
use kiln_tensor::compose::{ElementwiseProgram, NormalizedBatch};
use kiln_tensor::{Activation, BinaryOp, DType, Expression, ReduceOp, Scalar, Step};

/// Reduces along dims that lie across memory, of few rows and many, of columns that can be read four at a time and that cannot.
fn columns<B: Backend>(dtype: DType) -> Results {
    let mut results = Results::new();
    let mut note = |name: String, x: B::Primitive| results.push((name, read::<B>(x)));
    let numbers = |dims: &[usize], seed: usize| {
        let number = |n: usize| ((n + seed) * 31 % 1009 % 9) as i64;
        let count = dims.iter().product();
        on::<B>(whole(&(0..count).map(number).collect::<Vec<_>>(), dims, dtype))
    };
    let ops = [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min];
    let cases: [(&[usize], &[usize]); 9] = [
        (&[100, 64], &[0]),
        (&[130, 37], &[0]),
        (&[3, 90, 40], &[1]),
        (&[3, 90, 40], &[0, 1]),
        (&[2, 1, 70, 3, 36], &[0, 2]),
        // Of so many rows that they are added up in runs, of which the last is shorter.
        (&[700, 64], &[0]),
        (&[1_531, 100], &[0]),
        // And so many elements that several may be read at a time.
        (&[4_101, 64], &[0]),
        (&[2, 1_025, 2, 68], &[0, 1]),
    ];
    for (dims, axes) in cases {
        let x = numbers(dims, 0);
        for op in ops {
            note(format!("{op:?} of {dims:?} along {axes:?}"), B::reduce(op, x.clone(), axes));
        }
    }
    for start in [2, 4] {
        let range = SliceRange { start, end: start + 64, step: 1 };
        let part = B::slice(numbers(&[4_100, 72], 1), &[SliceRange::full(4_100), range]);
        note(format!("sum of a part from {start}"), B::reduce(ReduceOp::Sum, part, &[0]));
    }
    let mut with_nan = vec![1.0; 100 * 64];
    with_nan[70 * 64 + 5] = f64::NAN;
    for op in [ReduceOp::Max, ReduceOp::Min].into_iter().filter(|_| dtype.is_float()) {
        let x = on::<B>(reals(&with_nan, &[100, 64], dtype));
        note(format!("{op:?} with NaN"), B::reduce(op, x, &[0]));
    }
    // What nobody else holds may be computed as it is reduced, and the result be gone on with; of few elements and of many.
    for rows in [100, 4_100] {
        let x = B::binary(BinaryOp::Mul, numbers(&[rows, 68], 2), numbers(&[1, 68], 3));
        let sum = B::reduce(ReduceOp::Max, x, &[0]);
        note(format!("a program of {rows} rows"), B::binary(BinaryOp::Sub, sum, numbers(&[1, 68], 4)));
    }
    results
}

pub fn reductions_of_columns<B: Backend>() {
    for dtype in floats::<B>().chain(integers::<B>()) {
        assert_same(
            columns::<B>(dtype),
            columns::<NdArray>(dtype),
            if dtype.is_float() { 4e-3 } else { 0.0 },
        );
    }
    let truths: Vec<i64> = (0..200 * 33).map(|n| i64::from(n % 33 == 4 && n / 33 != 150)).collect();
    let reduced = |op| read::<B>(B::reduce(op, on::<B>(whole(&truths, &[200, 33], DType::Bool)), &[0]));
    let has = |op| reduced(op).iter::<bool>().filter(|&truth| truth).count();
    assert_eq!([has(ReduceOp::Any), has(ReduceOp::All)], [1, 0]);
    // Of so many rows that they are added up in parts.
    let (rows, columns) = (20_011, 64);
    let number = |n: usize| (n * 31 % 1009 % 9) as i64 - 4;
    let numbers: Vec<i64> = (0..rows * columns).map(number).collect();
    let of_column = |column: usize| numbers.iter().skip(column).step_by(columns).sum::<i64>();
    let sums =
        read::<B>(B::reduce(ReduceOp::Sum, on::<B>(whole(&numbers, &[rows, columns], DType::F32)), &[0]));
    assert_eq!(sums.iter::<i64>().collect::<Vec<_>>(), (0..columns).map(of_column).collect::<Vec<_>>());
}

/// Gradients of normalizations whose parameters' are sums of columns, of few rows and of so many that they are added up in runs.
fn gradients<B: Backend>(dtype: DType) -> Results {
    let mut results = Results::new();
    let numbers = |dims: &[usize], seed: usize| {
        let number = |n: usize| ((n + seed) * 7919 % 1009) as f64 / 256.0 - 1.5;
        on::<B>(reals(&(0..dims.iter().product()).map(number).collect::<Vec<_>>(), dims, dtype))
    };
    let mut note = |name: String, x: B::Primitive| results.push((name, read::<B>(x)));
    for (side, channels) in [(7, 32), (7, 37), (46, 64)] {
        // Channels last in memory, as convolutions leave them.
        let images = |seed| B::permute(numbers(&[2, side, side, channels], seed), &[0, 3, 1, 2]);
        let weight = || numbers(&[channels], 1);
        let trained = B::batch_norm_train(images(2), weight(), weight(), 1e-3);
        let (mean, variance) = (trained.mean.clone(), trained.variance.clone());
        let found = B::batch_norm_gradient(images(3), images(2), weight(), mean, variance, 1e-3);
        for (name, x) in [("input", found.input), ("weight", found.weight), ("bias", found.bias)] {
            note(format!("{name} of {channels} channels"), x);
        }
        let normalized = NormalizedBatch {
            x: images(2),
            weight: weight(),
            bias: weight(),
            mean: trained.mean,
            variance: trained.variance,
        };
        let found = B::batch_norm_activation_gradient(Activation::Silu, images(3), normalized, 1e-3);
        for (name, x) in [("input", found.input), ("weight", found.weight), ("bias", found.bias)] {
            note(format!("{name} of an activation of {channels} channels"), x);
        }
    }
    for (rows, size) in [(70, 40), (70, 37), (4_100, 64)] {
        let found = B::layer_norm_gradient(
            numbers(&[rows, size], 4),
            numbers(&[rows, size], 5),
            numbers(&[size], 6),
            1e-3,
        );
        for (name, x) in [("input", found.input), ("weight", found.weight), ("bias", found.bias)] {
            note(format!("{name} of {rows} rows of {size}"), x);
        }
    }
    results
}

/// Sums of several results of a program, along dims that lie together, across memory, and in runs.
fn sums<B: Backend>(dtype: DType) -> Results {
    let mut results = Results::new();
    let numbers = |dims: &[usize], seed: usize| {
        let number = |n: usize| ((n + seed) * 31 % 1009 % 9) as i64 - 4;
        let count = dims.iter().product();
        on::<B>(whole(&(0..count).map(number).collect::<Vec<_>>(), dims, dtype))
    };
    let wide = if dtype.size() < 4 { DType::F32 } else { dtype };
    // Both wide, but the third is what it was.
    let program = |outputs: &[u16]| Expression {
        steps: vec![
            Step::Input(0),
            Step::Input(1),
            Step::Parameter(0, dtype),
            Step::Binary(BinaryOp::Add, 0, 2),
            Step::Cast(wide, 3),
            Step::Cast(wide, 1),
            Step::Binary(BinaryOp::Mul, 4, 5),
        ],
        outputs: outputs.to_vec(),
    };
    let cases: [(&[usize], &[usize], &[usize]); 9] = [
        (&[100, 64], &[1, 64], &[0]),
        (&[4_101, 64], &[4_101, 1], &[0]),
        (&[130, 37], &[1, 37], &[0]),
        (&[20, 700], &[20, 700], &[1]),
        (&[3, 90_000], &[1, 1], &[1]),
        (&[5_000, 12], &[1, 12], &[1]),
        (&[70_000, 5], &[1, 5], &[0]),
        (&[2, 3, 40, 50], &[1, 3, 1, 1], &[0, 2, 3]),
        (&[6, 5, 4], &[6, 5, 4], &[0, 1, 2]),
    ];
    for (dims, factors, axes) in cases {
        // Of seven results, what a workgroup shares may not have room for four columns of an invocation.
        for outputs in [&[6, 4][..], &[4, 5, 6], &[6, 3], &[6], &[6, 4, 5, 6, 4, 5, 6]] {
            let mut both = [numbers(dims, 1), numbers(factors, 2)];
            if factors.len() == 4 && outputs.len() == 3 {
                // Channels last in memory.
                both[0] = B::permute(numbers(&[2, 40, 50, 3], 1), &[0, 3, 1, 2]);
            }
            let (expression, parameters) = (&program(outputs), &[Scalar::Float(1.0)]);
            let of = || ElementwiseProgram {
                expression,
                operands: both.clone().into_iter().collect(),
                parameters,
            };
            let found = B::elementwise_sums(of(), axes, None);
            for (n, sum) in found.into_iter().enumerate() {
                results.push((format!("sum {n} of {outputs:?} of {dims:?} along {axes:?}"), read::<B>(sum)));
            }
            // One of each place, one for all, and one that lies across, behind the first and the last sum.
            let kept: Vec<usize> =
                (0..dims.len()).map(|axis| if axes.contains(&axis) { 1 } else { dims[axis] }).collect();
            let mut across = kept.clone();
            across.reverse();
            let order: Vec<usize> = (0..kept.len()).rev().collect();
            let others = [
                numbers(&kept, 3),
                numbers(&vec![1; kept.len()], 4),
                B::permute(numbers(&across, 5), &order),
            ];
            let sums = outputs.len() as u16;
            let steps = vec![
                Step::Input(0),
                Step::Input(sums - 1),
                Step::Input(sums),
                Step::Input(sums + 1),
                Step::Input(sums + 2),
                Step::Parameter(0, dtype),
                Step::Binary(BinaryOp::Mul, 2, 5),
                Step::Binary(BinaryOp::Add, 6, 3),
                Step::Binary(BinaryOp::Sub, 7, 4),
                Step::Cast(wide, 8),
                Step::Binary(BinaryOp::Add, 0, 9),
                Step::Cast(dtype, 10),
            ];
            let expression = &Expression { steps, outputs: vec![11, 10, 1] };
            let operands = others.into_iter().collect();
            let then = ElementwiseProgram { expression, operands, parameters: &[Scalar::Float(2.0)] };
            for (n, made) in B::elementwise_sums(of(), axes, Some(then)).into_iter().enumerate() {
                let name = format!("{n}, made of sums of {outputs:?} of {dims:?} along {axes:?}");
                results.push((name, read::<B>(made)));
            }
        }
    }
    results
}

/// Sums over an operand that is computed just before, and read by others later: all see what it would be alone.
pub fn sums_of_what_others_read_too<B: Backend>() {
    for dtype in floats::<B>() {
        let wide = if dtype.size() < 4 { DType::F32 } else { dtype };
        let steps = vec![
            Step::Input(0),
            Step::Input(1),
            Step::Cast(wide, 0),
            Step::Cast(wide, 1),
            Step::Binary(BinaryOp::Mul, 2, 3),
        ];
        let both = Expression { steps, outputs: vec![4, 2] };
        // Four columns an invocation, one, and channels that stand last.
        for (dims, axes) in [(&[5_000, 64][..], &[0][..]), (&[300, 37], &[0]), (&[2, 64, 50, 45], &[0, 2, 3])]
        {
            let numbers = |seed: usize| {
                let mut lying = dims.to_vec();
                lying[1..].rotate_left(1);
                let number = |n: usize| ((n * 7919 + seed * 31) % 1009) as f64 / 256.0 - 2.0;
                let count = dims.iter().product();
                let tensor = on::<B>(reals(&(0..count).map(number).collect::<Vec<_>>(), &lying, dtype));
                if dims.len() == 2 { tensor } else { B::permute(tensor, &[0, 3, 1, 2]) }
            };
            let sums = |gradient: B::Primitive, is_first: bool| {
                let mut operands = [gradient, numbers(4)];
                if !is_first {
                    operands.reverse();
                }
                let operands = operands.into_iter().collect();
                let of = ElementwiseProgram { expression: &both, operands, parameters: &[] };
                B::elementwise_sums(of, axes, None)
            };
            let gradient = || {
                let product = B::binary(BinaryOp::Mul, numbers(1), numbers(2));
                B::binary(BinaryOp::Add, product, numbers(3))
            };
            for is_first in [true, false] {
                let named = |found: Vec<B::Primitive>| -> Results {
                    let name = |n: usize| format!("{n} of {dims:?}, the first operand: {is_first}");
                    found.into_iter().enumerate().map(|(n, tensor)| (name(n), read::<B>(tensor))).collect()
                };
                let beside = gradient();
                let mut found: Vec<_> = sums(beside.clone(), is_first).into_iter().collect();
                found.push(B::binary(BinaryOp::Mul, beside, numbers(5)));
                let found = named(found);
                let alone = gradient();
                B::sync(&B::Device::default()).expect("a device");
                let mut expected: Vec<_> = sums(alone.clone(), is_first).into_iter().collect();
                expected.push(B::binary(BinaryOp::Mul, alone, numbers(5)));
                assert_same(found, named(expected), 0.0);
            }
        }
    }
}

pub fn sums_of_programs<B: Backend>() {
    for dtype in floats::<B>() {
        // Numbers are small and whole, so that wide sums are exact; what is narrow is rounded on the way.
        let error = if dtype.size() < 4 { 2e-2 } else { 0.0 };
        assert_same(sums::<B>(dtype), sums::<NdArray>(dtype), error);
    }
}

/// Statistics of batches whose channels lie side by side, of few rows and of so many that they are found in runs.
pub fn statistics_of_columns<B: Backend>() {
    // Numbers that all dtypes hold, beside a mean that is large beside what they differ by.
    for (dtype, level) in floats::<B>().flat_map(|dtype| [(dtype, 0.0), (dtype, 100.0)]) {
        let step = if level > 0.0 && dtype.size() < 4 { 0.5 } else { 1.0 / 64.0 };
        for (batch, side, channels) in
            [(2, 7, 32), (2, 7, 37), (1, 9, 70), (2, 46, 64), (3, 90, 36), (5, 120, 33)]
        {
            let rows = batch * side * side;
            // How runs are put together is the same question for every dtype.
            if rows > 20_000 && dtype != DType::F32 {
                continue;
            }
            // Of one channel all are equal, of another all but the first.
            let number = |n: usize| match (n % channels, n / channels) {
                (3, _) => level + 5.0 * step,
                (4, row) => level + if row == 0 { 8.0 * step } else { 0.0 },
                _ => level + ((n * 7919 % 1009 % 17) as f64 - 8.0) * step,
            };
            let numbers: Vec<f64> = (0..rows * channels).map(number).collect();
            let x = on::<B>(reals(&numbers, &[batch, side, side, channels], dtype));
            let ones = || on::<B>(reals(&vec![1.0; channels], &[channels], dtype));
            let trained = B::batch_norm_train(B::permute(x, &[0, 3, 1, 2]), ones(), ones(), 1e-3);
            let [means, variances, normalized] = [trained.mean, trained.variance, trained.output]
                .map(|t| read::<B>(t).iter::<f64>().collect::<Vec<_>>());
            for channel in 0..channels {
                let of_channel = || numbers.iter().skip(channel).step_by(channels);
                let mean = of_channel().sum::<f64>() / rows as f64;
                let variance = of_channel().map(|x| (x - mean) * (x - mean)).sum::<f64>() / rows as f64;
                let what =
                    format!("{dtype}, {batch} images of {side} x {side}, channel {channel} of {channels}");
                assert!(
                    (means[channel] - mean).abs() <= 1e-6 * (1.0 + mean.abs()),
                    "{what}: {} for {mean}",
                    means[channel]
                );
                // What the mean is rounded to is a part of it.
                let least = if dtype == DType::F64 { 1e-20 } else { (mean * 1e-6).powi(2) };
                let found = variances[channel];
                assert!(
                    (found - variance).abs() <= 2e-5 * variance + least,
                    "{what}: {found} for {variance}"
                );
                let first = (numbers[channel] - mean) / (variance + 1e-3).sqrt() + 1.0;
                let close = (normalized[channel * side * side] - first).abs();
                let error = if dtype.size() < 4 { 1e-2 } else { 2e-4 };
                assert!(close <= error * (10.0 + first.abs()), "{what}: {close} from {first}");
            }
        }
    }
    // What is not finite stays in its channel.
    let mut numbers: Vec<f64> = (0..2_000 * 40).map(|n| (n % 7) as f64).collect();
    numbers[1_500 * 40 + 9] = f64::NAN;
    numbers[80 * 40 + 11] = f64::INFINITY;
    // The square of this one has no number, but nothing differs from it.
    numbers.iter_mut().skip(13).step_by(40).for_each(|x| *x = 1e20);
    let x = on::<B>(reals(&numbers, &[2_000, 40], DType::F32));
    let ones = || on::<B>(reals(&[1.0; 40], &[40], DType::F32));
    let trained = B::batch_norm_train(x, ones(), ones(), 1e-3);
    for statistics in [trained.variance, trained.output] {
        let found: Vec<bool> = read::<B>(statistics).iter::<f64>().map(f64::is_nan).take(40).collect();
        assert_eq!(found, (0..40).map(|channel| channel == 9 || channel == 11).collect::<Vec<_>>());
    }
}

pub fn gradients_of_norms_by_columns<B: Backend>() {
    for dtype in floats::<B>() {
        // What is held in 32 bits is what 64 say.
        let exact = if dtype == DType::F32 { DType::F64 } else { dtype };
        let (found, expected) = (gradients::<B>(dtype), gradients::<NdArray>(exact));
        assert_eq!(found.len(), expected.len());
        for ((name, found), (_, expected)) in found.into_iter().zip(expected) {
            assert_eq!((found.dtype, &found.shape), (dtype, &expected.shape), "{name}");
            let largest = expected.iter::<f64>().fold(0.0, |most: f64, x| most.max(x.abs()));
            let error = if dtype.size() < 4 { 1e-2 } else { 1e-5 };
            for (at, (a, b)) in found.iter::<f64>().zip(expected.iter::<f64>()).enumerate() {
                assert!(
                    (a - b).abs() <= error * largest,
                    "{name} {dtype}: element {at} is {a:e}, expected {b:e}"
                );
            }
        }
    }
}
