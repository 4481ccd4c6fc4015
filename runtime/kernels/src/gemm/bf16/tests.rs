//! Products of rounded operands of awkward sizes against f64, with all instructions.

use super::instructions::tests::with_all_instructions;
use super::pack::rounded;
use super::tile::f32_of;
use super::{PackedBf16, gemm_bf16, gemm_bf16_batched};
use crate::elementwise::activation_of;
use crate::gemm::{Bias, Epilogue, Matrix, noise};
use kiln_types::{Activation, bf16};

const SIZES: &[(usize, usize, usize)] = &[
    (1, 1, 1),
    (1, 100, 33),
    (2, 3, 4),
    (5, 1, 9),
    (16, 32, 32),
    (17, 33, 31),
    (33, 31, 65),
    (64, 100, 70),
    (43, 129, 513),
    (70, 40, 1100),
    (3, 5, 0),
    (0, 4, 3),
];

fn near(x: f32) -> f64 {
    f64::from(f32_of(rounded(x)))
}

fn expected([m, n, k]: [usize; 3], a: Matrix<'_>, b: Matrix<'_>, e: &Epilogue<'_>, step: usize) -> Vec<f32> {
    let mut c = vec![0.0; m * n];
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let sum: f64 = (0..k).map(|l| near(a.at(i, l)) * near(b.at(l, j))).sum();
        let bias = match e.bias {
            Bias::None => 0.0,
            Bias::PerRow(bias) => bias[i],
            Bias::PerColumn(bias) => bias[j],
        };
        let x = sum as f32 + bias + e.residual.map_or(0.0, |r| r[i * step + j]);
        c[i * n + j] = e.activation.map_or(x, |activation| activation_of(activation, x));
    }
    c
}

fn assert_close(got: &[f32], step: usize, want: &[f32], n: usize, what: &str) {
    for (i, want) in want.iter().enumerate() {
        let got = got[i / n * step + i % n];
        assert!((got - want).abs() <= 1e-4 * (1.0 + want.abs()), "{what}: element {i} is {got}, not {want}");
    }
}

#[test]
fn rounding_is_to_the_nearest_and_even() {
    let numbers = noise(10_000, 7);
    let special = [0.0, -0.0, 1.0, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, 257.0, 259.0];
    for &x in numbers.iter().chain(&special) {
        let (got, want) = (f32_of(rounded(x)), bf16::from_f32(x).to_f32());
        assert!(got == want || got.is_nan() && want.is_nan(), "{x} becomes {got}, not {want}");
    }
    assert!(f32_of(rounded(f32::from_bits(0x7f80_0001))).is_nan());
}

#[test]
fn products_are_those_of_rounded_operands() {
    with_all_instructions(|level, instructions| {
        for &(m, n, k) in SIZES {
            let (a, b) = (noise(m * k, 1), noise(k * n, 2));
            let row = Matrix { data: &b[..], row_stride: n, col_stride: 1 };
            let col = Matrix { data: &b[..], row_stride: 1, col_stride: k };
            let apart: Vec<f32> = b.iter().flat_map(|&x| [x, 9.0]).collect();
            let apart = Matrix { data: &apart[..], row_stride: 2 * n, col_stride: 2 };
            for (layout, b) in [row, col, apart].into_iter().enumerate() {
                let what = format!("{level:?} {instructions:?} {m}x{n}x{k} layout {layout}");
                let (step, none) = (n + layout, Epilogue::default());
                let want = expected([m, n, k], Matrix::row_major(&a, k), b, &none, step);
                let mut c = vec![9.0; m * step];
                gemm_bf16(m, &a, k, &PackedBf16::new(b, k, n), &mut c, step, &none);
                assert_close(&c, step, &want, n, &what);
                assert!(
                    (0..m * step).all(|i| i % step < n || c[i] == 9.0),
                    "{what} wrote beyond its columns"
                );
            }
        }
    });
}

#[test]
fn epilogues_are_those_of_f32() {
    with_all_instructions(|level, instructions| {
        for (m, n, k) in [(37, 45, 70), (3, 70, 1030), (2, 3, 0)] {
            let (a, b) = (noise(m * k, 1), noise(k * n, 2));
            let (rows, cols, residual) = (noise(m, 3), noise(n, 4), noise(m * n, 5));
            let activations = [
                None,
                Some(Activation::Relu),
                Some(Activation::Gelu),
                Some(Activation::Clamp { min: -0.5, max: 0.5 }),
            ];
            for activation in activations {
                for bias in [Bias::None, Bias::PerRow(&rows), Bias::PerColumn(&cols)] {
                    for residual in [None, Some(&residual[..])] {
                        let epilogue = Epilogue { bias, residual, activation };
                        let b = Matrix::row_major(&b, n);
                        let want = expected([m, n, k], Matrix::row_major(&a, k), b, &epilogue, n);
                        let mut c = vec![0.0; m * n];
                        gemm_bf16(m, &a, k, &PackedBf16::new(b, k, n), &mut c, n, &epilogue);
                        assert_close(&c, n, &want, n, &format!("{level:?} {instructions:?} {epilogue:?}"));
                    }
                }
            }
        }
    });
}

#[test]
fn batches_read_where_their_offsets_say() {
    with_all_instructions(|level, instructions| {
        let (m, n, k) = (5, 37, 40);
        let (a, b) = (noise(2 * m * k, 1), noise(2 * k * n, 2));
        let offsets = [[0, 0], [m * k, 0], [0, k * n], [m * k, k * n]];
        let mut c = vec![0.0; 4 * m * n];
        gemm_bf16_batched(m, n, k, Matrix::row_major(&a, k), Matrix::row_major(&b, n), &offsets, &mut c);
        for (&[at_a, at_b], c) in offsets.iter().zip(c.chunks(m * n)) {
            let (a, b) = (Matrix::row_major(&a[at_a..], k), Matrix::row_major(&b[at_b..], n));
            let want = expected([m, n, k], a, b, &Epilogue::default(), n);
            assert_close(c, n, &want, n, &format!("{level:?} {instructions:?}"));
        }
    });
}

#[test]
fn not_finite_numbers_stay_in_their_rows_and_columns() {
    with_all_instructions(|level, instructions| {
        let (m, n, k) = (20, 40, 50);
        let (mut a, b) = (noise(m * k, 1), noise(k * n, 2));
        a[3 * k + 7] = f32::INFINITY;
        a[18 * k + 49] = f32::NAN;
        let mut c = vec![0.0; m * n];
        gemm_bf16(
            m,
            &a,
            k,
            &PackedBf16::new(Matrix::row_major(&b, n), k, n),
            &mut c,
            n,
            &Epilogue::default(),
        );
        for (i, x) in c.iter().enumerate() {
            let (row, what) = (i / n, format!("{level:?} {instructions:?}: element {i} is {x}"));
            match row {
                3 => assert!(x.is_infinite(), "{what}"),
                18 => assert!(x.is_nan(), "{what}"),
                _ => assert!(x.is_finite(), "{what}"),
            }
        }
    });
}
