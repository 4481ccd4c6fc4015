//! Decompositions of matrices: their parts make the matrices, and are what they are called.

use crate::primitives::products::values;
use crate::supported;
use kiln_tensor::backend::Backend;
use kiln_tensor::linalg::{
    Columns, Diagonal, Triangle, cholesky, cholesky_inverse, cholesky_solve, eigh, householder_product,
    lu_factor, matrix_exp, pivoted_order, qr, solve_triangular, svd,
};
use kiln_tensor::{BasicOps, DType, Tensor, TensorData, ToElement};

/// Two matrices of a size each, in all dtypes that are computed with.
fn each<B: Backend>(sizes: &[[usize; 2]], test: impl Fn(Tensor<B, 3>)) {
    for dtype in supported::<B>().filter(|dtype| matches!(dtype, DType::F32 | DType::F64)) {
        for (seed, &[rows, columns]) in (1..).zip(sizes) {
            let numbers = TensorData::new(values(2 * rows * columns, seed), [2, rows, columns]);
            test(Tensor::<B, 3>::from_data_dtype(numbers, &B::Device::default(), dtype));
        }
    }
}

const SQUARES: [[usize; 2]; 5] = [[1, 1], [2, 2], [3, 3], [4, 4], [9, 9]];
const RECTANGLES: [[usize; 2]; 7] = [[1, 1], [3, 3], [6, 4], [4, 7], [1, 5], [5, 1], [20, 9]];

fn turned<B: Backend, K: BasicOps<B>>(matrices: Tensor<B, 3, K>) -> Tensor<B, 3, K> {
    matrices.swap_dims(1, 2)
}

fn identity<B: Backend>(like: &Tensor<B, 3>, size: usize) -> Tensor<B, 3> {
    let [count, ..] = like.dims();
    Tensor::<B, 2>::eye_with([size, size], 0, like.dtype(), &like.device())
        .unsqueeze::<3>()
        .expand([count, size, size])
}

/// Positive definite ones.
fn definite<B: Backend>(some: Tensor<B, 3>) -> Tensor<B, 3> {
    let size = some.dims()[1];
    some.clone().matmul(turned(some.clone())) + identity(&some, size)
}

/// Asserts that elements differ by no more than what rounding a few dozen times leaves, beside the largest.
#[track_caller]
fn equal<B: Backend>(actual: Tensor<B, 3>, expected: Tensor<B, 3>) {
    assert_eq!((actual.dims(), actual.dtype()), (expected.dims(), expected.dtype()));
    let precision = if actual.dtype() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let largest = |x: Tensor<B, 3>| x.abs().max().into_scalar().to_f64();
    let rows = actual.dims()[1];
    let differs = largest(actual - expected.clone());
    assert!(differs <= (64 + 4 * rows) as f64 * precision * largest(expected).max(1.0), "{differs}");
}

#[track_caller]
fn orthonormal<B: Backend>(columns: Tensor<B, 3>) {
    let count = columns.dims()[2];
    if count == 0 {
        return;
    }
    equal(turned(columns.clone()).matmul(columns.clone()), identity(&columns, count));
}

pub fn triangular_systems<B: Backend>() {
    each::<B>(&SQUARES, |a| {
        let size = a.dims()[1];
        let a = a.clone() + identity(&a, size) * 2.0;
        let unit = a.clone().tril(-1) + identity(&a, size);
        let right = a.clone().narrow(2, 0, size.div_ceil(2)) + 1.0;
        // What is not read is no number.
        let above = a.ones_like().triu(1).greater_elem(0.5);
        let lower = a.clone().mask_fill(above.clone(), f64::NAN);
        let x = solve_triangular(lower.clone(), right.clone(), Triangle::Lower, Diagonal::Given);
        equal(a.clone().tril(0).matmul(x), right.clone());
        let x = solve_triangular(turned(lower.clone()), right.clone(), Triangle::Upper, Diagonal::Given);
        equal(turned(a.clone().tril(0)).matmul(x), right.clone());
        let x = solve_triangular(lower, right.clone(), Triangle::Lower, Diagonal::Unit);
        equal(unit.matmul(x), right.clone());
        // One matrix for all right sides, and all of them for one.
        let one = a.tril(0).narrow(0, 0, 1);
        let x = solve_triangular(one.clone(), right.clone(), Triangle::Lower, Diagonal::Given);
        equal(one.matmul(x), right);
    });
}

/// Matrices of no rows have as many columns as they had.
pub fn nothing<B: Backend>() {
    let device = B::Device::default();
    let [empty, right] = [[2, 0, 0], [2, 0, 3]].map(|dims| Tensor::<B, 3>::zeros(dims, &device));
    let x = solve_triangular(empty.clone(), right, Triangle::Lower, Diagonal::Given);
    assert_eq!(x.dims(), [2, 0, 3]);
    assert_eq!(cholesky(empty.clone()).dims(), [2, 0, 0]);
    assert_eq!(matrix_exp(empty.clone()).dims(), [2, 0, 0]);
    let (values, vectors) = eigh(empty.clone(), Triangle::Lower);
    assert_eq!((values.dims(), vectors.dims()), ([2, 1, 0], [2, 0, 0]));
    let (lu, pivots) = lu_factor(empty);
    assert_eq!((lu.dims(), pivots.dims()), ([2, 0, 0], [2, 1, 0]));
    for [rows, columns] in [[3, 0], [0, 3]] {
        let matrices = Tensor::<B, 3>::zeros([2, rows, columns], &device);
        let (q, r) = qr(matrices.clone(), Columns::Complete);
        assert_eq!((q.dims(), r.dims()), ([2, rows, rows], [2, rows, columns]));
        orthonormal(q.cast(DType::F32));
        let (u, values, vt) = svd(matrices, Columns::Complete);
        assert_eq!((u.dims(), values.dims()), ([2, rows, rows], [2, 1, 0]));
        assert_eq!(vt.dims(), [2, columns, columns]);
    }
}

pub fn cholesky_factors<B: Backend>() {
    each::<B>(&SQUARES, |some| {
        let size = some.dims()[1];
        let matrices = definite(some);
        let above = matrices.ones_like().triu(1).greater_elem(0.5);
        let l = cholesky(matrices.clone().mask_fill(above, f64::NAN));
        equal(l.clone(), l.clone().tril(0));
        equal(l.clone().matmul(turned(l.clone())), matrices.clone());
        let right = matrices.clone().narrow(2, 0, 1);
        for (factors, triangle) in [(l.clone(), Triangle::Lower), (turned(l), Triangle::Upper)] {
            let x = cholesky_solve(factors.clone(), right.clone(), triangle);
            equal(matrices.clone().matmul(x), right.clone());
            let inverse = cholesky_inverse(factors, triangle);
            equal(matrices.clone().matmul(inverse), identity(&matrices, size));
        }
    });
    let not_definite = Tensor::<B, 2>::eye(2, &B::Device::default()).neg();
    assert!(cholesky(not_definite).into_data().iter::<f64>().any(f64::is_nan));
}

pub fn orthogonal_factors<B: Backend>() {
    each::<B>(&RECTANGLES, |some| {
        let [_, rows, columns] = some.dims();
        let few = rows.min(columns);
        // Columns that have nothing to be reflected, some that are equal, and some that are nothing.
        let flat = some.clone().triu(0);
        let same = some.zeros_like() + some.clone().narrow(2, 0, 1);
        let matrices = Tensor::cat(vec![some.clone(), flat, same, some.zeros_like()], 0);
        for (kind, height) in [(Columns::Reduced, few), (Columns::Complete, rows)] {
            let (q, r) = qr(matrices.clone(), kind);
            assert_eq!((q.dims(), r.dims()), ([8, rows, height], [8, height, columns]));
            orthonormal(q.clone());
            equal(r.clone(), r.clone().triu(0));
            equal(q.matmul(r), matrices.clone());
        }
    });
    // As LAPACK has it: the first column is reflected to what has the other sign, the last one is not.
    let device = B::Device::default();
    let (q, r) = qr(Tensor::<B, 2>::from_data([[3.0, 1.0], [4.0, 2.0]], &device), Columns::Reduced);
    super::close(r, [[-5.0f32, -2.2], [0.0, 0.4]]);
    super::close(q, [[-0.6f32, -0.8], [-0.8, 0.6]]);
    // `I - 1.6 v vᵀ` with the vector (1, 0.5), and then nothing.
    let vectors = Tensor::<B, 2>::from_data([[9.0, 9.0], [0.5, 9.0]], &device);
    let q = householder_product(vectors, Tensor::<B, 1>::from_data([1.6, 0.0], &device));
    super::close(q, [[-0.6f32, -0.8], [-0.8, 0.6]]);
}

pub fn pivots<B: Backend>() {
    each::<B>(&RECTANGLES, |matrices| {
        let [_, rows, columns] = matrices.dims();
        let few = rows.min(columns);
        for matrices in [matrices.clone(), matrices.zeros_like() + matrices.narrow(2, 0, 1)] {
            let (lu, pivots) = lu_factor(matrices.clone());
            assert_eq!(pivots.dims(), [2, 1, few]);
            let order = turned(pivoted_order(pivots, rows)).expand([2, rows, columns]);
            let l = lu.clone().tril(-1).narrow(2, 0, few);
            assert!(l.clone().abs().max().into_scalar().to_f64() <= 1.0);
            let ones = Tensor::<B, 2>::eye_with([rows, few], 0, l.dtype(), &l.device()).unsqueeze::<3>();
            equal((l + ones).matmul(lu.triu(0).narrow(1, 0, few)), matrices.gather(1, order));
        }
    });
    let matrix = Tensor::<B, 2>::from_data([[1.0, 2.0], [4.0, 6.0]], &B::Device::default());
    let (lu, pivots) = lu_factor(matrix);
    super::close(lu, [[4.0f32, 6.0], [0.25, 0.5]]);
    super::same(pivots.clone(), [[1, 1]]);
    super::same(pivoted_order(pivots, 3), [[1, 0, 2]]);
}

pub fn eigenvalues<B: Backend>() {
    each::<B>(&[[1, 1], [3, 3], [6, 6]], |some| {
        let size = some.dims()[1];
        let symmetric = some.clone() + turned(some.clone());
        // Values that several have, and none but 0.
        let projection = some.clone().narrow(2, 0, 1).matmul(turned(some.clone().narrow(2, 0, 1)));
        let kinds = vec![symmetric, projection, some.zeros_like(), identity(&some, size)];
        let matrices = Tensor::cat(kinds, 0);
        // Squares of what is small vanish.
        for (triangle, scale) in [(Triangle::Lower, 1.0), (Triangle::Lower, 1e-25), (Triangle::Upper, 1.0)] {
            let hidden = match triangle {
                Triangle::Lower => matrices.ones_like().triu(1),
                Triangle::Upper => matrices.ones_like().tril(-1),
            };
            let read = (matrices.clone() * scale).mask_fill(hidden.greater_elem(0.5), f64::NAN);
            let (values, vectors) = eigh(read, triangle);
            orthonormal(vectors.clone());
            let values = values / scale;
            equal(vectors.clone() * values.clone(), matrices.clone().matmul(vectors));
            let sorted: Vec<f64> = values.into_data().iter().collect();
            assert!(sorted.chunks(size).all(|row| row.is_sorted()), "{sorted:?}");
        }
    });
}

pub fn singular_values<B: Backend>() {
    each::<B>(&[[3, 3], [6, 4], [4, 7], [1, 5]], |some| {
        let [_, rows, columns] = some.dims();
        let few = rows.min(columns);
        let of_rank_one = some.clone().narrow(2, 0, 1).matmul(some.clone().narrow(1, 0, 1));
        let matrices = Tensor::cat(vec![some.clone(), of_rank_one, some.zeros_like()], 0);
        // Squares of what is small vanish.
        for (kind, scale) in [(Columns::Reduced, 1.0), (Columns::Complete, 1.0), (Columns::Reduced, 1e-25)] {
            let (u, values, vt) = svd(matrices.clone() * scale, kind);
            let values = values / scale;
            let [height, width] = if kind == Columns::Complete { [rows, columns] } else { [few; 2] };
            assert_eq!((u.dims(), vt.dims()), ([6, rows, height], [6, width, columns]));
            orthonormal(u.clone());
            orthonormal(turned(vt.clone()));
            let product = (u.narrow(2, 0, few) * values.clone()).matmul(vt.narrow(1, 0, few));
            equal(product, matrices.clone());
            let sorted: Vec<f64> = values.into_data().iter().collect();
            let falls = |row: &[f64]| row.iter().rev().is_sorted() && row.iter().all(|&value| value >= 0.0);
            assert!(sorted.chunks(few).all(falls), "{sorted:?}");
        }
    });
}

pub fn exponentials<B: Backend>() {
    each::<B>(&SQUARES, |some| {
        let size = some.dims()[1];
        let eye = identity(&some, size);
        equal(matrix_exp(some.zeros_like()), eye.clone());
        // The exponential of a skew matrix turns, however large it is, and that of the other sign turns back.
        for scale in [0.01_f64, 1.0, 30.0] {
            let skew = (some.clone() - turned(some.clone())) * scale;
            let [there, back] = [skew.clone(), skew.neg()].map(matrix_exp);
            // Errors of the angles are those of the numbers.
            let rough = |x: Tensor<B, 3>| (x / scale.max(1.0)).cast(some.dtype());
            equal(rough(there.matmul(back)), rough(eye.clone()));
        }
        let logarithms = some.narrow(1, 0, 1) * 3.0;
        equal(matrix_exp(eye.clone() * logarithms.clone()), eye * logarithms.exp());
    });
    let device = B::Device::default();
    let shear = Tensor::<B, 2>::from_data([[0.0, 5.0], [0.0, 0.0]], &device);
    super::close(matrix_exp(shear), [[1.0f32, 5.0], [0.0, 1.0]]);
}
