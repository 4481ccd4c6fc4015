//! Products of awkward sizes against f64, at every level.

use super::{
    Bias, Epilogue, Lhs, Matrix, PackedLhs, PackedRhs, Rhs, deep, gemm, gemm_batched, gemm_generic,
    pack_lhs_into, packed_product,
};
use crate::elementwise::activation_of;
use crate::scratch::with_scratch;
use crate::simd::forced::at_each_level;
use kiln_types::Activation;

/// Numbers between -1 and 1 that look random.
pub(crate) fn noise(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as f32 / u32::MAX as f32 * 2.0 - 1.0
        })
        .collect()
}

fn expected(
    m: usize,
    n: usize,
    k: usize,
    a: Matrix<'_>,
    b: Matrix<'_>,
    e: &Epilogue<'_>,
    step: usize,
) -> Vec<f32> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            let sum: f64 = (0..k).map(|l| f64::from(a.at(i, l)) * f64::from(b.at(l, j))).sum();
            let bias = match e.bias {
                Bias::None => 0.0,
                Bias::PerRow(bias) => bias[i],
                Bias::PerColumn(bias) => bias[j],
            };
            let x = sum as f32 + bias + e.residual.map_or(0.0, |r| r[i * step + j]);
            c[i * n + j] = e.activation.map_or(x, |activation| activation_of(activation, x));
        }
    }
    c
}

fn assert_close(got: &[f32], step: usize, want: &[f32], n: usize, what: &str) {
    for (i, want) in want.iter().enumerate() {
        let got = got[i / n * step + i % n];
        assert!((got - want).abs() <= 1e-4 * (1.0 + want.abs()), "{what}: element {i} is {got}, not {want}");
    }
}

const SIZES: &[(usize, usize, usize)] = &[
    (1, 1, 1),
    (1, 7, 5),
    (1, 100, 33),
    (2, 3, 4),
    (5, 1, 9),
    (70, 1, 65),
    (3, 17, 8),
    (13, 31, 300),
    (14, 32, 256),
    (15, 33, 257),
    (29, 16, 12),
    (31, 49, 64),
    (64, 100, 70),
    (43, 129, 513),
    (3, 5, 0),
    (0, 4, 3),
    (600, 40, 300),
    (57, 24, 40),
    (33, 8, 70),
    (45, 55, 30),
];

#[test]
fn products_of_all_layouts_are_right() {
    at_each_level(|level| {
        for &(m, n, k) in SIZES {
            let (a, b) = (noise(m * k, 1), noise(k * n, 2));
            for layout in 0..4 {
                let what = format!("{level:?} {m}x{n}x{k} layout {layout}");
                let row = Matrix { data: &a[..], row_stride: k, col_stride: 1 };
                let col = Matrix { data: &a[..], row_stride: 1, col_stride: m };
                let a = if layout % 2 == 0 { row } else { col };
                let row = Matrix { data: &b[..], row_stride: n, col_stride: 1 };
                let col = Matrix { data: &b[..], row_stride: 1, col_stride: k };
                let b = if layout / 2 == 0 { row } else { col };
                let step = n + layout;
                let mut c = vec![9.0; m * step];
                let none = Epilogue::default();
                let want = expected(m, n, k, a, b, &none, step);
                gemm(m, n, k, Lhs::Plain(a), Rhs::Plain(b), &mut c, step, &none);
                assert_close(&c, step, &want, n, &what);
                assert!(
                    (0..m * step).all(|i| i % step < n || c[i] == 9.0),
                    "{what} wrote beyond its columns"
                );
                let (pa, pb) = (PackedLhs::new(a, m, k), PackedRhs::new(b, k, n));
                for (a, b) in [
                    (Lhs::Packed(&pa), Rhs::Plain(b)),
                    (Lhs::Plain(a), Rhs::Packed(&pb)),
                    (Lhs::Packed(&pa), Rhs::Packed(&pb)),
                ] {
                    c.fill(0.0);
                    gemm(m, n, k, a, b, &mut c, step, &none);
                    assert_close(&c, step, &want, n, &what);
                }
            }
        }
    });
}

#[test]
fn epilogues_are_applied_once_and_in_order() {
    let activations = [
        None,
        Some(Activation::Relu),
        Some(Activation::Clamp { min: -0.5, max: 0.5 }),
        Some(Activation::Gelu),
    ];
    at_each_level(|level| {
        for &(m, n, k) in &[(1, 40, 20), (40, 1, 20), (33, 47, 300), (30, 24, 20), (90, 55, 20), (3, 5, 0)] {
            let (a, b, residual) = (noise(m * k, 1), noise(k * n, 2), noise(m * n, 3));
            let (rows, cols) = (noise(m, 4), noise(n, 5));
            let (a, b) = (Matrix::row_major(&a, k), Matrix::row_major(&b, n));
            for bias in [Bias::None, Bias::PerRow(&rows), Bias::PerColumn(&cols)] {
                for activation in activations {
                    for residual in [None, Some(&residual[..])] {
                        let epilogue = Epilogue { bias, residual, activation };
                        let mut c = vec![7.0; m * n];
                        gemm(m, n, k, Lhs::Plain(a), Rhs::Plain(b), &mut c, n, &epilogue);
                        let want = expected(m, n, k, a, b, &epilogue, n);
                        assert_close(&c, n, &want, n, &format!("{level:?} {m}x{n}x{k} {epilogue:?}"));
                    }
                }
            }
        }
    });
}

#[test]
fn threads_and_batches_change_nothing() {
    let (m, n, k) = (130, 300, 200);
    let (a, b) = (noise(3 * m * k, 1), noise(2 * k * n, 2));
    let (a, b) = (Matrix::row_major(&a, k), Matrix::row_major(&b, n));
    let offsets = [[0, 0], [m * k, 0], [2 * m * k, k * n]];
    let mut c = vec![0.0; 3 * m * n];
    gemm_batched(m, n, k, a, b, &offsets, &mut c);
    for (i, [oa, ob]) in offsets.into_iter().enumerate() {
        let (a, b) = (Matrix { data: &a.data[oa..], ..a }, Matrix { data: &b.data[ob..], ..b });
        let want = expected(m, n, k, a, b, &Epilogue::default(), n);
        assert_close(&c[i * m * n..], n, &want, n, "batch");
    }
    // Few columns and many rows, so that rows are shared out.
    let (m, n, k) = (5000, 20, 64);
    let (a, b) = (noise(m * k, 1), noise(k * n, 2));
    let (a, b) = (Matrix::row_major(&a, k), Matrix::row_major(&b, n));
    let mut c = vec![0.0; m * n];
    gemm(m, n, k, Lhs::Plain(a), Rhs::Plain(b), &mut c, n, &Epilogue::default());
    assert_close(&c, n, &expected(m, n, k, a, b, &Epilogue::default(), n), n, "tall");
}

#[test]
fn other_element_types_multiply_exactly() {
    let a: Vec<i32> = (0..6).collect();
    let b: Vec<i32> = (0..12).map(|x| x - 5).collect();
    let mut c = vec![0; 8];
    gemm_generic(2, 4, 3, Matrix::row_major(&a, 3), Matrix::row_major(&b, 4), &mut c);
    assert_eq!(c, [5, 8, 11, 14, -4, 8, 20, 32]);
    let mut bytes = vec![0u8; 1];
    gemm_generic(1, 1, 2, Matrix::row_major(&[200, 100], 2), Matrix::row_major(&[2, 2], 1), &mut bytes);
    assert_eq!(bytes, [(600 % 256) as u8]);
}

/// Sizes around those of blocks and of steps that are added at once, rows and columns that lie apart.
#[test]
fn other_element_types_multiply_by_blocks() {
    let test = |level: &str| {
        for (m, n, k) in [(1, 1, 1), (1, 600, 70), (9, 513, 66), (17, 3, 200), (2, 5, 0)] {
            let number = |at: usize| ((at * 37) % 101) as f64 / 8.0 - 6.0;
            let (a, b): (Vec<f64>, Vec<f64>) =
                ((0..m * k).map(number).collect(), (0..k * n).map(|at| number(at + 7)).collect());
            // The same matrices with columns side by side.
            let turned = |x: &[f64], rows: usize, cols: usize| -> Vec<f64> {
                (0..rows * cols).map(|at| x[at % rows * cols + at / rows]).collect()
            };
            let (a_turned, b_turned) = (turned(&a, m, k), turned(&b, k, n));
            let columns = |data, step| Matrix { data, row_stride: 1, col_stride: step };
            for (a_view, b_view) in [
                (Matrix::row_major(&a[..], k), Matrix::row_major(&b[..], n)),
                (columns(&a_turned[..], m), Matrix::row_major(&b[..], n)),
                (Matrix::row_major(&a[..], k), columns(&b_turned[..], k)),
            ] {
                let mut c = vec![f64::NAN; m * n];
                gemm_generic(m, n, k, a_view, b_view, &mut c);
                for (at, &sum) in c.iter().enumerate() {
                    let wanted: f64 = (0..k).map(|l| a[at / n * k + l] * b[l * n + at % n]).sum();
                    assert_eq!(sum, wanted, "{level}: {m} x {n} x {k} at {at}");
                }
            }
        }
    };
    test("on all threads");
    at_each_level(|level| test(&format!("{level:?}")));
}

#[test]
#[should_panic(expected = "left operand")]
fn a_short_operand_is_refused() {
    let mut c = [0.0; 4];
    let (a, b) = ([0.0; 3], [0.0; 4]);
    let (a, b) = (Matrix::row_major(&a, 2), Matrix::row_major(&b, 2));
    gemm(2, 2, 2, Lhs::Plain(a), Rhs::Plain(b), &mut c, 2, &Epilogue::default());
}

/// Sizes whose product wraps, of operands that hold one element for all places: what they would take is asked for nowhere.
#[test]
fn sizes_that_wrap_are_refused() {
    use crate::gemm::{PackedBf16, gemm_bf16};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let number = [1.0; 16];
    let everywhere = Matrix { data: &number[..], row_stride: 0, col_stride: 0 };
    let refused = |name: &str, body: &mut dyn FnMut()| {
        assert!(catch_unwind(AssertUnwindSafe(body)).is_err(), "{name} is not refused");
    };
    refused("a packed right side", &mut || {
        drop(PackedRhs::new(Matrix { col_stride: 1, ..everywhere }, 1 << 60, 16));
    });
    refused("a plain left side", &mut || {
        let (m, k) = (1 << 20, 1 << 44);
        let mut c = vec![0.0; m];
        gemm(m, 1, k, Lhs::Plain(everywhere), Rhs::Plain(everywhere), &mut c, 1, &Epilogue::default());
    });
    let b = noise(4 * 32, 1);
    let b = PackedBf16::new(Matrix::row_major(&b, 32), 4, 32);
    refused("rows of C that wrap", &mut || {
        let mut c = vec![0.0; 64];
        gemm_bf16(2, &[1.0; 8], 4, &b, &mut c, usize::MAX - 31, &Epilogue::default());
    });
}

/// The product of a few rows and columns, term after term in f64.
fn plain(size: [usize; 3], a: Matrix<'_>, b: Matrix<'_>) -> Vec<f64> {
    let [m, n, k] = size;
    let element = |i: usize| (0..k).map(move |p| f64::from(a.at(i / n, p)) * f64::from(b.at(p, i % n))).sum();
    (0..m * n).map(element).collect()
}

/// Both ways, to the bit: blocks of the depth added up, and one after another.
#[test]
fn deep_products_are_those_of_blocks_in_their_order() {
    at_each_level(|_| {
        for [m, n, k] in [[16, 16, 1601], [32, 32, 4001], [17, 45, 2000], [64, 64, 1537]] {
            let (a, b) = (noise(m * k, 1), noise(k * n, 2));
            for (a, b) in [
                (Matrix { data: &a, row_stride: 1, col_stride: m }, Matrix::row_major(&b, n)),
                (Matrix::row_major(&a, k), Matrix { data: &b, row_stride: 1, col_stride: k }),
            ] {
                assert!(deep::suits(m, n, k));
                let (mut got, mut blocked) = (vec![7.0; m * (n + 1)], vec![7.0; m * n]);
                gemm(m, n, k, Lhs::Plain(a), Rhs::Plain(b), &mut got, n + 1, &Epilogue::default());
                with_scratch(m * k, |packed| {
                    pack_lhs_into(a, m, k, packed);
                    packed_product(m, n, k, packed, b, &mut blocked, n);
                });
                let want = plain([m, n, k], a, b);
                for (i, (blocked, want)) in blocked.iter().zip(want).enumerate() {
                    let got = got[i / n * (n + 1) + i % n];
                    assert_eq!(got.to_bits(), blocked.to_bits(), "{m} x {n} x {k} at {i}");
                    assert!(
                        (f64::from(got) - want).abs() < 1e-3,
                        "{m} x {n} x {k} at {i}: {got}, not {want}"
                    );
                }
                assert!(got.chunks(n + 1).all(|row| row[n] == 7.0), "beside the result");
            }
        }
    });
}

/// Batches of small matrices in all orders of memory.
#[test]
fn small_products_are_those_of_the_definition() {
    at_each_level(|_| {
        for [m, n, k] in [[2, 2, 1], [3, 5, 7], [8, 8, 8], [16, 16, 16], [15, 9, 4], [5, 16, 2], [9, 3, 16]] {
            let offsets: Vec<[usize; 2]> = (0..11).map(|i| [i * m * k, i % 3 * k * n]).collect();
            let (a, b) = (noise(11 * m * k, 3), noise(3 * k * n, 4));
            let rows = (Matrix::row_major(&a, k), Matrix::row_major(&b, n));
            let columns = (
                Matrix { data: &a, row_stride: 1, col_stride: m },
                Matrix { data: &b, row_stride: 1, col_stride: k },
            );
            for (a, b) in [rows, columns] {
                let mut got = vec![7.0; 11 * m * n];
                gemm_batched(m, n, k, a, b, &offsets, &mut got);
                for (&[at_a, at_b], got) in offsets.iter().zip(got.chunks(m * n)) {
                    let a = Matrix { data: &a.data[at_a..], ..a };
                    let b = Matrix { data: &b.data[at_b..], ..b };
                    for (got, want) in got.iter().zip(plain([m, n, k], a, b)) {
                        assert!((f64::from(*got) - want).abs() < 1e-5, "{m} x {n} x {k}: {got}, not {want}");
                    }
                }
            }
        }
    });
}
