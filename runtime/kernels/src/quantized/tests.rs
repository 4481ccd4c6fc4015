//! Products beside plain loops over wider integers: equal at every level.

use super::*;
use crate::conv::ConvShape;
use crate::simd::forced::at_each_level;
use kiln_types::ConvOptions;
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
                        quantized_gemm(m, a, k + 3, p, &packed, q, &mut out);
                        assert_eq!(out, expected, "{m}x{k}x{n} {level:?} {p:?} {q:?}");
                    });
                    let packed = PackedBytes::new(b, [n, 1], k, n);
                    let mut out = std::vec![7; m * n];
                    quantized_gemm(m, a, k + 3, p, &packed, q, &mut out);
                    assert_eq!(out, expected, "{m}x{k}x{n}, on all threads");
                }
            }
        }
    }
}

#[test]
fn large_products_have_equal_parts_on_all_threads() {
    for [m, k, n] in [[700, 300, 96], [5, 512, 3000]] {
        let (left, right) = (bytes(m * k, 3), bytes(k * n, 4));
        let packed = PackedBytes::new(Bytes::I8(bytemuck::cast_slice(&right)), [n, 1], k, n);
        let run = || {
            let mut out = std::vec![0; m * n];
            quantized_gemm(m, Bytes::U8(&left), k, Zeros::One(99), &packed, Zeros::One(3), &mut out);
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
        quantized_gemm(1, Bytes::U8(&left), k, Zeros::One(0), &packed, Zeros::One(0), &mut out);
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
                        quantized_conv(&shape, x, zero, &packed, zeros, &mut out);
                        assert_eq!(out, expected, "{level:?} {zero} {zeros:?}");
                    });
                }
            }
        }
    }
}
