//! Matrix products.

use super::{assert_close, counting, has, read, tensor};
use kiln_tensor::DType;
use kiln_tensor::backend::{Backend, Primitive};

/// Deterministic values in `[-1, 1)`.
pub fn values(n: usize, seed: u32) -> Vec<f32> {
    let mut x = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

pub fn naive(a: &[f32], b: &[f32], [m, k, n]: [usize; 3]) -> Vec<f32> {
    let element =
        |i: usize, j: usize| (0..k).map(|l| f64::from(a[i * k + l]) * f64::from(b[l * n + j])).sum::<f64>();
    (0..m * n).map(|i| element(i / n, i % n) as f32).collect()
}

pub fn matrices<B: Backend>() {
    for [m, k, n] in [[1, 1, 1], [2, 3, 4], [1, 100, 7], [33, 17, 65], [5, 0, 3], [70, 300, 50], [64, 64, 1]]
    {
        let (a, b) = (values(m * k, 1), values(k * n, 2));
        let product = B::matmul(tensor::<B, f32>(&a, &[m, k]), tensor::<B, f32>(&b, &[k, n]));
        assert_eq!(product.shape().dims, [m, n]);
        assert_close(&read::<B, f32>(product), &naive(&a, &b, [m, k, n]), 1e-4);
        // The same from transposed views.
        let turn = |x: &[f32], rows: usize, columns: usize| {
            B::permute(
                B::from_data(
                    kiln_tensor::TensorData::new(
                        (0..x.len()).map(|i| x[i % rows * columns + i / rows]).collect::<Vec<f32>>(),
                        [columns, rows],
                    ),
                    &B::Device::default(),
                ),
                &[1, 0],
            )
        };
        let product = B::matmul(turn(&a, m, k), turn(&b, k, n));
        assert_close(&read::<B, f32>(product), &naive(&a, &b, [m, k, n]), 1e-4);
    }
}

pub fn batches<B: Backend>() {
    let product = B::matmul(counting::<B>(&[2, 1, 1, 2]), counting::<B>(&[1, 3, 2, 1]));
    assert_eq!(product.shape().dims, [2, 3, 1, 1]);
    assert_eq!(read::<B, f32>(product), [1., 3., 5., 3., 13., 23.]);
    let heads = B::permute(counting::<B>(&[1, 2, 2, 2]), &[0, 2, 1, 3]);
    let scores = B::matmul(heads.clone(), B::permute(heads, &[0, 1, 3, 2]));
    assert_eq!(read::<B, f32>(scores), [1., 5., 5., 41., 13., 33., 33., 85.]);
    let shared = B::matmul(counting::<B>(&[3, 2, 2]), counting::<B>(&[1, 2, 2]));
    assert_eq!(read::<B, f32>(shared), [2., 3., 6., 11., 10., 19., 14., 27., 18., 35., 22., 43.]);
}

pub fn integers<B: Backend>() {
    let product =
        B::matmul(tensor::<B, i64>(&[1, 2, 3, 4], &[2, 2]), tensor::<B, i64>(&[5, 6, 7, 8], &[2, 2]));
    assert_eq!(read::<B, i64>(product), [19, 22, 43, 50]);
    if has::<B>(DType::U8) {
        let product = B::matmul(tensor::<B, u8>(&[16, 16], &[1, 2]), tensor::<B, u8>(&[16, 1], &[2, 1]));
        assert_eq!(read::<B, u8>(product), [16]);
    }
    if !has::<B>(DType::F64) {
        return;
    }
    let product = B::matmul(tensor::<B, f64>(&[0.1, 0.2], &[1, 2]), tensor::<B, f64>(&[3., 4.], &[2, 1]));
    assert_eq!(read::<B, f64>(product), [0.1 * 3. + 0.2 * 4.]);
}
