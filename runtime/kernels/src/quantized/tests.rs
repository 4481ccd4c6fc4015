//! Products beside plain loops over wider integers: equal at every level.

use super::*;
use crate::conv::ConvShape;
use crate::simd::forced::at_each_level;
use kiln_types::{Activation, ConvOptions};
use std::vec::Vec;

/// Bytes over the whole range, its ends among them.
fn bytes(count: usize, seed: usize) -> Vec<u8> {
    let byte = |n: usize| match (n * 5 + seed) % 7 {
        0 => 0,
        1 => 255,
        2 => 128,
        _ => (((n as u64 + 1) * 2_654_435_761 + seed as u64 * 97) >> 9) as u8,
    };
    (0..count).map(byte).collect()
}

/// Both dtypes that bytes may have, with the numbers that they are.
fn both(bytes: &[u8]) -> [(Bytes<'_>, Vec<i64>); 2] {
    let signed: &[i8] = bytemuck::cast_slice(bytes);
    [
        (Bytes::U8(bytes), bytes.iter().map(|&byte| i64::from(byte)).collect()),
        (Bytes::I8(signed), signed.iter().map(|&byte| i64::from(byte)).collect()),
    ]
}

#[test]
fn products_are_exact_at_every_level() {
    for [m, k, n] in [[1, 1, 1], [3, 0, 5], [1, 260, 70], [9, 67, 33], [65, 130, 31], [40, 1027, 64]] {
        let (left, right) = (bytes(m * (k + 3), 1), bytes(k * n, 2));
        let (of_rows, of_cols): (Vec<i32>, Vec<i32>) =
            ((0..m).map(|n| n as i32 % 5 - 130).collect(), (0..n).map(|n| 257 - n as i32).collect());
        for (a, left) in both(&left) {
            for (b, right) in both(&right) {
                for (p, q) in [
                    (Zeros::One(0), Zeros::One(0)),
                    (Zeros::One(255), Zeros::One(-128)),
                    (Zeros::Each(&of_rows), Zeros::Each(&of_cols)),
                ] {
                    let element = |row: usize, col: usize| -> i32 {
                        let pair = |d: usize| {
                            (left[row * (k + 3) + d] - i64::from(p.at(row)))
                                * (right[d * n + col] - i64::from(q.at(col)))
                        };
                        (0..k).map(pair).sum::<i64>() as i32
                    };
                    let expected: Vec<i32> = (0..m * n).map(|at| element(at / n, at % n)).collect();
                    at_each_level(|level| {
                        let packed = PackedBytes::new(b, [n, 1], k, n);
                        let mut out = std::vec![7; m * n];
                        quantized_gemm(m, a, k + 3, p, &packed, q, Output::Sums(&mut out));
                        assert_eq!(out, expected, "{m}x{k}x{n} {level:?} {p:?} {q:?}");
                    });
                    let packed = PackedBytes::new(b, [n, 1], k, n);
                    let mut out = std::vec![7; m * n];
                    quantized_gemm(m, a, k + 3, p, &packed, q, Output::Sums(&mut out));
                    assert_eq!(out, expected, "{m}x{k}x{n}, on all threads");
                }
            }
        }
    }
}

/// Rows that lie over one another, as windows of a line do, or are all one.
#[test]
fn rows_may_overlap() {
    let (m, k, n) = (19, 12, 5);
    let (left, right) = (bytes(m * k, 5), bytes(k * n, 6));
    let packed = PackedBytes::new(Bytes::U8(&right), [n, 1], k, n);
    for step in [0, 4, 7] {
        let element = |at: usize| -> i32 {
            let pair =
                |d: usize| (i32::from(left[at / n * step + d]) - 9) * (i32::from(right[d * n + at % n]) - 50);
            (0..k).map(pair).sum()
        };
        let expected: Vec<i32> = (0..m * n).map(element).collect();
        at_each_level(|level| {
            let mut out = std::vec![7; m * n];
            let (p, q) = (Zeros::One(9), Zeros::One(50));
            quantized_gemm(m, Bytes::U8(&left), step, p, &packed, q, Output::Sums(&mut out));
            assert_eq!(out, expected, "{level:?}, {step} apart");
        });
    }
}

#[test]
fn large_products_have_equal_parts_on_all_threads() {
    for [m, k, n] in [[700, 300, 96], [5, 512, 3000]] {
        let (left, right) = (bytes(m * k, 3), bytes(k * n, 4));
        let packed = PackedBytes::new(Bytes::I8(bytemuck::cast_slice(&right)), [n, 1], k, n);
        let run = || {
            let mut out = std::vec![0; m * n];
            quantized_gemm(
                m,
                Bytes::U8(&left),
                k,
                Zeros::One(99),
                &packed,
                Zeros::One(3),
                Output::Sums(&mut out),
            );
            out
        };
        let whole = run();
        at_each_level(|level| assert!(run() == whole, "{level:?}"));
    }
}

#[test]
fn sums_wrap() {
    let k = 1 << 17;
    let (left, right) = (std::vec![255; k], std::vec![127; k]);
    let packed = PackedBytes::new(Bytes::I8(&right), [1, 1], k, 1);
    let expected = (k as i64 * 255 * 127) as i32;
    at_each_level(|level| {
        let mut out = [0];
        quantized_gemm(1, Bytes::U8(&left), k, Zeros::One(0), &packed, Zeros::One(0), Output::Sums(&mut out));
        assert_eq!(out, [expected], "{level:?}");
    });
}

#[test]
fn convolutions_are_exact() {
    let options = ConvOptions {
        stride: [1, 2].into(),
        padding: [(1, 0), (2, 1)].into(),
        dilation: [2, 1].into(),
        groups: 2,
    };
    let plain = ConvOptions {
        stride: [1, 1].into(),
        padding: [(1, 1), (1, 3)].into(),
        dilation: [1, 1].into(),
        groups: 1,
    };
    for options in [options, plain] {
        let (channels, outputs) = (6, 10);
        let inner = channels / options.groups;
        let shape = ConvShape::new(&[2, channels, 9, 11], &[outputs, inner, 3, 2], &options);
        let w = shape.windows.clone();
        let (images, filters) = (bytes(2 * 99 * channels, 1), bytes(outputs * inner * 6, 2));
        let of_outputs: Vec<i32> = (0..outputs).map(|n| 120 - 25 * n as i32).collect();
        for (x, numbers) in both(&images) {
            for (weight, filters) in both(&filters) {
                for (zero, zeros) in [(0, Zeros::One(0)), (100, Zeros::Each(&of_outputs))] {
                    let element = |at: usize| -> i32 {
                        let (output, place) = (at % outputs, at / outputs);
                        let (ox, oy) = (place % w.output[2], place / w.output[2] % w.output[1]);
                        let image = place / w.output_len();
                        let tap = |tap: usize| -> i64 {
                            let (channel, i, j) = (tap / 6, tap / 2 % 3, tap % 2);
                            let Some((y, x)) = w.position(1, oy, i).zip(w.position(2, ox, j)) else {
                                return 0;
                            };
                            let channel = output / (outputs / shape.groups) * inner + channel;
                            let pixel = (image * 9 + y) * 11 + x;
                            (numbers[pixel * channels + channel] - i64::from(zero))
                                * (filters[output * inner * 6 + tap] - i64::from(zeros.at(output)))
                        };
                        (0..inner * 6).map(tap).sum::<i64>() as i32
                    };
                    let expected: Vec<i32> = (0..2 * w.output_len() * outputs).map(element).collect();
                    at_each_level(|level| {
                        let packed = PackedQuantizedConv::new(&shape, weight);
                        let mut out = std::vec![7; expected.len()];
                        quantized_conv(&shape, x, zero, &packed, zeros, Output::Sums(&mut out));
                        assert_eq!(out, expected, "{level:?} {zero} {zeros:?}");
                    });
                }
            }
        }
    }
}

/// What an epilogue makes of a sum, in a plain way.
fn number(epilogue: &Epilogue<'_>, sum: i32, at: usize, col: usize) -> f32 {
    let sum = sum.wrapping_add(epilogue.integer_bias.map_or(0, |bias| bias[col]));
    let mut y = sum as f32 * epilogue.scale[if epilogue.scale.len() == 1 { 0 } else { col }];
    y += epilogue.bias.map_or(-0.0, |bias| bias[col]);
    y += epilogue.residual.map_or(-0.0, |residual| residual[at]);
    match epilogue.activation {
        Some(Activation::Relu) => y.max(0.0),
        Some(Activation::Clamp { min, max }) => y.clamp(min as f32, max as f32),
        Some(Activation::Sigmoid) => 1.0 / (1.0 + (-y).exp()),
        _ => y,
    }
}

/// The byte that stands for a number.
fn byte(y: f32, zero: i32, [low, high]: [f32; 2]) -> i32 {
    (y.round_ties_even() + zero as f32).clamp(low, high) as i32
}

/// Calls with epilogues of all kinds for so many rows and columns.
fn for_each_epilogue(rows: usize, cols: usize, test: impl Fn(&Epilogue<'_>)) {
    let of_cols = |step: f32| -> Vec<f32> { (0..cols).map(|n| (n % 9) as f32 * step + 0.001).collect() };
    let (scales, bias) = (of_cols(0.000_7), of_cols(-1.5));
    let integer_bias: Vec<i32> = (0..cols).map(|n| 37 * n as i32 - 500).collect();
    let residual: Vec<f32> = (0..rows * cols).map(|n| (n % 101) as f32 - 50.0).collect();
    for (scale, of_each, residual, activation) in [
        (&[0.01][..], false, None, None),
        (&scales[..], true, None, Some(Activation::Relu)),
        (&scales[..], true, Some(&residual[..]), Some(Activation::Clamp { min: -3.0, max: 60.5 })),
        (&[0.01][..], false, None, Some(Activation::Clamp { min: -9000.0, max: -8000.0 })),
        (&[-0.02][..], true, None, Some(Activation::Sigmoid)),
    ] {
        let (integer_bias, bias) =
            if of_each { (Some(&integer_bias[..]), Some(&bias[..])) } else { (None, None) };
        test(&Epilogue { scale, integer_bias, bias, residual, activation });
    }
}

/// Compares what a product yields under each kind of output with what is expected of its sums.
fn check_outputs(sums: &[i32], cols: usize, run: impl Fn(Output<'_>)) {
    for_each_epilogue(sums.len() / cols, cols, |epilogue| {
        let exact = !matches!(epilogue.activation, Some(Activation::Sigmoid));
        let expected: Vec<f32> =
            sums.iter().enumerate().map(|(at, &sum)| number(epilogue, sum, at, at % cols)).collect();
        let mut numbers = std::vec![7.0; sums.len()];
        run(Output::Numbers(&mut numbers, *epilogue));
        for (at, (&got, &expected)) in numbers.iter().zip(&expected).enumerate() {
            let close = if exact { got == expected } else { (got - expected).abs() < 1e-6 };
            assert!(close, "{at}: {got} for {expected} with {epilogue:?}");
        }
        if !exact {
            return;
        }
        let (mut unsigned, mut signed) = (std::vec![7; sums.len()], std::vec![7; sums.len()]);
        run(Output::U8(&mut unsigned, *epilogue, 131));
        run(Output::I8(&mut signed, *epilogue, -7));
        for (at, &y) in expected.iter().enumerate() {
            assert_eq!(i32::from(unsigned[at]), byte(y, 131, [0.0, 255.0]), "{at}: {y} with {epilogue:?}");
            assert_eq!(i32::from(signed[at]), byte(y, -7, [-128.0, 127.0]), "{at}: {y} with {epilogue:?}");
        }
    });
}

#[test]
fn sums_become_numbers_and_bytes() {
    for [m, k, n] in [[1, 8, 70], [13, 32, 33], [40, 27, 64]] {
        let (left, right) = (bytes(m * k, 5), bytes(k * n, 6));
        let of_rows: Vec<i32> = (0..m).map(|n| n as i32 % 5 + 3).collect();
        let (signed, unsigned) = (Bytes::I8(bytemuck::cast_slice(&right)), Bytes::U8(&right));
        for (right, q) in [(signed, Zeros::One(0)), (unsigned, Zeros::One(99))] {
            for p in [Zeros::One(120), Zeros::Each(&of_rows)] {
                let packed = PackedBytes::new(right, [n, 1], k, n);
                let run = |out: Output<'_>| quantized_gemm(m, Bytes::U8(&left), k, p, &packed, q, out);
                let mut sums = std::vec![0; m * n];
                run(Output::Sums(&mut sums));
                at_each_level(|_| check_outputs(&sums, n, run));
            }
        }
    }
}

#[test]
fn numbers_that_no_byte_stands_for() {
    let packed = PackedBytes::new(Bytes::I8(&[1]), [1, 1], 1, 1);
    for (scale, unsigned, signed) in
        [(f32::NAN, 0, 0), (f32::INFINITY, 255, 127), (f32::NEG_INFINITY, 0, -128), (1e30, 255, 127)]
    {
        let epilogue = Epilogue { scale: &[scale], ..Epilogue::default() };
        let run = |out: Output<'_>| {
            quantized_gemm(1, Bytes::U8(&[3]), 1, Zeros::One(0), &packed, Zeros::One(0), out)
        };
        at_each_level(|level| {
            let (mut u8s, mut i8s) = ([7], [7]);
            run(Output::U8(&mut u8s, epilogue, 10));
            run(Output::I8(&mut i8s, epilogue, -10));
            assert_eq!((u8s[0], i8s[0]), (unsigned, signed), "{scale} {level:?}");
        });
    }
}

#[test]
fn depthwise_convolutions_are_exact() {
    let zeros: Vec<i32> = (0..70).map(|n| n % 3 - 1).collect();
    for (channels, kernel, stride, padding, dilation, dims, weight_zeros) in [
        (5, [3, 3], [1, 1], [(1, 1), (1, 1)], [1, 1], [9, 11], Zeros::One(100)),
        (32, [3, 3], [2, 1], [(0, 2), (2, 0)], [1, 1], [8, 5], Zeros::One(0)),
        (70, [3, 3], [1, 2], [(1, 1), (1, 1)], [1, 1], [13, 9], Zeros::Each(&zeros)),
        // More lines than are multiplied at once, and more pixels.
        (48, [5, 2], [1, 1], [(2, 2), (0, 1)], [2, 1], [12, 75], Zeros::One(128)),
        // Windows that leave out most of what is between them, and of what is between their elements.
        (20, [2, 2], [3, 9], [(0, 1), (4, 0)], [1, 3], [7, 300], Zeros::One(0)),
        (33, [1, 3], [1, 1], [(0, 0), (40, 40)], [1, 40], [1, 50], Zeros::One(0)),
        (8, [1, 70], [1, 1], [(0, 0), (69, 0)], [1, 1], [2, 90], Zeros::One(0)),
    ] {
        let options = ConvOptions {
            stride: stride.into(),
            padding: padding.into(),
            dilation: dilation.into(),
            groups: channels,
        };
        let [kh, kw] = kernel;
        let shape = ConvShape::new(&[2, channels, dims[0], dims[1]], &[channels, 1, kh, kw], &options);
        let (w, pixels) = (shape.windows.clone(), dims[0] * dims[1]);
        let (images, filters) = (bytes(2 * pixels * channels, 1), bytes(kh * kw * channels, 2));
        let (of_images, of_filters) = (both(&images), both(&filters));
        let pairs =
            of_images.iter().flat_map(|images| of_filters.iter().map(move |filters| (images, filters)));
        for ((x, numbers), (filters, weight)) in pairs {
            let element = |at: usize| -> i32 {
                let (channel, place) = (at % channels, at / channels);
                let (ox, oy) = (place % w.output[2], place / w.output[2] % w.output[1]);
                let image = place / w.output_len();
                let tap = |tap: usize| -> i64 {
                    let Some((y, x)) = w.position(1, oy, tap / kw).zip(w.position(2, ox, tap % kw)) else {
                        return 0;
                    };
                    let pixel = image * pixels + y * dims[1] + x;
                    let weight = weight[channel * kh * kw + tap] - i64::from(weight_zeros.at(channel));
                    (numbers[pixel * channels + channel] - 77) * weight
                };
                (0..kh * kw).map(tap).sum::<i64>() as i32
            };
            let expected: Vec<i32> = (0..2 * w.output_len() * channels).map(element).collect();
            let of = |out: Output<'_>, packed: &_| quantized_depthwise(&shape, *x, 77, packed, out);
            at_each_level(|level| {
                let packed = PackedQuantizedDepthwise::new(&shape, *filters, weight_zeros);
                let mut out = std::vec![7; expected.len()];
                of(Output::Sums(&mut out), &packed);
                assert_eq!(out, expected, "{level:?} {channels} {kernel:?}");
                check_outputs(&expected, channels, |out| of(out, &packed));
            });
            let packed = PackedQuantizedDepthwise::new(&shape, *filters, weight_zeros);
            let mut out = std::vec![7; expected.len()];
            of(Output::Sums(&mut out), &packed);
            assert_eq!(out, expected, "on all threads");
        }
    }
}

#[test]
fn convolutions_in_groups_are_rescaled_by_their_own_channels() {
    let options =
        ConvOptions { stride: [1].into(), padding: [(1, 1)].into(), dilation: [1].into(), groups: 2 };
    let shape = ConvShape::new(&[1, 8, 20], &[70, 4, 3], &options);
    let (images, filters) = (bytes(20 * 8, 1), bytes(70 * 12, 2));
    let packed = PackedQuantizedConv::new(&shape, Bytes::I8(bytemuck::cast_slice(&filters)));
    let run = |out: Output<'_>| quantized_conv(&shape, Bytes::U8(&images), 90, &packed, Zeros::One(0), out);
    let mut sums = std::vec![0; 70 * 20];
    run(Output::Sums(&mut sums));
    at_each_level(|_| check_outputs(&sums, 70, run));
}

/// Images of one plane before which there are others that are not there: windows that see one of these alone.
#[test]
fn depthwise_convolutions_of_padded_planes() {
    for (before, seen) in [(0, true), (1, false)] {
        let options = ConvOptions {
            stride: [2, 1, 1].into(),
            padding: [(before, 1 - before), (1, 1), (1, 1)].into(),
            dilation: [1, 1, 1].into(),
            groups: 40,
        };
        let shape = ConvShape::new(&[1, 40, 1, 4, 5], &[40, 1, 1, 3, 3], &options);
        let (x, weight) = (std::vec![9; 40 * 20], std::vec![1; 40 * 9]);
        at_each_level(|level| {
            let packed = PackedQuantizedDepthwise::new(&shape, Bytes::I8(&weight), Zeros::One(0));
            let mut out = std::vec![7; shape.windows.output_len() * 40];
            quantized_depthwise(&shape, Bytes::U8(&x), 4, &packed, Output::Sums(&mut out));
            let corner = if seen { 4 * 5 } else { 0 };
            assert_eq!((out.len(), out[0]), (40 * 20, corner), "{level:?}");
        });
    }
}

/// Images without pixels, of which windows see the border alone.
#[test]
fn depthwise_convolutions_of_nothing() {
    let options =
        ConvOptions { stride: [1].into(), padding: [(2, 2)].into(), dilation: [1].into(), groups: 40 };
    let shape = ConvShape::new(&[1, 40, 0], &[40, 1, 3], &options);
    let weight = std::vec![1; 40 * 3];
    at_each_level(|level| {
        let packed = PackedQuantizedDepthwise::new(&shape, Bytes::I8(&weight), Zeros::One(0));
        let mut out = std::vec![7; 2 * 40];
        quantized_depthwise(&shape, Bytes::U8(&[]), 4, &packed, Output::Sums(&mut out));
        assert!(out.iter().all(|&sum| sum == 0), "{level:?}");
    });
}
