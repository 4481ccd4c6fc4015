//! Convolutions, and gradients of them and of poolings, beside the CPU backend's: whole numbers, whose sums are exact in any order.

use super::{Results, assert_same, floats, of, on, read, whole};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::compose::{Quantized, ZeroPoint};
use kiln_tensor::{ConvOptions, ConvTransposeOptions, DType, PoolOp, PoolOptions, Shape, TensorData};

fn numbers<B: Backend>(shape: &[usize], seed: i64, dtype: DType) -> B::Primitive {
    let count = shape.iter().product::<usize>() as i64;
    let numbers: Vec<i64> = (0..count).map(|n| (n * 31 + seed * 17) % 1009 % 7 - 3).collect();
    on::<B>(whole(&numbers, shape, dtype))
}

fn conv(stride: &[usize], padding: &[(usize, usize)], dilation: &[usize], groups: usize) -> ConvOptions {
    ConvOptions { stride: stride.into(), padding: padding.into(), dilation: dilation.into(), groups }
}

type Convolution = (&'static [usize], &'static [usize], ConvOptions);

fn convolutions() -> Vec<Convolution> {
    vec![
        // Few channels on one side.
        (&[2, 3, 9, 11], &[16, 3, 3, 3], conv(&[1, 1], &[(1, 1), (1, 1)], &[1, 1], 1)),
        (&[2, 8, 7, 10], &[5, 8, 3, 2], conv(&[1, 2], &[(1, 0), (0, 1)], &[2, 1], 1)),
        // Steps: elements that reach some positions and others not; the last row is in no window.
        (&[2, 16, 9, 11], &[8, 16, 3, 3], conv(&[2, 2], &[(1, 0), (0, 2)], &[1, 1], 1)),
        (&[1, 8, 12, 13], &[12, 8, 2, 3], conv(&[4, 2], &[(0, 0), (3, 3)], &[6, 2], 1)),
        // Channels for themselves.
        (&[2, 6, 12, 8], &[6, 1, 3, 3], conv(&[1, 1], &[(1, 1), (1, 1)], &[1, 1], 6)),
        (&[1, 4, 10, 9], &[8, 1, 2, 3], conv(&[3, 2], &[(0, 1), (1, 1)], &[2, 2], 4)),
        // Wide windows; one and three dims; groups.
        (&[1, 8, 40], &[4, 8, 12], conv(&[4], &[(3, 3)], &[1], 1)),
        (&[1, 16, 30], &[16, 8, 12], conv(&[1], &[(6, 5)], &[1], 2)),
        (&[1, 9, 60], &[8, 9, 40], conv(&[1], &[(9, 50)], &[1], 1)),
        (&[2, 5, 9, 40], &[8, 5, 3, 30], conv(&[2, 1], &[(4, 1), (0, 33)], &[1, 1], 1)),
        (&[2, 8, 3, 4, 5], &[16, 4, 2, 2, 1], conv(&[1, 2, 1], &[(1, 0), (0, 0), (0, 1)], &[1, 1, 1], 2)),
        // Single elements.
        (&[2, 16, 4, 4], &[8, 16, 1, 1], conv(&[1, 1], &[(0, 0), (0, 0)], &[1, 1], 1)),
        (&[3, 8, 1, 1], &[16, 8, 1, 1], conv(&[1, 1], &[(0, 0), (0, 0)], &[1, 1], 1)),
        (&[1, 8, 5, 6], &[8, 8, 1, 1], conv(&[2, 2], &[(0, 0), (0, 0)], &[1, 1], 1)),
        // Sums in parts, of which the last is shorter.
        (&[3, 8, 25, 24], &[8, 8, 3, 1], conv(&[1, 1], &[(1, 1), (0, 0)], &[1, 1], 1)),
        (&[1, 2, 46, 46], &[2, 1, 3, 3], conv(&[1, 1], &[(1, 1), (1, 1)], &[1, 1], 2)),
        // Nothing.
        (&[0, 8, 5, 5], &[8, 8, 3, 3], conv(&[1, 1], &[(0, 0), (0, 0)], &[1, 1], 1)),
    ]
}

fn of_convolution<B: Backend>((x_shape, weight_shape, options): &Convolution, dtype: DType) -> Results {
    let (x, weight) = (numbers::<B>(x_shape, 1, dtype), numbers::<B>(weight_shape, 2, dtype));
    let of_channels = numbers::<B>(&weight_shape[..1], 6, dtype);
    let forward = B::conv(x.clone(), weight.clone(), Some(of_channels), options);
    let result = forward.shape();
    let y = numbers::<B>(&result.dims, 3, dtype);
    let (x_shape, weight_shape) = (Shape::from(x_shape.to_vec()), Shape::from(weight_shape.to_vec()));
    let name = |what: &str| format!("{what} of {x_shape} by {weight_shape}, {options:?}, {dtype}");
    let mut found = vec![
        (name("result"), forward),
        (name("input"), B::conv_input_gradient(y.clone(), weight.clone(), &x_shape, options)),
        (name("weight"), B::conv_weight_gradient(x.clone(), y.clone(), &weight_shape, options)),
    ];
    let transposed = ConvTransposeOptions {
        stride: options.stride.clone(),
        padding: options.padding.clone(),
        output_padding: options.stride.iter().map(|step| step - 1).collect(),
        dilation: options.dilation.clone(),
        groups: options.groups,
    };
    let bias = numbers::<B>(&[x_shape[1]], 4, dtype);
    let image = B::conv_transpose(y.clone(), weight.clone(), Some(bias), &transposed);
    let gradient = numbers::<B>(&image.shape().dims, 5, dtype);
    found.push((name("transposed"), image));
    let of_input = B::conv_transpose_input_gradient(gradient.clone(), weight, &result, &transposed);
    found.push((name("input of the transposed"), of_input));
    let of_weight = B::conv_transpose_weight_gradient(y, gradient, &weight_shape, &transposed);
    found.push((name("weight of the transposed"), of_weight));
    found.into_iter().map(|(name, x)| (name, read::<B>(x))).collect()
}

pub fn gradients_of_convolutions<B: Backend>() {
    for convolution in convolutions() {
        let run = (
            of_convolution::<B>(&convolution, DType::F32),
            of_convolution::<NdArray>(&convolution, DType::F32),
        );
        assert_same(run.0, run.1, 0.0);
    }
    // Sums in parts of one channel, which are wider than their sum.
    let small: Convolution = (&[1, 4, 40, 39], &[4, 1, 2, 3], conv(&[1, 1], &[(1, 1), (0, 1)], &[1, 1], 4));
    for dtype in of::<B>(&[DType::F64, DType::F16, DType::BF16, DType::I8]) {
        assert_same(of_convolution::<B>(&small, dtype), of_convolution::<NdArray>(&small, dtype), 0.0);
    }
}

/// Bytes whose zero point stands beyond the images, by windows of any width.
pub fn convolutions_of_bytes<B: Backend>() {
    fn run<B: Backend>((x_shape, weight_shape, options): &Convolution, dtype: DType) -> Results {
        let x = Quantized { values: numbers::<B>(x_shape, 1, dtype), zero: ZeroPoint::Number(2) };
        let weight = Quantized { values: numbers::<B>(weight_shape, 2, dtype), zero: ZeroPoint::Number(-1) };
        let result = B::conv_integer(x, weight, options);
        vec![(format!("{x_shape:?} by {weight_shape:?}"), read::<B>(result))]
    }
    for dtype in of::<B>(&[DType::I8]) {
        for convolution in convolutions() {
            assert_same(run::<B>(&convolution, dtype), run::<NdArray>(&convolution, dtype), 0.0);
        }
    }
}

/// What is not finite goes to what it reaches, and nowhere else.
pub fn gradients_of_convolutions_that_are_not_finite<B: Backend>() {
    fn run<B: Backend>(channels: usize) -> Results {
        let options = conv(&[2, 2], &[(1, 1), (1, 1)], &[1, 1], 1);
        let (x_shape, weight_shape) = ([1, channels, 9, 9], [channels, channels, 3, 3]);
        let mut gradient = vec![1.0_f32; channels * 25];
        (gradient[6], gradient[18]) = (f32::INFINITY, f32::NAN);
        let gradient = on::<B>(TensorData::new(gradient, [1, channels, 5, 5]));
        let ones = vec![1.0_f32; channels * channels * 9];
        let weight = on::<B>(TensorData::new(ones, weight_shape));
        let x = on::<B>(TensorData::new(vec![1.0_f32; channels * 81], x_shape));
        // Its first and its last element: the neighbours in memory of what is outside.
        let mut ends = vec![1.0_f32; channels * 81];
        (ends[0], ends[channels * 81 - 1]) = (f32::INFINITY, f32::NAN);
        let ends = on::<B>(TensorData::new(ends, x_shape));
        let result = B::conv(ends.clone(), weight.clone(), None, &options);
        let ones = on::<B>(TensorData::new(vec![1.0_f32; channels * 25], [1, channels, 5, 5]));
        let of_ends = B::conv_weight_gradient(ends, ones, &Shape::from(weight_shape), &options);
        let input = B::conv_input_gradient(gradient.clone(), weight, &Shape::from(x_shape), &options);
        let weight = B::conv_weight_gradient(x, gradient, &Shape::from(weight_shape), &options);
        [("input", input), ("weight", weight), ("result", result), ("weight of the ends", of_ends)]
            .map(|(name, tensor)| (name.to_owned(), read::<B>(tensor)))
            .into()
    }
    /// Weights that are not finite where windows lie over some elements of the result, and over others not: behind the last, too. The gradient of a
    /// convolution's input is the same.
    fn of_weights<B: Backend>(
        [from, channels]: [usize; 2],
        stride: usize,
        dilation: usize,
        dtype: DType,
    ) -> Results {
        let options = ConvTransposeOptions {
            stride: [stride; 2].into(),
            padding: [(1, 0); 2].into(),
            output_padding: [stride - 1; 2].into(),
            dilation: [dilation; 2].into(),
            groups: 1,
        };
        let mut weight = vec![1.0_f32; from * channels * 9];
        (weight[0], weight[8]) = (f32::INFINITY, f32::NEG_INFINITY);
        let of = |data: TensorData| on::<B>(data.convert_dtype(dtype));
        let weight = of(TensorData::new(weight, [from, channels, 3, 3]));
        let x = of(TensorData::new(vec![1.0_f32; from * 20], [1, from, 4, 5]));
        let y = B::conv_transpose(x.clone(), weight.clone(), None, &options);
        let ConvTransposeOptions { padding, dilation: apart, .. } = options.clone();
        let options = ConvOptions { stride: options.stride, padding, dilation: apart, groups: 1 };
        let gradient = B::conv_input_gradient(x, weight, &y.shape(), &options);
        let name = |what: &str| format!("{what}, weights of {channels} channels, {stride}, {dilation}");
        vec![(name("transposed"), read::<B>(y)), (name("gradient"), read::<B>(gradient))]
    }
    // Results by elements, in tiles, and by warps where there are any.
    for channels in [[2, 1], [2, 3], [2, 8], [5, 24], [16, 70]] {
        for (stride, dilation) in [(1, 1), (2, 1), (2, 3), (3, 2)] {
            for dtype in floats::<B>() {
                let expected = of_weights::<NdArray>(channels, stride, dilation, dtype);
                let of_all = expected[0].1.iter::<f64>().all(|x| x.is_infinite());
                assert!(!of_all, "what no window reaches is finite");
                let (name, transposed) = expected[0].clone();
                assert_same(expected[1..].to_vec(), vec![(name, transposed)], 0.0);
                assert_same(of_weights::<B>(channels, stride, dilation, dtype), expected, 0.0);
            }
        }
    }
    for channels in [1, 8, 11] {
        let (found, expected) = (run::<B>(channels), run::<NdArray>(channels));
        let reached = found[0].1.iter::<f64>().filter(|x| !x.is_finite()).count();
        assert_eq!(reached, 18 * channels, "two windows of nine elements");
        let reached = found[2].1.iter::<f64>().filter(|x| !x.is_finite()).count();
        assert_eq!(reached, 2 * channels, "the first window and the last");
        assert_same(found, expected, 0.0);
    }
}

fn of_pooling<B: Backend>(shape: &[usize], options: &PoolOptions, dtype: DType) -> Results {
    let x = numbers::<B>(shape, 1, dtype);
    let mut results = Results::new();
    let ops = [
        PoolOp::Max,
        PoolOp::Average { include_pad: false },
        PoolOp::Average { include_pad: true },
        PoolOp::Lp { p: 2 },
        PoolOp::Lp { p: 4 },
    ];
    for op in ops {
        let y = B::pool(op, x.clone(), options);
        // All of one sign, so that nothing cancels; of norms the signs are those of what was pooled.
        let gradient = B::unary(kiln_tensor::UnaryOp::Abs, numbers::<B>(&y.shape().dims, 2, dtype));
        let found = B::pool_gradient(op, gradient, x.clone(), y, options);
        results.push((format!("{op:?} of {shape:?}, {options:?}"), read::<B>(found)));
    }
    results
}

/// Means whose sums are more than the dtype holds, and roots of powers that are whole.
pub fn poolings_of_integers<B: Backend>() {
    fn run<B: Backend>(dtype: DType) -> Results {
        let mut results = Results::new();
        let (least, greatest) = dtype.integers().unwrap_or((0, 1));
        let near = |end: i128| [end, end, end, end / 2, 3, end];
        let means = [near(least), near(greatest), [least, greatest, least, 1, 0, 2], [-7, 5, 2, -1, 8, -8]];
        for numbers in means {
            let numbers = numbers.map(|x| x.clamp(least, greatest) as i64);
            for (channels, shape) in [(1, [1, 1, 6]), (2, [1, 2, 3])] {
                let x = on::<B>(whole(&numbers, &shape, dtype));
                for include_pad in [false, true] {
                    let options = PoolOptions::new([3], [1], [1], [1], false);
                    let y = B::pool(PoolOp::Average { include_pad }, x.clone(), &options);
                    results.push((format!("mean of {numbers:?} in {channels}, {include_pad}"), read::<B>(y)));
                }
            }
        }
        for p in 1..=5 {
            let options = PoolOptions::new([2], [1], [0], [1], false);
            for last in 0..=5 {
                let x = on::<B>(whole(&[5, 0, 0, 4, 0, 3, last, 0, 0, 2, 2, 0, 1], &[1, 1, 13], dtype));
                let y = B::pool(PoolOp::Lp { p }, x, &options);
                results.push((format!("norm of order {p}, with {last}"), read::<B>(y)));
            }
        }
        results
    }
    // 4 alone, the cubes of 3 and 4 (91), and 5 alone.
    let x = TensorData::new(vec![0_i32, 4, 0, 3, 4, 0, 5, 0], [1, 1, 8]);
    let options = PoolOptions::new([2], [2], [0], [1], false);
    for dtype in super::integers::<B>() {
        let x = on::<B>(x.clone().convert_dtype(dtype));
        let norms = read::<B>(B::pool(PoolOp::Lp { p: 3 }, x, &options));
        assert_eq!(norms.iter::<i64>().collect::<Vec<_>>(), [4, 3, 4, 5], "{dtype}");
        assert_same(run::<B>(dtype), run::<NdArray>(dtype), 0.0);
        let (least, greatest) = dtype.integers().unwrap_or((0, 1));
        for end in [least, greatest] {
            let x = on::<B>(whole(&[end as i64; 4], &[1, 1, 4], dtype));
            let y = read::<B>(B::pool(PoolOp::Average { include_pad: false }, x.clone(), &options));
            assert_eq!(y.iter::<u64>().next(), read::<B>(x).iter::<u64>().next(), "{dtype}");
        }
    }
}

pub fn gradients_of_poolings<B: Backend>() {
    let cases: [(&[usize], PoolOptions); 5] = [
        (&[1, 2, 9, 9], PoolOptions::new([3, 3], [2, 1], [1, 1], [1, 1], false)),
        (&[1, 2, 10, 7], PoolOptions::new([3, 2], [3, 2], [1, 1], [2, 1], true)),
        (&[1, 1, 11], PoolOptions::new([3], [4], [1], [2], false)),
        (&[1, 2, 4, 5, 6], PoolOptions::new([2, 3, 2], [1, 2, 2], [0, 1, 1], [1, 1, 2], true)),
        (&[0, 2, 4, 4], PoolOptions::new([2, 2], [2, 2], [0, 0], [1, 1], false)),
    ];
    for (n, (shape, options)) in cases.iter().enumerate() {
        for dtype in floats::<B>().filter(|&dtype| dtype == DType::F32 || n == 1) {
            let error = match dtype {
                DType::F64 => 1e-14,
                DType::F32 => 3e-6,
                DType::F16 => 3e-3,
                _ => 2e-2,
            };
            let run = (of_pooling::<B>(shape, options, dtype), of_pooling::<NdArray>(shape, options, dtype));
            // Of norms, whose shares have signs, numbers cancel.
            for ((name, found), (_, expected)) in run.0.into_iter().zip(run.1) {
                if !name.starts_with("Lp") {
                    assert_same(vec![(name.clone(), found)], vec![(name, expected)], error);
                    continue;
                }
                let off = found.iter::<f64>().zip(expected.iter::<f64>()).map(|(a, b)| (a - b).abs());
                let most = off.fold(0.0, f64::max);
                assert!(most <= error * 20.0, "{name}, {dtype}: {most} off");
            }
        }
    }
    let unreal = [1.0_f32, f32::NAN, 3.0, 3.0, f32::NAN, 0.0, 5.0, 5.0, f32::INFINITY];
    fn of_maxima<B: Backend>(x: &[f32]) -> Results {
        let x = on::<B>(TensorData::new(x.to_vec(), [1, 1, 3, 3]));
        let options = PoolOptions::new([2, 2], [1, 1], [1, 1], [1, 1], false);
        let y = B::pool(PoolOp::Max, x.clone(), &options);
        let gradient = numbers::<B>(&y.shape().dims, 2, DType::F32);
        vec![("NaN".to_owned(), read::<B>(B::pool_gradient(PoolOp::Max, gradient, x, y, &options)))]
    }
    assert_same(of_maxima::<B>(&unreal), of_maxima::<NdArray>(&unreal), 0.0);
    // Where an element is 0 norms are flat, whatever arrives there.
    fn of_norms<B: Backend>(p: u32) -> Results {
        let x = on::<B>(TensorData::new(vec![0.0_f32, 2.0, -3.0, 0.0, 1.0, 0.0], [1, 1, 6]));
        let options = PoolOptions::new([2], [2], [0], [1], false);
        let y = B::pool(PoolOp::Lp { p }, x.clone(), &options);
        let gradient = on::<B>(TensorData::new(vec![f32::INFINITY, f32::NAN, 2.0], [1, 1, 3]));
        let found = B::pool_gradient(PoolOp::Lp { p }, gradient, x, y, &options);
        vec![(format!("a norm of order {p}"), read::<B>(found))]
    }
    for p in [1, 2, 3] {
        let expected = of_norms::<NdArray>(p);
        assert_eq!(expected[0].1.iter::<f64>().filter(|&x| x == 0.0).count(), 3);
        assert_same(of_norms::<B>(p), expected, 1e-6);
    }
    fn of_means<B: Backend>(input: &[usize], output: &[usize]) -> Results {
        let gradient = B::unary(kiln_tensor::UnaryOp::Abs, numbers::<B>(output, 2, DType::F32));
        let found = B::adaptive_avg_pool_gradient(gradient, &Shape::from(input.to_vec()));
        vec![(format!("{input:?} from {output:?}"), read::<B>(found))]
    }
    let adaptive: [(&[usize], &[usize]); 4] = [
        (&[2, 3, 7, 7], &[2, 3, 1, 1]),
        (&[1, 2, 10, 9], &[1, 2, 4, 3]),
        (&[1, 2, 3, 5], &[1, 2, 7, 5]),
        (&[1, 2, 4, 5, 6], &[1, 2, 2, 5, 4]),
    ];
    for (input, output) in adaptive {
        assert_same(of_means::<B>(input, output), of_means::<NdArray>(input, output), 1e-6);
    }
}
