//! Products of quantized integers, which are exact.

use super::{held_as, read};
use kiln_tensor::backend::{Backend, Primitive, hold};
use kiln_tensor::compose::{Quantized, Rescale, ZeroPoint};
use kiln_tensor::{Activation, ConvOptions, DType, TensorData};

/// One side of a product, with what it stands for.
struct Side {
    data: TensorData,
    numbers: Vec<i64>,
}

/// Numbers of a dtype over its whole range, its ends among them.
fn side(dtype: DType, shape: &[usize], seed: usize) -> Side {
    let count = shape.iter().product::<usize>();
    let low = if dtype == DType::U8 { 0 } else { -128 };
    let value = |n: usize| match (n * 7 + seed) % 11 {
        0 => low,
        1 => low + 255,
        _ => low + ((n * 2_654_435_761 + seed * 97) >> 7) as i64 % 256,
    };
    let numbers: Vec<i64> = (0..count).map(value).collect();
    Side { data: TensorData::new(numbers.clone(), shape).convert_dtype(dtype), numbers }
}

fn of<B: Backend>(values: &TensorData, zero: ZeroPoint<&TensorData>) -> Quantized<B::Primitive> {
    Quantized { values, zero }.map(|data| hold::<B>(data.clone(), &B::Device::default()))
}

/// The zero point of an element of a side.
fn zero_at(zero: &ZeroPoint<&TensorData>, n: usize) -> i64 {
    match zero {
        ZeroPoint::Number(zero) => i64::from(*zero),
        ZeroPoint::Tensor(zero) => {
            let all: Vec<i64> = zero.iter().collect();
            if all.len() == 1 { all[0] } else { all[n] }
        }
    }
}

fn wrapped(sums: Vec<i64>) -> Vec<i32> {
    sums.into_iter().map(|sum| sum as i32).collect()
}

pub fn matrices<B: Backend>() {
    let tensor = |dtype, shape: &[usize], seed| side(dtype, shape, seed).data;
    let (u8, i8) = (DType::U8, DType::I8);
    for (of_left, of_right, [m, k, n]) in
        [(u8, i8, [1, 5, 3]), (u8, u8, [35, 64, 33]), (i8, i8, [17, 131, 40]), (i8, u8, [70, 77, 67])]
    {
        let (left, right) = (side(of_left, &[m, k], 1), side(of_right, &[k, n], 2));
        let [single, of_rows] = [[1, 1], [m, 1]].map(|shape| tensor(of_left, &shape, 7));
        let of_columns = tensor(of_right, &[1, n], 4);
        let ends = [of_left, of_right].map(|dtype| if dtype == u8 { 255 } else { -128 });
        for zeros in [
            [ZeroPoint::Number(0), ZeroPoint::Number(0)],
            [ZeroPoint::Number(ends[0]), ZeroPoint::Number(ends[1])],
            [ZeroPoint::Tensor(&single), ZeroPoint::Number(0)],
            [ZeroPoint::Tensor(&of_rows), ZeroPoint::Tensor(&of_columns)],
        ] {
            let element = |row: usize, column: usize| -> i64 {
                let zeros = [zero_at(&zeros[0], row), zero_at(&zeros[1], column)];
                let pair = |d: usize| [left.numbers[row * k + d], right.numbers[d * n + column]];
                (0..k).map(pair).map(|[a, b]| (a - zeros[0]) * (b - zeros[1])).sum()
            };
            let expected = wrapped((0..m * n).map(|at| element(at / n, at % n)).collect());
            let [lhs, rhs] = zeros.clone();
            let (lhs, rhs) = (of::<B>(&left.data, lhs), of::<B>(&right.data, rhs));
            // Also of a right side that lies column by column, and of batches.
            let turned = rhs.clone().map(|x| B::cast(B::permute(x, &[1, 0]), held_as::<B>(DType::I16)));
            let turned = turned.map(|x| B::permute(B::cast(x, held_as::<B>(of_right)), &[1, 0]));
            let batch = |side: &Quantized<B::Primitive>, count: usize| {
                side.clone().map(|x| {
                    let [rows, columns] = [0, 1].map(|axis| x.dims()[axis]);
                    let x = B::reshape(x, [1, rows, columns].into());
                    if rows * columns == m * k { B::repeat(x, &[count, 1, 1]) } else { x }
                })
            };
            let own = read::<B, i32>(B::matmul_integer(lhs.clone(), rhs.clone()));
            assert_eq!(own, expected, "{of_left} {of_right} {zeros:?}");
            assert_eq!(read::<B, i32>(B::matmul_integer(lhs.clone(), turned)), expected, "turned, {zeros:?}");
            let own = read::<B, i32>(B::matmul_integer(batch(&lhs, 2), batch(&rhs, 1)));
            assert_eq!(own, [expected.clone(), expected].concat(), "a batch, {zeros:?}");
        }
    }
}

pub fn zeros_of_batches<B: Backend>() {
    let [m, k, n] = [3, 8, 5];
    let (left, right) = (side(DType::U8, &[2, m, k], 1), side(DType::I8, &[1, k, n], 2));
    let zero = side(DType::U8, &[2, 1, 1], 4);
    let element = |at: usize| -> i64 {
        let (batch, row, column) = (at / (m * n), at / n % m, at % n);
        let a = |d: usize| left.numbers[(batch * m + row) * k + d] - zero.numbers[batch];
        (0..k).map(|d| a(d) * right.numbers[d * n + column]).sum()
    };
    let (lhs, rhs) =
        (of::<B>(&left.data, ZeroPoint::Tensor(&zero.data)), of::<B>(&right.data, ZeroPoint::Number(0)));
    let expected = wrapped((0..2 * m * n).map(element).collect());
    assert_eq!(read::<B, i32>(B::matmul_integer(lhs, rhs)), expected);
}

/// A right side for each left one, as attention has them, that of keys turned; and one batch for several.
pub fn batches_of_both<B: Backend>() {
    let [batch, heads, m, k, n] = [2, 3, 5, 70, 37];
    let left = side(DType::U8, &[batch, heads, m, k], 1);
    for (of_right, turned, of_batches) in
        [(DType::U8, false, batch), (DType::I8, true, batch), (DType::U8, true, 1), (DType::I8, false, 1)]
    {
        let matrix = if turned { [n, k] } else { [k, n] };
        let right = side(of_right, &[of_batches, heads, matrix[0], matrix[1]], 2);
        let element = |at: usize| -> i64 {
            let (place, row, column) = (at / (m * n), at / n % m, at % n);
            let other = if of_batches == 1 { place % heads } else { place };
            let b = |d: usize| other * k * n + if turned { column * k + d } else { d * n + column };
            (0..k).map(|d| (left.numbers[(place * m + row) * k + d] - 3) * (right.numbers[b(d)] - 100)).sum()
        };
        let expected = wrapped((0..batch * heads * m * n).map(element).collect());
        let lhs = of::<B>(&left.data, ZeroPoint::Number(3));
        let rhs = of::<B>(&right.data, ZeroPoint::Number(100));
        let rhs = rhs.map(|x| if turned { B::permute(x, &[0, 1, 3, 2]) } else { x });
        assert_eq!(read::<B, i32>(B::matmul_integer(lhs, rhs)), expected, "{of_right} {turned}");
    }
}

pub fn convolutions<B: Backend>() {
    let (u8, i8) = (DType::U8, DType::I8);
    for (of_x, of_weight, channels, outputs, groups) in [
        (u8, i8, 6, 34, 2),
        (i8, u8, 8, 20, 2),
        (u8, u8, 4, 6, 2),
        // Each channel for itself, and with few others.
        (u8, i8, 32, 32, 32),
        (i8, u8, 16, 32, 16),
        (u8, u8, 24, 48, 12),
    ] {
        let options = ConvOptions {
            stride: [1, 2].into(),
            padding: [(1, 0), (2, 1)].into(),
            dilation: [2, 1].into(),
            groups,
        };
        let inner = channels / groups;
        let (x, weight) = (side(of_x, &[2, channels, 9, 11], 1), side(of_weight, &[outputs, inner, 3, 2], 2));
        let single = side(of_x, &[1, 1, 1, 1], 9).data;
        let of_outputs = side(of_weight, &[outputs, 1, 1, 1], 4).data;
        for zeros in [
            [ZeroPoint::Number(0), ZeroPoint::Number(0)],
            [ZeroPoint::Number(if of_x == u8 { 255 } else { -128 }), ZeroPoint::Number(100)],
            [ZeroPoint::Tensor(&single), ZeroPoint::Tensor(&of_outputs)],
        ] {
            // 9 + 1 rows and windows of 5; 11 + 3 columns, windows of 2 and steps of 2.
            let [height, width] = [6, 7];
            let element = |at: usize| -> i64 {
                let (column, row) = (at % width, at / width % height);
                let (output, image) = (at / (width * height) % outputs, at / (width * height * outputs));
                let x_zero = zero_at(&zeros[0], 0);
                let tap = |tap: usize| -> i64 {
                    let (channel, i, j) = (tap / 6, tap / 2 % 3, tap % 2);
                    let w = weight.numbers[output * inner * 6 + tap] - zero_at(&zeros[1], output);
                    let (Some(i), Some(j)) = ((row + 2 * i).checked_sub(1), (2 * column + j).checked_sub(2))
                    else {
                        return 0;
                    };
                    if i >= 9 || j >= 11 {
                        return 0;
                    }
                    let channel = image * channels + output / (outputs / groups) * inner + channel;
                    w * (x.numbers[(channel * 9 + i) * 11 + j] - x_zero)
                };
                (0..inner * 6).map(tap).sum()
            };
            let expected = wrapped((0..2 * outputs * height * width).map(element).collect());
            let [x_zero, weight_zero] = zeros.clone();
            let (x, weight) = (of::<B>(&x.data, x_zero), of::<B>(&weight.data, weight_zero));
            let own = read::<B, i32>(B::conv_integer(x, weight, &options));
            assert_eq!(own, expected, "{of_x} {of_weight} {groups} {zeros:?}");
        }
    }
}

/// What sums of a shape become, whose outputs lie along an axis. All numbers are of few bits, so that every order of computing them is exact.
fn check_rescaled<B: Backend>(
    sums: &[i32],
    shape: &[usize],
    axis: usize,
    run: impl Fn(Rescale<B::Primitive>) -> B::Primitive,
) {
    let outputs = shape[axis];
    let behind: usize = shape[axis + 1..].iter().product();
    let mut along = vec![1; shape.len()];
    along[axis] = outputs;
    let one = vec![1; shape.len()];
    let scales: Vec<f32> = (0..outputs).map(|n| 0.5_f32.powi(n as i32 % 4 + 6)).collect();
    let biases: Vec<f32> = (0..outputs).map(|n| (n % 9) as f32 * 0.25 - 1.0).collect();
    let integers: Vec<i32> = (0..outputs).map(|n| 91 * n as i32 - 400).collect();
    let residuals: Vec<f32> = (0..sums.len()).map(|n| (n % 31) as f32 * 0.5 - 7.0).collect();
    let hold = |data: TensorData| hold::<B>(data, &B::Device::default());
    let floats = |data: &[f32], shape: &[usize]| hold(TensorData::new(data.to_vec(), shape));
    for (full, activation, to) in [
        (false, None, None),
        (true, Some(Activation::Relu), None),
        (false, None, Some((100, DType::U8))),
        (true, Some(Activation::Clamp { min: -3.0, max: 40.5 }), Some((-3, DType::I8))),
    ] {
        let scale = if full { floats(&scales, &along) } else { floats(&[0.015625], &one) };
        let rescale = Rescale {
            scale,
            input_scale: full.then(|| floats(&[0.5], &one)),
            integer_bias: full.then(|| hold(TensorData::new(integers.clone(), along.as_slice()))),
            bias: full.then(|| floats(&biases, &along)),
            residual: (full && to.is_none()).then(|| floats(&residuals, shape)),
            activation,
            integers: to.map(|(zero, dtype)| {
                let zero = TensorData::new(vec![zero], one.as_slice()).convert_dtype(dtype);
                (hold(zero), dtype)
            }),
        };
        let expected = sums.iter().enumerate().map(|(at, &sum)| {
            let output = at / behind % outputs;
            let mut y = sum as f32 * 0.015625;
            if full {
                y = (sum + integers[output]) as f32 * (scales[output] * 0.5) + biases[output];
                y += if to.is_none() { residuals[at] } else { 0.0 };
            }
            let y = match activation {
                Some(Activation::Clamp { min, max }) => y.clamp(min as f32, max as f32),
                Some(_) => y.max(0.0),
                None => y,
            };
            match to {
                Some((zero, dtype)) => {
                    let (low, high) = dtype.integers().expect("a dtype of integers");
                    (y.round_ties_even() + zero as f32).clamp(low as f32, high as f32)
                }
                None => y,
            }
        });
        let expected: Vec<f32> = expected.collect();
        let own = run(rescale);
        assert_eq!(own.dims(), shape);
        let own: Vec<f32> = B::into_data(own).expect("a backend in these tests reads back").iter().collect();
        assert_eq!(own, expected, "{shape:?} {full} {activation:?} {to:?}");
    }
}

pub fn rescaled_matrices<B: Backend>() {
    for [m, k, n] in [[1, 5, 3], [35, 64, 40], [17, 27, 33]] {
        let (left, right) = (side(DType::U8, &[m, k], 1), side(DType::I8, &[k, n], 2));
        let lhs = of::<B>(&left.data, ZeroPoint::Number(130));
        let rhs = of::<B>(&right.data, ZeroPoint::Number(0));
        let sums = read::<B, i32>(B::matmul_integer(lhs.clone(), rhs.clone()));
        check_rescaled::<B>(&sums, &[m, n], 1, |rescale| {
            B::matmul_integer_rescaled(lhs.clone(), rhs.clone(), rescale)
        });
    }
}

pub fn rescaled_convolutions<B: Backend>() {
    for (channels, outputs, groups) in [(6, 34, 1), (8, 20, 2), (40, 40, 40), (16, 32, 16)] {
        let options = ConvOptions {
            stride: [1, 2].into(),
            padding: [(1, 0), (1, 1)].into(),
            dilation: [1, 1].into(),
            groups,
        };
        let x = side(DType::U8, &[2, channels, 9, 11], 1);
        let weight = side(DType::I8, &[outputs, channels / groups, 3, 3], 2);
        let x = of::<B>(&x.data, ZeroPoint::Number(120));
        let weight = of::<B>(&weight.data, ZeroPoint::Number(0));
        let sums = read::<B, i32>(B::conv_integer(x.clone(), weight.clone(), &options));
        check_rescaled::<B>(&sums, &[2, outputs, 8, 6], 1, |rescale| {
            B::conv_integer_rescaled(x.clone(), weight.clone(), rescale, &options)
        });
    }
}
