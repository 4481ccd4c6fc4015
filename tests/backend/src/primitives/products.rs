//! Matrix products.

use super::{assert_close, counting, has, read, tensor};
use kiln_tensor::DType;
use kiln_tensor::TensorData;
use kiln_tensor::backend::{Backend, Primitive, SliceRange};
use kiln_tensor::compose;

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
                    TensorData::new(
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

/// Groups of many rows, of one and of none, rows behind the last group, few rows, ends beyond all rows, weights that lie column by column, rows that are a
/// part of others, and what is not a number in rows of other groups.
pub fn groups<B: Backend>() {
    let divisions: [(usize, [i64; 5]); 7] = [
        (41, [0, 30, 31, 31, 38]),
        (41, [41, 41, 41, 41, 41]),
        (41, [0, 0, 0, 0, 0]),
        (41, [7, 14, 21, 28, 41]),
        (41, [-3, 30, 31, 60, 99]),
        (5, [0, 2, 2, 3, 4]),
        (1, [0, 0, 1, 1, 1]),
    ];
    for ((rows, ends), (depth, columns)) in divisions
        .into_iter()
        .flat_map(|of| [(3, 4), (40, 33), (16, 24), (1, 1), (0, 2)].map(|size| (of, size)))
    {
        let (x, weight) = (values(rows * depth, 1), values(5 * depth * columns, 2));
        let mut expected = vec![0.0; rows * columns];
        let mut start = 0;
        for (group, end) in ends.map(|end| end.clamp(0, rows as i64) as usize).into_iter().enumerate() {
            let matrix = &weight[group * depth * columns..(group + 1) * depth * columns];
            let product = naive(&x[start * depth..end * depth], matrix, [end - start, depth, columns]);
            expected[start * columns..end * columns].copy_from_slice(&product);
            start = end;
        }
        let ends = || tensor::<B, i64>(&ends, &[5]);
        let x = || tensor::<B, f32>(&x, &[rows, depth]);
        // The same rows, each followed by others' elements.
        let wide = B::cat(&[x(), x()], 1);
        let part = SliceRange { start: 0, end: depth, step: 1 };
        let part = B::slice(wide, &[SliceRange::full(rows), part]);
        let plain = tensor::<B, f32>(&weight, &[5, depth, columns]);
        // The same weight, with its columns one after another.
        let turned = B::permute(plain.clone(), &[0, 2, 1]);
        let turned = B::from_data(B::into_data(turned).expect("a device"), &B::Device::default());
        for (x, weight) in [(x(), plain.clone()), (part, B::permute(turned, &[0, 2, 1]))] {
            let product = B::grouped_matmul(x, weight, ends());
            assert_eq!(product.shape().dims, [rows, columns]);
            assert_close(&read::<B, f32>(product), &expected, 1e-4);
        }
        let gradient = || tensor::<B, f32>(&values(rows * columns, 3), &[rows, columns]);
        let own = B::grouped_matmul_weight_gradient(gradient(), x(), ends());
        let composed = compose::grouped_matmul_weight_gradient::<B>(gradient(), x(), ends());
        assert_eq!(own.shape().dims, [5, depth, columns]);
        assert_close(&read::<B, f32>(own), &read::<B, f32>(composed), 1e-4);
        for dtype in [DType::F16, DType::BF16, DType::F64].into_iter().filter(|&dtype| has::<B>(dtype)) {
            let product = B::grouped_matmul(B::cast(x(), dtype), B::cast(plain.clone(), dtype), ends());
            assert_eq!(product.dtype(), dtype);
            let tolerance = if dtype == DType::F64 { 1e-4 } else { 0.2 };
            assert_close(&read::<B, f32>(B::cast(product, DType::F32)), &expected, tolerance);
        }
    }
    let nothing = B::grouped_matmul(
        tensor::<B, f32>(&[1.0, 2.0], &[2, 1]),
        tensor::<B, f32>(&[], &[0, 1, 3]),
        tensor::<B, i64>(&[], &[0]),
    );
    assert_eq!(read::<B, f32>(nothing), [0.0; 6]);
    let spoilt = B::from_data(TensorData::new(vec![f32::NAN, 2.0], [2, 1]), &B::Device::default());
    let ends = tensor::<B, i64>(&[1, 2], &[2]);
    let product = B::grouped_matmul(spoilt.clone(), tensor::<B, f32>(&[1.0, 3.0], &[2, 1, 1]), ends.clone());
    let product = read::<B, f32>(product);
    assert!(product[0].is_nan() && product[1] == 6.0, "{product:?}");
    let own = read::<B, f32>(B::grouped_matmul_weight_gradient(spoilt.clone(), spoilt, ends));
    assert!(own[0].is_nan() && own[1] == 4.0, "{own:?}");
}

/// Few rows and many, of one number and of none, in batches and in views, and rows that are far from the origin.
pub fn distances<B: Backend>() {
    for [lead, m, n, k] in [
        [1, 1, 1, 1],
        [1, 3, 40, 5],
        [2, 9, 35, 17],
        [1, 70, 20, 3],
        [3, 2, 0, 4],
        [1, 8, 2, 0],
        [1, 0, 3, 2],
    ] {
        let (a, b) = (values(lead * m * k, 1), values(lead * n * k, 2));
        let expected: Vec<f32> = (0..lead * m * n)
            .map(|place| {
                let (row, column) = (place / n, place / (m * n) * n + place % n);
                let pairs = a[row * k..][..k].iter().zip(&b[column * k..][..k]);
                pairs.map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>() as f32
            })
            .collect();
        let (x, y) = (tensor::<B, f32>(&a, &[lead, m, k]), tensor::<B, f32>(&b, &[lead, n, k]));
        let own = B::squared_distances(x.clone(), y.clone());
        assert_eq!(own.shape().dims, [lead, m, n]);
        assert_close(&read::<B, f32>(own), &expected, 1e-5);
        // The same rows, each followed by others' elements.
        let wide = B::cat(&[x.clone(), x.clone()], 2);
        let part = SliceRange { start: 0, end: k, step: 1 };
        let part = B::slice(wide, &[SliceRange::full(lead), SliceRange::full(m), part]);
        assert_close(&read::<B, f32>(B::squared_distances(part, y.clone())), &expected, 1e-5);
        for dtype in [DType::F16, DType::BF16, DType::F64].into_iter().filter(|&dtype| has::<B>(dtype)) {
            let own = B::squared_distances(B::cast(x.clone(), dtype), B::cast(y.clone(), dtype));
            assert_eq!(own.dtype(), dtype);
            let tolerance = if dtype == DType::F64 { 1e-5 } else { 0.1 };
            assert_close(&read::<B, f32>(B::cast(own, DType::F32)), &expected, tolerance);
        }
    }
    let far: Vec<f32> = (0..10u8).map(|n| 4096.0 + f32::from(n) / 64.0).collect();
    let far = tensor::<B, f32>(&far, &[10, 1]);
    let own = read::<B, f32>(B::squared_distances(far.clone(), far));
    assert_eq!(own[..3], [0.0, 1.0 / 4096.0, 4.0 / 4096.0]);
}
