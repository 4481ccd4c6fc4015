//! The kernels beside what operations yield at build time.

use super::*;
use kiln_importer::ir::{AdaptiveAvgPool, Conv, ConvInteger, Op, Pool, QuantizedConv, QuantizedLinear};
use kiln_types::{Activation, ConvOptions, ConvTransposeOptions, DType, PoolOp, PoolOptions, TensorData};
use proptest::prelude::*;

/// Numbers that differ, of both signs.
fn floats(count: usize, seed: u32) -> Vec<f32> {
    (0..count as u32)
        .map(|n| (n.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 20) as f32 / 1024.0 - 2.0)
        .collect()
}

fn bytes(count: usize, seed: u32) -> Vec<i8> {
    floats(count, seed).iter().map(|x| (x * 60.0) as i8).collect()
}

fn evaluated(op: &Op, operands: &[Option<&TensorData>]) -> TensorData {
    op.evaluate(operands).expect("a value at build time").remove(0)
}

fn assert_close(actual: &[f32], expected: &TensorData) {
    let expected: Vec<f32> = expected.to_vec().expect("floats");
    assert_eq!(actual.len(), expected.len());
    for (actual, expected) in actual.iter().zip(&expected) {
        assert!((actual - expected).abs() <= 1e-4 + 1e-4 * expected.abs(), "{actual} instead of {expected}");
    }
}

/// Sizes of a convolution that fits: batch, groups, channels of a group, and along both axes size, kernel, stride, padding, dilation.
#[derive(Clone, Debug)]
struct Sizes {
    batch: usize,
    groups: usize,
    channels: [usize; 2],
    size: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [(usize, usize); 2],
    dilation: [usize; 2],
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let both = |range: std::ops::Range<usize>| [range.clone(), range];
    let padding = [(0..4usize, 0..4usize), (0..4usize, 0..4usize)];
    (1..3usize, 1..4usize, both(1..4), both(1..13), both(1..5), both(1..4), padding, both(1..3))
        .prop_map(|(batch, groups, channels, size, kernel, stride, padding, dilation)| Sizes {
            batch,
            groups,
            channels,
            size,
            kernel,
            stride,
            padding,
            dilation,
        })
        .prop_filter("the window fits", |sizes| (0..2).all(|axis| sizes.free(axis).is_some()))
}

impl Sizes {
    /// How far a window can move along an axis.
    fn free(&self, axis: usize) -> Option<usize> {
        let window = (self.kernel[axis] - 1) * self.dilation[axis] + 1;
        (self.size[axis] + self.padding[axis].0 + self.padding[axis].1).checked_sub(window)
    }

    fn result(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.free(axis).unwrap_or(0) / self.stride[axis] + 1)
    }

    fn options(&self) -> ConvOptions {
        ConvOptions {
            stride: self.stride.into(),
            padding: self.padding.into(),
            dilation: self.dilation.into(),
            groups: self.groups,
        }
    }

    fn conv2d(&self) -> Conv2d {
        Conv2d {
            batch: self.batch,
            channels: self.channels.map(|channels| channels * self.groups),
            groups: self.groups,
            size: self.size,
            result: self.result(),
            kernel: self.kernel,
            stride: self.stride,
            padding: self.padding.map(|(before, _)| before),
            dilation: self.dilation,
        }
    }

    fn image(&self) -> [usize; 4] {
        [self.batch, self.channels[0] * self.groups, self.size[0], self.size[1]]
    }

    fn weight(&self) -> [usize; 4] {
        [self.channels[1] * self.groups, self.channels[0], self.kernel[0], self.kernel[1]]
    }

    /// The shape of a result with these sizes.
    fn of(&self, result: [usize; 2]) -> [usize; 4] {
        [self.batch, self.channels[1] * self.groups, result[0], result[1]]
    }
}

fn count(shape: [usize; 4]) -> usize {
    shape.iter().product()
}

/// As in the runtime, NaN is the largest of all.
#[test]
fn nan_is_the_largest() {
    let sizes = Axis { outer: 1, length: 4, inner: 1 };
    let x = [1.0, f32::NAN, 5.0, 2.0];
    for (largest, expected) in [(true, [1, 2, 3]), (false, [0, 3, 2])] {
        let (mut out, mut places) = ([0.0; 3], [0; 3]);
        topk(&x, &sizes, 3, largest, &mut out, &mut places);
        assert_eq!(places, expected);
    }
}

#[test]
fn powers_take_all_bits_of_their_exponent() {
    let powers = [(3, -1), (1, -5), (-1, -4), (-1, -3), (0, 0), (2, 40), (-2, 63), (3, 1 << 40), (-3, 5)];
    let expected =
        [0, 1, 1, -1, 1, 1 << 40, i64::MIN, 3_i64.wrapping_pow(1 << 20).wrapping_pow(1 << 20), -243];
    assert_eq!(powers.map(|(base, exponent)| signed_power(base, exponent)), expected);
    assert_eq!(integer_power(3, u64::MAX).wrapping_mul(3), 1, "the order of each odd number divides 2^62");
    assert_eq!(signed_power(-128, 3) as i8, (-128_i8).wrapping_pow(3));
}

#[test]
fn remainders_have_the_sign_of_the_divisor() {
    for (a, b, expected) in [(7, 3, 1), (-7, 3, 2), (7, -3, -2), (-7, -3, -1), (i32::MIN, -1, 0), (6, 3, 0)] {
        assert_eq!(integer_remainder(a.wrapping_rem(b), b), expected, "{a} of {b}");
    }
    assert_eq!(integer_remainder(250_u8.wrapping_rem(7), 7), 5);
}

proptest! {
    #[test]
    fn convolutions(sizes in sizes()) {
        let (x, weight) = (floats(count(sizes.image()), 1), floats(count(sizes.weight()), 2));
        let shape = sizes.of(sizes.result());
        let (bias, residual) = (floats(shape[1], 3), floats(count(shape), 4));
        let mut out = vec![9.0; count(shape)];
        conv2d(&x, &weight, Some(&bias), Some(&residual), &sizes.conv2d(), relu, &mut out);
        let mut others = Vec::new();
        if sizes.channels[0] == 1 {
            others.push(vec![9.0; count(shape)]);
            let out = others.last_mut().expect("a result");
            conv2d_depthwise(&x, &weight, Some(&bias), Some(&residual), &sizes.conv2d(), relu, out);
        }
        if sizes.dilation[1] == 1 {
            others.push(vec![9.0; count(shape)]);
            let out = others.last_mut().expect("a result");
            conv2d_wide(&x, &weight, Some(&bias), Some(&residual), &sizes.conv2d(), relu, out);
        }
        let op = Op::Conv(Conv { options: sizes.options(), activation: Some(Activation::Relu) });
        let channels = shape[1];
        let operands = [
            TensorData::new(x, sizes.image()),
            TensorData::new(weight, sizes.weight()),
            TensorData::new(bias, [channels]),
            TensorData::new(residual, shape),
        ];
        let expected = evaluated(&op, &operands.each_ref().map(Some));
        others.iter().chain([&out]).for_each(|out| assert_close(out, &expected));
    }

    #[test]
    fn convolutions_of_integers(sizes in sizes()) {
        let (x, weight) = (bytes(count(sizes.image()), 1), bytes(count(sizes.weight()), 2));
        let shape = sizes.of(sizes.result());
        let zeros = bytes(shape[1], 3);
        let mut out = vec![9; count(shape)];
        conv2d_integer(&x, &weight, Some(&[7]), Some(&zeros), &sizes.conv2d(), &mut out);
        let op = Op::ConvInteger(ConvInteger { options: sizes.options() });
        let operands = [
            TensorData::new(x, sizes.image()),
            TensorData::new(weight, sizes.weight()),
            TensorData::new(vec![7i8], []),
            TensorData::new(zeros, [shape[1], 1, 1, 1]),
        ];
        let expected: Vec<i32> = evaluated(&op, &operands.each_ref().map(Some)).to_vec().expect("integers");
        prop_assert_eq!(out, expected);
    }

    #[test]
    fn layers_of_integers_that_are_convolutions(sizes in sizes(), of_channels: bool, floats_out: bool) {
        let (x, weight) = (bytes(count(sizes.image()), 1), bytes(count(sizes.weight()), 2));
        let shape = sizes.of(sizes.result());
        let channels = shape[1];
        let zeros = bytes(if of_channels { channels } else { 1 }, 3);
        let scale: Vec<f32> = floats(zeros.len(), 4).iter().map(|x| x.abs() * 0.001 + 1e-4).collect();
        let (bias, residual) = (floats(channels, 5), floats(count(shape), 6));
        let integer_bias: Vec<i32> = bytes(channels, 7).iter().map(|&bias| i32::from(bias) * 9).collect();
        let op = Op::QuantizedConv(QuantizedConv { options: sizes.options(), activation: Some(Activation::Relu) });
        let parameters = [
            TensorData::new(x.clone(), sizes.image()),
            TensorData::new(vec![7i8], [1]),
            TensorData::new(vec![0.5f32], []),
            TensorData::new(weight.clone(), sizes.weight()),
            TensorData::new(zeros.clone(), [zeros.len()]),
            TensorData::new(scale.clone(), [scale.len()]),
            TensorData::new(bias.clone(), [channels]),
            TensorData::new(residual.clone(), shape),
            TensorData::new(integer_bias.clone(), [channels]),
            TensorData::new(vec![-3i8], [1]),
        ];
        let mut operands = parameters.each_ref().map(Some);
        let (conv, half) = (sizes.conv2d(), [0.5]);
        let (zero, of_weight) = (Some(&[7i8][..]), Some(&zeros[..]));
        if floats_out {
            operands[9] = None;
            let mut out = vec![9.0; count(shape)];
            quantized_conv2d(
                &x, &weight, zero, Some(&half), of_weight, &scale, Some(&bias), Some(&integer_bias), Some(&residual), &conv, relu,
                &mut out,
            );
            assert_close(&out, &evaluated(&op, &operands));
        } else {
            operands[7] = None;
            let mut out = vec![9; count(shape)];
            requantized_conv2d(
                &x, &weight, zero, Some(&half), of_weight, &scale, Some(&bias), Some(&integer_bias), &conv, relu, &[-3], -128.0,
                127.0, &mut out,
            );
            let expected: Vec<i8> = evaluated(&op, &operands).to_vec().expect("integers");
            prop_assert_eq!(out, expected);
        }
    }

    #[test]
    fn layers_of_integers(rows in 1..4usize, inputs in 1..9usize, outputs in 1..40usize, of_columns: bool, floats_out: bool) {
        let (x, weight) = (bytes(rows * inputs, 1), bytes(inputs * outputs, 2));
        let zeros = bytes(if of_columns { outputs } else { 1 }, 3);
        let scale: Vec<f32> = floats(zeros.len(), 4).iter().map(|x| x.abs() * 0.001 + 1e-4).collect();
        let (bias, residual) = (floats(outputs, 5), floats(rows * outputs, 6));
        let integer_bias: Vec<i32> = bytes(outputs, 7).iter().map(|&bias| i32::from(bias) * 9).collect();
        let op = Op::QuantizedLinear(QuantizedLinear { activation: Some(Activation::Relu) });
        let parameters = [
            TensorData::new(x.clone(), [rows, inputs]),
            TensorData::new(vec![7i8], [1]),
            TensorData::new(vec![0.5f32], []),
            TensorData::new(weight.clone(), [inputs, outputs]),
            TensorData::new(zeros.clone(), [zeros.len()]),
            TensorData::new(scale.clone(), [scale.len()]),
            TensorData::new(bias.clone(), [outputs]),
            TensorData::new(residual.clone(), [rows, outputs]),
            TensorData::new(integer_bias.clone(), [outputs]),
            TensorData::new(vec![-3i8], [1]),
        ];
        let mut operands = parameters.each_ref().map(Some);
        let (zero, half, of_weight) = (Some(&[7i8][..]), [0.5], Some(&zeros[..]));
        if floats_out {
            operands[9] = None;
            let mut out = vec![9.0; rows * outputs];
            quantized_linear(
                &x, &weight, zero, Some(&half), of_weight, &scale, Some(&bias), Some(&integer_bias), Some(&residual), inputs, relu,
                &mut out,
            );
            assert_close(&out, &evaluated(&op, &operands));
        } else {
            operands[7] = None;
            let mut out = vec![9; rows * outputs];
            requantized_linear(
                &x, &weight, zero, Some(&half), of_weight, &scale, Some(&bias), Some(&integer_bias), inputs, relu, &[-3], -128.0,
                127.0, &mut out,
            );
            let expected: Vec<i8> = evaluated(&op, &operands).to_vec().expect("integers");
            prop_assert_eq!(out, expected);
        }
    }

    #[test]
    fn transposed_convolutions(sizes in sizes()) {
        // What is cut off leaves something.
        let full = [0, 1].map(|axis| {
            (sizes.size[axis] - 1) * sizes.stride[axis] + (sizes.kernel[axis] - 1) * sizes.dilation[axis] + 1
        });
        let cut = [0, 1].map(|axis| sizes.padding[axis].0 + sizes.padding[axis].1);
        prop_assume!((0..2).all(|axis| full[axis] > cut[axis]));
        let result = [0, 1].map(|axis| full[axis] - cut[axis]);
        let shape = sizes.of(result);
        let weights = [sizes.channels[0] * sizes.groups, sizes.channels[1], sizes.kernel[0], sizes.kernel[1]];
        let (x, weight, bias) = (floats(count(sizes.image()), 1), floats(count(weights), 2), floats(shape[1], 3));
        let of = sizes.conv2d();
        let of = ConvTranspose2d {
            batch: of.batch,
            channels: of.channels,
            groups: of.groups,
            size: of.size,
            result,
            kernel: of.kernel,
            stride: of.stride,
            padding: of.padding,
            dilation: of.dilation,
        };
        let mut out = vec![9.0; count(shape)];
        conv_transpose2d(&x, &weight, Some(&bias), &of, &mut out);
        let op = Op::ConvTranspose(ConvTransposeOptions {
            stride: sizes.stride.into(),
            padding: sizes.padding.into(),
            output_padding: [0, 0].into(),
            dilation: sizes.dilation.into(),
            groups: sizes.groups,
        });
        let channels = shape[1];
        let operands = [
            TensorData::new(x, sizes.image()),
            TensorData::new(weight, weights),
            TensorData::new(bias, [channels]),
        ];
        assert_close(&out, &evaluated(&op, &operands.each_ref().map(Some)));
    }

    #[test]
    fn poolings(sizes in sizes(), include_pad: bool) {
        // A window sees some of the image.
        prop_assume!((0..2).all(|axis| {
            let (before, after) = sizes.padding[axis];
            let reach = (sizes.kernel[axis] - 1) * sizes.dilation[axis] + 1;
            before < reach && after < reach && sizes.dilation[axis] <= sizes.size[axis]
        }));
        let image = sizes.image();
        let x = floats(count(image), 1);
        let result = sizes.result();
        let of = Pool2d {
            planes: image[0] * image[1],
            size: sizes.size,
            result,
            kernel: sizes.kernel,
            stride: sizes.stride,
            before: sizes.padding.map(|(before, _)| before),
            after: sizes.padding.map(|(_, after)| after),
            dilation: sizes.dilation,
        };
        let options = PoolOptions {
            kernel: sizes.kernel.into(),
            stride: sizes.stride.into(),
            padding: sizes.padding.into(),
            dilation: sizes.dilation.into(),
            ceil_mode: false,
        };
        let planes = image[0] * image[1];
        let mut out = vec![9.0; planes * result[0] * result[1]];
        let data = TensorData::new(x.clone(), image);
        average_pool2d(&x, &of, include_pad, &mut out);
        let op = |op| Op::Pool(Pool { op, options: options.clone() });
        let expected = evaluated(&op(PoolOp::Average { include_pad }), &[Some(&data)]);
        let expected: Vec<f32> = expected.to_vec().expect("floats");
        for (actual, expected) in out.iter().zip(&expected) {
            prop_assert!((actual - expected).abs() <= 1e-4 || actual.is_nan() && expected.is_nan());
        }
        max_pool2d(&x, &of, &mut out);
        let expected: Vec<f32> = evaluated(&op(PoolOp::Max), &[Some(&data)]).to_vec().expect("floats");
        for (actual, expected) in out.iter().zip(&expected) {
            // A window between elements has none.
            prop_assert!(actual == expected || *expected == f32::NEG_INFINITY);
        }
    }

    #[test]
    fn adaptive_poolings(size in [1..9usize, 1..9usize], result in [1..9usize, 1..9usize]) {
        let x = floats(2 * size[0] * size[1], 1);
        let mut out = vec![9.0; 2 * result[0] * result[1]];
        adaptive_average_pool2d(&x, &AdaptivePool2d { planes: 2, size, result }, &mut out);
        let op = Op::AdaptiveAvgPool(AdaptiveAvgPool { output_size: result.to_vec() });
        let data = TensorData::new(x, [1, 2, size[0], size[1]]);
        assert_close(&out, &evaluated(&op, &[Some(&data)]));
    }

    #[test]
    fn the_best_come_first(x in prop::collection::vec(-4i32..4, 1..20), k in 1..20usize, largest: bool) {
        let k = k.min(x.len());
        let sizes = Axis { outer: 1, length: x.len(), inner: 1 };
        let (mut out, mut places) = (vec![0; k], vec![0i64; k]);
        topk(&x, &sizes, k, largest, &mut out, &mut places);
        let mut expected: Vec<usize> = (0..x.len()).collect();
        expected.sort_by_key(|&at| (if largest { -x[at] } else { x[at] }, at));
        prop_assert_eq!(places, expected[..k].iter().map(|&at| at as i64).collect::<Vec<_>>());
        prop_assert_eq!(out, expected[..k].iter().map(|&at| x[at]).collect::<Vec<_>>());
    }
}

#[test]
fn nan_is_the_largest_and_the_smallest() {
    let (nan, sizes) = (f32::NAN, Axis { outer: 1, length: 4, inner: 1 });
    assert!(max_pair(nan, 1.0).is_nan() && max_pair(1.0, nan).is_nan());
    assert!(min_pair(nan, 1.0).is_nan() && min_pair(1.0, nan).is_nan());
    for (x, largest, smallest) in [([1.0, nan, 3.0, nan], 1, 1), ([2.0, 0.0, 3.0, 3.0], 2, 1)] {
        let mut at = [9];
        argmax(&x, &sizes, false, &mut at);
        assert_eq!(at, [largest]);
        argmin(&x, &sizes, false, &mut at);
        assert_eq!(at, [smallest]);
    }
    let mut at = [9];
    argmax(&[2, 3, 3, 0], &sizes, true, &mut at);
    assert_eq!(at, [2]);
    let mut pooled = [0.0];
    let window = Pool2d {
        planes: 1,
        size: [1, 3],
        result: [1, 1],
        kernel: [1, 3],
        stride: [1, 1],
        before: [0, 0],
        after: [0, 0],
        dilation: [1, 1],
    };
    max_pool2d(&[1.0, nan, 2.0], &window, &mut pooled);
    assert!(pooled[0].is_nan());
}

#[test]
#[should_panic(expected = "index 3 is beyond an axis of 3")]
fn indices_beyond_an_axis_are_told() {
    take(&[1, 2, 3], &[-1i64, 3], &Axis { outer: 1, length: 3, inner: 1 }, &mut [0, 0]);
}

#[test]
fn dtypes_have_types() {
    for dtype in DType::ALL {
        let is_known = crate::spelling::rust_type(dtype).is_some();
        assert_eq!(
            is_known,
            dtype == DType::F32 || dtype.is_bool() || (dtype.is_int() && dtype.widened() == dtype)
        );
    }
}
